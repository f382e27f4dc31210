"""Freeze a worker in the middle of a scan, change the repository, and wake the worker up."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

from prove.repositories import DEFAULT, Repository
from prove.service import Service, open_service, until
from prove.trial import Report, Setting
from tests.support.git_host import GitHost, git_host

_FROZEN_SECONDS = 75.0  # longer than a source stays locked without a heartbeat
_SLUG = "frozen"


def try_freezes(setting: Setting, report: Report) -> None:
    """Freeze one of two workers at a random step of a run; compare with the repository after it woke up."""
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
            key = service.account(_SLUG)
            deadline, number = setting.deadline(), 0
            while time.monotonic() < deadline or number == 0:
                number += 1
                repository = Repository(root / f"r{number}.git", rng)
                seconds = 3.0 if setting.short else _FROZEN_SECONDS
                _try_freeze(service, key, repository, host, rng, seconds, report)


def _try_freeze(
    service: Service,
    key: str,
    repository: Repository,
    host: GitHost,
    rng: random.Random,
    seconds: float,
    report: Report,
) -> None:
    """Freeze the worker of one run, push the opposite meanwhile, scan again, wake it, and compare."""
    name = repository.folder.name
    target = service.command("target", "add", "--account", _SLUG, f"https://git.example/{name}")["id"]
    path = repository.add_token()
    begins_present = rng.random() < 0.5
    if begins_present:
        _run(service, key, target, None)
    content = repository._read(DEFAULT, path)
    before = repository.git("rev-parse", f"{DEFAULT}~1")
    if begins_present:  # the frozen worker sees the repository without the secret
        repository.git("update-ref", DEFAULT, before)
        repository.commit(DEFAULT, {"other": b"nothing\n"})
    frozen = service.worker("--jobs", "1", "--dead-after", "2")
    asked = len(host.requests)
    run = service.command("target", "run", "--account", _SLUG, target)["id"]
    until(lambda: len(host.requests) > asked, "the worker to ask for the repository")
    time.sleep(rng.uniform(0, 1.5))
    pids = _tree(frozen.pid)
    _signal(pids, signal.SIGSTOP)
    report.count("freezes")
    if begins_present:  # pushed again
        repository.commit(DEFAULT, {path: content})
    else:
        repository.git("update-ref", DEFAULT, before)
        repository.commit(DEFAULT, {"other": b"nothing\n"})
    time.sleep(seconds)
    second = service.worker("--jobs", "1", "--dead-after", "2")
    if seconds < _FROZEN_SECONDS:
        _signal(pids, signal.SIGCONT)
    else:
        later = service.command("target", "run", "--account", _SLUG, target)["id"]
        until(lambda: _status(service, key, later) in {"completed", "failed"}, "the second run", 300)
        _signal(pids, signal.SIGCONT)
    until(lambda: _status(service, key, run) in {"completed", "failed"}, "the first run", 300)
    time.sleep(2)
    if seconds < _FROZEN_SECONDS:  # the run may have read the repository before the change: scan once more
        _run(service, key, target, second)
    _compare(service, key, repository, report)
    for process in (frozen, second):
        _signal(_tree(process.pid), signal.SIGKILL)
        process.wait()


def _run(service: Service, key: str, target: str, worker: "subprocess.Popen[str] | None") -> None:
    """Run a target to its end, with a worker of its own if none is given."""
    own = None if worker else service.worker("--jobs", "1", "--dead-after", "2")
    run = service.command("target", "run", "--account", _SLUG, target)["id"]
    until(lambda: _status(service, key, run) in {"completed", "failed"}, "a run to end", 300)
    if own:
        own.terminate()
        own.wait()


def _status(service: Service, key: str, run: str) -> str:
    return str(service.get(f"/scans/{run}", key).json["data"]["status"])


def _compare(service: Service, key: str, repository: Repository, report: Report) -> None:
    """Check the findings of the repository against what git reaches."""
    truth = {path for path, _ in repository.truth()}
    name = repository.folder.name.removesuffix(".git")
    findings = [f for f in service.findings(key) if f"/{name}" in f["source_url"]]
    open_ = {f["file_path"] for f in findings if f["status"] == "active"}
    states = {(f["file_path"], f["status"], f["validation_status"]) for f in findings}
    report.check(open_ == truth, f"{name}: reported {states}, git reaches {truth}")


def _tree(root: int) -> list[int]:
    """Return a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError, IndexError), open(f"/proc/{entry}/stat") as file:  # noqa: PTH123
                parents.setdefault(int(file.read().rpartition(")")[2].split()[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
