"""Reading and triaging findings."""

from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.errors import NotFoundError
from outcrop.domain.events import event_of
from outcrop.domain.finding import Action, Finding, close, cut_note, suppress
from outcrop.domain.paging import FindingQuery, Page
from outcrop.domain.secret import is_password
from outcrop.scanner.reasons import Reason, explain
from outcrop.store import audit, findings, listing, outbox
from outcrop.store.db import Connection
from outcrop.store.keyring import Keys


async def list_findings(db: Connection, account_id: int, query: FindingQuery) -> Page[Finding]:
    return await listing.select_page(db, account_id, query)


async def get_finding(db: Connection, account_id: int, finding_id: UUID) -> Finding:
    if (finding := await findings.select(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    return finding


async def explain_finding(db: Connection, account_id: int, finding_id: UUID) -> tuple[Finding, list[Reason]]:
    """Give a finding with the reasons of its score."""
    if (found := await findings.select_with_score(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    return found[0], explain(found[1], found[0])


async def close_finding(
    db: Connection, keys: Keys, account_id: int, finding_id: UUID, action: Action, *, note: str | None, by: str, now: datetime
) -> Finding:
    """Resolve, restrict or mark as false positive: the change, its audit line and its event in one transaction."""
    if (locked := await findings.select_for_update(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, box = locked
    if note is not None and box is not None:
        secret = keys.open(box, account_id, finding_id, wholly=is_password(finding.pattern_secret_type))
        note = cut_note(secret.masked_within(note))
    closed = close(finding, action, note=note, by=by, now=now)
    if closed is None:
        return finding
    await findings.update_triage(db, account_id, closed)
    detail = {"from": finding.status, "to": closed.status} | ({} if note is None else {"note": note})
    await audit.append(db, account_id, audit.Line(now, by, f"finding.{action}", str(finding_id), detail=detail))
    if (event := event_of(action, closed)) is not None:
        await outbox.append(db, account_id, event, event_id=uuid4(), now=now)
    return closed


async def suppress_finding(db: Connection, account_id: int, finding_id: UUID, *, by: str, now: datetime) -> Finding:
    """Hide a finding from the active view; its status stays."""
    if (locked := await findings.select_for_update(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, _ = locked
    if finding.suppressed_at is None:
        finding = suppress(finding, now=now)
        await findings.update_triage(db, account_id, finding)
        await audit.append(db, account_id, audit.Line(now, by, "finding.suppress", str(finding_id)))
    return finding
