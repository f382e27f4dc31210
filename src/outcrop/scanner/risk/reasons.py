"""Explain a score in sentences, which the command line and the portal show next to the points."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from outcrop.domain.finding import Confidence, Finding, SourceType, Validation, Visibility
from outcrop.scanner.risk.detection import STRENGTH_SENTENCES
from outcrop.scanner.risk.score import (
    Evidence,
    Score,
    grants_full_access,
    is_test_path,
    is_vendored_path,
    score_caps,
)
from outcrop.scanner.risk.stored_score import stored_evidence

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
    Validation.UNVALIDATED: "it was not validated",
    Validation.ERROR: "the issuer's response does not say whether it works",
    Validation.UNREACHABLE: "the issuer could not be reached",
}
_VISIBILITY = {
    Visibility.PUBLIC: "everybody can read it",
    Visibility.INTERNAL: "everybody in the organisation can read it",
    Visibility.PRIVATE: "only members can read it",
    Visibility.UNKNOWN: "it is not known who can read it",
}
_SOURCE = {
    SourceType.REPO: "at the tip of a repository",
    SourceType.GIST: "in a gist",
    SourceType.COMMIT: "in a repository's history",
    SourceType.ENDPOINT: "on a web site",
    SourceType.JS_BUNDLE: "in a script of a web site",
}
_STILL_THERE = {4: "the last scan has seen it", 2: "it was seen within 30 days"}
_SPREAD = {0: "it is in one place", 2: "it is in 2 or 3 places"}


@dataclass(frozen=True, slots=True)
class ScoreReason:
    """One part of a score: its points, the most points that it can have, and why.

    A cap is a reason too. Its points are negative: the cap takes them away.
    """

    name: str
    points: float
    most: float
    sentence: str


def explain_stored_score(detail: Mapping[str, Any] | None, finding: Finding) -> list[ScoreReason]:
    """Return the reasons for the score of a stored finding.

    `detail` is what was stored with the score. It is None for a finding that was imported with its score and
    that no scan has scored since: then the only reason is that the score was imported.
    """
    if detail is None:
        sentence = "the score was imported, and no scan has computed another"
        return [ScoreReason("imported", finding.composite_score, 100, sentence)]
    evidence = stored_evidence(finding, detail)
    stored = Score(finding.composite_score, detail["parts"], detail["version"])
    return explain_score(evidence, stored, finding.validation_detail.get("reason"))


def explain_score(evidence: Evidence, score: Score, verdict_reason: str | None) -> list[ScoreReason]:
    """Return one reason for each part of a score, and one more at the end if a cap has lowered the sum.

    `verdict_reason` is the reason that the validation gave for its verdict; with None a general sentence is
    used.
    """
    sentences = {
        "liveness": _explain_liveness(evidence, verdict_reason),
        "detection": ", ".join(_explain_detection(evidence)),
        "capability": _explain_capability(evidence),
        "exposure": f"{_VISIBILITY[evidence.visibility]}, {_SOURCE[evidence.source_type]}",
        "still_there": _STILL_THERE.get(score.parts["still_there"], "it was not seen for more than 30 days"),
        "spread": _SPREAD.get(score.parts["spread"], "it is in 4 or more places"),
    }
    reasons = [
        ScoreReason(name, score.parts[name], most, sentences[name]) for name, most in MAX_POINTS.items()
    ]
    total = sum(score.parts.values())
    if lowering := [cap for cap in score_caps(evidence) if cap.most < total]:
        lowest = min(lowering, key=lambda cap: cap.most)
        sentence = f"at most {lowest.most}: {lowest.sentence}"
        reasons.append(ScoreReason("cap", lowest.most - total, lowest.most, sentence))
    return reasons


def _explain_liveness(evidence: Evidence, verdict_reason: str | None) -> str:
    """Return the verdict with its reason (or a general sentence), and its confidence if that is not high.

    The confidence is only added to `valid` and `invalid`.
    """
    has_verdict = evidence.validation in {Validation.VALID, Validation.INVALID}
    sentence = f"{evidence.validation}: {verdict_reason or _LIVENESS[evidence.validation]}"
    if has_verdict and evidence.validation_confidence is not Confidence.HIGH:
        sentence += f" (confidence {evidence.validation_confidence})"
    return sentence


def _explain_detection(evidence: Evidence) -> Iterator[str]:
    """Yield the evidence of the detection, then what weakens it: a test or document path, a placeholder."""
    yield STRENGTH_SENTENCES[evidence.strength]
    if evidence.path and is_test_path(evidence.path):
        yield "but its path is one of tests or documents"
    elif evidence.path and is_vendored_path(evidence.path):
        yield "but its path is one of code that was copied"
    if evidence.placeholder:
        yield "but it looks like a placeholder"


def _explain_capability(evidence: Evidence) -> str:
    """Return a sentence about the services that the credential opens.

    It names the first service with full access; otherwise the first service, and how many more there are. If
    the credential is valid and opens none of the services that were checked, it says so. If no services are
    known, it names the impact of the credential's type.
    """
    if full_access := [label for label in evidence.services if grants_full_access(label)]:
        return f"it opens {full_access[0]}"
    if evidence.services:
        others = len(evidence.services) - 1
        return f"it opens {evidence.services[0]}" + (f" and {others} more" if others else "")
    if evidence.validation is Validation.VALID and evidence.services_asked:
        return "it works, but opens none of the services that were checked"
    return f"credentials of this type have a {evidence.impact} impact"
