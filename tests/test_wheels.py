"""`make wheel`: the platform wheel has the compiled rules, the portable wheel has not."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.rulesets import github_token

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_fresh_installation_of_the_platform_wheel_compiles_nothing(tmp_path):
    python = Path(sys.executable)
    command = [python, ROOT / "tools/make-wheels", f"./{python.name}", tmp_path]  # a relative path, as make's
    built = subprocess.run(command, capture_output=True, text=True, check=True, cwd=python.parent)
    portable, own = map(Path, built.stdout.split())
    assert portable.name.endswith("-py3-none-any.whl")
    assert os.uname().machine in own.name
    with zipfile.ZipFile(portable) as archive:
        names = set(archive.namelist())
    assert not any(name.startswith("outcrop/compiled") for name in names)

    # pip checks tags and the list of files with their hashes. The dependencies are those of this environment.
    site, home = tmp_path / "site", tmp_path / "home"
    (tmp_path / "x.txt").write_text(github_token("wheel"))
    home.mkdir()
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        site,
        own,
    ]
    subprocess.run(install, check=True, capture_output=True, cwd=tmp_path)
    with zipfile.ZipFile(own) as archive:
        added = set(archive.namelist()) - names
    assert {name.rpartition(".")[2] for name in added if "compiled" in name} == {"db", "json"}
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site)}  # no home and no cache
    scan = [sys.executable, "-m", "outcrop", "scan", "--no-validate", "--json", tmp_path / "x.txt"]
    before = os.times()
    done = subprocess.run(scan, env=environment, capture_output=True, text=True, check=False, cwd=home)
    spent = os.times()
    assert (done.returncode, done.stderr) == (1, "")
    assert "github_pat_classic" in done.stdout
    # Compiling takes more than 5 s of CPU time, everything else less than 1 s.
    assert spent.children_user - before.children_user < 4
