"""`make bench-pipeline ARGS="--hosts"`: runs over the repositories of each code host, on stand-ins.

Each stand-in answers after 50 ms. Printed are the requests for each source, the sources a second with 1, 2
and 4 workers, and the time from a push to its event while the sources of a first run wait.
"""

import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.code_host_process import RECEIVER
from bench.measure import table
from bench.service import OUTCROP, Service, run_service
from outcrop.domain.push import HookHost
from tests.sources.hosts.test_every_host import KINDS, Kind
from tests.support.pushes import SIGNATURES, event_headers, payload

_DELAY = 0.05
_WORKERS = (1, 2, 4)
_START_SECONDS = 8.0  # in which workers load their rules
_PUSHES = 5
_PUSHABLE = 20  # repositories that have commits, beside the waiting ones
_EVENT_LIMIT = 120.0  # seconds
_PAGE = 100  # repositories
_LIMIT = 3_600.0  # seconds for one run


class HostProcess:
    """A running stand-in."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.settings: dict[str, str] = self._read()

    def take_counts(self) -> dict[str, Any]:
        """Return the numbers of requests since the last call, and time and repository of all events."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = json.loads(self._process.stdout.readline())
        return line


def measure(work: Path, count: int, backlog: int) -> None:
    """Print the figures of all hosts for `count` repositories, and for pushes beside `backlog` sources."""
    rows = []
    for kind in KINDS:
        folder = work / "hosts" / str(kind).replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        figures = [_measure_run(folder, kind, count, workers) for workers in _WORKERS]
        api, git = figures[0][1:]
        rates = [f"{count / seconds:.1f}" for seconds, *_ in figures]
        rows.append([str(kind), f"{api / count:.2f}", f"{git / count:.2f}", *rates])
    headings = ["host", "API requests a source", "git requests a source"]
    table(
        f"{count} repositories, `--jobs 1`, responses after {_DELAY * 1000:.0f} ms",
        [*headings, *(f"sources a second, workers: {workers}" for workers in _WORKERS)],
        rows,
    )
    folder = work / "hosts" / "pushes"
    folder.mkdir(parents=True, exist_ok=True)
    seconds = _measure_pushes(folder, backlog)
    table(
        f"From a push to its event, beside {backlog:,} waiting sources; goal: under 60 s",
        ["pushes", "median s", "longest s"],
        [[str(len(seconds)), f"{sorted(seconds)[len(seconds) // 2]:.1f}", f"{max(seconds):.1f}"]],
    )


@contextmanager
def _run_host(folder: Path, kind: Kind, repositories: int, listed: int) -> Iterator[HostProcess]:
    """Run a stand-in."""
    arguments = [str(folder), str(kind), str(repositories), str(listed), str(_DELAY)]
    command = [sys.executable, "-m", "bench.code_host_process", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield HostProcess(process)
        finally:
            process.kill()


@contextmanager
def _run_workers(service: Service, number: int) -> Iterator[None]:
    """Run workers with one job each."""
    processes = [
        subprocess.Popen(
            [OUTCROP, "worker", "--jobs", "1"], env=service.environment, stderr=subprocess.DEVNULL
        )
        for _ in range(number)
    ]
    try:
        time.sleep(_START_SECONDS)
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def _add_target(service: Service, kind: Kind) -> str:
    """Create an account with a target of the host's owner; return the target's id."""
    service.create_account("hosts")
    own = [] if kind.url is None else ["--host-url", kind.url]
    target = service.outcrop(
        "target", "add", "--account", "hosts", f"{kind.name}:{kind.owner}", *own, "--json"
    )
    return str(target["id"])


def _measure_run(folder: Path, kind: Kind, count: int, workers: int) -> tuple[float, int, int]:
    """Return the seconds of one run, and its requests to the API and to git."""
    with _run_host(folder, kind, count, count) as host, run_service(folder, host.settings) as service:
        target = _add_target(service, kind)
        with _run_workers(service, workers):
            service.outcrop("target", "run", "--account", "hosts", target, "--json")
            start = time.perf_counter()
            while (latest := service.list_runs("hosts")[0])["finished_at"] is None:
                if time.perf_counter() - start > _LIMIT:
                    raise SystemExit(f"{kind}: the run does not end")
                time.sleep(0.2)
            seconds = time.perf_counter() - start
        if latest["progress"]["targets"] != count:
            raise SystemExit(f"{kind}: {latest['progress']['targets']} of {count}: {latest['error']}")
        counts = host.take_counts()
    return seconds, counts["api"], counts["git"]


def _measure_pushes(folder: Path, backlog: int) -> Sequence[float]:
    """Return the seconds from each of _PUSHES pushes to its first event, while the sources of a run wait.

    Each push is to a repository that was not scanned yet. One without credentials does not count.
    """
    kind = KINDS[0]
    with (
        _run_host(folder, kind, min(_PUSHABLE, backlog), backlog) as host,
        run_service(folder, host.settings) as service,
    ):
        target = _add_target(service, kind)
        hook = service.outcrop("hook", "create", "--account", "hosts", "gitlab", "--json")
        service.outcrop("webhook", "set", "--account", "hosts", f"https://{RECEIVER}/", "--json")
        with _run_workers(service, 2):
            service.outcrop("target", "run", "--account", "hosts", target, "--json")
            _wait_for_plan(host, backlog)
            seconds: list[float] = []
            for number in range(backlog - 1, max(backlog - _PUSHABLE, 0), -1):  # the last are scanned last
                began, name = time.time(), f"{kind.project}/r{number}"
                _push(service, hook, f"https://gitlab.com/{name}")
                if (received := _wait_for_event(host, name)) is not None:
                    seconds.append(received - began)
                if len(seconds) == _PUSHES:
                    break
    if not seconds:
        raise SystemExit("no push became an event")
    return seconds


def _wait_for_plan(host: HostProcess, listed: int) -> None:
    """Wait until all pages of a list were requested, so that nearly all of its sources wait."""
    start = time.perf_counter()
    while host.take_counts()["pages"] < math.ceil(listed / _PAGE):
        if time.perf_counter() - start > _LIMIT:
            raise SystemExit("the plan does not end")
        time.sleep(1)


def _push(service: Service, hook: dict[str, str], address: str) -> None:
    """Deliver a push to a repository, as GitLab does."""
    body = json.dumps(payload(HookHost.GITLAB, address)).encode()
    headers = event_headers(HookHost.GITLAB, os.urandom(8).hex()) | SIGNATURES[HookHost.GITLAB](
        hook["secret"], body
    )
    path = "/hooks/" + hook["url"].partition("/hooks/")[2]
    request = urllib.request.Request(
        service.base_url + path, body, headers | {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        if response.status != 202:
            raise SystemExit(f"the push was answered with {response.status}")


def _wait_for_event(host: HostProcess, name: str) -> float | None:
    """Return the time of the first event of a repository; None if there is none in _EVENT_LIMIT seconds."""
    start = time.perf_counter()
    while time.perf_counter() - start < _EVENT_LIMIT:
        times = [received for received, repository in host.take_counts()["events"] if repository == name]
        if times:
            return float(times[0])
        time.sleep(0.05)
    return None
