"""Freeze workers at every step of a scan, change the repositories, and wake the workers up.

Each worker of a round is frozen at another step. A step in which only the database is used is reached by a
lock on a table that the step writes to: the worker is frozen while it waits, and then the lock is released.
"""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from outcrop.store.embedded.server import embedded_postgres
from prove.repositories import DEFAULT, Repository
from prove.service import Service, open_service, until
from prove.trial import Report, Setting
from tests.support.fake_https import FakeResponse, FakeServer, serve_https
from tests.support.git_host import GitHost, git_host
from tests.support.github_host import merge_egress

_FROZEN_SECONDS = 75.0  # longer than a source stays locked without a heartbeat
_SLUG = "frozen"
_ENDED = {"completed", "failed"}
_ISSUER = "api.github.com"
_ISSUER_SECONDS = 0.6  # before it answers: time in which to freeze
# Tables that a run writes to, in the order of its steps: plan, lock, record, resolve, save, end.
_TABLES = (
    "scan_sources",
    "source_locks",
    "findings",
    "finding_search",
    "outbox",
    "audit",
    "sources",
    "scans",
)
# Steps that one round freezes workers at, before the one of a table.
_STEPS = ("refs", "pack", "reading", "validating")
_ONLY_NEW = ("validating", "table finding_search")  # steps of runs that find something new
_WAITS = """SELECT 1 FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND pid <> pg_backend_pid() AND datname = current_database()"""


@dataclass
class _Frozen:
    """A frozen worker with the run that it had begun."""

    step: str
    repository: Repository
    target: str
    run: str
    process: "subprocess.Popen[str]"
    pids: list[int]


@dataclass
class _Hosts:
    """The git host, the folder of its repositories, and the issuer."""

    git: GitHost
    root: Path
    issuer: FakeServer

    def count_git(self, name: str, what: str) -> int:
        """Return the number of requests for a repository: `info/refs` or `git-upload-pack`."""
        return sum(
            f"/{name}" in path and what in path.partition("?")[0] for path, *_ in list(self.git.requests)
        )


def try_freezes(setting: Setting, report: Report) -> None:
    """Freeze workers at the steps of their runs; compare with the repositories after they woke up."""
    rng = setting.random()
    root, tls, issuer_tls = (setting.folder / name for name in ("repositories", "tls", "issuer"))
    tls.mkdir(parents=True)
    issuer_tls.mkdir()
    answer = FakeResponse(401, {"Content-Type": "application/json"}, b'{"message": "Bad credentials"}')
    answer.delay = _ISSUER_SECONDS
    with (
        git_host(root, tls, hours=(-1, 48)) as host,
        serve_https(issuer_tls, (_ISSUER,), lambda _: answer) as issuer,
    ):
        egress = merge_egress(setting.folder, host.egress, issuer.egress)
        environment = {
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{host.port},"
            f"{_ISSUER}:443=127.0.0.1:{issuer.port}",
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
            "OUTCROP_VALIDATE": "safe",
        }
        with open_service(setting.folder / "service", **environment) as service:
            service.serve("--no-worker")
            trial = _Freezes(
                service, service.account(_SLUG), _Hosts(host, root, issuer), rng, setting, report
            )
            deadline = setting.deadline()
            trial.run_round()
            while time.monotonic() < deadline:
                trial.run_round()


class _Freezes:
    """The rounds of the trial."""

    def __init__(
        self, service: Service, key: str, hosts: _Hosts, rng: random.Random, setting: Setting, report: Report
    ) -> None:
        self.service = service
        self.key = key
        self.hosts = hosts
        self.rng = rng
        self.setting = setting
        self.report = report
        self.made = 0  # repositories until now
        self.tables = list(_TABLES)
        rng.shuffle(self.tables)

    def run_round(self) -> None:
        """Freeze a worker at each step, push the opposite, let another one scan, wake all, and compare."""
        table = self.tables[0]
        self.tables = [*self.tables[1:], table]
        steps = (self.rng.choice(_STEPS),) if self.setting.short else _STEPS
        frozen = [self._freeze(step) for step in (*steps, f"table {table}")]
        second = None
        if self.setting.short:
            time.sleep(3)
            self._wake(frozen)
        else:
            time.sleep(_FROZEN_SECONDS)
            second = self._worker("2")
            for worker in frozen:
                self._run(worker.target)
            self._wake(frozen)
        for worker in frozen:
            self._wait_for(worker.run)
        time.sleep(2)
        if self.setting.short:  # the run may have read the repository before the change: scan once more
            for worker in frozen:
                self._run(worker.target)
        for worker in frozen:
            self._compare(worker)
        for process in [worker.process for worker in frozen] + ([second] if second else []):
            _signal(_tree(process.pid), signal.SIGKILL)
            process.wait()
        self.report.count("rounds")

    def _worker(self, jobs: str = "1") -> "subprocess.Popen[str]":
        return self.service.worker("--jobs", jobs, "--dead-after", "2")

    def _freeze(self, step: str) -> _Frozen:
        """Let a worker run to a step, or to its end, and freeze it; push the opposite of what it read."""
        self.made += 1
        repository = Repository(self.hosts.root / f"r{self.made}.git", self.rng)
        name = repository.folder.name
        target = self.service.command("target", "add", "--account", _SLUG, f"https://git.example/{name}")[
            "id"
        ]
        path = repository.add_token()
        begins_present = self.rng.random() < 0.5 and step not in _ONLY_NEW
        if begins_present:
            own = self._worker()
            self._run(target)
            own.terminate()
            own.wait()
        content = repository._read(DEFAULT, path)
        before = repository.git("rev-parse", f"{DEFAULT}~1")
        if begins_present:  # the frozen worker sees the repository without the secret
            repository.git("update-ref", DEFAULT, before)
            repository.commit(DEFAULT, {"other": b"nothing\n"})
        process, run, pids = self._reach(step, name, target)
        if self._has_ended(run):
            self.report.count("runs that ended first")
        else:
            self.report.count("freezes")
            self.report.count(f"at {step}")
        if begins_present:  # pushed again
            repository.commit(DEFAULT, {path: content})
        else:
            repository.git("update-ref", DEFAULT, before)
            repository.commit(DEFAULT, {"other": b"nothing\n"})
        return _Frozen(step, repository, target, run, process, pids)

    def _reach(self, step: str, name: str, target: str) -> "tuple[subprocess.Popen[str], str, list[int]]":
        """Start the run and a worker of its own, and freeze the worker at the step."""
        run = self.service.command("target", "run", "--account", _SLUG, target)["id"]
        if step.startswith("table "):
            return self._reach_table(step.removeprefix("table "), run)

        def count() -> int:
            """Return the number of requests that belong to the step."""
            if step == "validating":
                return len(self.hosts.issuer.requests)
            return self.hosts.count_git(name, "info/refs" if step == "refs" else "git-upload-pack")

        before = count()
        process = self._worker()
        until(lambda: count() > before or self._has_ended(run), f"the step {step}")
        if step == "reading":
            time.sleep(self.rng.uniform(0, 1))
        return process, run, _freeze_tree(process)

    def _reach_table(self, table: str, run: str) -> "tuple[subprocess.Popen[str], str, list[int]]":
        """Freeze the worker of a run while it waits for a table."""
        with (
            embedded_postgres(self.service.data) as url,
            psycopg.connect(url) as blocker,
            psycopg.connect(url, autocommit=True) as watcher,
        ):
            blocker.execute("SET lock_timeout = '100s'")  # frozen workers may have it for a minute
            blocker.execute(f'LOCK TABLE "{table}" IN SHARE MODE'.encode())
            process = self._worker()
            # A run that ends without this table: nothing to freeze.
            until(lambda: watcher.execute(_WAITS).fetchone() or self._has_ended(run), f"a wait for {table}")
            pids = _freeze_tree(process)
        return process, run, pids

    # --- runs

    def _run(self, target: str) -> None:
        """Run a target to its end."""
        self._wait_for(self.service.command("target", "run", "--account", _SLUG, target)["id"])

    def _wait_for(self, run: str) -> None:
        until(lambda: self._has_ended(run), "a run to end", 300)

    def _has_ended(self, run: str) -> bool:
        return self.service.get(f"/scans/{run}", self.key).json["data"]["status"] in _ENDED

    @staticmethod
    def _wake(frozen: list[_Frozen]) -> None:
        for worker in frozen:
            _signal(worker.pids, signal.SIGCONT)

    def _compare(self, worker: _Frozen) -> None:
        """Check the findings of a repository against what git reaches."""
        truth = sorted(path for path, _ in worker.repository.truth())
        name = worker.repository.folder.name.removesuffix(".git")
        findings = [f for f in self.service.findings(self.key) if f"/{name}/" in f["source_url"] + "/"]
        open_ = sorted(f["file_path"] for f in findings if f["status"] == "active")
        states = [(f["file_path"], f["status"], f["validation_status"]) for f in findings]
        self.report.check(
            open_ == truth, f"{name}, frozen at {worker.step}: reported {states}, git reaches {truth}"
        )


def _freeze_tree(process: "subprocess.Popen[str]") -> list[int]:
    """Freeze a process and all that it has started; return their ids."""
    os.kill(process.pid, signal.SIGSTOP)  # first, so that it starts no more
    pids = _tree(process.pid)
    _signal(pids, signal.SIGSTOP)
    return pids


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
