"""Read and triage findings."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

from outcrop.domain.errors import ConflictError, NotFoundError, TransitionError
from outcrop.domain.events import event_of
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import (
    Action,
    Finding,
    Status,
    TransitionOutcome,
    TriageAction,
    TriageResult,
    apply_triage,
    cut_note,
    transition_outcome,
)
from outcrop.domain.paging import FindingQuery, Page
from outcrop.domain.secret import MaskedText, is_password
from outcrop.domain.triage.undo import UNDOABLE, TriageChange, TriageState
from outcrop.scanner.risk.detection import DetectionReason, explain_stored
from outcrop.scanner.risk.reasons import ScoreReason, explain_stored_score
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.scanner.rules.advice import Advice, find_advice
from outcrop.store import audit, outbox
from outcrop.store.db import Connection, limit_lock_wait
from outcrop.store.findings import listing, scores, suppressions, table, undoable, updates
from outcrop.store.findings.undoable import StoredTriage
from outcrop.store.keyring import DamagedValueError, Keyring


async def list_findings(db: Connection, account_id: int, query: FindingQuery) -> Page[Finding]:
    """Return one page of the findings that match a query.

    With `updated_since`, the page also says up to which time it has every change.
    """
    if query.updated_since is None:
        return await listing.select_page(db, account_id, query)
    updated_until = await updates.select_updated_until(db)
    return replace(await listing.select_page(db, account_id, query), updated_until=updated_until)


async def get_finding(db: Connection, account_id: int, finding_id: UUID) -> Finding:
    """Return a finding; raise NotFoundError if the account has none of this id."""
    if (finding := await table.select(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    return finding


@dataclass(frozen=True, slots=True)
class ExplainedFinding:
    """A finding with the reasons for its score, and those for the confidence of its detection."""

    finding: Finding
    score: list[ScoreReason]
    detection: list[DetectionReason]


async def explain_finding(db: Connection, account_id: int, finding_id: UUID) -> ExplainedFinding:
    """Return a finding with the reasons for its score and for its detection."""
    if (scored := await table.select_with_score(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, detail = scored
    detection = explain_stored(detail, finding.detection_confidence)
    return ExplainedFinding(finding, explain_stored_score(detail, finding), detection)


@dataclass(frozen=True, slots=True)
class ExplainedScore:
    """A score, the version of the method that computed it, and the reasons for it."""

    score: float
    version: int | None  # None if the score was imported
    reasons: list[ScoreReason]


async def explain_score(db: Connection, account_id: int, finding_id: UUID) -> ExplainedScore:
    """Return the score of a finding with the reasons for it."""
    if (scored := await table.select_with_score(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, detail = scored
    version = None if detail is None else int(detail["version"])
    return ExplainedScore(finding.composite_score, version, explain_stored_score(detail, finding))


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
    """Resolve a finding, restrict it or mark it as a false positive; write its audit line and its event."""
    return await _triage_one(
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
    """Make a closed finding active again, without an event. The note goes to the audit trail."""
    return await _triage_one(db, keys, account_id, finding_id, TriageAction.REOPEN, note=note, by=by, now=now)


async def suppress_finding(
    db: Connection, account_id: int, finding_id: UUID, *, by: str, now: datetime
) -> Finding:
    """Hide a finding from the active view; its status stays."""
    return await _triage_one(
        db, None, account_id, finding_id, TriageAction.SUPPRESS, note=None, by=by, now=now
    )


async def unsuppress_finding(
    db: Connection, account_id: int, finding_id: UUID, *, by: str, now: datetime
) -> Finding:
    """Show a finding in the active view again."""
    return await _triage_one(
        db, None, account_id, finding_id, TriageAction.UNSUPPRESS, note=None, by=by, now=now
    )


async def triage(
    db: Connection,
    keys: Keyring,
    account_id: int,
    ids: Sequence[UUID],
    action: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
    triage_id: UUID | None = None,
) -> list[tuple[UUID, TriageResult]]:
    """Apply the same action to several findings; return the result for each id, in the order of the ids.

    A finding that refuses the action does not affect the others. If another transaction keeps one of them
    locked for too long, an error is raised and nothing changes. With `triage_id` the changes are kept for a
    short time, so that `undo.undo_triage` can undo them.
    """
    outcomes: dict[UUID, TriageResult] = {}
    changes: list[TriageChange] = []
    async with limit_lock_wait(db):
        for finding_id in sorted(
            set(ids)
        ):  # always in the same order, so that two transactions cannot deadlock
            try:
                before, after = await _apply(
                    db, keys, account_id, finding_id, action, note=note, by=by, now=now
                )
            except NotFoundError:
                outcomes[finding_id] = TriageResult.MISSING
            except TransitionError:  # raised before anything is written
                outcomes[finding_id] = TriageResult.REFUSED
            else:
                outcomes[finding_id] = TriageResult.UNCHANGED if after is before else TriageResult.CHANGED
                if after is not before:
                    changes.append(TriageChange(finding_id, TriageState.of(before), TriageState.of(after)))
        if triage_id is not None and changes and action in UNDOABLE:
            await undoable.save(db, account_id, triage_id, StoredTriage(action, by, now, changes))
    return [(finding_id, outcomes[finding_id]) for finding_id in dict.fromkeys(ids)]


async def triage_matching(
    db: Connection,
    keys: Keyring,
    account_id: int,
    ids: Sequence[UUID],
    query: FindingQuery,
    *,
    action: TriageAction,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> list[tuple[UUID, TriageResult]]:
    """Apply an action to the findings that a list with this query had; return the result for each.

    Raise ConflictError, before anything changes, if one of them no longer meets the filters.
    """
    async with limit_lock_wait(db):
        matching = await table.lock_matching(db, account_id, ids, query)
    if len(matching) != len(ids):
        raise ConflictError("the findings that match the filter have changed meanwhile; nothing was changed")
    return await triage(db, keys, account_id, ids, action, note=note, by=by, now=now)


async def list_valid(db: Connection, account_id: int, ids: Sequence[UUID]) -> list[Finding]:
    """Return those findings whose credential is valid, the highest score first."""
    return await table.select_valid(db, account_id, ids)


async def list_closing_valid(
    db: Connection, account_id: int, ids: Sequence[UUID], action: Action
) -> list[Finding]:
    """Return those findings that the action would close although their credential is valid."""
    return [
        finding
        for finding in await list_valid(db, account_id, ids)
        if transition_outcome(action, finding.status) is TransitionOutcome.MOVES
    ]


async def read_statuses(db: Connection, account_id: int, ids: Sequence[UUID]) -> dict[UUID, Status]:
    """Return the statuses of findings by id; unknown ids are left out."""
    return await table.select_statuses(db, account_id, ids)


async def _triage_one(
    db: Connection,
    keys: Keyring | None,
    account_id: int,
    finding_id: UUID,
    action: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> Finding:
    """Apply an action to one finding and return the finding; raise if it stays locked for too long."""
    async with limit_lock_wait(db):
        _, finding = await _apply(db, keys, account_id, finding_id, action, note=note, by=by, now=now)
    return finding


async def _apply(
    db: Connection,
    keys: Keyring | None,
    account_id: int,
    finding_id: UUID,
    action: TriageAction,
    *,
    note: MaskedText | None,
    by: str,
    now: datetime,
) -> tuple[Finding, Finding]:
    """Apply an action to a finding and write its audit line and event.

    Return the finding before and afterwards, the same object if it has not changed. The credential is masked
    in the note.
    """
    if (locked := await table.lock_with_secret(db, account_id, finding_id)) is None:
        raise NotFoundError("no such finding")
    finding, box = locked
    if note is not None and box is not None and keys is not None:
        with suppress(DamagedValueError):  # a finding whose credential cannot be decrypted can be closed too
            secret = keys.open(box, account_id, finding_id, mask_all=is_password(finding.pattern.secret_type))
            note = cut_note(secret.masked_within(note))
    after = apply_triage(finding, action, note=note, by=by, now=now)
    if after is None:
        if action is TriageAction.SUPPRESS:  # a rule hides it: it stays hidden when the rule ends
            await suppressions.adopt(db, account_id, finding_id)
        return finding, finding
    await table.update_triage(db, account_id, after)
    if after.status is not finding.status:
        rescored = await scores.rescore(db, account_id, [finding_id], partial(score_stored, moment=now))
        after = rescored.get(finding_id, after)
    status = {} if after.status is finding.status else {"from": finding.status, "to": after.status}
    detail = status | ({} if note is None else {"note": note})
    await audit.append(
        db, account_id, audit.AuditLine(now, by, f"finding.{action}", str(finding_id), detail=detail)
    )
    if (closing := action.closing) is not None and (event := event_of(closing, after)) is not None:
        await outbox.append(db, account_id, event, event_id=uuid4(), now=now)
    return finding, after


async def list_history(db: Connection, account_id: int, finding_id: UUID) -> list[audit.AuditLine]:
    """Return the audit lines about a finding, newest first."""
    return await audit.select_for_target(db, account_id, str(finding_id))


async def get_excerpt(db: Connection, keys: Keyring, account_id: int, finding_id: UUID) -> Excerpt | None:
    """Return the masked lines around a finding's credential.

    Return None if no excerpt is stored, or the stored one belongs to a line where the credential was before.
    """
    if (stored := await table.select_excerpt(db, account_id, finding_id)) is None:
        return None
    line, box = stored
    excerpt = keys.open_excerpt(box, account_id, finding_id)
    return excerpt if excerpt.line == line else None


async def get_advice(
    db: Connection, account_id: int, finding: Finding, own_rules: Sequence[Path] = ()
) -> Advice:
    """Return the remediation advice for a finding; `own_rules` are the operator's rule files."""
    rule = await table.select_rule(db, account_id, finding.id)
    return await asyncio.to_thread(find_advice, rule, finding.pattern.secret_type, own_rules)


async def list_other_places(
    db: Connection, account_id: int, finding_id: UUID, limit: int = 20
) -> list[Finding]:
    """Return the other findings of the same credential, highest score first."""
    return await table.select_same_credential(db, account_id, finding_id, limit)
