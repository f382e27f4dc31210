"""Tasks that a worker repeats, and how it repeats them."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from outcrop.domain.clock import MAX_CLOCK_ERROR, now
from outcrop.lazy_logger import get_logger
from outcrop.runtime import Runtime
from outcrop.services import sessions
from outcrop.store import db as database
from outcrop.store.db import UNAVAILABLE, current_time
from outcrop.store.findings import rollups
from outcrop.store.incidents import pending
from outcrop.store.runs import scans

log = get_logger()


async def run_every(
    seconds: float, outdated: asyncio.Event, stop: asyncio.Event, task: Callable[[], Awaitable[object]]
) -> None:
    """Run a task every so many seconds until `stop` is set; log its failures and go on.

    While `outdated` is set, the task is not run.
    """
    while not stop.is_set():
        try:
            if not outdated.is_set() and (count := await task()):
                log.debug("periodic_task_done", count=count)
        except UNAVAILABLE as error:
            log.warning("database_unavailable", error=type(error).__name__)
        except Exception as error:  # the other tasks still run
            log.exception("periodic_task_failed", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)


async def if_clock_is_right(runtime: Runtime, task: Callable[[], Awaitable[int]]) -> int:
    """Run a task that destroys data and return its result; 0 if the clock of this machine is wrong.

    It is wrong if it differs from the database's clock by more than MAX_CLOCK_ERROR. Then the difference is
    logged.
    """
    async with runtime.pool.connection() as db:
        difference = now() - await current_time(db)
    if abs(difference) > MAX_CLOCK_ERROR:
        log.error("clock_differs_from_database", seconds=round(difference.total_seconds()))
        return 0
    return await task()


async def end_stuck_sessions(runtime: Runtime) -> int:
    """End the sessions of frozen processes that the server does not end by itself; return how many."""
    async with runtime.pool.connection() as db:
        return await database.end_stuck_sessions(db, after=runtime.idle_timeout)


async def save_heartbeats(runtime: Runtime) -> int:
    """Save heartbeats of the runs whose jobs wait for a free worker; return how many."""
    async with runtime.pool.connection() as db:
        return await scans.save_heartbeats_of_queued(db)


async def fold_rollups(runtime: Runtime) -> int:
    """Add the pending changes of finding counts to the rollups; return how many."""
    async with runtime.pool.connection() as db:
        return await rollups.fold_deltas(db)


async def update_incidents(runtime: Runtime) -> int:
    """Bring the incidents up to date with changed findings; return the number of changes."""
    async with runtime.pool.connection() as db:
        return await pending.apply_all(db)


async def delete_expired_sessions(runtime: Runtime) -> int:
    """Delete expired sessions, links and sign-in attempts; return how many."""
    async with runtime.pool.connection() as db:
        return await sessions.delete_expired(db, now=await current_time(db))
