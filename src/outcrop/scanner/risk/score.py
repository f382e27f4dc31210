"""Score how much a finding matters, from 0 to 100.

`score` adds up six parts and then applies caps (`score_caps`):

| part | points | depends on |
|---|---|---|
| liveness | 0 to 40 | the verdict of the validation and its confidence |
| detection | 0 to 20 | the strength of the evidence; less for tests, vendored code and placeholders |
| capability | 2 to 20 | the services that the credential opens, or the impact of its type |
| exposure | 4 to 12 | the visibility and the type of the source |
| still_there | 0 to 4 | whether the last scan has seen the finding; if not, the days since one has |
| spread | 0 to 4 | the number of places |
"""

import re
from typing import NamedTuple

from outcrop.domain.finding import Confidence, SourceType, Validation, Visibility
from outcrop.lazy_regex import regex
from outcrop.scanner.rules.model import Impact, Strength

VERSION = 3  # increase it if the same evidence would have another score
_LIVENESS = {
    Validation.VALID: {Confidence.HIGH: 40, Confidence.MEDIUM: 34, Confidence.LOW: 28},
    Validation.INVALID: {Confidence.HIGH: 0, Confidence.MEDIUM: 6, Confidence.LOW: 8},
}
_LIVENESS_WITHOUT_VERDICT = {Validation.UNVALIDATED: 18, Validation.ERROR: 16, Validation.UNREACHABLE: 16}
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
_FULL_ACCESS = regex(r"(?:^|_)(?:admin|root|superuser|owner|payment|payments|private_data|pii)(?:_|$)")
_TEST_PATH = regex(
    r"(?:^|[/!_.-])(?:tests?|testing|testdata|specs?|__tests__|mocks?|fixtures?|examples?|samples?|docs?|demo|dummy)"
    r"(?:[/_.-]|$)"
    r"|\.(?:md|rst|adoc)$",
    re.IGNORECASE,
)
_VENDORED_PATH = regex(
    r"(?:^|[/!])(?:vendor|vendors|vendored|third[_-]?party|node_modules|bower_components|site-packages"
    r"|dist-packages|jspm_packages|pods|carthage|deps)/"
    r"|[.-]min\.(?:js|css)$",
    re.IGNORECASE,
)


class Evidence(NamedTuple):
    """All values that the score depends on. How often a finding was seen does not matter."""

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
    services: tuple[str, ...] = ()  # labels of the services that the credential opens
    services_asked: bool = False  # the issuer was asked which services it opens
    in_last_scan: bool = True  # the last scan of the source saw the finding
    days_since_seen: int = 0  # counts only if it did not
    places: int = 1


class Score(NamedTuple):
    """The sum of a score's parts, after the caps, and the parts by their names."""

    total: float
    parts: dict[str, int]
    version: int = VERSION


def score(evidence: Evidence) -> Score:
    """Return the score: the points of each of the six parts, and their sum, but at most the lowest cap."""
    parts = {
        "liveness": _liveness(evidence),
        "detection": _detection(evidence),
        "capability": _capability(evidence),
        "exposure": _VISIBILITY[evidence.visibility] + _SOURCE[evidence.source_type],
        "still_there": 4 if evidence.in_last_scan else 2 if evidence.days_since_seen <= 30 else 0,
        "spread": 0 if evidence.places < 2 else 2 if evidence.places < 4 else 4,
    }
    return Score(float(min([sum(parts.values()), *(cap.most for cap in score_caps(evidence))])), parts)


def grants_full_access(label: str) -> bool:
    """Whether the label of a service has a word that gives it the most points for capability.

    These are words for administration (`aws_admin`), ownership, payments and private data, in lower case and
    between underscores: `administration` alone is none of them.
    """
    return _FULL_ACCESS.search(label) is not None


def is_test_path(path: str) -> bool:
    """Whether the path is one of tests, examples or documentation."""
    return _TEST_PATH.search(path) is not None


def is_vendored_path(path: str) -> bool:
    """Whether the path is one of minified code, or of code that was copied from another project."""
    return _VENDORED_PATH.search(path) is not None


def _liveness(evidence: Evidence) -> int:
    """Return the points of the validation's verdict and its confidence; fixed points without a verdict."""
    if evidence.validation in _LIVENESS_WITHOUT_VERDICT:
        return _LIVENESS_WITHOUT_VERDICT[evidence.validation]
    return _LIVENESS[evidence.validation][evidence.validation_confidence]


def _detection(evidence: Evidence) -> int:
    """Return the points of the detection's strength, less for a placeholder, at least 0.

    A path of tests, documentation or vendored code takes points away too.
    """
    points = _DETECTION[evidence.strength]
    points -= 6 if evidence.path and (is_test_path(evidence.path) or is_vendored_path(evidence.path)) else 0
    points -= 10 if evidence.placeholder else 0
    return max(points, 0)


def _capability(evidence: Evidence) -> int:
    """Return the points for what the credential opens, from 2 to 20.

    20 for a service with full access; 2 if it works but opens none of the services that were checked;
    otherwise the points of the impact of its type and two for each further service, at most eight.
    """
    if any(map(grants_full_access, evidence.services)):
        return 20
    if evidence.validation is Validation.VALID and evidence.services_asked and not evidence.services:
        return 2
    return _IMPACT[evidence.impact] + min(2 * max(len(evidence.services) - 1, 0), 8)


class ScoreCap(NamedTuple):
    """A limit of a score, and the reason for it."""

    most: int
    sentence: str


def score_caps(evidence: Evidence) -> list[ScoreCap]:
    """Return the caps that apply to this evidence; [] if none does."""
    caps = []
    if evidence.validation is Validation.INVALID and evidence.validation_confidence is Confidence.HIGH:
        caps.append(ScoreCap(15, "its issuer refuses it"))
    if evidence.test_mode:
        caps.append(ScoreCap(40, "it works with test data only"))
    if evidence.canary:
        caps.append(ScoreCap(10, "it is a known canary token"))
    if evidence.strength is Strength.GENERIC and evidence.validation is not Validation.VALID:
        caps.append(ScoreCap(50, "it is a plain value that was not proven to work"))
    if evidence.validation is not Validation.VALID:
        caps.append(ScoreCap(79, "it was not proven to work"))
    return caps
