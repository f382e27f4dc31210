"""Lock a source for one scan at a time, with an attempt number as fencing token.

1. A scan acquires the lock and gets the next attempt number (`acquire`).
2. While it runs, it renews its heartbeat (`renew`).
3. Every transaction that writes results of the scan checks its attempt number first (`check`).
4. At the end the lock is released (`release`).

A scan whose heartbeat is too old loses the lock to the next one. From then on its checks fail. All times are
those of the database's clock.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class SourceLease:
    """The right of one scan to write results of a source."""

    attempt: int
    started_at: datetime


async def acquire(
    db: Connection, account_id: int, source: str, scan_id: UUID, *, dead_after: float
) -> SourceLease | None:
    """Lock a source for a run with the next attempt number; None if another scan holds the lock.

    A holder without a heartbeat for `dead_after` seconds loses the lock.
    """
    cursor = await db.execute(
        """INSERT INTO source_locks AS l
               (account_id, source, attempt, scan_id, held, started_at, heartbeat_at)
           VALUES (%s, %s, 1, %s, true, clock_timestamp(), clock_timestamp())
           ON CONFLICT (account_id, source) DO UPDATE
           SET attempt = l.attempt + 1, scan_id = excluded.scan_id, held = true,
               started_at = clock_timestamp(), heartbeat_at = clock_timestamp()
           WHERE NOT l.held OR l.heartbeat_at < clock_timestamp() - make_interval(secs => %s)
           RETURNING attempt, started_at""",
        [account_id, source, scan_id, dead_after],
    )
    row = await cursor.fetchone()
    return None if row is None else SourceLease(*row)


async def renew(db: Connection, account_id: int, source: str, attempt: int) -> bool:
    """Save a heartbeat of the scan with this attempt number; return False if it no longer holds the lock."""
    cursor = await db.execute(
        """UPDATE source_locks SET heartbeat_at = clock_timestamp()
           WHERE account_id = %s AND source = %s AND attempt = %s AND held""",
        [account_id, source, attempt],
    )
    return cursor.rowcount > 0


async def check(db: Connection, account_id: int, source: str, attempt: int) -> datetime | None:
    """Return the database's time if this attempt still holds the lock, otherwise None.

    Until the transaction ends, no other scan can take the lock over.
    """
    cursor = await db.execute(
        """SELECT date_trunc('second', clock_timestamp()) FROM source_locks
           WHERE account_id = %s AND source = %s AND attempt = %s AND held FOR SHARE""",
        [account_id, source, attempt],
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def release(db: Connection, account_id: int, source: str, attempt: int) -> None:
    """Release the lock of the scan with this attempt number. Do nothing if it no longer holds the lock."""
    await db.execute(
        "UPDATE source_locks SET held = false WHERE account_id = %s AND source = %s AND attempt = %s",
        [account_id, source, attempt],
    )


async def release_run(db: Connection, account_id: int, source: str, scan_id: UUID) -> None:
    """Release the lock that a run holds on a source, because the worker of the run counts as dead."""
    await db.execute(
        "UPDATE source_locks SET held = false WHERE account_id = %s AND source = %s AND scan_id = %s",
        [account_id, source, scan_id],
    )
