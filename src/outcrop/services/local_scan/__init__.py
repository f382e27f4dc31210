"""Scan targets without an account or a database: `outcrop scan`."""

from outcrop.services.local_scan.findings import LocalFinding, with_verdict
from outcrop.services.local_scan.options import ScanOptions
from outcrop.services.local_scan.scan import ScanReport, scan

__all__ = ["LocalFinding", "ScanOptions", "ScanReport", "scan", "with_verdict"]
