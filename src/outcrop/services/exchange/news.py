"""Write what follows from new findings of an import: audit lines, events, and the validation that is due."""

from collections.abc import Sequence
from datetime import datetime
from uuid import uuid4

from outcrop.domain.events import EventType, event_about
from outcrop.domain.finding import OPEN_STATUSES, Confidence, Validation
from outcrop.store import audit, outbox
from outcrop.store.db import Connection
from outcrop.store.findings import verdicts
from outcrop.store.findings.record import FindingRecord
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.runs import jobs

REVALIDATE_TASK = "validate_due"  # stored in queued jobs, so it does not change
_LOCK = "validate due"


async def record_news(
    db: Connection,
    account_id: int,
    records: Sequence[FindingRecord],
    *,
    by: str,
    now: datetime,
    sends_events: bool,
    is_validated_later: bool,
) -> None:
    """Write an audit line for each new finding, an event if it is open, and make its validation due.

    A job for the validation is queued, unless the caller sees to it (`is_validated_later`).
    """
    lines = [
        (str(record.finding.id), {"reason": "imported report", "to": record.finding.status})
        for record in records
    ]
    await audit.append_many(db, account_id, lines, at=now, actor=by, action=EventType.NEW)
    for record in records if sends_events else ():
        if record.finding.status in OPEN_STATUSES:
            event = event_about(EventType.NEW, record.finding)
            await outbox.append(db, account_id, event, event_id=uuid4(), now=now)
    await make_due(db, account_id, records, is_validated_later=is_validated_later)


async def make_due(
    db: Connection, account_id: int, records: Sequence[FindingRecord], *, is_validated_later: bool = False
) -> None:
    """Make the validation of the records' credentials due.

    A job for it is queued, unless the caller sees to it (`is_validated_later`).
    Only a credential is due that is stored and that one of our rules recognises.
    """
    unchecked = {
        record.verdict_key: StoredVerdict(
            Validation.UNVALIDATED, Confidence.LOW, "", (), False, False, False, verdicts.NEVER_CHECKED
        )
        for record in records
        if record.verdict_key is not None
        and record.finding.rule is not None
        and record.secret_box is not None
    }
    if unchecked:
        await verdicts.save(db, account_id, unchecked)
        if not is_validated_later:
            await _enqueue_validation(db)


async def _enqueue_validation(db: Connection) -> None:
    """Queue the job that validates what is due, unless one is waiting already."""
    if not await jobs.is_queued(db, _LOCK):
        await jobs.defer_jobs(db, REVALIDATE_TASK, [(_LOCK, {})], jobs.INTERACTIVE)
