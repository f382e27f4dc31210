"""Run work in processes and threads: each batch is run once, and a large process is replaced."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.sources import fork_pool
from outcrop.sources.fork_pool import Emit, ProcessLimits, run_in_processes, run_in_threads

RunFunction = Callable[[Iterable[Any], fork_pool.Work, int], Iterator[Any]]


def emit_worker(batches: Iterator[int], emit: Emit) -> None:
    for batch in batches:
        emit((batch, os.getpid(), threading.get_ident()))


@pytest.fixture(params=[run_in_processes, run_in_threads])
def run(request: pytest.FixtureRequest) -> RunFunction:
    given: RunFunction = request.param
    return given


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_batch_is_run_once(run: RunFunction, count: int, jobs: int) -> None:
    results = list(run(range(count), emit_worker, jobs))
    assert sorted(batch for batch, *_ in results) == list(range(count))
    assert len({who for _, *who in results for who in [tuple(who)]}) <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_has_grown_is_replaced(jobs: int) -> None:
    limits = ProcessLimits(private_bytes=0, cpu_seconds=0)
    results = list(run_in_processes(range(20), emit_worker, jobs, limits))
    assert sorted(batch for batch, *_ in results) == list(range(20))
    assert (
        len({pid for _, pid, _ in results}) >= 20 - jobs
    )  # a process checks its memory after its second batch


def test_memory_that_is_kept_for_each_batch_does_not_add_up() -> None:
    limits = ProcessLimits(private_bytes=40 << 20, cpu_seconds=0)
    kept: list[bytes] = []

    def keep(batches: Iterator[int], emit: Emit) -> None:
        for batch in batches:
            kept.append(os.urandom(8 << 20))
            emit((batch, fork_pool.read_private_bytes()))

    results = list(run_in_processes(range(30), keep, 2, limits))
    assert sorted(batch for batch, _ in results) == list(range(30))
    assert max(own for _, own in results) < (40 + 8 + 16) << 20  # 240 in all, 120 for each process
    assert max(own for _, own in results) > 40 << 20


def test_a_process_that_has_just_started_is_not_replaced() -> None:
    results = list(run_in_processes(range(20), emit_worker, 2, ProcessLimits(private_bytes=0)))
    assert len({pid for _, pid, _ in results}) <= 2


def test_a_failure_is_reported_without_its_text(run: RunFunction) -> None:
    def fail(batches: Iterator[int], _: Emit) -> None:
        raise LookupError(f"with a credential: {next(batches)}")

    with pytest.raises(OperatorError) as failed:
        list(run(range(3), fail, 2))
    assert str(failed.value) == "a scanning process failed: LookupError"


def test_a_killed_process_is_an_error() -> None:
    def killed(batches: Iterator[int], _: Emit) -> None:
        for batch in batches:
            if batch == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(OperatorError, match="ended before its work was done"):
        list(run_in_processes(range(10), killed, 2))


def test_an_error_in_the_iterator_of_batches_is_raised() -> None:
    def batches() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        list(run_in_processes(batches(), emit_worker, 2))


def test_closing_the_iterator_of_results_stops_the_threads() -> None:
    taken: list[int] = []
    is_closed = threading.Event()

    def batches() -> Iterator[int]:
        for number in range(1_000):
            taken.append(number)
            yield number

    def work(batches: Iterator[int], emit: Emit) -> None:
        for batch in batches:
            emit(batch)
            is_closed.wait(60)

    results = run_in_threads(batches(), work, 2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    is_closed.set()
    assert len(taken) <= 2


INTERRUPTED_WHILE_FORKING = """
import os, signal
from outcrop.sources.fork_pool import run_in_processes

os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    list(run_in_processes(range(3), lambda batches, emit: [emit(batch) for batch in batches], 2))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupt_while_a_process_is_forked_is_not_lost() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_FORKING], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "interrupted\n", "")
