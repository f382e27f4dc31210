"""A whole run in the process that asked for it, with the same steps as a worker takes."""

import asyncio
from collections.abc import Callable
from secrets import randbits

from outcrop.domain.account import Account
from outcrop.domain.scan import ScanRun, Trigger
from outcrop.domain.target import TargetSpec
from outcrop.services.pipeline.context import RunContext, now, run_periodically
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.run_source import scan_source
from outcrop.store.runs import scans

_LOOK_EVERY = 0.5  # seconds between two looks at how far it has come


async def run_in_foreground(
    tools: RunContext, account: Account, spec: TargetSpec, told: Callable[[ScanRun], None], *, by: str
) -> ScanRun:
    """Run a target from its beginning to its end. If this process dies, a worker goes on."""
    key = randbits(63)
    async with tools.pool.connection() as holding:
        await scans.lock_foreground(holding, key)
        async with tools.pool.connection() as db, db.transaction():
            run = await start_run(
                db, account.id, spec, trigger=Trigger.CLI, target_id=None, moment=now(), by=by, foreground=key
            )

        async def tell() -> None:
            await asyncio.sleep(_LOOK_EVERY)
            async with tools.pool.connection() as db:
                if (current := await scans.select(db, account.id, run.id)) is not None:
                    told(current)

        try:
            async with run_periodically(tell):
                names = await plan_run(tools, account.id, run.id, deferred=False)
                slots = asyncio.Semaphore(tools.jobs)

                async def look(name: str) -> None:
                    async with slots:
                        await scan_source(tools, account.id, run.id, name)

                looks = [asyncio.create_task(look(name)) for name in names]
                try:
                    await asyncio.gather(*looks)
                finally:  # each gives back what it was at before the run is let go
                    for one in looks:
                        one.cancel()
                    await asyncio.gather(*looks, return_exceptions=True)
        finally:
            await scans.unlock_foreground(holding, key)
    async with tools.pool.connection() as db:
        return await scans.select(db, account.id, run.id) or run
