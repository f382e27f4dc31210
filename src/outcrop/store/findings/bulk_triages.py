"""Store triages of all findings that match, with their progress."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from outcrop.domain.finding import TriageAction, TriageResult
from outcrop.domain.secret import MaskedText
from outcrop.domain.triage.bulk import BulkTriage
from outcrop.store.db import Connection

_KEPT = timedelta(days=30)
_COLUMNS = """id, action, by, created_at, total, done, changed, unchanged, refused, missing, stopped_by,
              finished_at"""


async def insert(
    db: Connection,
    account_id: int,
    bulk: BulkTriage,
    finding_ids: Sequence[UUID],
    note: MaskedText | None,
) -> None:
    """Insert a job that has done nothing yet; delete those of the account that ended long ago."""
    await db.execute(
        "DELETE FROM bulk_triages WHERE account_id = %s AND finished_at < %s",
        [account_id, bulk.created_at - _KEPT],
    )
    await db.execute(
        """INSERT INTO bulk_triages (account_id, id, action, note, by, created_at, finding_ids, total)
           VALUES (%s, %s, %s, %s, %s, %s, %s, %s)""",
        [account_id, bulk.id, bulk.action, note, bulk.by, bulk.created_at, list(finding_ids), bulk.total],
    )


async def select(db: Connection, account_id: int, bulk_id: UUID) -> BulkTriage | None:
    """Return a job of the account."""
    cursor = await db.execute(
        f"SELECT {_COLUMNS} FROM bulk_triages WHERE account_id = %s AND id = %s".encode(),
        [account_id, bulk_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _build(row)


async def select_running(db: Connection, account_id: int) -> BulkTriage | None:
    """Return the job of the account that has not ended; None if there is none."""
    cursor = await db.execute(
        f"""SELECT {_COLUMNS} FROM bulk_triages WHERE account_id = %s AND finished_at IS NULL
            LIMIT 1""".encode(),
        [account_id],
    )
    row = await cursor.fetchone()
    return None if row is None else _build(row)


@dataclass(frozen=True, slots=True)
class BulkBatch:
    """The next findings of a job, and what is done with them."""

    action: TriageAction
    note: MaskedText | None
    by: str
    finding_ids: list[UUID]


async def lock_batch(db: Connection, account_id: int, bulk_id: UUID, size: int) -> BulkBatch | None:
    """Lock a job and return its next findings; None if it has ended. A batch without findings is the last."""
    cursor = await db.execute(
        """SELECT action, note, by, finding_ids[done + 1:done + %s] FROM bulk_triages
           WHERE account_id = %s AND id = %s AND finished_at IS NULL FOR UPDATE""",
        [size, account_id, bulk_id],
    )
    if (row := await cursor.fetchone()) is None:
        return None
    note = None if row[1] is None else MaskedText(row[1])
    return BulkBatch(TriageAction(row[0]), note, row[2], row[3])


async def add_results(db: Connection, account_id: int, bulk_id: UUID, results: Counter[TriageResult]) -> None:
    """Add the results of a batch to a job, in the transaction that triages it."""
    await db.execute(
        """UPDATE bulk_triages SET done = done + %s, changed = changed + %s, unchanged = unchanged + %s,
                                   refused = refused + %s, missing = missing + %s
           WHERE account_id = %s AND id = %s""",
        [results.total(), *(results[result] for result in TriageResult), account_id, bulk_id],
    )


async def finish(
    db: Connection, account_id: int, bulk_id: UUID, *, now: datetime, stopped_by: str | None = None
) -> bool:
    """End a job; return False if it had ended."""
    cursor = await db.execute(
        """UPDATE bulk_triages SET finished_at = %s, stopped_by = %s, finding_ids = '{}', note = NULL
           WHERE account_id = %s AND id = %s AND finished_at IS NULL""",
        [now, stopped_by, account_id, bulk_id],
    )
    return cursor.rowcount > 0


def _build(row: tuple[Any, ...]) -> BulkTriage:
    """Return the job of a row with the columns of `_COLUMNS`."""
    return BulkTriage(row[0], TriageAction(row[1]), *row[2:])
