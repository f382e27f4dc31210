"""Child processes that run errands: each is started afresh, so that a service full of threads never forks."""

import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress
from outcrop.scanner.ruleset import RuleSet, load
from outcrop.sources.errand import Brought, BroughtWire, Errand, Told, pack, run_errand, unpack

_TELL_EVERY = 1.0  # seconds


class Crew:
    """As many children as errands may run at once; one that dies is replaced, and its errand fails."""

    def __init__(self, size: int, rules: Sequence[Path], ruleset: RuleSet, egress: Egress, cache: Path) -> None:
        self._ruleset = ruleset
        self._start = (list(rules), egress, cache)
        self._free: asyncio.Queue[_Child | None] = asyncio.Queue()
        for _ in range(size):
            self._free.put_nowait(None)
        self._children: set[_Child] = set()

    async def run(self, errand: Errand, told: Told) -> Brought:
        """Have an errand run; `told` is called as it goes on. A failure is an OperatorError."""
        child = await self._free.get()
        try:
            if child is None:
                child = await asyncio.to_thread(_Child, *self._start)
                self._children.add(child)
            return unpack(await child.run(errand, told), self._ruleset)
        except (EOFError, OSError, asyncio.CancelledError) as error:
            if child is not None:
                child.kill()
                self._children.discard(child)
                child = None
            if isinstance(error, asyncio.CancelledError):
                raise
            raise OperatorError("the process that looked at it ended before its work was done") from None
        finally:
            self._free.put_nowait(child)

    def close(self) -> None:
        for child in self._children:
            child.kill()


@asynccontextmanager
async def open_crew(size: int, rules: Sequence[Path], ruleset: RuleSet, egress: Egress, cache: Path) -> AsyncIterator[Crew]:
    crew = Crew(size, rules, ruleset, egress, cache)
    try:
        yield crew
    finally:
        crew.close()


class _Child:
    def __init__(self, rules: list[Path], egress: Egress, cache: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # Not a daemon: those may have no children, and a large repository is read by several processes.
        self._process: BaseProcess = context.Process(target=_serve, args=(theirs, rules, egress, cache, os.getpid()))
        self._process.start()
        theirs.close()

    async def run(self, errand: Errand, told: Told) -> BroughtWire:
        await asyncio.to_thread(self._pipe.send, errand)
        while True:
            kind, value = await asyncio.to_thread(self._pipe.recv)
            if kind == "told":
                told(*value)
            elif kind == "failed":
                raise OperatorError(value)
            else:
                wire: BroughtWire = value
                return wire

    def kill(self) -> None:
        with suppress(ValueError, OSError):
            self._process.kill()
            self._process.join(5)
        self._pipe.close()


def _serve(pipe: Connection, rules: list[Path], egress: Egress, cache: Path, parent: int) -> None:
    """Be a child: run errands until the pipe or the parent ends."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    ruleset = load(rules, cache=cache)
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
            answer = ("done", pack(run_errand(errand, ruleset, egress, cache, told)))
        except OperatorError as error:
            answer = ("failed", error.message)
        except Exception as error:  # noqa: BLE001 - only the kind of error: its text could hold a credential
            answer = ("failed", f"looking at it failed ({type(error).__name__})")
        pipe.send(answer)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
