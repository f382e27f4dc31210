"""Work that is shared by processes or threads: each batch is done once, and no process becomes large."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.sources import fork_pool
from outcrop.sources.fork_pool import Emit, run_in_processes, run_in_threads

Shared = Callable[[Iterable[Any], fork_pool.Work, int], Iterator[Any]]


def tell_who(batches: Iterator[int], emit: Emit) -> None:
    for batch in batches:
        emit((batch, os.getpid(), threading.get_ident()))


@pytest.fixture(params=[run_in_processes, run_in_threads])
def shared(request: pytest.FixtureRequest) -> Shared:
    given: Shared = request.param
    return given


@pytest.mark.parametrize("count", [0, 1, 2, 50])
@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_each_batch_is_done_once(shared: Shared, count: int, jobs: int) -> None:
    told = list(shared(range(count), tell_who, jobs))
    assert sorted(batch for batch, *_ in told) == list(range(count))
    assert len({who for _, *who in told for who in [tuple(who)]}) <= jobs


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_process_that_has_become_large_gives_way_to_another(
    monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(fork_pool, "MAX_PRIVATE_BYTES", 0)
    monkeypatch.setattr(fork_pool, "MIN_CPU_SECONDS", 0)
    told = list(run_in_processes(range(20), tell_who, jobs))
    assert sorted(batch for batch, *_ in told) == list(range(20))
    assert (
        len({pid for _, pid, _ in told}) >= 20 - jobs
    )  # the first batch is there before it has looked at itself


def test_so_that_what_is_kept_for_each_batch_does_not_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_pool, "MAX_PRIVATE_BYTES", 40 << 20)
    monkeypatch.setattr(fork_pool, "MIN_CPU_SECONDS", 0)
    kept: list[bytes] = []

    def keep(batches: Iterator[int], emit: Emit) -> None:
        for batch in batches:
            kept.append(os.urandom(8 << 20))
            emit((batch, fork_pool.read_private_bytes()))

    told = list(run_in_processes(range(30), keep, 2))
    assert sorted(batch for batch, _ in told) == list(range(30))
    assert max(own for _, own in told) < (40 + 8 + 16) << 20  # 240 in all, 120 for each process
    assert max(own for _, own in told) > 40 << 20


def test_a_process_that_has_only_begun_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_pool, "MAX_PRIVATE_BYTES", 0)
    told = list(run_in_processes(range(20), tell_who, 2))
    assert len({pid for _, pid, _ in told}) <= 2


def test_a_failure_is_told_without_its_text(shared: Shared) -> None:
    def fail(batches: Iterator[int], _: Emit) -> None:
        raise LookupError(f"with a credential: {next(batches)}")

    with pytest.raises(OperatorError) as failed:
        list(shared(range(3), fail, 2))
    assert str(failed.value) == "a scanning process failed: LookupError"


def test_a_process_that_is_killed_is_noticed() -> None:
    def killed(batches: Iterator[int], _: Emit) -> None:
        for batch in batches:
            if batch == 3:
                os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(OperatorError, match="ended before its work was done"):
        list(run_in_processes(range(10), killed, 2))


def test_batches_that_end_in_an_error_are_told() -> None:
    def batches() -> Iterator[int]:
        yield from range(5)
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        list(run_in_processes(batches(), tell_who, 2))


def test_who_stops_listening_stops_the_threads() -> None:
    drawn: list[int] = []
    heard = threading.Event()

    def batches() -> Iterator[int]:
        for number in range(1_000):
            drawn.append(number)
            yield number

    def work(mine: Iterator[int], emit: Emit) -> None:
        for batch in mine:
            emit(batch)
            heard.wait(10)

    told = run_in_threads(batches(), work, 2)
    next(told)
    told.close()
    heard.set()
    assert len(drawn) <= 2
