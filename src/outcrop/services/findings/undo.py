"""Undo a triage: restore status, note, evidence and suppression. Nothing is sent."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

from outcrop.domain.errors import BadInputError
from outcrop.domain.triage.undo import UNDO_WINDOW, TriageChange, restore
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.store import audit
from outcrop.store.db import Connection, limit_lock_wait
from outcrop.store.findings import scores, table, undoable


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The number of findings that are as before, and of those that something else has changed since."""

    restored: int
    changed_since: int


async def undo_triage(
    db: Connection, account_id: int, triage_id: UUID, *, by: str, now: datetime
) -> UndoResult:
    """Undo a triage that the same person did within the last 30 seconds.

    Raise BadInputError if there is none. An event that the triage wrote is still sent.
    """
    async with limit_lock_wait(db):
        stored = await undoable.take(db, account_id, triage_id, by)
        if stored is None or now - stored.at > UNDO_WINDOW:
            raise BadInputError(f"this can no longer be undone: that is possible for {_SECONDS} seconds")
        restored = 0
        for change in sorted(stored.changes, key=lambda change: change.finding_id):
            restored += await _restore(db, account_id, change, undone=stored.action, by=by, now=now)
    return UndoResult(restored, len(stored.changes) - restored)


_SECONDS = int(UNDO_WINDOW.total_seconds())


async def _restore(
    db: Connection, account_id: int, change: TriageChange, *, undone: str, by: str, now: datetime
) -> bool:
    """Restore one finding and write its audit line; return False if something has changed it since."""
    if (locked := await table.lock_with_secret(db, account_id, change.finding_id)) is None:
        return False
    finding = locked[0]
    if (before := restore(finding, change)) is None:
        return False
    await table.update_triage(db, account_id, before)
    detail: dict[str, str] = {"undone": undone}
    if before.status is not finding.status:
        await scores.rescore(db, account_id, [finding.id], partial(score_stored, moment=now))
        detail |= {"from": finding.status, "to": before.status}
    line = audit.AuditLine(now, by, "finding.undo", str(finding.id), detail=detail)
    await audit.append(db, account_id, line)
    return True
