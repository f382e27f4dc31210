"""Findings from a file, and into one."""

from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.reading import Imported, import_findings
from outcrop.services.exchange.writing import ExportFormat, export_findings

__all__ = ["ExportFormat", "ImportFormat", "Imported", "export_findings", "import_findings"]
