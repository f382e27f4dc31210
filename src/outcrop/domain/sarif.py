"""Findings as SARIF 2.1.0, the format that code hosts and CI systems show."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    "high": "error",
    "medium": "warning",
    "low": "note",
}  # by how sure the hit is, unless the issuer has said more
_LEVELS_OF_VERDICTS = {"valid": "error", "invalid": "note"}
TOOL = "outcrop"
FINGERPRINT = "outcrop/v1"
FINDING = "outcrop/finding/v1"  # an account's finding, by its id
# Escaped twice: `%2E%2E` leads up just as `..` does, and some decode an address before they follow it.
_UP, _UP_ESCAPED = re.compile(r"(?<![^/\\!])\.\.(?![^/\\])"), "%2E%2E"
_FROM_ROOT = re.compile(r"[/\\]|[A-Za-z]:[/\\]")


def sarif(
    findings: Iterable[Mapping[str, Any]], gaps: Sequence[tuple[str, str]], *, version: str, well: bool = True
) -> dict[str, Any]:
    """Put findings, in the shape that `scan` prints and with the `path` as it is, and gaps into one SARIF log."""
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
    """Read the fingerprints of the runs in a log that are ours; where there is none, that is a LookupError."""
    ours = [run for run in log["runs"] if run["tool"]["driver"]["name"] == TOOL]
    if not ours:
        raise LookupError
    return [str(result["partialFingerprints"][FINGERPRINT]) for run in ours for result in run["results"]]


def rule_of(finding: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": finding["rule"],
        "name": finding["rule"],
        "shortDescription": {"text": finding["pattern"]["name"]},
        "properties": {"tags": ["security", "secret"], "secret_type": finding["pattern"]["secret_type"]},
    }


def result_of(
    finding: Mapping[str, Any], rule_index: int, *, level: str, column: int | None = None
) -> dict[str, Any]:
    """Give what SARIF calls a result of a finding, without what identifies it and what else is known of it."""
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
    """Write a path as a relative reference that stays in the tree: members of archives are called whatever their writer likes."""
    inside = _UP.sub(_UP_ESCAPED, path)
    return ("./" if _FROM_ROOT.match(path) else "") + quote(
        inside, safe="/!@,;=+$&'()*~", errors="surrogateescape"
    )


def _verdict(finding: Mapping[str, Any]) -> str:
    reason = finding["validation_detail"].get("reason")
    return f": {finding['validation_status']}, {reason}" if reason else ""
