"""Score findings from their stored fields, and score them again when the scoring method changes."""

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength
from outcrop.services.pipeline.context import RunContext
from outcrop.store.db import current_time
from outcrop.store.findings import table
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.runs import sources

_BATCH_SIZE = 200  # findings that one transaction scores again


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """The inputs of a score that are no field of the finding. They are stored with the score."""

    strength: Strength
    impact: Impact
    placeholder: bool = False
    test_mode: bool = False
    canary: bool = False
    asked: bool = False  # the issuer was asked which services the credential opens

    @classmethod
    def from_hit(cls, hit: Hit, verdict: StoredVerdict) -> "ScoreInputs":
        """Return the inputs for a hit and the verdict on its credential."""
        return cls(
            hit.strength, hit.rule.impact, hit.placeholder, verdict.test_mode, verdict.canary, verdict.asked
        )

    @classmethod
    def from_detail(cls, detail: dict[str, Any]) -> "ScoreInputs":
        """Return the inputs that are stored with a score; `detail` is what `score_finding` returned."""
        flags = {name: bool(detail[name]) for name in ("placeholder", "test_mode", "canary", "asked")}
        return cls(Strength(detail["strength"]), Impact(detail["impact"]), **flags)

    def with_verdict(self, verdict: StoredVerdict) -> "ScoreInputs":
        """Return a copy of the inputs after a new verdict, which sets `test_mode`, `canary` and `asked`."""
        return replace(self, test_mode=verdict.test_mode, canary=verdict.canary, asked=verdict.asked)


def score_finding(
    finding: Finding, inputs: ScoreInputs, *, places: int, moment: datetime
) -> tuple[Finding, dict[str, Any]]:
    """Return the finding with its score, and the detail to store: version, parts and inputs of the score.

    `places` is the number of places that hold the same credential. `moment` is the current time.
    """
    result = score(
        Evidence(
            finding.validation_status,
            finding.validation_confidence,
            inputs.strength,
            inputs.impact,
            finding.source_type,
            finding.source_visibility,
            path=finding.file_path,
            placeholder=inputs.placeholder,
            test_mode=inputs.test_mode,
            canary=inputs.canary,
            services=tuple(finding.validation_detail["enabled_services"]),
            services_asked=inputs.asked,
            days_since_seen=max(0, (moment - finding.last_seen_at).days),
            places=places,
        )
    )
    detail = {"version": VERSION, "parts": result.parts, **asdict(inputs)}
    return replace(finding, composite_score=result.total), detail


async def rescore_outdated(context: RunContext) -> int:
    """Score every finding again whose score is of a lower scoring version, and store it; return how many."""
    rescored = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            outdated = await table.lock_outdated_scores(db, VERSION, _BATCH_SIZE)
            for account_id, finding, fingerprint, detail in outdated:
                counts = await sources.count_places(db, account_id, [fingerprint]) if fingerprint else {}
                places = counts.get(fingerprint or b"", 1)
                inputs = ScoreInputs.from_detail(detail)
                scored, new_detail = score_finding(finding, inputs, places=places, moment=moment)
                await table.update_validation(db, account_id, scored, new_detail)
        if not outdated:
            return rescored
        rescored += len(outdated)
