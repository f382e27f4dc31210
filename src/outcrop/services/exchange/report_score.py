"""Score findings that another scanner reported.

If none of our rules recognises the credential, the strength of its detection and its impact are those of an
average rule, until a scan of our own finds it too.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.risk.stored_score import score_stored
from outcrop.scanner.rules.model import Impact, Strength
from outcrop.store.findings.record import FindingRecord

_SEEN_NOW = timedelta(days=1)  # a scanner's report of today is the last scan


def score_report(
    record: FindingRecord, *, places: int, moment: datetime, hit: Hit | None = None
) -> FindingRecord:
    """Return the row with its score and the parts of it; inputs that a stored score had are kept.

    `places` is the number of places that hold the same credential. `moment` is the current time. `hit` is
    that of our rule on the credential of a new finding.
    """
    finding = record.finding
    inputs = _new_inputs(finding, hit) if record.score_detail is None else record.score_detail
    was_seen_now = finding.last_seen_at >= moment - _SEEN_NOW if record.score_detail is None else None
    finding, detail = score_stored(finding, inputs, places, moment=moment, in_last_scan=was_seen_now)
    return replace(record, finding=finding, score_detail=detail)


def _new_inputs(finding: Finding, hit: Hit | None) -> dict[str, Any]:
    """Return the inputs of the score that no field of a reported finding has, as they are stored."""
    is_generic = "generic" in finding.pattern.secret_type.lower()
    return {
        "strength": hit.strength if hit else Strength.GENERIC if is_generic else Strength.CONTEXT,
        "impact": hit.rule.impact if hit else Impact.MEDIUM,
        "placeholder": hit is not None and hit.placeholder,
        "test_mode": False,
        "canary": False,
        "asked": False,
        "reasons": hit.reason_ids if hit else [],
    }
