"""Work spread over processes: batches go out, results come back, and a process that dies is noticed."""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from outcrop.domain.errors import OperatorError

Emit = Callable[[Any], None]
Work = Callable[[Iterator[Any], Emit], None]

_MOST_OWN = (
    20 << 20
)  # bytes with which a process gives way to another: engines and heaps keep all that they once had
_LEAST_WORK = 5.0  # seconds of CPU time before it does: the next one has to warm up


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(batches: Iterable[Any], work: Work, jobs: int) -> Iterator[Any]:
    """Run `work(batches, emit)` in so many processes, each with its share of the batches; give what they emit as it comes.

    The processes are forked, so `work` may hold what cannot be sent: a compiled database, an open folder. However much there is to do,
    none becomes much larger than it began: `work` comes to an end of its batches, and another process goes on with the rest.
    """
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[Any] = context.Queue(maxsize=jobs * 2)
    processes: dict[Connection, BaseProcess] = {}
    left = iter(batches)
    gc.freeze()  # what is there is shared, for as long as nobody writes to it, as looking through it would

    def begin(*first: Any) -> None:
        _trim()
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(
            target=_run, args=(first, queue, writer, work, [*processes, reader], os.getpid()), daemon=True
        )
        process.start()
        writer.close()
        processes[reader] = process

    for batch in list(islice(left, jobs)):  # none for which there is nothing to do, and each begins at once
        begin(batch)
    failure: list[BaseException] = []
    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(left, queue, len(processes), stop, failure), daemon=True)
    feeder.start()
    try:
        while processes:
            for pipe, result in _told(processes):
                if not isinstance(result, _End):
                    yield result
                    continue
                processes.pop(pipe).join()
                pipe.close()
                if result is _End.GROWN:
                    begin()
        feeder.join()
        if failure:
            raise failure[0]
    finally:
        stop.set()
        for pipe, process in processes.items():
            if process.is_alive() and process.pid is not None:
                process.kill()  # a crew's processes are deaf to anything less
            process.join(5)
            pipe.close()
        queue.cancel_join_thread()
        queue.close()


def share(batches: Iterable[Any], work: Work, jobs: int) -> Iterator[Any]:
    """Do the same in threads: for work of which programs do the most that it starts."""
    _trim()
    left = iter(batches)
    lock = threading.Lock()
    told: SimpleQueue[Any] = SimpleQueue()
    stop = threading.Event()

    def mine() -> Iterator[Any]:
        while not stop.is_set():
            with lock:
                batch = list(islice(left, 1))
            if not batch:
                return
            yield batch[0]

    def run() -> None:
        try:
            work(mine(), told.put)
            told.put(_End.DONE)
        except Exception as error:  # noqa: BLE001 - as in a process
            told.put(_Failed(type(error).__name__))

    for _ in range(jobs):
        threading.Thread(target=run, daemon=True).start()
    try:
        while jobs:
            result = _checked(told.get())
            if result is _End.DONE:
                jobs -= 1
            else:
                yield result
    finally:
        stop.set()


def _feed(
    batches: Iterable[Any],
    queue: "multiprocessing.Queue[Any]",
    jobs: int,
    stop: threading.Event,
    failure: list[BaseException],
) -> None:
    def put(item: Any) -> None:
        while not stop.is_set():
            with contextlib.suppress(Exception):  # queue.Full
                queue.put(item, timeout=0.5)
                return

    try:
        for batch in batches:
            put(batch)
            if stop.is_set():
                return
    except BaseException as error:  # noqa: BLE001 - told in the main thread
        failure.append(error)
    for _ in range(jobs):
        put(None)


class _End(Enum):
    """The last that is told: there is nothing left to do, or another process is to do it."""

    DONE = "done"
    GROWN = "grown"


class _Failed:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _told(processes: Mapping[Connection, object]) -> Iterator[tuple[Connection, Any]]:
    """Wait for what processes tell, and give it with the pipe it came through."""
    for pipe in wait(list(processes)):
        assert isinstance(pipe, Connection)  # noqa: S101 - for the type checker
        try:
            yield pipe, _checked(pipe.recv())
        except EOFError:
            raise OperatorError("a scanning process ended before its work was done") from None


def _checked(result: Any) -> Any:
    if isinstance(result, _Failed):
        raise OperatorError(f"a scanning process failed: {result.reason}")
    return result


def _run(  # noqa: PLR0917 - what it has, and where it stands among the others
    first: tuple[Any, ...],
    queue: "multiprocessing.Queue[Any]",
    writer: Connection,
    work: Work,
    others: list[Connection],
    parent: int,
) -> None:
    """Be one process: the parent handles Ctrl-C, and its death ends this one, whatever it is at."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    has_grown = False

    def mine() -> Iterator[Any]:
        nonlocal has_grown
        yield from first
        while not has_grown and (batch := queue.get()) is not None:
            yield batch
            has_grown = time.process_time() > _LEAST_WORK and _own() > _MOST_OWN

    try:
        work(mine(), writer.send)
        writer.send(_End.GROWN if has_grown else _End.DONE)
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - only the kind of error: its text could hold a credential
        with contextlib.suppress(OSError):
            writer.send(_Failed(type(error).__name__))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _own() -> int:
    """Give how many bytes this process shares with no other; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))


def _trim() -> None:
    """Give back to the system what is free: a process that is forked would write to it, and have it as its own."""
    with contextlib.suppress(OSError, AttributeError):  # only one C library can
        ctypes.CDLL(None).malloc_trim(0)
