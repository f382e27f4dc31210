"""Write findings as a report of GitLab's secret detection (gl-secret-detection-report.json)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from outcrop.domain.finding import severity_of

_VERSION = "15.0.7"  # of the report's schema
_NO_COMMIT = "0000000"  # how GitLab's own analyzer writes that a file was scanned without its history
_MAX_NAME = 255  # characters
_TOOL = {"id": "outcrop", "name": "Outcrop", "vendor": {"name": "Outcrop"}}
_LEVELS = {"high": "High", "medium": "Medium", "low": "Low"}


def write_gitlab(
    findings: Iterable[Mapping[str, Any]],
    gaps: Sequence[tuple[str, str]],
    times: tuple[datetime, datetime],
    *,
    version: str,
    well: bool,
) -> bytes:
    """Return the report. `times` are begin and end of the scan; `well` is false if a target failed."""
    tool = _TOOL | {"version": version}
    start, end = (time.strftime("%Y-%m-%dT%H:%M:%S") for time in times)
    scan: dict[str, Any] = {
        "analyzer": tool,
        "scanner": tool,
        "type": "secret_detection",
        "start_time": start,
        "end_time": end,
        "status": "success" if well else "failure",
    }
    if gaps:
        scan["messages"] = [{"level": "warn", "value": f"not scanned: {where}: {why}"} for where, why in gaps]
    report = {"version": _VERSION, "scan": scan, "vulnerabilities": [_vulnerability(f) for f in findings]}
    return orjson.dumps(report, default=str, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_INDENT_2)


def _vulnerability(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report's entry for one finding."""
    name, rule = finding["pattern"]["name"], finding["rule"]
    commit = {"sha": finding["commit"] or _NO_COMMIT}
    if finding["commit"]:
        commit |= {"author": finding["author"] or "", "date": str(finding["committed_at"] or "")}
    location: dict[str, Any] = {"commit": commit}
    if finding["file_path"]:
        location["file"] = finding["file_path"]
    if finding["line_number"]:
        location |= {"start_line": finding["line_number"], "end_line": finding["line_number"]}
    verdict = finding["validation_detail"].get("reason")
    context = str(finding["context"])
    description = f"{name} {finding['matched_text']}, context {context}" + (
        f": {finding['validation_status']}, {verdict}" if verdict else ""
    )
    return {
        "id": str(finding["id"]),
        "category": "secret_detection",
        "name": name[:_MAX_NAME],
        "description": description,
        "severity": severity_of(finding["composite_score"]).capitalize(),
        "confidence": _LEVELS[str(finding["confidence"])],
        "raw_source_code_extract": finding["matched_text"],
        "location": location,
        "identifiers": [
            {"type": "outcrop_rule_id", "name": f"Outcrop rule {rule}"[:_MAX_NAME], "value": rule}
        ],
    }
