"""Run a scan in the calling process, with the same steps as a worker."""

import asyncio
from collections.abc import Callable, Sequence
from secrets import randbits
from uuid import UUID

from outcrop.domain.account import Account
from outcrop.domain.scan import ScanRun, Trigger
from outcrop.domain.target import TargetSpec
from outcrop.services.pipeline.context import RunContext, run_periodically
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.run_source import scan_source
from outcrop.store.db import current_time
from outcrop.store.runs import scans

_PROGRESS_EVERY = 0.5  # seconds between two calls of `on_progress`


async def run_in_foreground(
    context: RunContext,
    account: Account,
    spec: TargetSpec,
    on_progress: Callable[[ScanRun], None],
    *,
    by: str,
) -> ScanRun:
    """Run a scan of a target in this process and return the ended run.

    `on_progress` gets the current state of the run every _PROGRESS_EVERY seconds. `by` is the actor in the
    audit trail. An advisory lock shows that this process is alive. If the process dies, a worker continues
    the run.
    """
    lock_key = randbits(63)
    async with context.pool.connection() as lock_holder:
        await scans.lock_foreground(lock_holder, lock_key)
        async with context.pool.connection() as db, db.transaction():
            run = await start_run(
                db,
                context.keys,
                account.id,
                spec,
                trigger=Trigger.CLI,
                target_id=None,
                moment=await current_time(db),
                by=by,
                foreground=lock_key,
            )

        async def report_progress() -> None:
            """Wait for _PROGRESS_EVERY seconds, then pass the current state of the run to `on_progress`."""
            await asyncio.sleep(_PROGRESS_EVERY)
            async with context.pool.connection() as db:
                if (current := await scans.select(db, account.id, run.id)) is not None:
                    on_progress(current)

        try:
            async with run_periodically(report_progress):
                names = await plan_run(context, account.id, run.id, deferred=False)
                await _scan_sources(context, account.id, run.id, names)
        finally:
            await scans.unlock_foreground(lock_holder, lock_key)
    async with context.pool.connection() as db:
        return await scans.select(db, account.id, run.id) or run


async def _scan_sources(context: RunContext, account_id: int, scan_id: UUID, names: Sequence[str]) -> None:
    """Scan the sources of a run, given by their names, `context.jobs` at a time.

    If a scan raises an exception or this task is cancelled, the other scans are cancelled before the
    exception is raised.
    """
    slots = asyncio.Semaphore(context.jobs)

    async def scan(name: str) -> None:
        """Scan the source `name` of the run and record its findings, as soon as a slot is free."""
        async with slots:
            await scan_source(context, account_id, scan_id, name)

    tasks = [asyncio.create_task(scan(name)) for name in names]
    try:
        await asyncio.gather(*tasks)
    finally:  # each task releases its source before the caller releases the run's lock
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
