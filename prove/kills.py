"""Kill processes of the service at random while its findings change, and lose nothing."""

import os
import random
import signal
import time
from contextlib import suppress

from prove.load import open_load
from prove.scan_load import both_environments, open_scan_load
from prove.service import Service, open_service, until
from prove.trial import Report, Setting

FINDINGS = 1_500
# How often a kind of process is chosen, beside 1 of the others. After a kill of the parent everything starts
# again, which takes seconds.
_WEIGHTS = {"api": 4, "worker": 4, "scanner": 4, "git": 4, "backend": 4, "postgres process": 2}


def try_kills(setting: Setting, report: Report) -> None:
    """Kill processes until the time is over; compare what was acknowledged with what is there."""
    rng = setting.random()
    with (
        open_load(setting.folder / "load", setting.seed) as load,
        open_scan_load(setting.folder / "scans") as scans,
        open_service(
            setting.folder / "service", **both_environments(setting.folder, load.environment, scans)
        ) as service,
    ):
        service.serve("--processes", "2")
        load.connect(service, rng, findings=200 if setting.short else FINDINGS)
        if not setting.short:
            scans.connect(service, rng)
        load.resume()
        deadline = setting.deadline()
        while time.monotonic() < deadline:
            _kill_some(service, rng, report)
        until(lambda: _keep_up(service, report) and service.is_ready(), "the service after the kills")
        load.verify(service, report)
        scans.verify(service, report)


def _kill_some(service: Service, rng: random.Random, report: Report) -> None:
    """Wait, mostly for a moment and sometimes until work gets done; kill one process, or several at once."""
    time.sleep(rng.uniform(0.1, 1.0))
    _keep_up(service, report)
    if rng.random() < 0.25:
        with suppress(TimeoutError):  # it may need a start, which the next round gives
            until(service.is_ready, "the service", 30)
        time.sleep(rng.uniform(0.5, 4.0))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        _kill_one(service, rng, report)


def _kill_one(service: Service, rng: random.Random, report: Report) -> None:
    """Kill a random process: the parent, an API process, a worker, PostgreSQL or one of its backends."""
    kinds: dict[str, list[int]] = {}
    for pid, line in service.processes().items():
        if kind := kind_of(line):
            kinds.setdefault(kind, []).append(pid)
    if not kinds:
        return
    kind = rng.choices(sorted(kinds), [_WEIGHTS.get(kind, 1) for kind in sorted(kinds)])[0]
    with suppress(ProcessLookupError):
        os.kill(rng.choice(sorted(kinds[kind])), signal.SIGKILL)
        report.count("kills")
        report.count(f"kills of {kind}")


def kind_of(line: str) -> str | None:
    """Return what the process with this command line is; None for what is not part of the service."""
    if line.startswith("postgres:"):
        return "backend" if "[local]" in line else "postgres process"
    for mark, kind in (
        ("outcrop.cli.process api", "api"),
        ("outcrop.cli.process worker", "worker"),
        ("outcrop serve", "serve"),
        ("bin/postgres", "postgres"),
        ("git ", "git"),
        ("multiprocessing", "scanner"),
    ):
        if mark in line:
            return kind
    return None


def _keep_up(service: Service, report: Report) -> bool:
    """Start the service again if its parent process has ended, as a supervisor does. Return True."""
    if service.process is None or service.process.poll() is not None:
        service.serve("--processes", "2")
        report.count("starts")
    return True
