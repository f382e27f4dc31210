"""Run repository jobs in child processes.

Each child is a new interpreter (`spawn`), because a service with many threads must not fork. A child runs one
job after the other: it receives a RepositoryJob through a pipe, and sends progress and a result or an error.
"""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.limits import SOURCE_LIMITS, SourceLimits
from outcrop.net.guard import Egress
from outcrop.processes import kill_tree, wait_for_end, watch_parent
from outcrop.sandbox import Owner, Sandbox, become, everything_but, forget_settings, restrict
from outcrop.scanner.engine.load import load_compiled, load_ruleset
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.sources.isolated.repository_job import (
    JobProgressCallback,
    JobResult,
    RepositoryJob,
    SerializedJobResult,
    deserialize_job_result,
    run_job,
    serialize_job_result,
)
from outcrop.sources.isolated.slots import PoolSlots
from outcrop.sources.workspace import create_work_folders

_PROGRESS_INTERVAL = 1.0  # seconds
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - multiprocessing has its semaphores there


class ProcessPool:
    """Up to `size` child processes that run jobs. A child that dies is replaced, and its job fails.

    `rules` are the rule files, and `ruleset` the rules loaded from them. `egress` has the network rules for
    the children, and `cache` is their folder for compiled rules. They clone repositories into the folder
    `work`, by default in `cache`. `limits` are those of each job. Children of root become the user `owner`,
    if there is one, and cannot read the folder `hidden`, which has our secrets. Jobs that are not urgent
    leave `reserved` children free.
    """

    def __init__(  # noqa: PLR0917 - what a job needs
        self,
        size: int,
        rules: Sequence[Path],
        ruleset: RuleSet,
        egress: Egress,
        cache: Path,
        limits: SourceLimits = SOURCE_LIMITS,
        work: Path | None = None,
        owner: Owner | None = None,
        *,
        reserved: int = 0,
        hidden: Path | None = None,
    ) -> None:
        self._slots = PoolSlots(size, reserved)
        self._ruleset = ruleset
        self._config = _ChildConfig(
            list(rules), ruleset.version, egress, cache, limits, work or cache, owner, hidden
        )
        # Last in, first out: a child is started (for a None) only if all running ones are busy.
        self._free: asyncio.LifoQueue[_ChildProcess | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._free.put_nowait(None)
        self._children: set[_ChildProcess] = set()

    async def run(
        self, job: RepositoryJob, on_progress: JobProgressCallback, *, urgent: bool = False
    ) -> JobResult:
        """Run a job in a free child, wait for one if all are busy, and return the result.

        A child is started if none is idle. Urgent jobs wait for less, as in `PoolSlots`. `on_progress` is
        called with blobs, bytes and commits. Raise OperatorError if the job fails or the child dies. If this
        task is cancelled, the child is killed.
        """
        async with self._slots.hold(urgent=urgent):
            return await self._run(job, on_progress)

    async def _run(self, job: RepositoryJob, on_progress: JobProgressCallback) -> JobResult:
        """Run a job in a free child, as `run` says."""
        child = await self._free.get()
        try:
            if child is not None and not child.is_alive:  # killed while idle, perhaps for lack of memory
                self._remove(child)
                child = None
            if child is None:
                # Takes milliseconds. In a thread it could be cancelled and leave a process without owner.
                child = _ChildProcess(self._config)
                self._children.add(child)
            return deserialize_job_result(await child.run(job, on_progress), self._ruleset)
        except (EOFError, OSError, asyncio.CancelledError) as error:
            if child is not None:
                self._remove(child)
                child = None
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OperatorError("the scanning process ended before its work was done") from None
        finally:
            self._free.put_nowait(child)

    def _remove(self, child: "_ChildProcess") -> None:
        """Kill a child and remove it from the pool."""
        child.kill()
        self._children.discard(child)

    def close(self) -> None:
        """Kill all children and the processes that they started; jobs that still run fail."""
        for child in self._children:
            child.kill()


@asynccontextmanager
async def open_process_pool(  # noqa: PLR0917 - what a job needs
    size: int,
    rules: Sequence[Path],
    ruleset: RuleSet,
    egress: Egress,
    cache: Path,
    limits: SourceLimits = SOURCE_LIMITS,
    work: Path | None = None,
    owner: Owner | None = None,
    *,
    reserved: int = 0,
    hidden: Path | None = None,
) -> AsyncIterator[ProcessPool]:
    """Yield a ProcessPool with these arguments, and kill its processes on exit."""
    pool = ProcessPool(
        size, rules, ruleset, egress, cache, limits, work, owner, reserved=reserved, hidden=hidden
    )
    try:
        yield pool
    finally:
        pool.close()


class _ChildConfig(NamedTuple):
    """The arguments of a child process.

    A child loads this version of the rules from the cache: the files may change while a service runs.
    """

    rules: list[Path]
    version: str
    egress: Egress
    cache: Path
    limits: SourceLimits
    work: Path
    owner: Owner | None
    hidden: Path | None

    @property
    def sandbox(self) -> Sandbox:
        """Return the rights of a child: it may not read the folder `hidden`, except what it works on."""
        writable = (*create_work_folders(self.work), _SHARED_MEMORY)
        if self.hidden is None:
            return Sandbox(writable, network=True)
        readable = everything_but(self.hidden)
        if self.egress.ca_file is not None:
            readable += (self.egress.ca_file,)
        return Sandbox(writable, network=True, readable=readable)


class _ChildProcess:
    """A child process and the parent's end of its pipe."""

    def __init__(self, config: _ChildConfig) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        # Not a daemon: a daemon may have no children, and a large repository is scanned by several processes.
        self._process: BaseProcess = context.Process(
            target=_serve_jobs, args=(child_pipe, config, os.getpid())
        )
        # Ctrl-C and service managers signal the whole process group, git too. Only the parent decides about a
        # job, so the child and its children inherit a mask that blocks these signals.
        resource_tracker.ensure_running()  # starting the tracker later would unblock the signals again
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        child_pipe.close()

    async def run(self, job: RepositoryJob, on_progress: JobProgressCallback) -> SerializedJobResult:
        """Send the job, call `on_progress` for each progress message, and return the serialized result.

        Raise OperatorError if the job failed, and EOFError or OSError if the child has ended.
        """
        await asyncio.to_thread(self._pipe.send, job)
        while True:
            kind, value = await asyncio.to_thread(self._pipe.recv)
            if kind == "progress":
                on_progress(*value)
            elif kind == "failed":
                raise OperatorError(value)
            else:
                serialized: SerializedJobResult = value
                return serialized

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.is_alive()

    def kill(self) -> None:
        """Kill the process with all processes that it started, wait up to 5 seconds, and close the pipe."""
        with suppress(ValueError, OSError):
            if self._process.pid is not None and self._process.is_alive():
                kill_tree(self._process.pid)
            self._process.join(5)
        self._pipe.close()


def _serve_jobs(pipe: Connection, config: _ChildConfig, parent: int) -> None:
    """Run jobs from the pipe until it is closed or the process `parent` ends: the main code of a child.

    For each job progress and then the result, or the reason of a failure, are sent through the pipe.
    """
    forget_settings()
    watch_parent(lambda: wait_for_end(parent))
    ruleset = load_compiled(config.cache, config.version) or load_ruleset(config.rules, cache=config.cache)
    if config.owner is not None:
        become(config.owner)
    # The addresses of hosts are looked up here, and git connects to them. The processes that search text
    # cannot connect to anything (`fork_pool`), nor can git when it reads a clone.
    restrict(config.sandbox)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        last_sent = 0.0

        def send_progress(*figures: int) -> None:
            """Send (blobs, bytes, commits) to the parent, unless that was done within _PROGRESS_INTERVAL."""
            nonlocal last_sent
            if time.monotonic() - last_sent > _PROGRESS_INTERVAL:
                last_sent = time.monotonic()
                pipe.send(("progress", figures))

        message: tuple[str, object]
        try:
            result = run_job(job, ruleset, config.egress, config.work, send_progress, config.limits)
            message = ("done", serialize_job_result(result))
        except OperatorError as error:
            message = ("failed", error.message)
        except Exception as error:  # noqa: BLE001 - only the error's type: its text could contain a credential
            message = ("failed", f"the scan failed ({type(error).__name__})")
        pipe.send(message)
