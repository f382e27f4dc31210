"""Child processes that run errands: each is started afresh, so that a service full of threads never forks."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress
from outcrop.scanner.engine.ruleset import RuleSet, load_cached, load_ruleset
from outcrop.sources.isolated.repository_job import (
    JobResult,
    JobResultWire,
    RepositoryJob,
    Told,
    pack,
    run_job,
    unpack,
)

_TELL_EVERY = 1.0  # seconds


class ProcessPool:
    """As many children as errands may run at once; one that dies is replaced, and its errand fails."""

    def __init__(
        self, size: int, rules: Sequence[Path], ruleset: RuleSet, egress: Egress, cache: Path
    ) -> None:
        self._ruleset = ruleset
        self._start = _Start(list(rules), ruleset.version, egress, cache)
        # The last one back is the next to go: a child is started only when all that have been are at work.
        self._free: asyncio.LifoQueue[_Child | None] = asyncio.LifoQueue()
        for _ in range(size):
            self._free.put_nowait(None)
        self._children: set[_Child] = set()

    async def run(self, errand: RepositoryJob, told: Told) -> JobResult:
        """Have an errand run; `told` is called as it goes on. A failure is an OperatorError."""
        child = await self._free.get()
        try:
            if (
                child is not None and not child.lives
            ):  # it has died while it had nothing to do, for want of memory maybe
                self._bury(child)
                child = None
            if child is None:
                child = _Child(
                    self._start
                )  # takes milliseconds; in a thread it could be cancelled, and the process be nobody's
                self._children.add(child)
            return unpack(await child.run(errand, told), self._ruleset)
        except (EOFError, OSError, asyncio.CancelledError) as error:
            if child is not None:
                self._bury(child)
                child = None
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OperatorError("the process that looked at it ended before its work was done") from None
        finally:
            self._free.put_nowait(child)

    def _bury(self, child: "_Child") -> None:
        child.kill()
        self._children.discard(child)

    def close(self) -> None:
        for child in self._children:
            child.kill()


@asynccontextmanager
async def open_process_pool(
    size: int, rules: Sequence[Path], ruleset: RuleSet, egress: Egress, cache: Path
) -> AsyncIterator[ProcessPool]:
    crew = ProcessPool(size, rules, ruleset, egress, cache)
    try:
        yield crew
    finally:
        crew.close()


class _Start(NamedTuple):
    """What a child begins with: the rules by their files and by their version, since files may change while a service runs."""

    rules: list[Path]
    version: str
    egress: Egress
    cache: Path


class _Child:
    def __init__(self, start: _Start) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # Not a daemon: those may have no children, and a large repository is read by several processes.
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs, start, os.getpid()))
        # Ctrl-C and a service manager tell every process at once, git too: what becomes of an errand is its parent's decision.
        resource_tracker.ensure_running()  # when it is started it lets them through again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    async def run(self, errand: RepositoryJob, told: Told) -> JobResultWire:
        await asyncio.to_thread(self._pipe.send, errand)
        while True:
            kind, value = await asyncio.to_thread(self._pipe.recv)
            if kind == "told":
                told(*value)
            elif kind == "failed":
                raise OperatorError(value)
            else:
                wire: JobResultWire = value
                return wire

    @property
    def lives(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        with suppress(ValueError, OSError):
            if self._process.pid is not None and self._process.is_alive():
                _kill(self._process.pid)
            self._process.join(5)
        self._pipe.close()


def _serve(pipe: Connection, start: _Start, parent: int) -> None:
    """Be a child: run errands until the pipe or the parent ends."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    ruleset = load_cached(start.cache, start.version) or load_ruleset(start.rules, cache=start.cache)
    while True:
        try:
            errand = pipe.recv()
        except EOFError:
            return
        last = 0.0

        def told(*figures: int) -> None:
            nonlocal last
            if time.monotonic() - last > _TELL_EVERY:
                last = time.monotonic()
                pipe.send(("told", figures))

        answer: tuple[str, object]
        try:
            answer = ("done", pack(run_job(errand, ruleset, start.egress, start.cache, told)))
        except OperatorError as error:
            answer = ("failed", error.message)
        except Exception as error:  # noqa: BLE001 - only the kind of error: its text could hold a credential
            answer = ("failed", f"looking at it failed ({type(error).__name__})")
        pipe.send(answer)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    for child in _children(os.getpid()):
        _kill(child)
    os._exit(1)


def _kill(pid: int) -> None:
    """Kill a process and all that it has started: git would go on with its clone for as long as the host lets it."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)  # so that it starts no other meanwhile
        for child in _children(pid):
            _kill(child)
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    """Give the processes that a process has started; none where the system does not tell."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int((entry / "stat").read_text("latin-1").rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.name))
    return found
