"""Print the findings of `outcrop scan` as a table, with a last line of numbers."""

from typing import TextIO

from outcrop.cli.tables import print_table
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.services.local_scan import LocalFinding, ScanReport

_COLUMNS = ("score", "verdict", "rule", "place", "context", "commit", "credential", "because")
_FOLDED = ("place", "credential", "because")  # long texts without spaces


def print_findings_table(
    report: ScanReport, *, show_secrets: bool, validated: bool, file: TextIO | None = None
) -> None:
    """Print one row per finding, with verdicts if the findings were validated, and a summary.

    They are printed to stdout, or to a file.
    """
    if report.findings:
        hidden = set() if validated else {"verdict", "because"}
        if all(finding.is_production for finding in report.findings):
            hidden.add("context")
        columns = [column for column in _COLUMNS if column not in hidden]
        cells = (_cells(finding, show_secrets=show_secrets) for finding in report.findings)
        rows = [[row[column] for column in columns] for row in cells]
        print_table(columns, rows, file=file, folded=_FOLDED)
    print(summarize(report, validated=validated), file=file)


def _cells(finding: LocalFinding, *, show_secrets: bool) -> dict[str, str]:
    """Return the cells of a finding's row by column."""
    fields = finding.fields
    credential = reveal(finding.secret) if show_secrets else fields["matched_text"]
    detail = fields["validation_detail"]
    services = ", ".join(detail["enabled_services"])
    reason = str(detail.get("reason"))
    return {
        "score": f"{fields['composite_score']:.0f}",
        "verdict": str(fields["validation_status"]),
        "rule": fields["rule"],
        "place": f"{fields['file_path'] or '(unreachable)'}:{fields['line_number']}",
        "context": str(fields["context"]),
        "commit": (fields["commit"] or "")[:10],
        "credential": one_line(credential),
        "because": f"{reason}; opens {services}" if services else reason,
    }


def summarize(report: ScanReport, *, validated: bool) -> str:
    """Return the last line of the table: numbers of findings, files, bytes, valid findings and gaps."""
    count, gaps = len(report.findings), len(report.gaps)
    noun = "finding" if count == 1 else "findings"
    parts = [f"{count} {noun} in {report.files:,} files, {report.size / 1e6:,.1f} MB"]
    if validated and count:
        parts.append(f"{sum(finding.is_valid for finding in report.findings)} valid")
    if gaps:
        parts.append(f"{gaps} not scanned")
    return "; ".join(parts)
