"""Why a finding has its score, in words: what the command line and the portal show beside the number."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outcrop.domain.finding import Confidence, Finding, SourceType, Validation, Visibility
from outcrop.scanner.risk.score import Evidence, Score, grants_full_access, is_test_path, score_caps
from outcrop.scanner.rules.model import Impact, Strength

MAX_POINTS = {
    "liveness": 40,
    "detection": 20,
    "capability": 20,
    "exposure": 12,
    "still_there": 4,
    "spread": 4,
}

_LIVENESS = {
    Validation.VALID: "the issuer accepts it",
    Validation.INVALID: "the issuer refuses it",
    Validation.UNVALIDATED: "nobody was asked whether it works",
    Validation.ERROR: "the issuer's answer says nothing of it",
    Validation.UNREACHABLE: "the issuer could not be reached",
}
_STRENGTH = {
    Strength.CHECKSUM: "its checksum is right",
    Strength.PREFIX: "it begins as only this type does",
    Strength.STRUCTURED: "its shape is rare by itself",
    Strength.CONTEXT: "a word beside it names the issuer",
    Strength.GENERIC: "a plain value beside a word such as password",
}
_VISIBILITY = {
    Visibility.PUBLIC: "everybody can read it",
    Visibility.INTERNAL: "everybody in the organisation can read it",
    Visibility.PRIVATE: "only members can read it",
    Visibility.UNKNOWN: "who can read it is not known",
}
_SOURCE = {
    SourceType.REPO: "at the tip of a repository",
    SourceType.GIST: "in a gist",
    SourceType.COMMIT: "in a repository's history",
    SourceType.ENDPOINT: "on a web site",
    SourceType.JS_BUNDLE: "in a script of a web site",
}
_STILL_THERE = {4: "the last scan saw it", 2: "it was seen within 30 days"}
_SPREAD = {0: "it stands in one place", 2: "it stands in 2 or 3 places"}


@dataclass(frozen=True, slots=True)
class ScoreReason:
    """One part of a score: its points, the most it can have, and why. Of a cap the points are what it takes away."""

    name: str
    points: float
    most: float
    sentence: str


def explain_stored_score(detail: Mapping[str, Any] | None, finding: Finding) -> list[ScoreReason]:
    """Explain the score of a stored finding from what is stored with it; of one that was imported nothing else is known."""
    if detail is None:
        return [
            ScoreReason(
                "imported",
                finding.composite_score,
                100,
                "the score was given with the import, and no scan has made another",
            )
        ]
    evidence = Evidence(
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
    )
    made = Score(finding.composite_score, detail["parts"], detail["version"])
    return explain_score(evidence, made, finding.validation_detail.get("reason"))


def explain_score(evidence: Evidence, made: Score, why: str | None) -> list[ScoreReason]:
    """Explain each part of a score, then the cap, where one has lowered the sum. `why` is what the verdict's reason says."""
    sentences = {
        "liveness": _liveness(evidence, why),
        "detection": ", ".join(_detection(evidence)),
        "capability": _capability(evidence),
        "exposure": f"{_VISIBILITY[evidence.visibility]}, {_SOURCE[evidence.source_type]}",
        "still_there": _STILL_THERE.get(made.parts["still_there"], "it was not seen for more than 30 days"),
        "spread": _SPREAD.get(made.parts["spread"], "it stands in 4 places or more"),
    }
    told = [ScoreReason(name, made.parts[name], most, sentences[name]) for name, most in MAX_POINTS.items()]
    total = sum(made.parts.values())
    if lowering := [cap for cap in score_caps(evidence) if cap.most < total]:
        lowest = min(lowering, key=lambda cap: cap.most)
        told.append(
            ScoreReason("cap", lowest.most - total, lowest.most, f"at most {lowest.most}: {lowest.sentence}")
        )
    return told


def _liveness(evidence: Evidence, why: str | None) -> str:
    doubt = (
        evidence.validation in {Validation.VALID, Validation.INVALID}
        and evidence.validation_confidence is not Confidence.HIGH
    )
    said = why or _LIVENESS[evidence.validation]
    return f"{evidence.validation}: {said}" + (
        f" (confidence {evidence.validation_confidence})" if doubt else ""
    )


def _detection(evidence: Evidence) -> Iterator[str]:
    yield _STRENGTH[evidence.strength]
    if evidence.path and is_test_path(evidence.path):
        yield "but its path is one of tests or documents"
    if evidence.placeholder:
        yield "but it looks like a placeholder"


def _capability(evidence: Evidence) -> str:
    if everything := [label for label in evidence.services if grants_full_access(label)]:
        return f"it opens {everything[0]}"
    if evidence.services:
        more = len(evidence.services) - 1
        return f"it opens {evidence.services[0]}" + (f" and {more} more" if more else "")
    if evidence.validation is Validation.VALID and evidence.services_asked:
        return "it works, and opens nothing that was asked for"
    return f"credentials of this type have a {evidence.impact} impact"
