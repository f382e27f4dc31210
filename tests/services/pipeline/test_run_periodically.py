"""What goes on beside a run ends with it."""

import asyncio

import pytest

from outcrop.services.pipeline.context import run_periodically


def test_it_goes_on_while_the_body_runs_and_no_longer():
    turns = 0

    async def main() -> int:
        enough = asyncio.Event()

        async def turn() -> None:
            nonlocal turns
            turns += 1
            if turns == 5:
                enough.set()
            await asyncio.sleep(0)

        async with run_periodically(turn):
            await enough.wait()
        return turns

    assert asyncio.run(asyncio.wait_for(main(), 5)) == turns


def test_a_cancellation_that_is_lost_keeps_nobody_waiting():
    """Psycopg and wait_for lose one that comes together with what they wait for."""
    lost = 0

    async def turn() -> None:
        nonlocal lost
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost += 1

    async def main() -> None:
        async with run_periodically(turn):
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), 5))
    assert lost == 1


def test_a_body_that_fails_ends_it_too_and_a_turn_that_fails_harms_nobody():
    async def turn() -> None:
        await asyncio.sleep(0)
        raise ValueError("in the turn")

    async def main() -> None:
        async with run_periodically(turn):
            await asyncio.sleep(0.01)
            raise KeyError("in the body")

    with pytest.raises(KeyError, match="in the body"):
        asyncio.run(asyncio.wait_for(main(), 5))
