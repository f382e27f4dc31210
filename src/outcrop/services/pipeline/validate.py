"""The issuers' word on what a run saw: each credential is asked about once, and not again while the last answer is fresh."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from outcrop.domain.finding import Finding, Validation
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.services.pipeline.context import RunContext, now
from outcrop.services.pipeline.score import ScoreInputs, scored
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings import table, verdicts
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.runs import sources
from outcrop.validation.engine import ValidationMode
from outcrop.validation.verdict import Verdict

FRESH = timedelta(hours=20)  # less than a day, so that a daily run asks anew
SOON = timedelta(hours=1)  # what nobody could tell is asked about again after this
UNDECIDED = frozenset({Validation.ERROR, Validation.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """What is known of credentials, by fingerprint, and of which of them something else was known before."""

    told: dict[bytes, StoredVerdict]
    changed: frozenset[bytes]


async def verify(tools: RunContext, account_id: int, hits: Mapping[bytes, Hit]) -> ValidationResult:
    """Give what is known of credentials; what is not known, or known for long, is asked."""
    async with tools.pool.connection() as db:
        known = await verdicts.select(db, account_id, list(hits))
    fresh = {fingerprint: said for fingerprint, said in known.items() if _is_fresh(said)}
    wanted = [fingerprint for fingerprint in hits if fingerprint not in fresh]
    asked = await asyncio.gather(*(_ask(tools, hits[fingerprint]) for fingerprint in wanted))
    told = {fingerprint: said(verdict) for fingerprint, verdict in zip(wanted, asked, strict=True)}
    # Where nobody may be asked, that is kept too: when it is allowed again, they are due.
    off = tools.validator.mode is ValidationMode.OFF
    kept = {
        fingerprint: replace(one, checked_at=verdicts.NEVER_CHECKED) if off else one
        for fingerprint, one in told.items()
    }
    if kept:
        async with tools.pool.connection() as db, db.transaction():
            await verdicts.save(db, account_id, kept)
    changed = {
        fingerprint
        for fingerprint, one in told.items()
        if fingerprint in known and known[fingerprint].status is not one.status
    }
    return ValidationResult(fresh | told, frozenset(changed))


def _is_fresh(said: StoredVerdict) -> bool:
    return (
        now() - said.checked_at < (SOON if said.status in UNDECIDED else FRESH)
        and said.status is not Validation.UNVALIDATED
    )


async def _ask(tools: RunContext, hit: Hit) -> Verdict:
    parts = {name: reveal(part) for name, part in hit.parts.items()}
    return await tools.validator.check(hit.rule, reveal(hit.secret), parts)


def said(verdict: Verdict) -> StoredVerdict:
    return StoredVerdict(
        verdict.status,
        verdict.confidence,
        verdict.reason,
        verdict.services,
        verdict.asked,
        verdict.test_mode,
        verdict.canary,
        now(),
    )


def judged(finding: Finding, told: StoredVerdict) -> Finding:
    """Give the finding with a verdict on its credential."""
    detail: dict[str, Any] = {
        **finding.validation_detail,
        "enabled_services": list(told.services),
        "reason": told.reason,
    }
    if told.status is not Validation.UNVALIDATED:  # nobody was asked: when it was last checked stays
        detail["checked_at"] = told.checked_at.isoformat()
    return replace(
        finding,
        validation_status=told.status,
        validation_confidence=told.confidence,
        validation_detail=detail,
    )


async def apply(db: Connection, account_id: int, fingerprint: bytes, told: StoredVerdict, *, by: str) -> None:
    """Let every finding of a credential have its verdict and the score that follows; a change is in the audit trail."""
    await sources.lock_recording(db, account_id)
    places = (await sources.count_places(db, account_id, [fingerprint])).get(fingerprint, 1)
    for finding_id in await verdicts.select_finding_ids(db, account_id, fingerprint):
        if (locked := await table.lock_with_score(db, account_id, finding_id)) is None:
            continue
        finding, detail = locked
        checked = judged(finding, told)
        if detail is not None:
            traits = replace(
                ScoreInputs.of(detail), test_mode=told.test_mode, canary=told.canary, asked=told.asked
            )
            total, detail = scored(checked, traits, places=places, now=now())
            checked = replace(checked, composite_score=total)
        if (checked, detail) != locked:
            await table.update_validation(db, account_id, checked, detail)
        await audit_change(db, account_id, finding, checked, by=by)


async def audit_change(db: Connection, account_id: int, before: Finding, after: Finding, *, by: str) -> None:
    """Write the audit line of a verdict that is another than before."""
    if after.validation_status is before.validation_status:
        return
    change = {
        "from": before.validation_status,
        "to": after.validation_status,
        "reason": after.validation_detail["reason"],
    }
    await audit.append(
        db, account_id, audit.AuditLine(now(), by, "finding.validate", str(after.id), detail=change)
    )
