"""Fence scans of a source: one scan writes at a time, and an outdated scan writes nothing.

A scan is outdated if another process has taken its source over: its worker was suspended for so long that it
counted as dead. `hold_source` takes the lock of a source, `write_transaction` checks it before each write.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from uuid import UUID

from outcrop.domain.release import format_release
from outcrop.domain.scan import Gap
from outcrop.services.pipeline.context import RunContext, SourceKey, run_periodically
from outcrop.store.db import UNAVAILABLE, Connection, current_time
from outcrop.store.runs import scans, source_locks
from outcrop.store.runs.source_locks import SourceLease
from outcrop.store.runs.sources import SourceCheckpoint

_RENEWALS_PER_TIMEOUT = 5  # heartbeats in the time after which a scan without one loses its source
_POLL_SECONDS = 0.5  # between two tries to take a source that another scan holds


class OutdatedScanError(Exception):
    """Another scan has taken the source over, so this one may write nothing more."""


@asynccontextmanager
async def hold_source(
    context: RunContext, account_id: int, scan_id: UUID, source: str
) -> AsyncIterator[SourceKey]:
    """Lock a source and yield its key with the attempt number; release the lock at the end.

    Wait while another scan holds the source; meanwhile the run shows that it waits. A heartbeat is sent until
    the end of the `with` statement.
    """
    lease = await _acquire(context, account_id, scan_id, source)
    key = SourceKey(account_id, scan_id, source, lease.attempt, lease.started_at)

    async def send_heartbeat() -> None:
        """Wait for a part of the timeout, then renew the lock. A database that is away is tried again."""
        await asyncio.sleep(context.source_timeout / _RENEWALS_PER_TIMEOUT)
        with suppress(*UNAVAILABLE):
            async with context.pool.connection() as db:
                if await source_locks.renew(db, account_id, source, lease.attempt):
                    await scans.save_heartbeat(db, account_id, scan_id)

    try:
        async with run_periodically(send_heartbeat):
            yield key
    finally:
        with suppress(*UNAVAILABLE):  # then the lock ends with its heartbeat
            async with context.pool.connection() as db:
                await source_locks.release(db, account_id, source, lease.attempt)


async def _acquire(context: RunContext, account_id: int, scan_id: UUID, source: str) -> SourceLease:
    """Return the lease of a source as soon as no other scan holds the source.

    While it waits, the run has a reason for waiting.
    """
    is_waiting = False
    while True:
        async with context.pool.connection() as db, db.transaction():
            lease = await source_locks.acquire(
                db, account_id, source, scan_id, dead_after=context.source_timeout
            )
            if lease is None and not is_waiting:
                is_waiting = True
                await scans.set_waiting(db, account_id, scan_id, f"{source}: another scan is running")
            elif lease is not None:
                if is_waiting:
                    await scans.set_waiting(db, account_id, scan_id, None)
                return lease
            await scans.save_heartbeat(db, account_id, scan_id)
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def send_heartbeats(context: RunContext, account_id: int, scan_id: UUID) -> AsyncIterator[None]:
    """Save heartbeats of a run while the body of the `with` statement runs."""

    async def send_heartbeat() -> None:
        """Wait for a part of the timeout, then save a heartbeat. A database that is away is tried again."""
        await asyncio.sleep(context.source_timeout / _RENEWALS_PER_TIMEOUT)
        with suppress(*UNAVAILABLE):
            async with context.pool.connection() as db:
                await scans.save_heartbeat(db, account_id, scan_id)

    async with run_periodically(send_heartbeat):
        yield


@asynccontextmanager
async def write_transaction(
    context: RunContext, key: SourceKey
) -> AsyncIterator[tuple[Connection, datetime]]:
    """Open a transaction for the results of a scan; yield the connection and the database's time.

    Raise OutdatedScanError if another scan has taken the source over. Nobody can take it over before the
    transaction ends. The plan of a run has no lock, so nothing is checked for it.
    """
    async with context.pool.connection() as db, db.transaction():
        if not key.attempt:
            yield db, await current_time(db)
            return
        moment = await source_locks.check(db, key.account_id, key.source, key.attempt)
        if moment is None:
            raise OutdatedScanError
        yield db, moment


def release_gap(context: RunContext, key: SourceKey, saved: SourceCheckpoint | None) -> Gap | None:
    """Return the gap of a scan whose source was scanned by a higher release; None if it was not."""
    if saved is None or saved.release is None or saved.release <= context.release:
        return None
    earlier, own = format_release(saved.release), format_release(context.release)
    why = f"scanned by release {earlier} before: release {own} adds findings, but changes and resolves none"
    return Gap(key.source, why)
