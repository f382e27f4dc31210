"""Write findings as SARIF 2.1.0, the format that code hosts and CI systems display."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from outcrop.domain.finding import severity_of
from outcrop.lazy_regex import regex

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL = "outcrop"
_ADDRESS = "https://github.com/outcrop/outcrop"
# GitHub's scale, 0.1 to 10, by the damage that a valid credential of the rule can do.
_SECURITY_SEVERITY = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "3.0"}
_LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}  # by severity
_LEVELS_OF_VERDICTS = {"valid": "error", "invalid": "note"}  # a verdict overrides the severity
FINGERPRINT = "outcrop/v1"
FINDING = "outcrop/finding/v1"  # id of an account's finding
LINE_HASH = "primaryLocationLineHash"  # the one that GitHub compares to recognise an alert
# `..` is escaped twice: some viewers decode a URI before they resolve it, and `%2E%2E` means `..` too.
_UP, _UP_ESCAPED = regex(r"(?<![^/\\!])\.\.(?![^/\\])"), "%2E%2E"
_FROM_ROOT = regex(r"[/\\]|[A-Za-z]:[/\\]")


class RuleHelp(NamedTuple):
    """What a reader needs to know about a rule: what to do about a leak, and how bad it is."""

    steps: Sequence[str] = ()
    links: Sequence[tuple[str, str]] = ()  # (label, https address)
    impact: str | None = None  # the tier of the rule


_NO_HELP = RuleHelp()


def sarif(
    findings: Iterable[Mapping[str, Any]],
    gaps: Sequence[tuple[str, str]],
    *,
    version: str,
    well: bool = True,
    helps: Mapping[str, RuleHelp] | None = None,
) -> dict[str, Any]:
    """Return one SARIF log with the findings and coverage gaps of a scan.

    Findings have the fields that `outcrop scan` prints, and `path` unescaped. `well` is false if a
    target failed. `helps` is by the ids of rules.
    """
    rules: dict[str, dict[str, Any]] = {}
    indexes: dict[str, int] = {}
    results = []
    for finding in findings:
        rule_id = finding["rule"]
        if rule_id not in rules:
            indexes[rule_id] = len(rules)
            rules[rule_id] = rule_of(finding, (helps or {}).get(rule_id, RuleHelp()))
        result = result_of(finding, indexes[rule_id], column=finding["column"])
        result["partialFingerprints"] = {
            FINGERPRINT: finding["fingerprint"],
            LINE_HASH: _line_hash(rule_id, finding["fingerprint"]),
        }
        result["properties"] = {
            "commit": finding["commit"],
            "author": finding["author"],
            "confidence": str(finding["confidence"]),
            "context": str(finding["context"]),
            "validation_status": str(finding["validation_status"]),
            "validation_confidence": str(finding["validation_confidence"]),
            "validation_detail": finding["validation_detail"],
            "score": finding["score"],
        }
        results.append(result)
    notes = [{"level": "warning", "message": {"text": f"not scanned: {where}: {why}"}} for where, why in gaps]
    driver = driver_of(version) | {"rules": list(rules.values())}
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


def driver_of(version: str) -> dict[str, Any]:
    """Return the SARIF description of the program, without its rules."""
    return {"name": TOOL, "semanticVersion": version, "informationUri": _ADDRESS}


def rule_of(finding: Mapping[str, Any], rule_help: RuleHelp = _NO_HELP) -> dict[str, Any]:
    """Return the SARIF rule that describes the finding's credential type."""
    name = finding["pattern"]["name"]
    full = f"A credential in the source: {name}. Who can read the source can use it."
    steps = rule_help.steps or ("Revoke it, and replace it everywhere it is used.",)
    links = "".join(f"\n\n[{label}]({url})" for label, url in rule_help.links)
    properties = {"tags": ["security", "secret"], "secret_type": finding["pattern"]["secret_type"]}
    if rule_help.impact:
        properties["security-severity"] = _SECURITY_SEVERITY[rule_help.impact]
    rule = {
        "id": finding["rule"],
        "name": _pascal_case(finding["rule"]),
        "shortDescription": {"text": name},
        "fullDescription": {"text": full},
        "help": {
            "text": "\n".join([*steps, *(url for _, url in rule_help.links)]),
            "markdown": "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1)) + links,
        },
        "properties": properties,
    }
    return rule | ({"helpUri": rule_help.links[0][1]} if rule_help.links else {})


def level_of(finding: Mapping[str, Any]) -> str:
    """Return the level of a finding: by its verdict, or else by its severity."""
    severity = severity_of(finding["composite_score"])
    return _LEVELS_OF_VERDICTS.get(str(finding["validation_status"]), _LEVELS[str(severity)])


def _pascal_case(rule_id: str) -> str:
    """Return the id of a rule as a name, such as GithubPatClassic; the name must differ from the id."""
    name = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^0-9A-Za-z]+", rule_id))
    return name if name != rule_id else f"{name}Rule"


def _line_hash(rule_id: str, fingerprint: str) -> str:
    """Return what GitHub compares: it stays the same when lines move, unlike a hash of lines."""
    path, _, number = fingerprint.rpartition(":")
    digest = hashlib.sha256(f"{rule_id}\0{path}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"{digest[:16]}:{number or 1}"


def result_of(finding: Mapping[str, Any], rule_index: int, *, column: int | None = None) -> dict[str, Any]:
    """Return the SARIF result of a finding, without fingerprints and properties."""
    where = finding["file_path"] or "unknown"
    text = f"{finding['pattern']['name']} {finding['matched_text']}"
    commit = f", commit {finding['commit'][:12]}" if finding["commit"] else ""
    # A finding of a report may have no line; code scanning refuses a place without one.
    region = {"startLine": finding["line_number"] or 1} | ({"startColumn": column} if column else {})
    artifact = {"uri": _uri(finding.get("path") or where)}
    physical = {"artifactLocation": artifact, "region": region}
    result: dict[str, Any] = {
        "ruleId": finding["rule"],
        "ruleIndex": rule_index,
        "level": level_of(finding),
        "message": {"text": f"{text} in {where}{commit}{_verdict(finding)}"},
        "locations": [{"physicalLocation": physical}],
        "rank": finding["composite_score"],
    }
    if related := _related_locations(finding, artifact):
        result["relatedLocations"] = related
    return result


def _related_locations(finding: Mapping[str, Any], artifact: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the SARIF locations of the finding's other lines in the same file."""
    lines = [line for line in finding["lines"] if line and line != finding["line_number"]]
    return [
        {
            "id": number,
            "physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}},
            "message": {"text": "the same value"},
        }
        for number, line in enumerate(lines, 1)
    ]


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
