"""Run a worker whose clock is wrong beside one whose clock is right."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prove.repositories import Repository
from prove.service import Service, open_service, until
from prove.trial import NotTriedError, Report, Setting
from tests.support.git_host import git_host

_SLUG = "clocks"
_CERTIFICATE_HOURS = 24 * 500  # before and after now: the wrong clocks are within
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
            for days in ("+400d", "-400d"):
                _scan_with(service, str(library), days, key, target, report)
                _check_times(service, key, days, report)


def _scan_with(service: Service, library: str, days: str, key: str, target: str, report: Report) -> None:
    """Run the target while a worker with a wrong clock and one with a right clock work."""
    fake = {"LD_PRELOAD": library, "FAKETIME": days}
    wrong = service.worker("--jobs", "1", "--dead-after", "2", environment=fake)
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


def _check_times(service: Service, key: str, days: str, report: Report) -> None:
    """Check every stored time that a wrong clock could have set."""
    now = datetime.now(UTC)
    near = (now - timedelta(minutes=30), now + timedelta(minutes=1))
    (target,) = service.command("target", "list", "--account", _SLUG)
    next_run = datetime.fromisoformat(target["next_run_at"])
    report.check(next_run < now + timedelta(hours=2), f"{days}: the next run is at {next_run}")
    report.check(target["has_credential"], f"{days}: the credential of the target is erased")
    for finding in service.findings(key):
        first, last = (datetime.fromisoformat(finding[name]) for name in ("first_seen_at", "last_seen_at"))
        report.check(near[0] <= first <= last <= near[1], f"{days}: seen from {first} to {last}")
        report.check(finding["status"] == "active", f"{days}: a finding is {finding['status']}")
