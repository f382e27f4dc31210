"""Find the time up to which every change of findings is visible.

A transaction that changes findings holds a shared advisory lock with the second of its first change, and then
computes `updated_at` (migration 0018). So a change that is committed later has a time that is not before the
oldest of these locks, and not before the clock was read.
"""

from datetime import UTC, datetime, timedelta

from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.locks import AdvisoryLock

_FIRST_SECOND = datetime(2020, 1, 1, tzinfo=UTC)  # the second key of the locks counts from here


async def select_updated_until(db: Connection) -> datetime:
    """Return a time before which no change appears that is not visible already.

    Call it before the snapshot that reads the findings. The clock is read before the locks: a transaction
    that takes its lock in between changes findings later than that.
    """
    (clock,) = await fetch_single_row(db, "SELECT date_trunc('second', clock_timestamp())")
    (oldest,) = await fetch_single_row(
        db,
        """SELECT min(objid::bigint) FROM pg_locks
           WHERE locktype = 'advisory' AND classid = %s AND objsubid = 2
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""",
        [AdvisoryLock.UPDATING.value],
    )
    moment: datetime = clock
    return moment if oldest is None else min(moment, _FIRST_SECOND + timedelta(seconds=oldest))
