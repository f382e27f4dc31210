"""Reading and triaging findings."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from uuid import UUID, uuid4

from outcrop.domain.errors import NotFoundError, TransitionError
from outcrop.domain.events import event_of
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Action, Finding, TriageAction, TriageResult, apply_triage, cut_note
from outcrop.domain.paging import FindingQuery, Page
from outcrop.domain.secret import MaskedText, is_password
from outcrop.scanner.risk.reasons import ScoreReason, explain_stored_score
from outcrop.scanner.rules.advice import Advice, find_advice
from outcrop.store import audit, outbox
from outcrop.store.db import Connection, limit_lock_wait
from outcrop.store.findings import listing, table
from outcrop.store.keyring import Keyring


async def list_findings(db: Connection, account_id: int, query: FindingQuery) -> Page[Finding]:
    return await listing.select_page(db, account_id, query)


async def get_finding(db: Connection, account_id: int, finding_id: UUID) -> Finding:
    if (finding := await table.select(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    return finding


async def explain_finding(
    db: Connection, account_id: int, finding_id: UUID
) -> tuple[Finding, list[ScoreReason]]:
    """Give a finding with the reasons of its score."""
    if (found := await table.select_with_score(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    return found[0], explain_stored_score(found[1], found[0])


async def close_finding(
    db: Connection,
    keys: Keyring,
    account_id: int,
    finding_id: UUID,
    action: Action,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> Finding:
    """Resolve, restrict or mark as false positive: the change, its audit line and its event in one transaction."""
    return await _moved(
        db, keys, account_id, finding_id, TriageAction(action.value), note=note, by=by, now=now
    )


async def reopen_finding(
    db: Connection,
    keys: Keyring,
    account_id: int,
    finding_id: UUID,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> Finding:
    """Let a closed finding be active again; it sends nothing. The note stands in the history."""
    return await _moved(db, keys, account_id, finding_id, TriageAction.REOPEN, note=note, by=by, now=now)


async def suppress_finding(
    db: Connection, account_id: int, finding_id: UUID, *, by: str, now: datetime
) -> Finding:
    """Hide a finding from the active view; its status stays."""
    return await _moved(db, None, account_id, finding_id, TriageAction.SUPPRESS, note=None, by=by, now=now)


async def unsuppress_finding(
    db: Connection, account_id: int, finding_id: UUID, *, by: str, now: datetime
) -> Finding:
    """Show a finding in the active view again."""
    return await _moved(db, None, account_id, finding_id, TriageAction.UNSUPPRESS, note=None, by=by, now=now)


async def triage(
    db: Connection,
    keys: Keyring,
    account_id: int,
    ids: Sequence[UUID],
    move: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> list[tuple[UUID, TriageResult]]:
    """Do the same to several, or to one with a note, in the caller's transaction; one that is refused does not undo the others.

    The outcomes come in the order of the ids, each id once. One that another transaction holds for long undoes them all.
    """
    outcomes: dict[UUID, TriageResult] = {}
    async with limit_lock_wait(db):
        for finding_id in sorted(set(ids)):  # one order for everybody who locks several
            try:
                _, changed = await _move(db, keys, account_id, finding_id, move, note=note, by=by, now=now)
            except NotFoundError:
                outcomes[finding_id] = TriageResult.MISSING
            except TransitionError:  # raised before anything is written
                outcomes[finding_id] = TriageResult.REFUSED
            else:
                outcomes[finding_id] = TriageResult.CHANGED if changed else TriageResult.UNCHANGED
    return [(finding_id, outcomes[finding_id]) for finding_id in dict.fromkeys(ids)]


async def _moved(
    db: Connection,
    keys: Keyring | None,
    account_id: int,
    finding_id: UUID,
    move: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> Finding:
    async with limit_lock_wait(db):
        return (await _move(db, keys, account_id, finding_id, move, note=note, by=by, now=now))[0]


async def _move(
    db: Connection,
    keys: Keyring | None,
    account_id: int,
    finding_id: UUID,
    move: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> tuple[Finding, bool]:
    """Write a move, its audit line and its event; give the finding after it, and whether anything changed."""
    if (locked := await table.lock_with_secret(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, box = locked
    if note is not None and box is not None and keys is not None:
        secret = keys.open(box, account_id, finding_id, mask_all=is_password(finding.pattern_secret_type))
        note = cut_note(secret.masked_within(note))
    after = apply_triage(finding, move, note=note, by=by, now=now)
    if after is None:
        return finding, False
    await table.update_triage(db, account_id, after)
    status = {} if after.status is finding.status else {"from": finding.status, "to": after.status}
    detail = status | ({} if note is None else {"note": note})
    await audit.append(
        db, account_id, audit.AuditLine(now, by, f"finding.{move}", str(finding_id), detail=detail)
    )
    if (action := move.closing) is not None and (event := event_of(action, after)) is not None:
        await outbox.append(db, account_id, event, event_id=uuid4(), now=now)
    return after, True


async def list_history(db: Connection, account_id: int, finding_id: UUID) -> list[audit.AuditLine]:
    """Give what the audit trail tells of a finding, newest first."""
    return await audit.select_for_target(db, account_id, str(finding_id))


async def get_excerpt(db: Connection, keys: Keyring, account_id: int, finding_id: UUID) -> Excerpt | None:
    """Give the lines around a finding's credential, masked; None where none are kept, or only of where it stood before."""
    if (kept := await table.select_excerpt(db, account_id, finding_id)) is None:
        return None
    line, box = kept
    found = keys.open_excerpt(box, account_id, finding_id)
    return found if found.line == line else None


async def get_advice(
    db: Connection, account_id: int, finding: Finding, own_rules: Sequence[Path] = ()
) -> Advice:
    """Give what to do about a finding now; `own_rules` are those that the operator has added."""
    rule = await table.select_rule(db, account_id, finding.id)
    return find_advice(rule, finding.pattern_secret_type, own_rules)


async def list_other_places(
    db: Connection, account_id: int, finding_id: UUID, limit: int = 20
) -> list[Finding]:
    """Give where else the same credential stands, highest score first."""
    return await table.select_same_credential(db, account_id, finding_id, limit)
