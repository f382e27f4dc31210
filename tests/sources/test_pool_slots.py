"""Test how scheduled and urgent jobs share the slots of a process pool."""

import asyncio

import pytest

from outcrop.sources.isolated.slots import PoolSlots

pytestmark = pytest.mark.anyio


class Users:
    """Jobs that hold slots until they are released."""

    def __init__(self, slots: PoolSlots) -> None:
        self._slots = slots
        self.running: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    async def start(self, *names: str) -> None:
        """Start jobs; those whose name begins with `push` are urgent."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.create_task(self._run(name))
            await self._settle()

    async def _run(self, name: str) -> None:
        async with self._slots.hold(urgent=name.startswith("push")):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._settle()

    async def cancel(self, name: str) -> None:
        self._tasks[name].cancel()
        await asyncio.gather(self._tasks[name], return_exceptions=True)
        await self._settle()

    async def _settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_scheduled_jobs_leave_a_slot_that_an_urgent_job_gets_at_once() -> None:
    users = Users(PoolSlots(4, reserved=1))
    await users.start("a", "b", "c", "d")
    assert users.running == ["a", "b", "c"]
    await users.start("push 1", "push 2")
    assert users.running == ["a", "b", "c", "push 1"]
    await users.end("a")  # the urgent job comes before the one that waits longer
    assert users.running == ["b", "c", "push 1", "push 2"]
    await users.end("push 1", "push 2")
    assert users.running == ["b", "c", "d"]


async def test_urgent_jobs_take_three_quarters_of_the_slots() -> None:
    users = Users(PoolSlots(4, reserved=1))
    await users.start(*(f"push {number}" for number in range(5)), "a")
    assert users.running == ["push 0", "push 1", "push 2", "a"]
    await users.end("push 1")
    assert users.running == ["push 0", "push 2", "a", "push 3"]


async def test_a_cancelled_job_takes_no_slot_with_it() -> None:
    users = Users(PoolSlots(1))
    await users.start("a", "b", "push 1", "c")
    await users.cancel("b")
    await users.cancel("push 1")
    await users.cancel("a")
    assert users.running == ["c"]
    await users.end("c")
    await users.start("d")
    assert users.running == ["d"]


@pytest.mark.parametrize(("size", "reserved"), [(1, 0), (1, 1), (2, 1)])
async def test_small_pools_run_jobs_of_both_kinds(size: int, reserved: int) -> None:
    users = Users(PoolSlots(size, reserved=reserved))
    await users.start("a")
    assert users.running == ["a"]
    await users.end("a")
    await users.start("push 1")
    assert users.running == ["push 1"]
