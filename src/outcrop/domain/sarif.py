"""Findings as SARIF 2.1.0, the format that code hosts and CI systems show."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"high": "error", "medium": "warning", "low": "note"}  # by how sure the hit is, unless the issuer has said more
_LEVELS_OF_VERDICTS = {"valid": "error", "invalid": "note"}
FINGERPRINT = "outcrop/v1"


def sarif(findings: Iterable[Mapping[str, Any]], gaps: Sequence[tuple[str, str]], *, version: str, well: bool = True) -> dict[str, Any]:
    """Put findings, in the shape that `scan` prints, and gaps into one SARIF log."""
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in findings:
        rule = rules.setdefault(finding["rule"], _rule(finding))
        results.append(_result(finding, list(rules).index(rule["id"])))
    notes = [{"level": "warning", "message": {"text": f"not scanned: {where}: {why}"}} for where, why in gaps]
    driver = {"name": "outcrop", "semanticVersion": version, "rules": list(rules.values())}
    invocation = {"executionSuccessful": well, "toolExecutionNotifications": notes}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def fingerprints(log: Mapping[str, Any]) -> set[str]:
    """Read the fingerprints of a log that we have written."""
    return {
        str(result["partialFingerprints"][FINGERPRINT])
        for run in log.get("runs", [])
        for result in run.get("results", [])
        if FINGERPRINT in result.get("partialFingerprints", {})
    }


def _rule(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": finding["rule"],
        "name": finding["rule"],
        "shortDescription": {"text": finding["pattern"]["name"]},
        "properties": {"tags": ["security", "secret"], "secret_type": finding["pattern"]["secret_type"]},
    }


def _result(finding: Mapping[str, Any], rule_index: int) -> dict[str, Any]:
    where = finding["file_path"] or "unknown"
    text = f"{finding['pattern']['name']} {finding['matched_text']}"
    commit = f", commit {finding['commit'][:12]}" if finding["commit"] else ""
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(where, safe="/!@,;=+$&'()*~")}}
    if finding["line_number"]:
        physical["region"] = {"startLine": finding["line_number"], "startColumn": finding["column"]}
    return {
        "ruleId": finding["rule"],
        "ruleIndex": rule_index,
        "level": _LEVELS_OF_VERDICTS.get(str(finding["validation_status"]), _LEVELS[str(finding["confidence"])]),
        "message": {"text": f"{text} in {where}{commit}{_verdict(finding)}"},
        "locations": [{"physicalLocation": physical}],
        "partialFingerprints": {FINGERPRINT: finding["fingerprint"]},
        "rank": finding["composite_score"],
        "properties": {
            "commit": finding["commit"],
            "author": finding["author"],
            "confidence": str(finding["confidence"]),
            "validation_status": str(finding["validation_status"]),
            "validation_confidence": str(finding["validation_confidence"]),
            "validation_detail": finding["validation_detail"],
            "score": finding["score"],
        },
    }


def _verdict(finding: Mapping[str, Any]) -> str:
    reason = finding["validation_detail"].get("reason")
    return f": {finding['validation_status']}, {reason}" if reason else ""
