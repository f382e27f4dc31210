"""Write the findings of a local scan as a report for the service, with the raw credentials."""

from typing import Any

import orjson

from outcrop.domain.secret import reveal
from outcrop.services.local_scan.findings import LocalFinding
from outcrop.services.local_scan.scan import ScanReport

# What the service computes itself, or the report has raw.
_LEFT_OUT = {
    *("id", "score", "composite_score", "severity", "parts", "updated_at", "incident_id", "assignee"),
    *("column", "encoding"),
}


def report_lines(report: ScanReport) -> bytes:
    """Return all findings, printed or not, as JSON Lines that contain the raw credentials."""
    return b"".join(
        orjson.dumps(_build_record(finding), default=str, option=orjson.OPT_APPEND_NEWLINE)
        for finding in [*report.findings, *report.unprinted]
    )


def _build_record(finding: LocalFinding) -> dict[str, Any]:
    """Return a finding in the format `outcrop`, with its credential, and path and URL as they are."""
    fields = {name: value for name, value in finding.fields.items() if name not in _LEFT_OUT}
    value = reveal(finding.secret).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    is_allowed = finding.fields["allowed_in_source"] or finding.is_hidden
    return fields | finding.unmasked | {"secret": value, "allowed_in_source": is_allowed}
