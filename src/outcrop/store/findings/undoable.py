"""Keep for a short time what a triage has changed, so that it can be undone."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.finding import TriageAction
from outcrop.domain.triage.undo import UNDO_WINDOW, TriageChange, TriageState
from outcrop.store.db import Connection


@dataclass(frozen=True, slots=True)
class StoredTriage:
    """A triage that may be undone."""

    action: TriageAction
    by: str
    at: datetime
    changes: list[TriageChange]


async def save(db: Connection, account_id: int, triage_id: UUID, triage: StoredTriage) -> None:
    """Save a triage; delete those of the account that can no longer be undone."""
    await db.execute(
        "DELETE FROM undoable_triages WHERE account_id = %s AND at < %s",
        [account_id, triage.at - UNDO_WINDOW],
    )
    changes = [
        [str(change.finding_id), change.before.to_json(), change.after.to_json()] for change in triage.changes
    ]
    await db.execute(
        """INSERT INTO undoable_triages (account_id, id, action, by, at, changes)
           VALUES (%s, %s, %s, %s, %s, %s)""",
        [account_id, triage_id, triage.action, triage.by, triage.at, Jsonb(changes)],
    )


async def take(db: Connection, account_id: int, triage_id: UUID, by: str) -> StoredTriage | None:
    """Delete a triage of this person and return it; None if there is none."""
    cursor = await db.execute(
        """DELETE FROM undoable_triages WHERE account_id = %s AND id = %s AND by = %s
           RETURNING action, by, at, changes""",
        [account_id, triage_id, by],
    )
    if (row := await cursor.fetchone()) is None:
        return None
    changes = [
        TriageChange(UUID(id_), TriageState.from_json(before), TriageState.from_json(after))
        for id_, before, after in row[3]
    ]
    return StoredTriage(TriageAction(row[0]), row[1], row[2], changes)
