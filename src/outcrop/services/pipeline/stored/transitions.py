"""Mark the stored findings of a source as seen, reopened or resolved."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.events import EventType, event_about
from outcrop.domain.finding import Finding, Validation, mark_gone, mark_seen
from outcrop.services.pipeline.context import ACTOR, RunContext, SourceKey
from outcrop.services.pipeline.fence import write_transaction
from outcrop.services.pipeline.score import rescore
from outcrop.store import audit, outbox
from outcrop.store.db import Connection
from outcrop.store.findings import scores, table
from outcrop.store.runs import scan_sources, scans, sources


async def count_as_seen(context: RunContext, key: SourceKey, finding_ids: Sequence[UUID]) -> None:
    """Mark stored findings as seen by this run; stale ones become active, with an audit line.

    Those that this run had not seen before are added to its counts.
    """
    async with write_transaction(context, key) as (db, moment):
        seen = await sources.mark_seen(db, key.account_id, finding_ids, scan_id=key.scan_id, now=moment)
        unseen = await scores.select_unseen(db, key.account_id, finding_ids)
        await rescore(db, key.account_id, unseen, moment, in_last_scan=True)
        await scan_sources.add_counts(db, key.account_id, key.scan_id, key.source, seen=seen)


async def reopen_finding(context: RunContext, key: SourceKey, finding_id: UUID) -> None:
    """Make a finding active again that a scan had resolved, write its event and count it as new.

    Do nothing if the finding does not exist or was not resolved by a scan.
    """
    async with write_transaction(context, key) as (db, moment):
        if (locked := await table.lock_with_secret(db, key.account_id, finding_id)) is None:
            return
        finding, is_news = mark_seen(locked[0])
        if is_news:
            await table.update_triage(db, key.account_id, finding)
            await table.set_new_scan(db, key.account_id, finding_id, key.scan_id)
            rescored = await rescore(db, key.account_id, [finding_id], moment, in_last_scan=True)
            finding = rescored.get(finding_id, finding)
            await write_event(db, key, EventType.NEW, finding, moment)
            await scan_sources.add_counts(db, key.account_id, key.scan_id, key.source, new=1)


async def resolve_finding(context: RunContext, key: SourceKey, finding_id: UUID) -> None:
    """Resolve a finding whose credential is confirmed to be gone, write its event and count it as resolved.

    Do nothing if the finding does not exist, is neither active nor stale, or if a scan or a report has seen
    its credential since this scan began.
    """
    async with write_transaction(context, key) as (db, moment):
        if await table.was_sighted_since(db, key.account_id, finding_id, key.started_at):
            return
        locked = await table.lock_with_secret(db, key.account_id, finding_id)
        if locked is None or (resolved := mark_gone(locked[0], now=moment)) is None:
            return
        await table.update_triage(db, key.account_id, resolved)
        rescored = await rescore(db, key.account_id, [finding_id], moment)
        resolved = rescored.get(finding_id, resolved)
        await write_event(db, key, EventType.RESOLVED, resolved, moment)
        await scan_sources.add_counts(db, key.account_id, key.scan_id, key.source, resolved=1)
        if resolved.validation_status is Validation.VALID:
            await scans.count_resolved_valid(db, key.account_id, key.scan_id)


async def write_event(
    db: Connection, key: SourceKey, event: EventType, finding: Finding, moment: datetime
) -> None:
    """Write an event about a finding to the outbox, and an audit line about the event.

    The line of a resolved finding says if its credential is still valid.
    """
    await outbox.append(db, key.account_id, event_about(event, finding), event_id=uuid4(), now=moment)
    detail = {"scan": str(key.scan_id), "to": finding.status}
    if event is EventType.RESOLVED and finding.validation_status is Validation.VALID:
        detail["validation"] = finding.validation_status
    await audit.append(
        db, key.account_id, audit.AuditLine(moment, ACTOR, event, str(finding.id), detail=detail)
    )
