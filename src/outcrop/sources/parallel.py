"""Work spread over processes: batches go out, results come back, and a process that dies is noticed."""

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from outcrop.domain.errors import OperatorError

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Emit = Callable[[Any], None]
Work = Callable[[Iterator[Any], Emit], None]

_DONE = b"done"


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(batches: Iterable[Any], work: Work, jobs: int) -> Iterator[Any]:
    """Run `work(batches, emit)` in so many processes, each with its share of the batches; give what they emit as it comes.

    The processes are forked, so `work` may hold what cannot be sent: a compiled database, an open folder.
    """
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[Any] = context.Queue(maxsize=jobs * 2)
    pipes: list[Connection] = []
    processes = []
    left = iter(batches)
    gc.freeze()  # what is there is shared, for as long as nobody writes to it, as looking through it would
    for batch in list(islice(left, jobs)):  # none for which there is nothing to do, and each begins at once
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(batch, queue, writer, work, [*pipes, reader], os.getpid()), daemon=True)
        process.start()
        writer.close()
        pipes.append(reader)
        processes.append(process)
    failure: list[BaseException] = []
    stop = threading.Event()
    feeder = threading.Thread(target=_feed, args=(left, queue, len(processes), stop, failure), daemon=True)
    feeder.start()
    try:
        yield from _collect(pipes)
        feeder.join()
        if failure:
            raise failure[0]
    finally:
        stop.set()
        for process in processes:
            if process.is_alive() and process.pid is not None:
                process.kill()  # a crew's processes are deaf to anything less
            process.join(5)
        for pipe in pipes:
            pipe.close()
        queue.cancel_join_thread()
        queue.close()


def _feed(
    batches: Iterable[Any], queue: "multiprocessing.Queue[Any]", jobs: int, stop: threading.Event, failure: list[BaseException]
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


def _collect(pipes: list[Connection]) -> Iterator[Any]:
    open_pipes = list(pipes)
    while open_pipes:
        for ready in wait(open_pipes):
            pipe = ready
            assert isinstance(pipe, Connection)  # noqa: S101 - for the type checker
            try:
                result = pipe.recv()
            except EOFError:
                raise OperatorError("a scanning process ended before its work was done") from None
            if result == _DONE:
                open_pipes.remove(pipe)
            elif isinstance(result, _Failed):
                raise OperatorError(f"a scanning process failed: {result.reason}")
            else:
                yield result


class _Failed:
    def __init__(self, reason: str) -> None:
        self.reason = reason


def _run(  # noqa: PLR0917 - what it has, and where it stands among the others
    first: Any, queue: "multiprocessing.Queue[Any]", writer: Connection, work: Work, others: list[Connection], parent: int
) -> None:
    """Be one process: the parent handles Ctrl-C, and its death ends this one, whatever it is at."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()

    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()

    def mine() -> Iterator[Any]:
        yield first
        while (batch := queue.get()) is not None:
            yield batch

    try:
        work(mine(), writer.send)
        writer.send(_DONE)
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - only the kind of error: its text could hold a credential
        with contextlib.suppress(OSError):
            writer.send(_Failed(type(error).__name__))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
