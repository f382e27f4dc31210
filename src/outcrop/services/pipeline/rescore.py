"""Every score anew when the way it is made has changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.risk.score import VERSION
from outcrop.services.pipeline.context import Tools, now
from outcrop.services.pipeline.score import Traits, scored
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.runs import sources

_AT_ONCE = 200


async def rescore(tools: Tools) -> int:
    """Make every score anew that another version has made; give how many."""
    made = 0
    while True:
        async with tools.pool.connection() as db, db.transaction():
            old = await table.select_outdated(db, VERSION, _AT_ONCE)
            await _rescored(db, old)
        if not old:
            return made
        made += len(old)


async def _rescored(db: Connection, old: Sequence[tuple[int, Finding, bytes | None, dict[str, Any]]]) -> None:
    for account_id, finding, fingerprint, detail in old:
        places = (
            (await sources.spread(db, account_id, [fingerprint])).get(fingerprint, 1) if fingerprint else 1
        )
        total, made = scored(finding, Traits.of(detail), places=places, now=now())
        await table.update_checked(db, account_id, replace(finding, composite_score=total), made)
