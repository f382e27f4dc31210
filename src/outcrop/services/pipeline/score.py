"""Score findings from their stored fields, and score them again when the scoring method changes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.risk.score import VERSION
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.scanner.rules.model import Impact, Strength
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.services.pipeline.fence import write_transaction
from outcrop.store.db import Connection, current_time
from outcrop.store.findings import scores
from outcrop.store.findings.verdicts import StoredVerdict

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
    in_last_scan: bool = True  # the last scan of the source saw the finding
    reasons: list[list[Any]] = field(default_factory=list)  # of the detection (`risk.detection`)

    @classmethod
    def from_hit(cls, hit: Hit, verdict: StoredVerdict) -> "ScoreInputs":
        """Return the inputs for a hit and the verdict on its credential."""
        return cls(
            hit.strength,
            hit.rule.impact,
            hit.placeholder,
            verdict.test_mode,
            verdict.canary,
            verdict.asked,
            reasons=hit.reason_ids,
        )

    @classmethod
    def from_detail(cls, detail: dict[str, Any]) -> "ScoreInputs":
        """Return the inputs that are stored with a score; `detail` is what `score_finding` returned."""
        flags = {name: bool(detail[name]) for name in ("placeholder", "test_mode", "canary", "asked")}
        flags["in_last_scan"] = bool(detail.get("in_last_scan", True))  # unknown to a lower version
        reasons = detail.get("reasons", [])
        return cls(Strength(detail["strength"]), Impact(detail["impact"]), **flags, reasons=reasons)

    def with_verdict(self, verdict: StoredVerdict) -> "ScoreInputs":
        """Return a copy of the inputs after a new verdict, which sets `test_mode`, `canary` and `asked`."""
        return replace(self, test_mode=verdict.test_mode, canary=verdict.canary, asked=verdict.asked)


def score_finding(
    finding: Finding, inputs: ScoreInputs, *, places: int, moment: datetime
) -> tuple[Finding, dict[str, Any]]:
    """Return the finding with its score, and the detail to store: version, parts and inputs of the score.

    `places` is the number of places that hold the same credential. `moment` is the current time.
    """
    return score_stored(finding, asdict(inputs), places, moment=moment)


async def rescore(
    db: Connection,
    account_id: int,
    finding_ids: Sequence[UUID],
    moment: datetime,
    *,
    in_last_scan: bool | None = None,
) -> dict[UUID, Finding]:
    """Compute the scores of stored findings again and return the findings by id.

    With `in_last_scan`, it is now known whether the last scan of the source saw them.
    """
    compute = partial(score_stored, moment=moment, in_last_scan=in_last_scan)
    return await scores.rescore(db, account_id, finding_ids, compute)


async def rescore_seen(context: RunContext, key: SourceKey) -> None:
    """Add the points of the last scan to findings of a source that this run saw, but did not detect."""
    async with write_transaction(context, key) as (db, moment):
        unseen = await scores.select_unseen_of_run(db, key.account_id, key.source, key.scan_id)
        await rescore(db, key.account_id, unseen, moment, in_last_scan=True)


async def rescore_absent(context: RunContext, key: SourceKey, finding_ids: Sequence[UUID]) -> None:
    """Remove the points of the last scan from findings that a complete scan did not see, also closed ones."""
    async with write_transaction(context, key) as (db, moment):
        seen = await scores.select_seen(db, key.account_id, finding_ids)
        await rescore(db, key.account_id, seen, moment, in_last_scan=False)


async def rescore_outdated(context: RunContext) -> int:
    """Compute every score again that is of a lower version or has ended with the time; return how many."""
    rescored = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            outdated = await scores.lock_outdated(db, VERSION, _BATCH_SIZE)
            for account_id, rows in groupby(sorted(outdated), key=itemgetter(0)):
                await rescore(db, account_id, [finding_id for _, finding_id in rows], moment)
        if not outdated:
            return rescored
        rescored += len(outdated)
