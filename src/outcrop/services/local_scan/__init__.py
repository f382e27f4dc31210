"""`outcrop scan` without an account."""

from outcrop.services.local_scan.findings import LocalFinding, judged
from outcrop.services.local_scan.options import Options
from outcrop.services.local_scan.scan import Report, scan

__all__ = ["LocalFinding", "Options", "Report", "judged", "scan"]
