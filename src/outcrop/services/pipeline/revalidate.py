"""Asking again: credentials of active findings once a day, and every score anew when the way it is made has changed."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.domain.secret import is_password, reveal
from outcrop.scanner.score import VERSION
from outcrop.services.pipeline.scoring import Traits, scored
from outcrop.services.pipeline.tools import ACTOR, Tools, now
from outcrop.services.pipeline.verify import judged, said
from outcrop.store import audit, findings, sources, verdicts
from outcrop.store.db import Connection
from outcrop.store.verdicts import Due, Said

EVERY = timedelta(days=1)
_AT_ONCE = 200


async def revalidate_due(tools: Tools) -> int:
    """Ask again about what was last checked a day ago; give how many were asked about."""
    asked = 0
    while True:
        async with tools.pool.connection() as db:
            due = await verdicts.due(db, before=now() - EVERY, most=_AT_ONCE)
        if not due:
            return asked
        await asyncio.gather(*(_again(tools, one) for one in due))
        asked += len(due)


async def _again(tools: Tools, one: Due) -> None:
    rule = tools.ruleset.by_id.get(one.rule)
    secret, parts = tools.keys.open_whole(one.box, one.account_id, one.finding_id, wholly=is_password(one.secret_type))
    if rule is None:
        return
    values = {name: reveal(part) for name, part in parts.items()}
    told = said(await tools.validator.fresh().check(rule, reveal(secret), values))
    async with tools.pool.connection() as db, db.transaction():
        await verdicts.save(db, one.account_id, {one.fingerprint: told})
        await _apply(db, one.account_id, one.fingerprint, told)


async def _apply(db: Connection, account_id: int, fingerprint: bytes, told: Said) -> None:
    """Let every finding of a credential have its verdict; a change is in the audit trail."""
    places = (await sources.spread(db, account_id, [fingerprint])).get(fingerprint, 1)
    for finding_id in await verdicts.finding_ids(db, account_id, fingerprint):
        if (locked := await findings.select_scored(db, account_id, finding_id)) is None:
            continue
        finding, detail = locked
        checked = judged(finding, told)
        if detail is not None:
            traits = replace(Traits.of(detail), test_mode=told.test_mode, canary=told.canary, asked=told.asked)
            total, detail = scored(checked, traits, places=places, now=now())
            checked = replace(checked, composite_score=total)
        await findings.update_checked(db, account_id, checked, detail)
        if checked.validation_status is not finding.validation_status:
            change = {"from": finding.validation_status, "to": checked.validation_status, "reason": told.reason}
            await audit.append(db, account_id, audit.Line(now(), ACTOR, "finding.validate", str(finding_id), detail=change))


async def rescore(tools: Tools) -> int:
    """Make every score anew that an older version has made; give how many."""
    made = 0
    while True:
        async with tools.pool.connection() as db, db.transaction():
            old = await findings.select_outdated(db, VERSION, _AT_ONCE)
            await _rescored(db, old)
        if not old:
            return made
        made += len(old)


async def _rescored(db: Connection, old: Sequence[tuple[int, Finding, bytes | None, dict[str, Any]]]) -> None:
    for account_id, finding, fingerprint, detail in old:
        places = (await sources.spread(db, account_id, [fingerprint])).get(fingerprint, 1) if fingerprint else 1
        total, made = scored(finding, Traits.of(detail), places=places, now=now())
        await findings.update_checked(db, account_id, replace(finding, composite_score=total), made)
