"""Run commands and workers as processes, with their own database, git host and GitHub API."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from outcrop.domain.clock import now
from outcrop.domain.scan import Trigger
from outcrop.domain.target import OPTIONS, TargetKind, TargetSpec
from outcrop.runtime import prepare_database
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.maintenance import requeue_stalled_jobs
from outcrop.settings import SecretText, Settings
from tests.support.backend import Backend, Tenant, running_server
from tests.support.git_host import ENV, GitHost, git_host
from tests.support.github_host import GitHubHost, github_host, merge_egress
from tests.support.periodic import run_all
from tests.support.rulesets import cached_in, github_token

T = TypeVar("T")
COMMAND = str(Path(sys.executable).with_name("outcrop"))
DEAD_AFTER = 2.0  # seconds
SECRET_KEY = "a key for the tests only, no secret"
ENDED = {"completed", "failed"}


def until(probe: Callable[[], T | None], what: str, seconds: float = 120) -> T:
    """Call `probe` until it returns something, and return that; `what` names it in the error message."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := probe():
            return found
        time.sleep(0.2)
    raise AssertionError(f"waited {seconds} s for {what}")


@dataclass
class Deployment:
    """An account on its own database, the hosts that it scans, and the processes that scan them."""

    folder: Path
    environment: dict[str, str]
    backend: Backend
    tenant: Tenant
    git: GitHost
    github: GitHubHost
    hanging: list[socket.socket] = field(default_factory=list)  # open connections to hang.example
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    # --- repositories to scan

    def repository(self, name: str, *, seed: str | None = None) -> str:
        """Create a repository with one token and return its address."""
        path = self.folder / "repositories" / f"{name}.git"
        path.parent.mkdir(parents=True, exist_ok=True)
        for arguments, stdin in (
            (["init", "--quiet", "--bare", str(path)], ""),
            (["fast-import", "--quiet"], history(seed or name)),
        ):
            subprocess.run(
                ["git", *arguments],
                env=ENV | {"GIT_DIR": str(path)},
                input=stdin.encode(),
                check=True,
                capture_output=True,
            )
        return f"https://git.example/{name}.git"

    def organisation(self, login: str, count: int) -> list[str]:
        """Create an organisation with `count` repositories; return their names."""
        self.github.add_user(login, organisation=True)
        names = [f"{login}/r{number}" for number in range(count)]
        for name in names:
            self.repository(name)
            self.github.add_repo(name, has_wiki=False)
        return names

    def git_requests(self, name: str = "") -> list[str]:
        """Return the requests to the git host for a repository, in order: `refs` or `pack`."""
        return [
            "refs" if "info/refs" in path else "pack"
            for path, _, _ in list(self.git.requests)
            if f"/{name}" in path
        ]

    # --- runs

    def start(self, kind: TargetKind, name: str, tenant: Tenant | None = None) -> str:
        """Start a run as `outcrop target run` does, of `tenant` if it is given; return its id."""
        spec = TargetSpec(kind, name, options=dict(OPTIONS[kind]))
        account = (tenant or self.tenant).account.id
        run = self.backend.run(
            lambda db: start_run(
                db,
                self.backend.keys,
                account,
                spec,
                trigger=Trigger.CLI,
                target_id=None,
                moment=now(),
                by="a test",
            )
        )
        return str(run.id)

    def run(self, scan_id: str) -> dict[str, Any]:
        """Return a run as the API shows it."""
        found: dict[str, Any] = self.tenant.get(f"/scans/{scan_id}").raise_for_status().json()["data"]
        return found

    def status(self, scan_id: str) -> str:
        return str(self.run(scan_id)["status"])

    def wait_for_end(self, scan_id: str, seconds: float = 120) -> dict[str, Any]:
        """Wait for the end of a run, and return the run."""
        return until(
            lambda: run if (run := self.run(scan_id))["status"] in ENDED else None, "the run to end", seconds
        )

    def wait_for_status(self, scan_id: str, status: str, seconds: float = 120) -> dict[str, Any]:
        """Wait until a run has a status, and return the run."""
        return until(
            lambda: run if (run := self.run(scan_id))["status"] == status else None,
            f"the run to be {status}",
            seconds,
        )

    def sources(self, scan_id: str) -> dict[str, tuple[str, int, str | None]]:
        """Return status, attempts and error of each source of a run, without the plan."""
        rows = self.backend.sql(
            "SELECT source, status, tries, error FROM scan_sources WHERE scan_id = %s AND source <> 'plan'",
            UUID(scan_id),
        )
        return {source: (status, tries, error) for source, status, tries, error in rows}

    def jobs(self) -> int:
        """Return the number of queued and running jobs."""
        return int(self.backend.sql("SELECT count(*) FROM procrastinate_jobs")[0][0])

    def recorded(self) -> list[tuple[str, int, int]]:
        """Return place, seen count and number of `finding.new` events of each finding of the account."""
        rows = self.backend.sql(
            """SELECT coalesce(repo_full_name, source), seen_count,
                      (SELECT count(*) FROM outbox o WHERE o.finding_id = f.id AND o.event = 'finding.new')
               FROM findings f WHERE account_id = %s ORDER BY 1""",
            self.tenant.account.id,
        )
        return [(str(name), seen, events) for name, seen, events in rows]

    def requeue_stalled_jobs(self) -> int:
        """Put the jobs of dead workers back into the queue, as every worker does; return how many."""
        (count,) = run_all(self.backend, lambda context: requeue_stalled_jobs(context, dead_after=DEAD_AFTER))
        return count

    # --- processes

    def popen(
        self, *arguments: str, program: Sequence[str] = (COMMAND,), **environment: str
    ) -> "subprocess.Popen[str]":
        """Start a command in its own process group, with additional environment variables."""
        with (self.folder / f"log-{len(self.started)}").open("w") as log:
            process = subprocess.Popen(
                [*program, *arguments],
                env=self.environment | environment,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def worker(
        self, *, jobs: int = 1, dead_after: float = DEAD_AFTER, **environment: str
    ) -> "subprocess.Popen[str]":
        """Start a worker."""
        return self.popen("worker", "--jobs", str(jobs), "--dead-after", str(dead_after), **environment)

    def impatient_worker(self, idle_timeout: float) -> "subprocess.Popen[str]":
        """Start a worker whose sessions may be idle in a transaction for this many seconds only."""
        code = (
            "from outcrop.cli.serve import work_until_signal; from outcrop.cli.session import run, start;"
            f"settings = start(); run(lambda: work_until_signal(settings, 1, {DEAD_AFTER}, {idle_timeout}))"
        )
        return self.popen(program=(sys.executable, "-c", code))

    def outcrop(self, *arguments: str) -> Any:
        """Run a command with `--json` and return the parsed output."""
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
        """Return what a started process has written to standard error."""
        return (self.folder / f"log-{self.started.index(process)}").read_text()

    def processes(self) -> list[str]:
        """Return the command lines of all living processes of this deployment, also git's.

        They have its folder in their environment, or as their working directory.
        """
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                    is_own = str(self.folder).encode() in (entry / "environ").read_bytes()
                    if is_own or (entry / "cwd").readlink().is_relative_to(self.folder):
                        found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found

    def work_folders(self) -> list[Path]:
        """Return the temporary folders of running scans."""
        return list((self.folder / "cache/outcrop/work").glob("*"))

    def stop_all(self) -> None:
        """Kill all started processes and their process groups."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def history(seed: str) -> str:
    """Return a fast-import stream with one commit of a file that contains a token."""
    text = f"token = {github_token(seed)}\n"
    author = f"Ada <ada@example.org> {1_700_000_000} +0000"
    return (
        f"commit refs/heads/main\ncommitter {author}\ndata 5\nfirst\n"
        f"M 100644 inline settings.py\ndata {len(text)}\n{text}\n"
        "reset HEAD\nfrom refs/heads/main\n\n"
    )


@contextmanager
def open_deployment(folder: Path, url: str) -> Iterator[Deployment]:
    """Open a deployment on an empty database; at the end, kill all processes that it has started."""
    settings = Settings(database_url=url, data_dir=folder, secret_key=SecretText(SECRET_KEY), validate_="off")
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
            "OUTCROP_EGRESS_CONNECT_TO": f"git.example:443=127.0.0.1:{git.port},"
            f"api.git.example:443=127.0.0.1:{github.port},"
            f"hang.example:443=127.0.0.1:{silent.getsockname()[1]}",
            "OUTCROP_EGRESS_CA_FILE": str(egress.ca_file),
            "OUTCROP_GITHUB_API_URL": github.base_url,
            "XDG_CACHE_HOME": str(cached_in(folder / "cache")),
        }
        deployment = Deployment(folder, environment, backend, backend.tenant(slug="acme"), git, github)
        threading.Thread(target=hang, args=(silent, deployment.hanging), daemon=True).start()
        try:
            yield deployment
        finally:
            deployment.stop_all()
            silent.shutdown(socket.SHUT_RDWR)
            for connection in deployment.hanging:
                connection.close()


def hang(silent: socket.socket, connections: list[socket.socket]) -> None:
    """Accept connections and never answer."""
    with suppress(OSError):  # closed at the end
        while True:
            connections.append(silent.accept()[0])
