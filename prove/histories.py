"""Random histories: an incremental scan, a full scan and git's own commands must agree after every step."""

import json
import time
from pathlib import Path
from typing import Any

from prove.repositories import Repository
from prove.service import Service, open_service
from prove.trial import Report, Setting
from tests.support.git_host import git_host

Seen = dict[tuple[str, str], str]


def try_histories(setting: Setting, report: Report) -> None:
    """Change a repository at random, scan it after every few changes, and compare."""
    rng = setting.random()
    root, tls = setting.folder / "repositories", setting.folder / "tls"
    tls.mkdir(parents=True)
    with git_host(root, tls, hours=(-1, 48)) as host:
        egress = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{host.port}",
            "OUTCROP_EGRESS_CA_FILE": str(host.ca),
        }
        with open_service(setting.folder / "service", **egress) as service:
            service.serve("--no-worker")
            deadline, number = setting.deadline(), 0
            while time.monotonic() < deadline or number == 0:
                number += 1
                _try_history(service, Repository(root / f"r{number}.git", rng), number, setting, report)


def _try_history(
    service: Service, repository: Repository, number: int, setting: Setting, report: Report
) -> None:
    """Compare after every few changes of one repository."""
    address = f"https://git.example/r{number}.git"
    steps = 2 if setting.short else repository.rng.randrange(3, 9)
    follower = service.account(f"follower-{number}")
    for step in range(steps):
        for _ in range(repository.rng.randrange(1, 8)):
            repository.change()
        if step == 0:
            repository.add_token()
        truth = repository.truth()
        service.run("scan", "--account", f"follower-{number}", address, "--format", "json", codes=(0, 1))
        _compare(report, "incremental", service.findings(follower), truth, repository)
        report.count("incremental scans")
    fresh = service.account(f"fresh-{number}")
    service.run("scan", "--account", f"fresh-{number}", address, "--format", "json", codes=(0, 1))
    _compare(report, "full", service.findings(fresh), truth, repository)
    local = service.run("scan", address, "--no-validate", "--format", "json", codes=(0, 1))
    _compare_local(report, local, truth, repository)
    report.count("histories")


def _mask(token: str) -> str:
    """Return the token as the documents say that it is masked."""
    shown = min(4, len(token) // 8)
    return f"{token[:shown]}********{token[-shown:]}"


def _compare(
    report: Report, which: str, findings: list[dict[str, Any]], truth: Seen, repository: Repository
) -> None:
    """Check that the open findings are what git reaches, and that all others are resolved."""
    expected = {(path, _mask(token)): kind for (path, token), kind in truth.items()}
    open_ = {
        (Path(f["file_path"]).as_posix(), f["matched_text"]): f["source_type"]
        for f in findings
        if f["status"] == "active"
    }
    changes = ", ".join(repository.log)
    report.check(open_ == expected, f"{which}: {_difference(open_, expected)} after {changes}")
    others = {f["status"] for f in findings} - {"active", "resolved"}
    report.check(not others, f"{which}: findings are {others} after {changes}")


def _compare_local(report: Report, output: str, truth: Seen, repository: Repository) -> None:
    """Check the output of a scan without an account."""
    found = {(f["file_path"], f["matched_text"]): f["source_type"] for f in json.loads(output or "[]")}
    expected = {(path, _mask(token)): kind for (path, token), kind in truth.items()}
    report.check(
        found == expected, f"local: {_difference(found, expected)} after {', '.join(repository.log)}"
    )


def _difference(found: Seen, expected: Seen) -> str:
    """Describe how two results differ."""
    return (
        f"missing {sorted(expected.items() - found.items())[:5]},"
        f" too many {sorted(found.items() - expected.items())[:5]}"
    )
