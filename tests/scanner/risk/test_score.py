"""Test the points of every part and the caps of the score."""

import itertools

import pytest

from outcrop.domain.finding import Confidence, SourceType, Validation, Visibility
from outcrop.scanner.risk.score import VERSION, Evidence, is_test_path, is_vendored_path, score
from outcrop.scanner.rules.model import Impact, Strength

BASE = Evidence(
    Validation.VALID,
    Confidence.HIGH,
    Strength.CHECKSUM,
    Impact.CRITICAL,
    SourceType.REPO,
    Visibility.PUBLIC,
    services=("read",),
)


def points_of(name: str, **changes) -> int:
    """Return the points of one part for the base evidence with these changes."""
    return score(BASE._replace(**changes)).parts[name]


@pytest.mark.parametrize(
    ("validation", "confidence", "points"),
    [
        (Validation.VALID, Confidence.HIGH, 40),
        (Validation.VALID, Confidence.MEDIUM, 34),
        (Validation.VALID, Confidence.LOW, 28),
        (Validation.UNVALIDATED, Confidence.LOW, 18),
        (Validation.ERROR, Confidence.LOW, 16),
        (Validation.UNREACHABLE, Confidence.LOW, 16),
        (Validation.INVALID, Confidence.HIGH, 0),
        (Validation.INVALID, Confidence.MEDIUM, 6),
        (Validation.INVALID, Confidence.LOW, 8),
    ],
)
def test_liveness_points(validation, confidence, points):
    assert points_of("liveness", validation=validation, validation_confidence=confidence) == points


@pytest.mark.parametrize(
    ("changes", "points"),
    [
        ({"strength": Strength.CHECKSUM}, 20),
        ({"strength": Strength.PREFIX}, 17),
        ({"strength": Strength.STRUCTURED}, 14),
        ({"strength": Strength.CONTEXT}, 9),
        ({"strength": Strength.GENERIC}, 4),
        ({"path": "src/app.py"}, 20),
        ({"path": "tests/app.py"}, 14),
        ({"path": "node_modules/a/index.js"}, 14),
        ({"path": "vendor/a/tests/x.go"}, 14),
        ({"placeholder": True}, 10),
        ({"placeholder": True, "path": "docs/x.md"}, 4),
        ({"strength": Strength.GENERIC, "path": "tests/x"}, 0),
        ({"strength": Strength.CONTEXT, "placeholder": True}, 0),
    ],
)
def test_detection_points(changes, points):
    assert points_of("detection", **changes) == points


@pytest.mark.parametrize(
    ("changes", "points"),
    [
        ({}, 12),
        ({"impact": Impact.HIGH}, 9),
        ({"impact": Impact.MEDIUM}, 6),
        ({"impact": Impact.LOW}, 2),
        ({"services": ("a", "b")}, 14),
        ({"services": ("a", "b", "c", "d", "e")}, 20),
        ({"services": tuple("abcdefgh")}, 20),
        ({"impact": Impact.LOW, "services": tuple("abcdefgh")}, 10),
        ({"impact": Impact.LOW, "services": ("admin",)}, 20),
        ({"impact": Impact.LOW, "services": ("root",)}, 20),
        ({"impact": Impact.LOW, "services": ("postgres", "postgres_superuser")}, 20),
        ({"impact": Impact.LOW, "services": ("read", "payments")}, 20),
        ({"impact": Impact.LOW, "services": ("private_data",)}, 20),
        ({"impact": Impact.LOW, "services": ("administration_free",)}, 2),
        ({"services": (), "services_asked": True}, 2),
        ({"services": ()}, 12),
        ({"services": (), "services_asked": True, "validation": Validation.UNVALIDATED}, 12),
    ],
)
def test_capability_points(changes, points):
    assert points_of("capability", **changes) == points


@pytest.mark.parametrize(
    ("visibility", "source", "points"),
    [
        (Visibility.PUBLIC, SourceType.JS_BUNDLE, 12),
        (Visibility.PUBLIC, SourceType.ENDPOINT, 12),
        (Visibility.PUBLIC, SourceType.REPO, 11),
        (Visibility.INTERNAL, SourceType.GIST, 7),
        (Visibility.UNKNOWN, SourceType.COMMIT, 6),
        (Visibility.PRIVATE, SourceType.COMMIT, 4),
    ],
)
def test_exposure_points(visibility, source, points):
    assert points_of("exposure", visibility=visibility, source_type=source) == points


@pytest.mark.parametrize(("days", "points"), [(0, 2), (1, 2), (30, 2), (31, 0)])
def test_still_there_points(days, points):
    assert points_of("still_there", in_last_scan=False, days_since_seen=days) == points
    assert points_of("still_there", days_since_seen=days) == 4, "the age of the last scan does not matter"


@pytest.mark.parametrize(("places", "points"), [(1, 0), (2, 2), (3, 2), (4, 4), (1000, 4)])
def test_spread_points(places, points):
    assert points_of("spread", places=places) == points


HIGHEST = BASE._replace(services=("admin",), source_type=SourceType.ENDPOINT, places=9)


@pytest.mark.parametrize(
    ("changes", "total"),
    [
        ({}, 100),
        ({"validation": Validation.INVALID}, 15),
        ({"validation": Validation.INVALID, "validation_confidence": Confidence.MEDIUM}, 66),
        ({"test_mode": True}, 40),
        ({"canary": True}, 10),
        ({"canary": True, "test_mode": True}, 10),
        ({"strength": Strength.GENERIC, "validation": Validation.UNVALIDATED}, 50),
        ({"strength": Strength.GENERIC}, 84),
        ({"validation": Validation.UNVALIDATED}, 78),
    ],
)
def test_caps_limit_the_total(changes, total):
    assert score(HIGHEST._replace(**changes)).total == total


def test_score_without_valid_verdict_is_below_eighty():
    kinds = itertools.product(Validation, Confidence, Strength, Impact, SourceType, Visibility, (1, 9))
    for validation, confidence, strength, impact, source, visibility, places in kinds:
        result = score(
            Evidence(
                validation,
                confidence,
                strength,
                impact,
                source,
                visibility,
                places=places,
                services=tuple("abcdef"),
            )
        )
        assert 0 <= result.total <= (100 if validation is Validation.VALID else 79)
        assert result.total <= sum(result.parts.values())
        assert result.version == VERSION


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.py",
        "src/test_a.py",
        "a/spec/b.rb",
        "x.test.js",
        "docs/a.txt",
        "README.md",
        "a/Fixtures/b",
        "a.zip!test/b",
        "examples/a",
    ],
)
def test_test_and_documentation_paths_are_test_paths(path):
    assert is_test_path(path)


@pytest.mark.parametrize(
    "path", ["src/contest.py", "latest/a.py", "src/attestation.go", "inspect/a", "a.mdx", "demonstrate.py"]
)
def test_other_paths_are_no_test_paths(path):
    assert not is_test_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "vendor/a.go",
        "x/node_modules/b/c.js",
        "lib/python3/site-packages/d.py",
        "a.jar!vendor/e",
        "js/f.min.js",
    ],
)
def test_paths_of_vendored_code(path):
    assert is_vendored_path(path)


@pytest.mark.parametrize("path", ["src/vendor.py", "vendors.yml", "my_node_modules.txt", "admin.js"])
def test_paths_of_own_code_are_not_vendored(path):
    assert not is_vendored_path(path)
