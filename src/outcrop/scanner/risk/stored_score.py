"""Compute the score of a stored finding from its fields and the inputs that are stored with its score."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from outcrop.domain.finding import Finding, Status
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength

INPUTS = ("strength", "impact", "placeholder", "test_mode", "canary", "asked")


def score_stored(
    finding: Finding,
    detail: Mapping[str, Any],
    places: int,
    *,
    moment: datetime,
    in_last_scan: bool | None = None,
) -> tuple[Finding, dict[str, Any]]:
    """Return the finding with its score, and the detail to store: version, parts and inputs of the score.

    `detail` has the inputs that are no field of the finding. `places` is the number of places that hold the
    same credential. `moment` is the current time. With `in_last_scan`, it is now known whether the last scan
    of the source saw the finding.
    """
    seen = bool(detail.get("in_last_scan", True)) if in_last_scan is None else in_last_scan
    inputs = {name: detail[name] for name in INPUTS} | {"in_last_scan": seen and not _is_absent(finding)}
    days = max(0, (moment - finding.last_seen_at).days)
    result = score(stored_evidence(finding, inputs, days_since_seen=days, places=places))
    stored = {"version": VERSION, "parts": result.parts, **inputs}
    if reasons := detail.get("reasons"):  # of the detection, for people; the score does not depend on them
        stored["reasons"] = reasons
    return replace(finding, composite_score=result.total), stored


def stored_evidence(
    finding: Finding, detail: Mapping[str, Any], *, days_since_seen: int = 0, places: int = 1
) -> Evidence:
    """Return the evidence of a finding; `detail` has the inputs that are no field of it."""
    return Evidence(
        finding.validation_status,
        finding.validation_confidence,
        Strength(detail["strength"]),
        Impact(detail["impact"]),
        finding.source_type,
        finding.source_visibility,
        path=finding.file_path,
        placeholder=bool(detail["placeholder"]),
        test_mode=bool(detail["test_mode"]),
        canary=bool(detail["canary"]),
        services=tuple(finding.validation_detail["enabled_services"]),
        services_asked=bool(detail["asked"]),
        in_last_scan=bool(detail.get("in_last_scan", True)),
        days_since_seen=days_since_seen,
        places=places,
    )


def _is_absent(finding: Finding) -> bool:
    """Whether no scan can have seen the finding lately: one resolved it, or none saw it for a long time."""
    evidence = finding.resolution_evidence
    return finding.status is Status.STALE or (evidence is not None and evidence.auto_resolved)
