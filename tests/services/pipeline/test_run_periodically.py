"""Test that a periodic step ends together with the body."""

import asyncio

import pytest

from outcrop.services.pipeline.context import run_periodically


def test_the_step_is_repeated_while_the_body_runs():
    calls = 0

    async def main() -> int:
        enough = asyncio.Event()

        async def step() -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                enough.set()
            await asyncio.sleep(0)

        async with run_periodically(step):
            await enough.wait()
        return calls

    assert asyncio.run(asyncio.wait_for(main(), 60)) == calls


def test_a_lost_cancellation_does_not_block_the_end():
    """Psycopg and wait_for can lose a cancellation that arrives together with the awaited result."""
    lost = 0

    async def step() -> None:
        nonlocal lost
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost += 1

    async def main() -> None:
        async with run_periodically(step):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 60))
    assert lost == 1


def test_the_step_ends_if_the_body_fails_and_its_own_failure_is_ignored():
    async def step() -> None:
        await asyncio.sleep(0)
        raise ValueError("in the step")

    async def main() -> None:
        async with run_periodically(step):
            await asyncio.sleep(0.01)
            raise KeyError("in the body")

    with pytest.raises(KeyError, match="in the body"):
        asyncio.run(asyncio.wait_for(main(), 60))
