"""Write findings as SARIF 2.1.0, the format that code hosts and CI systems display."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {"high": "error", "medium": "warning", "low": "note"}  # by detection confidence
_LEVELS_OF_VERDICTS = {
    "valid": "error",
    "invalid": "note",
}  # a verdict of the issuer overrides the confidence
TOOL = "outcrop"
FINGERPRINT = "outcrop/v1"
FINDING = "outcrop/finding/v1"  # id of an account's finding
# `..` is escaped twice: some viewers decode a URI before they resolve it, and `%2E%2E` means `..` too.
_UP, _UP_ESCAPED = re.compile(r"(?<![^/\\!])\.\.(?![^/\\])"), "%2E%2E"
_FROM_ROOT = re.compile(r"[/\\]|[A-Za-z]:[/\\]")


def sarif(
    findings: Iterable[Mapping[str, Any]], gaps: Sequence[tuple[str, str]], *, version: str, well: bool = True
) -> dict[str, Any]:
    """Return one SARIF log with the findings and coverage gaps of a scan.

    Findings have the fields that `outcrop scan` prints, and `path` unescaped. `well` is false if a
    target failed.
    """
    rules: dict[str, dict[str, Any]] = {}
    results = []
    for finding in findings:
        rule = rules.setdefault(finding["rule"], rule_of(finding))
        level = _LEVELS_OF_VERDICTS.get(
            str(finding["validation_status"]), _LEVELS[str(finding["confidence"])]
        )
        result = result_of(finding, list(rules).index(rule["id"]), level=level, column=finding["column"])
        result["partialFingerprints"] = {FINGERPRINT: finding["fingerprint"]}
        result["properties"] = {
            "commit": finding["commit"],
            "author": finding["author"],
            "confidence": str(finding["confidence"]),
            "validation_status": str(finding["validation_status"]),
            "validation_confidence": str(finding["validation_confidence"]),
            "validation_detail": finding["validation_detail"],
            "score": finding["score"],
        }
        results.append(result)
    notes = [{"level": "warning", "message": {"text": f"not scanned: {where}: {why}"}} for where, why in gaps]
    driver = {"name": TOOL, "semanticVersion": version, "rules": list(rules.values())}
    invocation = {"executionSuccessful": well, "toolExecutionNotifications": notes}
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def fingerprints(log: Mapping[str, Any]) -> list[str]:
    """Return the fingerprints of all Outcrop runs in a SARIF log; raise LookupError if it has no such run."""
    ours = [run for run in log["runs"] if run["tool"]["driver"]["name"] == TOOL]
    if not ours:
        raise LookupError
    return [str(result["partialFingerprints"][FINGERPRINT]) for run in ours for result in run["results"]]


def rule_of(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the SARIF rule that describes the finding's credential type."""
    return {
        "id": finding["rule"],
        "name": finding["rule"],
        "shortDescription": {"text": finding["pattern"]["name"]},
        "properties": {"tags": ["security", "secret"], "secret_type": finding["pattern"]["secret_type"]},
    }


def result_of(
    finding: Mapping[str, Any], rule_index: int, *, level: str, column: int | None = None
) -> dict[str, Any]:
    """Return the SARIF result of a finding, without fingerprints and properties."""
    where = finding["file_path"] or "unknown"
    text = f"{finding['pattern']['name']} {finding['matched_text']}"
    commit = f", commit {finding['commit'][:12]}" if finding["commit"] else ""
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.get("path") or where)}}
    if finding["line_number"]:
        physical["region"] = {"startLine": finding["line_number"]} | (
            {"startColumn": column} if column else {}
        )
    return {
        "ruleId": finding["rule"],
        "ruleIndex": rule_index,
        "level": level,
        "message": {"text": f"{text} in {where}{commit}{_verdict(finding)}"},
        "locations": [{"physicalLocation": physical}],
        "rank": finding["composite_score"],
    }


def _uri(path: str) -> str:
    """Return a path as a relative URI that cannot leave the tree. Names of archive members are untrusted."""
    inside = _UP.sub(_UP_ESCAPED, path)
    return ("./" if _FROM_ROOT.match(path) else "") + quote(
        inside, safe="/!@,;=+$&'()*~", errors="surrogateescape"
    )


def _verdict(finding: Mapping[str, Any]) -> str:
    """Return the verdict and its reason as the end of a message, or an empty text."""
    reason = finding["validation_detail"].get("reason")
    return f": {finding['validation_status']}, {reason}" if reason else ""
