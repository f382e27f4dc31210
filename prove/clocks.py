"""Run a worker or an API whose clock is wrong beside one whose clock is right."""

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from prove.portal_session import PASSWORD, sign_in_once_more
from prove.repositories import Repository
from prove.service import Service, open_service, until
from prove.trial import NotTriedError, Report, Setting
from tests.support.factories import make_line
from tests.support.git_host import git_host

_SLUG = "clocks"
_CERTIFICATE_HOURS = 24 * 500  # before and after now: the wrong clocks are within
_OFFSETS = ("2m", "90m", "26h", "30d", "400d")
_LIBRARIES = "/usr/lib/*/faketime/libfaketime.so.1"


def try_clocks(setting: Setting, report: Report) -> None:
    """Scan with a worker 400 days ahead and one 400 days behind; stored times must stay right."""
    library = next(Path("/").glob(_LIBRARIES.lstrip("/")), None)
    if library is None:
        raise NotTriedError("libfaketime is not installed (Debian: libfaketime)")
    root, tls = setting.folder / "repositories", setting.folder / "tls"
    tls.mkdir(parents=True)
    with git_host(root, tls, hours=(-_CERTIFICATE_HOURS, _CERTIFICATE_HOURS)) as host:
        egress = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{host.port}",
            "OUTCROP_EGRESS_CA_FILE": str(host.ca),
        }
        repository = Repository(root / "r1.git", setting.random())
        repository.add_token()
        with open_service(setting.folder / "service", **egress) as service:
            service.serve("--no-worker")
            key = service.account(_SLUG)
            arguments = ("--schedule", "hourly", "--credential-stdin")
            target = service.command(
                "target",
                "add",
                "--account",
                _SLUG,
                "https://git.example/r1.git",
                *arguments,
                stdin="made-up\n",
            )["id"]
            rng, deadline = setting.random(), setting.deadline()
            offsets = ["+400d", "-400d"]
            while offsets or time.monotonic() < deadline:
                offset = offsets.pop(0) if offsets else f"{rng.choice('+-')}{rng.choice(_OFFSETS)}"
                _scan_with(service, str(library), offset, key, target, report)
                _triage_with(service, str(library), offset, key, report)
                _check_times(service, key, offset, report)


def _scan_with(service: Service, library: str, days: str, key: str, target: str, report: Report) -> None:
    """Run the target while a worker with a wrong clock and one with a right clock work."""
    wrong = service.worker("--jobs", "1", "--dead-after", "2", environment=_fake(library, days))
    time.sleep(5)
    right = service.worker("--jobs", "1", "--dead-after", "2")
    run = service.command("target", "run", "--account", _SLUG, target)["id"]
    ended = until(
        lambda: (
            scan
            if (scan := service.get(f"/scans/{run}", key).json["data"])["status"] in {"completed", "failed"}
            else None
        ),
        "the run to end",
        300,
    )
    report.check(ended["status"] == "completed", f"{days}: the run is {ended['status']}: {ended['error']}")
    time.sleep(5)
    for process in (wrong, right):
        process.terminate()
        process.wait(60)
    log = (service.folder / "worker.log").read_text()
    report.check("clock" in log, f"{days}: no worker has logged that its clock is wrong")
    report.count("workers with a wrong clock")


def _triage_with(service: Service, library: str, offset: str, key: str, report: Report) -> None:
    """Change findings with an API whose clock is wrong; what it stores must have the right time."""
    wrong = replace(
        service, environment=service.environment | _fake(library, offset), base_url="", started=[]
    )
    wrong.folder = service.folder / f"wrong-{offset}-{time.monotonic_ns()}"
    wrong.folder.mkdir()
    try:
        wrong.serve("--no-worker")
        (line,) = _import_one(service)
        answer = wrong.post(f"/findings/{line}/resolve", key, note="by the wrong clock")
        report.check(answer.status == 200, f"{offset}: the API with this clock answered {answer.status}")
        at = datetime.fromisoformat(wrong.get(f"/findings/{line}", key).json["data"]["resolved_at"])
        report.check(abs(at - datetime.now(UTC)) < timedelta(minutes=5), f"{offset}: resolved at {at}")
        made = sign_in_once_more(service, _member(service))
        made.client.base_url = httpx.URL(wrong.base_url)
        page = made.get("/findings")
        report.check(page.status_code == 200, f"{offset}: a session is answered {page.status_code} there")
        report.count("API processes with a wrong clock")
    finally:
        for process in wrong.started:
            process.terminate()
            process.wait(60)


def _member(service: Service) -> str:
    """Create a member and return the address."""
    email = f"m{time.monotonic_ns()}@{_SLUG}.example"
    service.run(
        "user", "create", "--account", _SLUG, email, "--role", "member", "--password-stdin",
        stdin=PASSWORD + "\n",
    )  # fmt: skip
    return email


def _import_one(service: Service) -> list[str]:
    """Import one finding and return its id."""
    line = make_line(validation_status="unvalidated", file_path=f"clock-{time.monotonic_ns()}.env")
    service.command("import", "--account", _SLUG, "-", stdin=json.dumps(line) + "\n")
    return [str(line["id"])]


def _fake(library: str, offset: str) -> dict[str, str]:
    """Return the environment of a process whose clock is wrong by an offset."""
    return {"LD_PRELOAD": library, "FAKETIME": offset}


def _check_times(service: Service, key: str, days: str, report: Report) -> None:
    """Check every stored time that a wrong clock could have set."""
    now = datetime.now(UTC)
    near = (now - timedelta(minutes=30), now + timedelta(minutes=1))
    (target,) = service.command("target", "list", "--account", _SLUG)
    next_run = datetime.fromisoformat(target["next_run_at"])
    report.check(next_run < now + timedelta(hours=2), f"{days}: the next run is at {next_run}")
    report.check(target["has_credential"], f"{days}: the credential of the target is erased")
    for finding in service.findings(key, status="active"):
        first, last = (datetime.fromisoformat(finding[name]) for name in ("first_seen_at", "last_seen_at"))
        report.check(near[0] <= first <= last <= near[1], f"{days}: seen from {first} to {last}")
        report.check(finding["status"] == "active", f"{days}: a finding is {finding['status']}")
