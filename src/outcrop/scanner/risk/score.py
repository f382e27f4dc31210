"""How much a finding matters, 0 to 100: the sum of six parts, each with its reason, under a version."""

import re
from typing import NamedTuple

from outcrop.domain.finding import Confidence, SourceType, Validation, Visibility
from outcrop.scanner.rules.model import Impact, Strength

VERSION = 2
_LIVENESS = {
    Validation.VALID: {Confidence.HIGH: 40, Confidence.MEDIUM: 34, Confidence.LOW: 28},
    Validation.INVALID: {Confidence.HIGH: 0, Confidence.MEDIUM: 6, Confidence.LOW: 8},
}
_UNDECIDED = {Validation.UNVALIDATED: 18, Validation.ERROR: 16, Validation.UNREACHABLE: 16}
_DETECTION = {
    Strength.CHECKSUM: 20,
    Strength.PREFIX: 17,
    Strength.STRUCTURED: 14,
    Strength.CONTEXT: 9,
    Strength.GENERIC: 4,
}
_IMPACT = {Impact.CRITICAL: 12, Impact.HIGH: 9, Impact.MEDIUM: 6, Impact.LOW: 2}
_VISIBILITY = {Visibility.PUBLIC: 8, Visibility.INTERNAL: 4, Visibility.UNKNOWN: 4, Visibility.PRIVATE: 2}
_SOURCE = {
    SourceType.JS_BUNDLE: 4,
    SourceType.ENDPOINT: 4,
    SourceType.REPO: 3,
    SourceType.GIST: 3,
    SourceType.COMMIT: 2,
}
_EVERYTHING = re.compile(r"(?:^|_)(?:admin|root|superuser|owner|payment|payments|private_data|pii)(?:_|$)")
_TEST_PATH = re.compile(
    r"(?:^|[/!_.-])(?:tests?|testing|testdata|specs?|__tests__|mocks?|fixtures?|examples?|samples?|docs?|demo|dummy)(?:[/_.-]|$)"
    r"|\.(?:md|rst|adoc)$",
    re.IGNORECASE,
)
_VENDORED_PATH = re.compile(
    r"(?:^|[/!])(?:vendor|vendors|vendored|third[_-]?party|node_modules|bower_components|site-packages|dist-packages|jspm_packages|pods|carthage|deps)/"
    r"|[.-]min\.(?:js|css)$",
    re.IGNORECASE,
)


class Evidence(NamedTuple):
    """Everything the score depends on. How often and how long a finding has been seen plays no part."""

    validation: Validation
    validation_confidence: Confidence
    strength: Strength
    impact: Impact
    source_type: SourceType
    visibility: Visibility
    path: str | None = None
    placeholder: bool = False
    test_mode: bool = False
    canary: bool = False
    services: tuple[str, ...] = ()
    services_asked: bool = False  # capability requests were made
    days_since_seen: int = 0
    places: int = 1


class Score(NamedTuple):
    total: float
    parts: dict[str, int]
    version: int = VERSION


def score(evidence: Evidence) -> Score:
    """Add up the parts, then apply the caps."""
    parts = {
        "liveness": _liveness(evidence),
        "detection": _detection(evidence),
        "capability": _capability(evidence),
        "exposure": _VISIBILITY[evidence.visibility] + _SOURCE[evidence.source_type],
        "still_there": 4 if evidence.days_since_seen == 0 else 2 if evidence.days_since_seen <= 30 else 0,
        "spread": 0 if evidence.places < 2 else 2 if evidence.places < 4 else 4,
    }
    return Score(float(min([sum(parts.values()), *(cap.most for cap in score_caps(evidence))])), parts)


def grants_full_access(label: str) -> bool:
    """Tell whether a label stands for power over everything, for payments, or for private data."""
    return _EVERYTHING.search(label) is not None


def is_test_path(path: str) -> bool:
    return _TEST_PATH.search(path) is not None


def is_vendored_path(path: str) -> bool:
    """Tell whether a file is somebody else's code, copied in."""
    return _VENDORED_PATH.search(path) is not None


def _liveness(evidence: Evidence) -> int:
    if evidence.validation in _UNDECIDED:
        return _UNDECIDED[evidence.validation]
    return _LIVENESS[evidence.validation][evidence.validation_confidence]


def _detection(evidence: Evidence) -> int:
    points = _DETECTION[evidence.strength]
    points -= 6 if evidence.path and (is_test_path(evidence.path) or is_vendored_path(evidence.path)) else 0
    points -= 10 if evidence.placeholder else 0
    return max(points, 0)


def _capability(evidence: Evidence) -> int:
    if any(map(grants_full_access, evidence.services)):
        return 20
    if evidence.validation is Validation.VALID and evidence.services_asked and not evidence.services:
        return 2
    return _IMPACT[evidence.impact] + min(2 * max(len(evidence.services) - 1, 0), 8)


class ScoreCap(NamedTuple):
    most: int
    sentence: str


def score_caps(evidence: Evidence) -> list[ScoreCap]:
    """Give what the sum may not go beyond, and why."""
    found = []
    if evidence.validation is Validation.INVALID and evidence.validation_confidence is Confidence.HIGH:
        found.append(ScoreCap(15, "its issuer refuses it"))
    if evidence.test_mode:
        found.append(ScoreCap(40, "it only works with made-up data"))
    if evidence.canary:
        found.append(ScoreCap(10, "it is a known canary, laid out to be found"))
    if evidence.strength is Strength.GENERIC and evidence.validation is not Validation.VALID:
        found.append(ScoreCap(50, "it is a plain value that nobody has proven"))
    if evidence.validation is not Validation.VALID:
        found.append(ScoreCap(79, "it is not proven to work"))
    return found
