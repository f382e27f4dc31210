"""The last line of the table of `outcrop scan`, apart from the table: most scans find nothing."""

from outcrop.services.local_scan import ScanReport


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
