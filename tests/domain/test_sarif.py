"""The log has what SARIF 2.1.0 requires, and nothing that it does not know."""

import json
import ntpath
import posixpath
from typing import Any
from urllib.parse import unquote, urljoin

import pytest

from outcrop.domain.reports.sarif import fingerprints, sarif
from tests.support.sarif import VALIDATOR


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "rule": "acme_key",
        "pattern": {"name": "Acme key", "secret_type": "acme"},
        "file_path": "src/a b.py",
        "line_number": 3,
        "column": 7,
        "matched_text": "acme********",
        "commit": "0123456789abcdef0123",
        "author": None,
        "confidence": "high",
        "composite_score": 61.0,
        "fingerprint": "src/a b.py:01234:1",
        "validation_status": "unvalidated",
        "validation_confidence": "low",
        "validation_detail": {"enabled_services": []},
        "score": {"liveness": 18},
    } | changes


def made(*findings: dict[str, Any], gaps: tuple = (), well: bool = True) -> dict[str, Any]:
    log = json.loads(json.dumps(sarif(findings, gaps, version="1.2.3", well=well)))
    VALIDATOR.validate(log)
    return log


def test_a_log_without_findings():
    (run,) = made()["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]
    assert run["tool"]["driver"]["semanticVersion"] == "1.2.3"


def test_each_result_points_at_its_rule():
    (run,) = made(finding(), finding(rule="other"), finding(line_number=9))["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == ["acme_key", "other"]
    assert [rules[result["ruleIndex"]] for result in run["results"]] == [
        result["ruleId"] for result in run["results"]
    ]


@pytest.mark.parametrize(("confidence", "level"), [("high", "error"), ("medium", "warning"), ("low", "note")])
def test_the_level_is_the_confidence(confidence, level):
    assert made(finding(confidence=confidence))["runs"][0]["results"][0]["level"] == level


@pytest.mark.parametrize(
    ("status", "level"),
    [("valid", "error"), ("invalid", "note"), ("error", "warning"), ("unreachable", "warning")],
)
def test_a_verdict_says_more_than_the_confidence(status, level):
    detail = {"enabled_services": ["acme_read"], "reason": "so it is"}
    given = finding(confidence="medium", validation_status=status, validation_detail=detail)
    result = made(given)["runs"][0]["results"][0]
    assert result["level"] == level
    assert result["message"]["text"].endswith(f": {status}, so it is")
    assert result["properties"]["validation_detail"] == detail


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("src/a b.py", "src/a%20b.py"),
        ("a.zip!b/c.txt", "a.zip!b/c.txt"),
        ("ä/ö#1?.txt", "%C3%A4/%C3%B6%231%3F.txt"),
        ("50%.txt", "50%25.txt"),
        ("\\xff\\n.txt", "./%5Cxff%5Cn.txt"),
        ("c:x/y", "c%3Ax/y"),
        (None, "unknown"),
        ("a..b/c../..d/...", "a..b/c../..d/..."),
        ("a.tar!./b", "a.tar!./b"),
        ("a.zip!/etc/passwd", "a.zip!/etc/passwd"),
        ("a.zip!../../../etc/passwd", "a.zip!%252E%252E/%252E%252E/%252E%252E/etc/passwd"),
        ("a.zip!..\\..\\b", "a.zip!%252E%252E%5C%252E%252E%5Cb"),
        ("../b/..", "%252E%252E/b/%252E%252E"),
        ("/etc/passwd", ".//etc/passwd"),
        ("//host.example/a", ".///host.example/a"),
        ("\\\\host\\a", "./%5C%5Chost%5Ca"),
        ("C:\\a", "./C%3A%5Ca"),
    ],
)
def test_a_path_is_a_relative_reference(path, uri):
    location = made(finding(file_path=path))["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == uri
    assert location["region"] == {"startLine": 3, "startColumn": 7}


@pytest.mark.parametrize("before", ["", "/", "a.zip!", "a.zip!/", "x/a.zip!b.jar!", ".", "./", "%2E%2E/"])
@pytest.mark.parametrize(
    "middle",
    [
        "..",
        "../..",
        "../../x/../../..",
        "..\\..",
        "..\\../..",
        "//host.example/..",
        "x/../../../y",
        "\\..\\..",
    ],
)
def test_no_path_leads_out_of_the_tree(before, middle):
    """Neither as a URI, nor decoded and taken for a path of any system."""
    location = made(finding(file_path=before + middle))["runs"][0]["results"][0]["locations"][0][
        "physicalLocation"
    ]
    uri = location["artifactLocation"]["uri"]
    base = "https://tree.example/one/two/"
    assert urljoin(base, uri).startswith(base)
    assert posixpath.normpath(posixpath.join("/one/two", unquote(uri))).startswith("/one/two/")
    assert ntpath.normpath(ntpath.join("C:\\one\\two", unquote(uri))).startswith("C:\\one\\two\\")


def test_columns_are_of_the_kind_that_they_are_counted_in():
    assert made(finding())["runs"][0]["columnKind"] == "unicodeCodePoints"


def test_gaps_and_failures_are_reported():
    (run,) = made(gaps=(("a.zip", "cannot be unpacked"),), well=False)["runs"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [note["message"]["text"] for note in invocation["toolExecutionNotifications"]] == [
        "not scanned: a.zip: cannot be unpacked"
    ]


def test_fingerprints_are_read_back():
    log = made(finding(), finding(fingerprint="b:1:1"))
    assert fingerprints(log) == ["src/a b.py:01234:1", "b:1:1"]
    other = {"tool": {"driver": {"name": "another"}}, "results": [{"ruleId": "x"}]}
    assert fingerprints({"runs": [other, *log["runs"]]}) == fingerprints(log)
    for strange in ({"runs": [other]}, {"runs": []}, {}):
        with pytest.raises(LookupError):
            fingerprints(strange)
