"""Run a function over batches: in forked processes (`run_in_processes`) or in threads (`run_in_threads`).

A thread feeds the batches, and the results are yielded in the order in which they arrive. A failing or dying
process ends the run with an OperatorError. A process whose own memory has grown is replaced by a new fork.
"""

import contextlib
import ctypes
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from outcrop.domain.errors import OperatorError
from outcrop.lazy_regex import compile_all
from outcrop.processes import delay_interrupts, wait_for_end, watch_parent
from outcrop.sandbox import READ_ONLY, restrict
from outcrop.sources.budget import SourceBudget, was_cut

Emit = Callable[[Any], None]
Work = Callable[[Iterator[Any], Emit], None]  # reads batches from the iterator and emits results


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """When a process is replaced by a new fork: regex engines and the heap keep all memory they once used.

    The next process has to fill its caches again, so a process runs for some time first.
    """

    private_bytes: int = 20 << 20  # of memory that only this process uses
    cpu_seconds: float = 5.0  # at least, before it is replaced


PROCESS_LIMITS = ProcessLimits()


def count_cores() -> int:
    """Return how many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_processes(  # noqa: C901 - starting and receiving share the processes
    batches: Iterable[Any],
    work: Work,
    jobs: int,
    limits: ProcessLimits = PROCESS_LIMITS,
    budget: SourceBudget | None = None,
) -> Iterator[Any]:
    """Call `work(batches, emit)` in up to `jobs` processes that share the batches; yield what they emit.

    Results are in no particular order. The processes are forked, so `work` may refer to objects that cannot
    be pickled, such as a compiled Hyperscan database; batches and results are pickled. In a process that has
    grown, the iterator of batches ends early: `work` returns, and a new fork continues. Raise OperatorError
    if a process fails or dies, and what the `batches` iterator raises. When the caller stops early, the
    processes are killed. When `budget` is cut short, it has killed the processes: the results end early.
    """
    remaining = iter(batches)
    first = list(islice(remaining, jobs))  # at most one process per batch, which it starts with
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[Any] = context.Queue(maxsize=jobs * 2)
    processes: dict[Connection, BaseProcess] = {}
    if len(first) > 1:
        compile_all()  # here, and not in every process; a single process compiles what it uses
    gc.freeze()  # a garbage collection would write to the shared pages, and each process would copy them

    def start_process(*first_batch: Any) -> None:
        """Fork a process and add it to `processes`; the process begins with `first_batch`, if passed."""
        _return_free_memory()
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(
            target=_run_process,
            args=(first_batch, queue, writer, work, [*processes, reader], os.getpid(), limits),
            daemon=True,
        )
        with delay_interrupts():
            process.start()
            processes[reader] = process
        writer.close()

    errors: list[BaseException] = []
    stop = threading.Event()
    try:
        for batch in first:
            start_process(batch)
        feeder = threading.Thread(
            target=_feed, args=(remaining, queue, len(processes), stop, errors), daemon=True
        )
        feeder.start()
        while processes:
            for pipe, result in _receive(processes):
                if not isinstance(result, _ProcessEnd):
                    yield result
                    continue
                processes.pop(pipe).join()
                pipe.close()
                if result is _ProcessEnd.GROWN:
                    compile_all()
                    start_process()
        feeder.join()
        if errors:
            raise errors[0]
    except ProcessDiedError:
        if not was_cut(budget):
            raise
    finally:
        stop.set()
        for pipe, process in processes.items():
            if process.is_alive() and process.pid is not None:
                process.kill()  # not terminate(): SIGTERM is blocked in children of a process pool
            process.join(5)
            pipe.close()
        queue.cancel_join_thread()
        queue.close()


def run_in_threads(batches: Iterable[Any], work: Work, jobs: int) -> Iterator[Any]:
    """Call `work(batches, emit)` in `jobs` threads that share the batches; yield what they emit.

    Results are in no particular order. For work that mostly waits for other programs, such as git. Raise
    OperatorError if `work` or the `batches` iterator fails in a thread.
    """
    _return_free_memory()
    remaining = iter(batches)
    lock = threading.Lock()
    results: SimpleQueue[Any] = SimpleQueue()
    stop = threading.Event()

    def take_batches() -> Iterator[Any]:
        """Yield batches that no other thread has taken, until none remains or `stop` is set."""
        while not stop.is_set():
            with lock:
                batch = list(islice(remaining, 1))
            if not batch:
                return
            yield batch[0]

    def run_thread() -> None:
        """Run `work`, then put _ProcessEnd.DONE into `results`, or a _ProcessFailure if `work` raised."""
        try:
            work(take_batches(), results.put)
            results.put(_ProcessEnd.DONE)
        except Exception as error:  # noqa: BLE001 - as in a process
            results.put(_ProcessFailure(type(error).__name__))

    for _ in range(jobs):
        threading.Thread(target=run_thread, daemon=True).start()
    try:
        while jobs:
            result = _raise_failure(results.get())
            if result is _ProcessEnd.DONE:
                jobs -= 1
            else:
                yield result
    finally:
        stop.set()


def _feed(
    batches: Iterable[Any],
    queue: "multiprocessing.Queue[Any]",
    processes: int,
    stop: threading.Event,
    errors: list[BaseException],
) -> None:
    """Put the batches into the queue, then one None for each of `processes` processes as the end mark.

    An error of the `batches` iterator is added to `errors`, and the end marks follow. Return early when
    `stop` is set.
    """

    def put(item: Any) -> None:
        """Put an item into the queue as soon as there is room; return without doing so when `stop` is set."""
        while not stop.is_set():
            with contextlib.suppress(Exception):  # queue.Full
                queue.put(item, timeout=0.5)
                return

    try:
        for batch in batches:
            put(batch)
            if stop.is_set():
                return
    except BaseException as error:  # noqa: BLE001 - the main thread raises it
        errors.append(error)
    for _ in range(processes):
        put(None)


class ProcessDiedError(OperatorError):
    """A process has ended without its last message: it was killed."""


class _ProcessEnd(Enum):
    """The last message of a process or thread."""

    DONE = "done"  # no batch remains
    GROWN = "grown"  # the process has grown: a new one is to continue


class _ProcessFailure:
    """The message of a process or thread whose work raised an exception with the type name `error_name`."""

    def __init__(self, error_name: str) -> None:
        self.error_name = error_name


def _receive(processes: Mapping[Connection, object]) -> Iterator[tuple[Connection, Any]]:
    """Wait until processes have sent something; yield one message of each of these, with its pipe.

    `processes` has the pipes as keys. Raise OperatorError if a process has failed or ended without a last
    message.
    """
    for pipe in wait(list(processes)):
        assert isinstance(pipe, Connection)  # noqa: S101 - for the type checker
        try:
            yield pipe, _raise_failure(pipe.recv())
        except EOFError:
            raise ProcessDiedError("a scanning process ended before its work was done") from None


def _raise_failure(message: Any) -> Any:
    """Return the message; raise OperatorError if it is a _ProcessFailure."""
    if isinstance(message, _ProcessFailure):
        raise OperatorError(f"a scanning process failed: {message.error_name}")
    return message


def _run_process(  # noqa: PLR0917 - a process target takes all that it needs as arguments
    first_batch: tuple[Any, ...],
    queue: "multiprocessing.Queue[Any]",
    writer: Connection,
    work: Work,
    inherited_pipes: list[Connection],
    parent: int,
    limits: ProcessLimits,
) -> None:
    """Run `work` in a forked process: on its first batch (a tuple of 0 or 1), then on batches from the queue.

    Results and the last message (a _ProcessEnd, or a _ProcessFailure if `work` raises) are sent to `writer`.
    `inherited_pipes` belong to the parent and are closed. The process cannot write files or connect to hosts.
    It ignores Ctrl-C, which its parent
    handles, and exits when the process `parent` is gone.
    """
    restrict(READ_ONLY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for pipe in inherited_pipes:
        pipe.close()
    watch_parent(lambda: wait_for_end(parent))
    has_grown = False

    def take_batches() -> Iterator[Any]:
        """Yield the first batch, then batches of the queue until its end, or until this process has grown."""
        nonlocal has_grown
        yield from first_batch
        while not has_grown and (batch := queue.get()) is not None:
            yield batch
            has_grown = (
                time.process_time() > limits.cpu_seconds and read_private_bytes() > limits.private_bytes
            )

    try:
        work(take_batches(), writer.send)
        writer.send(_ProcessEnd.GROWN if has_grown else _ProcessEnd.DONE)
    except BrokenPipeError:
        os._exit(1)
    except Exception as error:  # noqa: BLE001 - only the type of the error: its text could hold a credential
        with contextlib.suppress(OSError):
            writer.send(_ProcessFailure(type(error).__name__))


def read_private_bytes() -> int:
    """Return how many bytes of memory only this process has written; 0 where /proc has no such figure."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))


def _return_free_memory() -> None:
    """Return freed heap memory to the system: a forked process would write to it and so get its own copy."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has malloc_trim
        ctypes.CDLL(None).malloc_trim(0)
