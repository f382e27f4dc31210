"""The issuers' word on what a run saw: each credential is asked about once, and not again while the last answer is fresh."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from outcrop.domain.finding import Finding, Validation
from outcrop.domain.secret import reveal
from outcrop.scanner.confirm import Hit
from outcrop.services.pipeline.tools import Tools, now
from outcrop.store import verdicts
from outcrop.store.verdicts import Said
from outcrop.validation.verdict import Verdict

FRESH = timedelta(hours=20)  # less than a day, so that a daily run asks anew


async def verify(tools: Tools, account_id: int, hits: Mapping[bytes, Hit]) -> dict[bytes, Said]:
    """Give what is known of credentials, by fingerprint; what is not known, or known for long, is asked."""
    async with tools.pool.connection() as db:
        known = await verdicts.select(db, account_id, list(hits))
    fresh = {fingerprint: said for fingerprint, said in known.items() if now() - said.checked_at < FRESH}
    wanted = [fingerprint for fingerprint in hits if fingerprint not in fresh]
    asked = await asyncio.gather(*(_ask(tools, hits[fingerprint]) for fingerprint in wanted))
    told = {fingerprint: said(verdict) for fingerprint, verdict in zip(wanted, asked, strict=True)}
    if learnt := {fingerprint: one for fingerprint, one in told.items() if one.status is not Validation.UNVALIDATED}:
        async with tools.pool.connection() as db, db.transaction():
            await verdicts.save(db, account_id, learnt)
    return fresh | told


async def _ask(tools: Tools, hit: Hit) -> Verdict:
    parts = {name: reveal(part) for name, part in hit.parts.items()}
    return await tools.validator.check(hit.rule, reveal(hit.secret), parts)


def said(verdict: Verdict) -> Said:
    return Said(
        verdict.status, verdict.confidence, verdict.reason, verdict.services, verdict.asked, verdict.test_mode, verdict.canary, now()
    )


def judged(finding: Finding, told: Said) -> Finding:
    """Give the finding with a verdict on its credential."""
    detail: dict[str, Any] = {
        **finding.validation_detail,
        "enabled_services": list(told.services),
        "reason": told.reason,
        "checked_at": told.checked_at.isoformat(),
    }
    return replace(finding, validation_status=told.status, validation_confidence=told.confidence, validation_detail=detail)
