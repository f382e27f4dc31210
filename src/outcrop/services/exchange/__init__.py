"""Import findings from files and export them to files."""

from outcrop.services.exchange.exporter import ExportFormat, export_findings
from outcrop.services.exchange.formats import ImportFormat
from outcrop.services.exchange.formats.csv_table import parse_map
from outcrop.services.exchange.importer import ImportSummary, import_findings

__all__ = ["ExportFormat", "ImportFormat", "ImportSummary", "export_findings", "import_findings", "parse_map"]
