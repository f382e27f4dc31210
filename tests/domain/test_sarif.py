"""The log has what SARIF 2.1.0 requires, and nothing that it does not know."""

import json
import ntpath
import posixpath
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

from outcrop.domain.reports.sarif import LINE_HASH, RuleHelp, fingerprints, sarif
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
        "context": "production",
        "lines": (3,),
        "lines_total": 1,
        "composite_score": 61.0,
        "fingerprint": "src/a b.py:01234:1",
        "validation_status": "unvalidated",
        "validation_confidence": "low",
        "validation_detail": {"enabled_services": []},
        "score": {"liveness": 18},
    } | changes


def made(
    *findings: dict[str, Any], gaps: tuple = (), well: bool = True, helps: dict[str, RuleHelp] | None = None
) -> dict[str, Any]:
    log = json.loads(json.dumps(sarif(findings, gaps, version="1.2.3", well=well, helps=helps)))
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


@pytest.mark.parametrize(
    ("status", "score", "level"),
    [
        ("valid", 10.0, "error"),
        ("invalid", 95.0, "note"),
        ("unvalidated", 80.0, "error"),
        ("unreachable", 60.0, "error"),
        ("error", 59.9, "warning"),
        ("unvalidated", 40.0, "warning"),
        ("unvalidated", 39.9, "note"),
    ],
)
def test_the_level_is_the_verdict_or_else_the_severity(status, score, level):
    detail = {"enabled_services": ["acme_read"], "reason": "so it is"}
    given = finding(composite_score=score, validation_status=status, validation_detail=detail)
    result = made(given)["runs"][0]["results"][0]
    assert result["level"] == level
    assert result["message"]["text"].endswith(f": {status}, so it is")
    assert result["properties"]["validation_detail"] == detail


@pytest.mark.parametrize(
    ("impact", "score"), [("critical", 9.0), ("high", 7.0), ("medium", 4.0), ("low", 0.1), (None, None)]
)
def test_a_rule_has_the_severity_of_its_impact_on_the_scale_of_github(impact, score):
    (rule,) = made(finding(), helps={"acme_key": RuleHelp(impact=impact)})["runs"][0]["tool"]["driver"][
        "rules"
    ]
    shown = rule["properties"].get("security-severity")
    assert (shown is None) is (score is None)
    assert shown is None or score <= float(shown) < score + 3


def test_a_rule_says_what_to_do():
    helps = {
        "acme_key": RuleHelp(("Revoke it.", "Replace it."), (("Acme", "https://acme.example/keys"),), "high")
    }
    (rule,) = made(finding(), finding(line_number=9), helps=helps)["runs"][0]["tool"]["driver"]["rules"]
    assert rule["help"]["text"] == "Revoke it.\nReplace it.\nhttps://acme.example/keys"
    assert rule["help"]["markdown"] == "1. Revoke it.\n2. Replace it.\n\n[Acme](https://acme.example/keys)"
    assert rule["helpUri"] == "https://acme.example/keys"
    assert (rule["id"], rule["name"]) == ("acme_key", "AcmeKey")
    (other,) = made(finding(rule="Acme"))["runs"][0]["tool"]["driver"]["rules"]
    assert other["name"] not in {"", "Acme"}


def test_the_hash_of_an_alert_does_not_change_when_its_line_moves():
    (run,) = made(finding(), finding(line_number=9), finding(fingerprint="src/a b.py:01234:2"))["runs"]
    first, moved, second = (result["partialFingerprints"][LINE_HASH] for result in run["results"])
    assert first == moved != second


class TestRulesOfGitHub:
    """The Multitool's set of rules for code scanning, one test each; `make test-interop` runs the tool."""

    @pytest.fixture
    def run(self):
        """Return the run of a log with every kind of finding and a gap."""
        findings = [
            finding(file_path=None, line_number=None, column=None),
            finding(file_path="/etc/passwd", validation_status="valid"),
            finding(file_path="a.zip!../b", rule="other", commit=None),
        ]
        return made(*findings, gaps=(("a", "b"),))["runs"][0]

    def places(self, run) -> list[dict[str, Any]]:
        return [place["physicalLocation"] for result in run["results"] for place in result["locations"]]

    def test_gh1001_every_location_is_physical_and_has_a_uri(self, run):
        assert all(place["artifactLocation"]["uri"] for place in self.places(run))

    def test_gh1002_no_thread_flow_location_is_in_a_cache(self, run):
        assert "threadFlowLocations" not in run
        assert not any("codeFlows" in result for result in run["results"])

    def test_gh1003_every_location_has_a_line(self, run):
        assert all(place["region"]["startLine"] >= 1 for place in self.places(run))

    def test_gh1004_no_array_of_a_result_is_longer_than_shown(self, run):
        assert all(len(result["locations"]) <= 10 for result in run["results"])
        assert all(len(rule["properties"]["tags"]) <= 20 for rule in run["tool"]["driver"]["rules"])

    def test_gh1005_every_uri_is_relative(self, run):
        uris = [urlsplit(place["artifactLocation"]["uri"]) for place in self.places(run)]
        assert not any(uri.scheme or uri.netloc or uri.path.startswith("/") for uri in uris)

    def test_gh1006_no_path_of_the_checkout_is_needed(self, run):
        """It is needed for absolute URIs only, and ours are relative."""
        assert "originalUriBaseIds" not in run
        assert not any("uriBaseId" in place["artifactLocation"] for place in self.places(run))

    def test_gh1007_messages_are_complete_texts(self, run):
        assert all(set(result["message"]) == {"text"} for result in run["results"])

    def test_gh1011_the_schema_is_the_final_one(self):
        assert "2.1.0" in made()["$schema"]

    def test_gh1013_to_gh1018_required_properties_are_there(self, run):
        log = made(finding())
        assert {"$schema", "version", "runs"} <= log.keys()
        assert {"tool", "results"} <= run.keys()
        for result in run["results"]:
            assert {"message", "locations", "partialFingerprints", "ruleId"} <= result.keys()
        assert all({"artifactLocation", "region"} <= place.keys() for place in self.places(run))
        assert {"name", "semanticVersion", "rules"} <= run["tool"]["driver"].keys()

    def test_gh2012_every_rule_is_described(self, run):
        for rule in run["tool"]["driver"]["rules"]:
            assert {"id", "shortDescription", "fullDescription", "help"} <= rule.keys()


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
