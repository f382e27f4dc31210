"""Scan targets without an account or a database: `outcrop scan`."""

from outcrop.services.local_scan.findings import LocalFinding, with_verdict
from outcrop.services.local_scan.options import Push, ScanOptions
from outcrop.services.local_scan.report import report_lines
from outcrop.services.local_scan.scan import ScanReport, scan
from outcrop.services.local_scan.selection import Selection, select_rules

__all__ = [
    "LocalFinding",
    "Push",
    "ScanOptions",
    "ScanReport",
    "Selection",
    "report_lines",
    "scan",
    "select_rules",
    "with_verdict",
]
