"""Count the rows that statements read: work that does not depend on the speed of the machine."""

from collections.abc import Awaitable, Callable

from outcrop.store.db import Connection


async def count_rows_read(
    db: Connection, work: Callable[[], Awaitable[object]], tables: str = "%"
) -> dict[str, int]:
    """Return the rows that `work` reads, by table; statements of triggers and functions are included.

    The work runs in the caller's transaction, on `db`. `tables` is a LIKE pattern. A table that is not read
    is left out.
    """
    before = await _read_counters(db, tables)
    await work()
    after = await _read_counters(db, tables)
    return {table: n - before.get(table, 0) for table, n in after.items() if n > before.get(table, 0)}


async def _read_counters(db: Connection, tables: str) -> dict[str, int]:
    """Return the rows that this transaction has read so far, by table."""
    cursor = await db.execute(
        """SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
           WHERE relname LIKE %s""",
        [tables],
    )
    return dict(await cursor.fetchall())
