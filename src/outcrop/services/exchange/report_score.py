"""Score findings that another scanner reported.

Of such a finding it is not known which of our rules would find it. So the strength of its detection and its
impact are those of an average rule, until a scan of our own finds it too.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength
from outcrop.store.findings.bulk import FindingRecord


def score_report(record: FindingRecord, *, places: int, moment: datetime) -> FindingRecord:
    """Return the row with its score and the parts of it; inputs that a stored score had are kept.

    `places` is the number of places that hold the same credential. `moment` is the current time.
    """
    finding = record.finding
    inputs = _default_inputs(finding) if record.score_detail is None else record.score_detail
    result = score(
        Evidence(
            finding.validation_status,
            finding.validation_confidence,
            Strength(inputs["strength"]),
            Impact(inputs["impact"]),
            finding.source_type,
            finding.source_visibility,
            path=finding.file_path,
            placeholder=inputs["placeholder"],
            test_mode=inputs["test_mode"],
            canary=inputs["canary"],
            services=tuple(finding.validation_detail["enabled_services"]),
            services_asked=inputs["asked"],
            days_since_seen=max(0, (moment - finding.last_seen_at).days),
            places=places,
        )
    )
    detail = inputs | {"version": VERSION, "parts": result.parts}
    return replace(record, finding=replace(finding, composite_score=result.total), score_detail=detail)


def _default_inputs(finding: Finding) -> dict[str, Any]:
    """Return the inputs of the score that no field of a reported finding has, as they are stored."""
    is_generic = "generic" in finding.pattern.secret_type.lower()
    return {
        "strength": Strength.GENERIC if is_generic else Strength.CONTEXT,
        "impact": Impact.MEDIUM,
        "placeholder": False,
        "test_mode": False,
        "canary": False,
        "asked": False,
    }
