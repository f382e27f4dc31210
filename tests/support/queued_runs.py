"""Write runs for a worker, and wait in an event loop for what it does."""

import asyncio
from collections.abc import Callable
from uuid import UUID

from outcrop.domain.account import Account
from outcrop.domain.scan import Trigger
from outcrop.domain.target import TargetSpec
from outcrop.services.pipeline.enqueue import start_run
from outcrop.store.db import current_time
from tests.support.pipeline import Pipeline


async def wait_in_loop(is_true: Callable[[], bool]) -> None:
    """Wait at most a minute until the condition is true, while other tasks run."""
    for _ in range(1200):
        if is_true():
            return
        await asyncio.sleep(0.05)
    raise AssertionError


async def enqueue(pipeline: Pipeline, account: Account, spec: TargetSpec) -> UUID:
    """Create a run for a worker and return its id."""
    async with pipeline.context.pool.connection() as db, db.transaction():
        run = await start_run(
            db,
            pipeline.context.keys,
            account.id,
            spec,
            trigger=Trigger.PORTAL,
            target_id=None,
            moment=await current_time(db),
            by="a test",
        )
    return run.id
