"""Write findings as CSV, one row per finding."""

from collections.abc import Iterable, Mapping
from typing import Any

from outcrop.domain.reports.csv_cells import to_cell, write_rows

_COLUMNS = (
    "rule",
    "confidence",
    "context",
    "composite_score",
    "validation_status",
    "file_path",
    "line_number",
    "lines",
    "column",
    "matched_text",
    "commit",
    "author",
    "committed_at",
    "current_line",
    "source_type",
    "source_visibility",
    "repo_full_name",
    "source_url",
    "fingerprint",
    "id",
)


def write_csv(findings: Iterable[Mapping[str, Any]]) -> bytes:
    """Return findings as CSV with a header line, safe for spreadsheets."""
    shown = list(findings)
    columns = [*_COLUMNS, *(["secret"] if shown and "secret" in shown[0] else [])]
    rows = [[_cell(finding[name]) for name in columns] for finding in shown]
    return write_rows([columns, *rows])


def _cell(value: Any) -> object:
    """Return the value as a cell; a time as text, lines with spaces between them."""
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return to_cell(value.isoformat() if hasattr(value, "isoformat") else value)
