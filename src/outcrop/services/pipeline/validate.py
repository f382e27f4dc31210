"""Get the issuers' verdicts on detected credentials, and store them with the findings.

Each credential is checked once, and not again while its last verdict is fresh.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from outcrop.domain.finding import Finding, Validation
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.score import ScoreInputs, score_finding
from outcrop.store import audit
from outcrop.store.db import Connection, current_time
from outcrop.store.findings import table, verdicts
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.keyring import FINGERPRINT_BYTES
from outcrop.store.runs import sources
from outcrop.validation.engine import ValidationMode
from outcrop.validation.verdict import Verdict

FRESH_FOR = timedelta(hours=20)  # less than a day, so that a daily run checks every credential
RETRY_AFTER = timedelta(hours=1)  # for a check without a decision
UNDECIDED = frozenset({Validation.ERROR, Validation.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """The verdict that counts for each value, and the values for which another one counted before."""

    verdicts: dict[bytes, StoredVerdict]  # by fingerprint
    changed: frozenset[bytes]  # verdict keys, one for each such value


async def validate_secrets(
    context: RunContext, account_id: int, hits: Mapping[bytes, Hit]
) -> ValidationResult:
    """Return the verdict on each hit's credential, and which verdicts changed; `hits` is by verdict key.

    Hits without a fresh stored verdict are checked, and their verdicts stored, but not with their findings.
    Other verdicts on the same value count too: see `verdicts.choose_verdict`. A verdict has changed if one
    with another status counted before.
    """
    async with context.pool.connection() as db:
        stored = await verdicts.select(db, account_id, list(hits))
        moment = await current_time(db)
    unchecked = [key for key in hits if key not in stored or not _is_fresh(stored[key], moment)]
    results = await asyncio.gather(*(_check(context, hits[key]) for key in unchecked))
    checked = {
        key: to_stored_verdict(verdict, moment) for key, verdict in zip(unchecked, results, strict=True)
    }
    if checked:
        async with context.pool.connection() as db, db.transaction():
            await verdicts.save(db, account_id, _due_if_off(context, checked))
    before = verdicts.group_by_fingerprint(stored)
    after = verdicts.group_by_fingerprint(stored | checked)
    changed = {
        fingerprint: key
        for key in hits
        if (fingerprint := key[:FINGERPRINT_BYTES]) in before
        and before[fingerprint].status is not after[fingerprint].status
    }
    return ValidationResult(after, frozenset(changed.values()))


def _is_fresh(verdict: StoredVerdict, moment: datetime) -> bool:
    """Whether a stored verdict may be used again at `moment`: for FRESH_FOR, or RETRY_AFTER if undecided.

    An `unvalidated` verdict is never fresh.
    """
    age = moment - verdict.checked_at
    fresh_for = RETRY_AFTER if verdict.status in UNDECIDED else FRESH_FOR
    return age < fresh_for and verdict.status is not Validation.UNVALIDATED


async def _check(context: RunContext, hit: Hit) -> Verdict:
    """Check a hit's credential with its issuer and return the verdict."""
    parts = {name: reveal(part) for name, part in hit.companions.items()}
    return await context.validator.check(hit.rule, reveal(hit.secret), parts)


def _due_if_off(context: RunContext, checked: dict[bytes, StoredVerdict]) -> dict[bytes, StoredVerdict]:
    """Return the verdicts to store, by verdict key; if validation is off, they are marked as never checked.

    So a check is due as soon as validation is on. `checked` itself does not change.
    """
    if context.validator.mode is not ValidationMode.OFF:
        return checked
    return {key: replace(verdict, checked_at=verdicts.NEVER_CHECKED) for key, verdict in checked.items()}


def to_stored_verdict(verdict: Verdict, moment: datetime) -> StoredVerdict:
    """Return a verdict in the form in which it is stored, with `moment` as the time of the check."""
    return StoredVerdict(
        verdict.status,
        verdict.confidence,
        verdict.reason,
        verdict.services,
        verdict.services_checked,
        verdict.test_mode,
        verdict.canary,
        moment,
    )


def with_verdict(finding: Finding, verdict: StoredVerdict) -> Finding:
    """Return a copy of the finding with status, confidence, services and reason of its credential's verdict.

    The time of the check is not changed by an `unvalidated` verdict.
    """
    detail: dict[str, Any] = {
        **finding.validation_detail,
        "enabled_services": list(verdict.services),
        "reason": verdict.reason,
    }
    if verdict.status is not Validation.UNVALIDATED:  # otherwise nothing was checked, and the old time stays
        detail["checked_at"] = verdict.checked_at.isoformat()
    return replace(
        finding,
        validation_status=verdict.status,
        validation_confidence=verdict.confidence,
        validation_detail=detail,
    )


async def apply_verdict(
    db: Connection, account_id: int, verdict_key: bytes, *, by: str, moment: datetime
) -> None:
    """Store the verdict that counts, and the score that follows from it, with every finding of the value.

    `verdict_key` is that of the newest check. A finding without a stored score gets none. An audit line with
    the actor `by` is written for each finding whose validation status changes. `moment` is the current time.
    """
    await sources.lock_recording(db, account_id)
    stored = await verdicts.select(db, account_id, [verdict_key])
    ((fingerprint, verdict),) = verdicts.group_by_fingerprint(stored).items()
    place_count = (await sources.count_places(db, account_id, [fingerprint])).get(fingerprint, 1)
    for finding_id in await verdicts.select_finding_ids(db, account_id, fingerprint):
        if (locked := await table.lock_with_score(db, account_id, finding_id)) is None:
            continue
        before, score_detail = locked
        after = with_verdict(before, verdict)
        if score_detail is not None:
            inputs = ScoreInputs.from_detail(score_detail).with_verdict(verdict)
            after, score_detail = score_finding(after, inputs, places=place_count, moment=moment)
        if (after, score_detail) != locked:
            await table.update_validation(db, account_id, after, score_detail)
        await audit_verdict_change(db, account_id, before, after, by=by, moment=moment)


async def audit_verdict_change(
    db: Connection, account_id: int, before: Finding, after: Finding, *, by: str, moment: datetime
) -> None:
    """Write an audit line, with the actor `by`, if the finding's validation status has changed."""
    if after.validation_status is before.validation_status:
        return
    detail = {
        "from": before.validation_status,
        "to": after.validation_status,
        "reason": after.validation_detail["reason"],
    }
    line = audit.AuditLine(moment, by, "finding.validate", str(after.id), detail=detail)
    await audit.append(db, account_id, line)
