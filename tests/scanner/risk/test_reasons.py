"""Test that the reasons of a score add up to it, and that each has a sentence."""

import itertools
from dataclasses import asdict
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from outcrop.domain.finding import (
    Confidence,
    CredentialPattern,
    Finding,
    SourceType,
    Status,
    Validation,
    Visibility,
)
from outcrop.scanner.risk.reasons import MAX_POINTS, explain_score, explain_stored_score
from outcrop.scanner.risk.score import VERSION, Evidence, score
from outcrop.scanner.rules.model import Impact, Strength

BASE = Evidence(
    Validation.VALID, Confidence.HIGH, Strength.CHECKSUM, Impact.CRITICAL, SourceType.REPO, Visibility.PUBLIC
)


def explain(verdict_reason: str | None = None, **changes) -> dict[str, str]:
    evidence = BASE._replace(**changes)
    return {
        reason.name: reason.sentence for reason in explain_score(evidence, score(evidence), verdict_reason)
    }


@pytest.mark.slow
def test_points_of_the_reasons_add_up_to_the_score():
    flags = {"placeholder": True}, {"test_mode": True}, {"canary": True}, {"path": "tests/a.py"}, {}
    services = (), ("a_read",), ("a_read", "a_write"), ("a_admin",)
    grid = itertools.product(
        Validation,
        Confidence,
        Strength,
        Impact,
        SourceType,
        Visibility,
        flags,
        services,
        (False, True),
        ((0, 1), (7, 2), (90, 9)),
    )
    for number, (
        validation,
        confidence,
        strength,
        impact,
        source,
        visibility,
        flag,
        labels,
        asked,
        (days, places),
    ) in enumerate(grid):
        if number % 17:  # testing all of them would take too long
            continue
        evidence = Evidence(
            validation, confidence, strength, impact, source, visibility,
            services=labels, services_asked=asked, days_since_seen=days, places=places, **flag,
        )  # fmt: skip
        scored = score(evidence)
        reasons = explain_score(evidence, scored, None)
        assert sum(reason.points for reason in reasons) == scored.total
        assert [reason.name for reason in reasons][:6] == list(scored.parts) == list(MAX_POINTS)
        assert all(0 <= reason.points <= reason.most for reason in reasons[:6])
        assert all(reason.sentence for reason in reasons)
        assert len(reasons) == 6 + (sum(scored.parts.values()) > scored.total)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("liveness", {}, "valid: the issuer accepts it"),
        ("liveness", {"verdict_reason": "GitHub accepts the token"}, "valid: GitHub accepts the token"),
        ("liveness", {"validation_confidence": Confidence.LOW},
         "valid: the issuer accepts it (confidence low)"),
        ("liveness", {"validation": Validation.UNREACHABLE, "validation_confidence": Confidence.LOW},
         "unreachable: the issuer could not be reached"),
        ("detection", {}, "its checksum is correct"),
        ("detection", {"path": "docs/a.md", "placeholder": True},
         ("its checksum is correct, but its path is one of tests or documents, "
          "but it looks like a placeholder")),
        ("capability", {}, "credentials of this type have a critical impact"),
        ("capability", {"services_asked": True},
         "it works, but opens none of the services that were checked"),
        ("capability", {"services": ("a_read", "a_write", "b")}, "it opens a_read and 2 more"),
        ("capability", {"services": ("a_read", "org_admin")}, "it opens org_admin"),
        ("exposure", {}, "everybody can read it, at the tip of a repository"),
        ("exposure", {"source_type": SourceType.JS_BUNDLE},
         "everybody can read it, in a script of a web site"),
        ("still_there", {}, "the last scan has seen it"),
        ("still_there", {"in_last_scan": False, "days_since_seen": 30}, "it was seen within 30 days"),
        ("still_there", {"in_last_scan": False, "days_since_seen": 31}, "it was not seen for more than 30 days"),
        ("spread", {}, "it is in one place"),
        ("spread", {"places": 3}, "it is in 2 or 3 places"),
        ("spread", {"places": 4}, "it is in 4 or more places"),
        ("cap", {"canary": True}, "at most 10: it is a known canary token"),
        ("cap", {"canary": True, "test_mode": True}, "at most 10: it is a known canary token"),
        ("cap", {"validation": Validation.INVALID}, "at most 15: its issuer refuses it"),
    ],
)  # fmt: skip
def test_sentence_of_each_part(name, changes, sentence):
    assert explain(**changes)[name] == sentence


def make_finding(**changes) -> Finding:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    fields = {
        "id": uuid4(), "status": Status.ACTIVE,
        "validation_status": Validation.VALID, "validation_confidence": Confidence.HIGH,
        "validation_detail": {"enabled_services": ["a_read"], "reason": "accepted"}, "composite_score": 50.0,
        "source_type": SourceType.REPO, "source_visibility": Visibility.PUBLIC, "source_url": None,
        "repo_full_name": None, "file_path": "a.py", "line_number": 1, "matched_text": "****",
        "pattern": CredentialPattern("A", "a"),
        "first_seen_at": at, "last_seen_at": at, "seen_count": 1,
    }  # fmt: skip
    return Finding(**fields | changes)


def test_stored_score_has_the_same_reasons_as_a_new_one():
    evidence = BASE._replace(services=("a_read",), test_mode=True, path="a.py", days_since_seen=12, places=5)
    scored = score(evidence)
    traits = {
        "strength": "checksum",
        "impact": "critical",
        "placeholder": False,
        "test_mode": True,
        "canary": False,
        "asked": False,
    }
    detail = {"version": VERSION, "parts": scored.parts, **traits}
    reasons = explain_stored_score(detail, make_finding(composite_score=scored.total))
    assert reasons == explain_score(evidence, scored, "accepted")
    assert sum(reason.points for reason in reasons) == 40
    last_reason = asdict(reasons[-1])
    assert last_reason["sentence"] == "at most 40: it works with test data only"


def test_imported_score_has_one_reason():
    (reason,) = explain_stored_score(None, make_finding())
    assert (reason.points, reason.name) == (50.0, "imported")
