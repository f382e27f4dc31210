"""The score of a finding from what is stored of it, so that it can be made again at any time."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.context import now as current_time
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.runs import sources

_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """What a score depends on and a finding does not show."""

    strength: Strength
    impact: Impact
    placeholder: bool = False
    test_mode: bool = False
    canary: bool = False
    asked: bool = False  # what the credential opens was asked for

    @classmethod
    def of(cls, detail: dict[str, Any]) -> "ScoreInputs":
        """Read traits back from what is stored with a score."""
        flags = {name: bool(detail[name]) for name in ("placeholder", "test_mode", "canary", "asked")}
        return cls(Strength(detail["strength"]), Impact(detail["impact"]), **flags)


def scored(
    finding: Finding, traits: ScoreInputs, *, places: int, now: datetime
) -> tuple[float, dict[str, Any]]:
    """Give the score, and what is stored with it: its version, its parts, and the traits."""
    evidence = Evidence(
        finding.validation_status,
        finding.validation_confidence,
        traits.strength,
        traits.impact,
        finding.source_type,
        finding.source_visibility,
        path=finding.file_path,
        placeholder=traits.placeholder,
        test_mode=traits.test_mode,
        canary=traits.canary,
        services=tuple(finding.validation_detail["enabled_services"]),
        services_asked=traits.asked,
        days_since_seen=max(0, (now - finding.last_seen_at).days),
        places=places,
    )
    made = score(evidence)
    return made.total, {"version": VERSION, "parts": made.parts, **asdict(traits)}


async def rescore_outdated(tools: RunContext) -> int:
    """Make every score anew that another version has made; give how many."""
    made = 0
    while True:
        async with tools.pool.connection() as db, db.transaction():
            old = await table.lock_outdated_scores(db, VERSION, _AT_ONCE)
            await _rescored(db, old)
        if not old:
            return made
        made += len(old)


async def _rescored(db: Connection, old: Sequence[tuple[int, Finding, bytes | None, dict[str, Any]]]) -> None:
    for account_id, finding, fingerprint, detail in old:
        places = (
            (await sources.count_places(db, account_id, [fingerprint])).get(fingerprint, 1)
            if fingerprint
            else 1
        )
        total, made = scored(finding, ScoreInputs.of(detail), places=places, now=current_time())
        await table.update_validation(db, account_id, replace(finding, composite_score=total), made)
