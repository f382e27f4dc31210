"""Commands and workers as processes of their own, on a database, a git host and a GitHub that are theirs alone."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from outcrop.domain.scan import Trigger
from outcrop.domain.target import OPTIONS, TargetKind, TargetSpec
from outcrop.runtime import prepare_database
from outcrop.services.pipeline.enqueue import start_run
from outcrop.settings import Settings
from outcrop.store.db import Connection
from outcrop.store.runs import jobs, scans
from tests.support.backend import Backend, Tenant, now, running_server
from tests.support.git_host import ENV, GitHost, git_host
from tests.support.github_host import GitHubHost, github_host, merge_egress
from tests.support.rulesets import cached_in, github_token

T = TypeVar("T")
COMMAND = str(Path(sys.executable).with_name("outcrop"))
DEAD_AFTER = 2.0  # seconds
SECRET_KEY = "a key for the tests only, no secret"
ENDED = {"completed", "failed"}


def until(look: Callable[[], T | None], what: str, seconds: float = 45) -> T:
    """Wait until something is there, and give it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds} s for {what}")


@dataclass
class House:
    """One account on a database of its own, the hosts that it has us look at, and the commands that do."""

    folder: Path
    environment: dict[str, str]
    backend: Backend
    tenant: Tenant
    git: GitHost
    github: GitHubHost
    hanging: list[socket.socket] = field(
        default_factory=list
    )  # connections to https://hang.example, which never answers
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    # --- what there is to find

    def repository(self, name: str, *, seed: str | None = None) -> str:
        """Make a repository that holds one token; give its address."""
        path = self.folder / "repositories" / f"{name}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        for arguments, given in (
            (["init", "--quiet", "--bare", str(path)], ""),
            (["fast-import", "--quiet"], history(seed or name)),
        ):
            subprocess.run(
                ["git", *arguments],
                env=ENV | {"GIT_DIR": str(path)},
                input=given.encode(),
                check=True,
                capture_output=True,
            )
        return f"https://git.example/{name}.git"

    def organisation(self, login: str, count: int) -> list[str]:
        """Make an organisation with so many repositories; give their names."""
        self.github.add_user(login, organisation=True)
        names = [f"{login}/r{number}" for number in range(count)]
        for name in names:
            self.repository(name)
            self.github.add_repo(name, has_wiki=False)
        return names

    def asked(self, name: str = "") -> list[str]:
        """What was asked of the git host about a repository, in order: `refs` or `pack`."""
        return [
            "refs" if "info/refs" in path else "pack"
            for path, _, _ in list(self.git.requests)
            if f"/{name}" in path
        ]

    # --- runs

    def start(self, kind: TargetKind, name: str) -> str:
        """Start a run as `outcrop target run` does; give its id."""
        spec = TargetSpec(kind, name, options=dict(OPTIONS[kind]))
        account = self.tenant.account.id
        run = self.backend.run(
            lambda db: start_run(
                db, account, spec, trigger=Trigger.CLI, target_id=None, moment=now(), by="a test"
            )
        )
        return str(run.id)

    def run(self, scan_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.tenant.get(f"/scans/{scan_id}").raise_for_status().json()["data"]
        return found

    def status(self, scan_id: str) -> str:
        return str(self.run(scan_id)["status"])

    def ended(self, scan_id: str, seconds: float = 30) -> dict[str, Any]:
        """Wait for the end of a run, and give it."""
        return until(
            lambda: run if (run := self.run(scan_id))["status"] in ENDED else None, "the run to end", seconds
        )

    def becomes(self, scan_id: str, status: str, seconds: float = 20) -> dict[str, Any]:
        return until(
            lambda: run if (run := self.run(scan_id))["status"] == status else None,
            f"the run to be {status}",
            seconds,
        )

    def sources(self, scan_id: str) -> dict[str, tuple[str, int, str | None]]:
        """The sources of a run, with their state, how often each was tried, and why it failed; the plan is none."""
        rows = self.backend.sql(
            "SELECT source, status, tries, error FROM scan_sources WHERE scan_id = %s AND source <> 'plan'",
            UUID(scan_id),
        )
        return {source: (status, tries, error) for source, status, tries, error in rows}

    def jobs(self) -> int:
        return int(self.backend.sql("SELECT count(*) FROM procrastinate_jobs")[0][0])

    def recorded(self) -> list[tuple[str, int, int]]:
        """Every finding of the account: where it is, how often it was seen, how many events announced it."""
        rows = self.backend.sql(
            """SELECT coalesce(repo_full_name, source), seen_count,
                      (SELECT count(*) FROM outbox o WHERE o.finding_id = f.id AND o.event = 'finding.new')
               FROM findings f WHERE account_id = %s ORDER BY 1""",
            self.tenant.account.id,
        )
        return [(str(name), seen, events) for name, seen, events in rows]

    def sweep(self) -> int:
        """Look for workers that have died, as every worker does now and then; give how many jobs they left."""

        async def work(db: Connection) -> int:
            left = await jobs.requeue_stalled(db, DEAD_AFTER)
            for arguments in left:
                await scans.mark_interrupted(db, arguments["account_id"], UUID(arguments["scan_id"]))
            return len(left)

        return self.backend.run(work)

    # --- processes

    def popen(self, *arguments: str, **more: str) -> "subprocess.Popen[str]":
        """Start a command, with a process group of its own."""
        with (self.folder / f"log-{len(self.started)}").open("w") as log:
            process = subprocess.Popen(
                [COMMAND, *arguments],
                env=self.environment | more,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def worker(
        self, *, jobs: int = 1, dead_after: float = DEAD_AFTER, **more: str
    ) -> "subprocess.Popen[str]":
        return self.popen("worker", "--jobs", str(jobs), "--dead-after", str(dead_after), **more)

    def outcrop(self, *arguments: str) -> Any:
        """Run a command that prints JSON."""
        done = subprocess.run(
            [COMMAND, *arguments, "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def log(self, process: "subprocess.Popen[str]") -> str:
        return (self.folder / f"log-{self.started.index(process)}").read_text()

    def processes(self) -> list[str]:
        """Every process that one of the commands has started and that still lives: git has our folder as its own."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    ours = str(self.folder).encode() in (entry / "environ").read_bytes()
                    if ours or (entry / "cwd").readlink().is_relative_to(self.folder):
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def work_folders(self) -> list[Path]:
        return list((self.folder / "cache/outcrop/work").glob("*"))

    def stop_all(self) -> None:
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def history(seed: str) -> str:
    text = f"token = {github_token(seed)}\n"
    who = f"Ada <ada@example.org> {1_700_000_000} +0000"
    return (
        f"commit refs/heads/main\ncommitter {who}\ndata 5\nfirst\nM 100644 inline settings.py\ndata {len(text)}\n{text}\n"
        "reset HEAD\nfrom refs/heads/main\n\n"
    )


@contextmanager
def house(folder: Path, url: str) -> Iterator[House]:
    """A house on an empty database; whatever its commands started is gone afterwards."""
    settings = Settings(_env_file=None, database_url=url, data_dir=folder, secret_key=SECRET_KEY)
    with ExitStack() as stack:
        (folder / "repositories").mkdir()
        (folder / "tls").mkdir()
        git = stack.enter_context(git_host(folder / "repositories", folder / "tls"))
        github = stack.enter_context(github_host(folder))
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        egress = merge_egress(folder, git.egress, github.egress)
        server = stack.enter_context(running_server(settings, rate_limit=0))
        backend = stack.enter_context(
            Backend(settings, asyncio.run(prepare_database(settings, url)), server.base_url)
        )
        environment = os.environ | {
            "OUTCROP_DATABASE_URL": url,
            "OUTCROP_SECRET_KEY": SECRET_KEY,
            "OUTCROP_DATA_DIR": str(folder / "data"),
            "OUTCROP_LOG_FORMAT": "json",
            "OUTCROP_EGRESS_ALLOW": "127.0.0.0/8",
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{git.port},api.git.example:443=127.0.0.1:{github.port},"
            f"hang.example:443=127.0.0.1:{silent.getsockname()[1]}",
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
            "OUTCROP_GITHUB_API_URL": github.base_url,
            "XDG_CACHE_HOME": str(cached_in(folder / "cache")),
        }
        made = House(folder, environment, backend, backend.tenant(slug="acme"), git, github)
        threading.Thread(target=hang, args=(silent, made.hanging), daemon=True).start()
        try:
            yield made
        finally:
            made.stop_all()
            silent.shutdown(socket.SHUT_RDWR)
            for connection in made.hanging:
                connection.close()


def hang(silent: socket.socket, taken: list[socket.socket]) -> None:
    with suppress(OSError):  # closed at the end
        while True:
            taken.append(silent.accept()[0])


def new_database(cluster: str, name: str) -> str:
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name}")
    return psycopg.conninfo.make_conninfo(cluster, dbname=name)
