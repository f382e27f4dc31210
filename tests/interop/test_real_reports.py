"""Import reports that Kingfisher and detect-secrets make of a repository, before and after our own run.

Nothing is doubled and no decision is undone. A baseline of detect-secrets has hashes instead of credentials: its
findings are their own, beside those of a run.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outcrop.scanner.rules.example_templates import expand_template
from tests.interop.node import NotAvailableError, install_python_programs
from tests.support.backend import Tenant
from tests.support.databases import migrated_database
from tests.support.git_host import ENV
from tests.support.pipeline import Repo
from tests.support.rulesets import KEPT_RULES
from tests.support.workers import Deployment, open_deployment

SHOP = "https://git.example/shop.git"
CREDENTIALS = {  # by path: a line with the credential between the marks
    "config/github.env": "GITHUB_TOKEN=«ghp_{{base62 30}}{{crc32_base62}}»",
    "deploy/sendgrid.env": "SENDGRID_API_KEY=«SG.{{base62 22}}.{{base62 43}}»",
    "npm.conf": "//registry.example/:_authToken=«npm_{{base62 30}}{{crc32_base62}}»",
    "src/gitlab.yml": "token: «glpat-{{base62 20}}»",
    "src/pay.py": "STRIPE = '«sk_live_{{base62 24}}»'",
    "src/slack.py": "SLACK = '«xoxb-{{digits 12}}-{{digits 12}}-{{base62 24}}»'",
}
LINES = {path: expand_template(line, path) for path, line in CREDENTIALS.items()}
VALUES = {path: line.partition("«")[2].partition("»")[0] for path, line in LINES.items()}
FILES: dict[str, str | bytes] = {
    path: f"\n\n{line.replace('«', '').replace('»', '')}\n" for path, line in LINES.items()
}


@pytest.fixture(scope="module")
def there(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("there")
    with open_deployment(folder, migrated_database(cluster, "real_reports")) as made:
        yield made


@pytest.fixture(scope="module")
def commit(there: Deployment) -> str:
    """Commit FILES to a repository of the git host, and clone it to the folder `shop`. Return the commit."""
    repo = Repo(there.folder / "repositories/shop.git")
    commit = repo.commit(FILES)
    repo.git("clone", "--quiet", str(repo.path), str(there.folder / "shop"))
    return commit


def _kingfisher(folder: Path) -> str:
    spec = importlib.util.find_spec("kingfisher")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "bin/kingfisher"
    if not program.exists():
        pytest.skip("Kingfisher: its package has no program for this machine")
    # It takes ten seconds to compile its rules, so they are kept beside ours.
    environment = ENV | {"KF_RULE_CACHE_DIR": str(KEPT_RULES.with_name("kingfisher-rules"))}
    options = ("--no-validate", "--no-update-check", "--format", "json", ".")
    return _report(program, "scan", *options, folder=folder, environment=environment, code=200)


def _detect_secrets(folder: Path) -> str:
    options = ("--no-verify", "--all-files")
    return _report(
        sys.executable, "-m", "detect_secrets", "scan", *options, folder=folder, environment=ENV, code=0
    )


def _report(*command: str | Path, folder: Path, environment: dict[str, str], code: int) -> str:
    """Return what a scanner prints in a folder; `code` is its exit status for a scan with findings."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


PROGRAMS: dict[str, Callable[[Path], str]] = {"kingfisher": _kingfisher, "detect-secrets": _detect_secrets}


@pytest.fixture(scope="module")
def reports(there: Deployment, commit: str) -> dict[str, Path]:
    """Scan the repository with every program; return the reports by the name of the program."""
    try:
        install_python_programs()
    except NotAvailableError as error:
        pytest.skip(str(error))
    assert commit
    made = {}
    for name, program in PROGRAMS.items():
        made[name] = there.folder / f"{name}.json"
        made[name].write_text(program(there.folder / "shop"))
    return made


def import_report(there: Deployment, tenant: Tenant, report: Path, commit: str) -> dict[str, int]:
    """Import a report as a user does; return the numbers of its records."""
    arguments = ("--account", tenant.account.slug, "--repo", SHOP, "--commit", commit)
    summary: dict[str, int] = there.outcrop("import", *arguments, str(report))
    return summary


def scan(there: Deployment, tenant: Tenant) -> None:
    run = there.outcrop("scan", "--account", tenant.account.slug, SHOP)
    assert run["status"] == "completed"


def state(tenant: Tenant) -> dict[str, tuple[Any, ...]]:
    """Return of each finding what no report may change."""
    fields = ("status", "resolution_note", "composite_score", "seen_count", "first_seen_at", "file_path")
    data = tenant.get("/findings").raise_for_status().json()["data"]
    return {found["id"]: tuple(found[name] for name in fields) for found in data}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_real_report_doubles_nothing_and_undoes_nothing(
    there: Deployment, commit: str, reports: dict[str, Path], name: str
) -> None:
    tenant, has_values = there.backend.tenant(), name == "kingfisher"

    def import_again() -> None:
        before = state(tenant)
        assert import_report(there, tenant, reports[name], commit)["new"] == 0
        assert state(tenant) == before

    # before our own run
    first = import_report(there, tenant, reports[name], commit)
    reported = state(tenant)
    assert first["new"] == first["lines"] == len(reported)
    assert {found[-1] for found in reported.values()} == VALUES.keys()
    import_again()
    scan(there, tenant)
    assert reported.keys() <= state(tenant).keys()
    assert len(state(tenant)) == len(VALUES) + (0 if has_values else len(reported))
    # after it, and after a triage
    resolved, restricted, *_ = sorted(reported)
    tenant.post(f"/findings/{resolved}/resolve", note="rotated").raise_for_status()
    tenant.post(f"/findings/{restricted}/restrict", note="a test account").raise_for_status()
    assert state(tenant)[resolved][:2] == ("resolved", "rotated")
    import_again()
    # our own run first
    tenant = there.backend.tenant()
    scan(there, tenant)
    scanned = state(tenant)
    assert len(scanned) == len(VALUES)
    added = import_report(there, tenant, reports[name], commit)["new"]
    assert added == (0 if has_values else len(reported))
    assert {id_: found for id_, found in state(tenant).items() if id_ in scanned} == scanned


def test_a_page_of_both_reports_has_no_credential(there: Deployment, reports: dict[str, Path]) -> None:
    page = there.folder / "page.html"
    assert all(value in reports["kingfisher"].read_text() for value in VALUES.values())
    there.outcrop("report", *map(str, reports.values()), "-o", str(page))
    text = page.read_text()
    assert all(path in text for path in VALUES)
    assert [path for path, value in VALUES.items() if value in text] == []
