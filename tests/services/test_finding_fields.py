"""Test that every field of the class Finding is stored, shown, exported and imported."""

import csv
import io
from datetime import datetime
from uuid import uuid4

from outcrop.domain.finding_fields import FINDING_FIELDS, SHOWN_FIELDS, FindingField
from outcrop.services.exchange.exporter import ExportFormat
from tests.services.test_export import export_account, lines
from tests.support.backend import Backend
from tests.support.factories import COMPUTED_FIELDS, without_computed

SHAPED = {  # fields that are no plain value, and those whose values depend on others
    "id": lambda: str(uuid4()),
    "status": lambda: "resolved",
    "validation_detail": lambda: {"enabled_services": ["aws"], "reason": "accepted"},
    "matched_text": lambda: "ab********yz",
    "pattern": lambda: {"name": "A key", "secret_type": "a_key"},
    "lines": lambda: [7, 9],
    "current_lines": lambda: [7, 8],
    "resolution_evidence": lambda: {"auto_resolved": False, "resolved_by": "jo@example.com"},
}
PLAIN = {datetime: "2026-03-04T05:06:07+00:00", str: "some text", int: 7, float: 12.5, bool: True}


def example_value(field: FindingField) -> object:
    """Return a value of the field that is not its default, in the form of the API."""
    if field.name in SHAPED:
        return SHAPED[field.name]()
    return PLAIN[field.type] if field.type in PLAIN else list(field.type)[-1].value


def example_line() -> dict[str, object]:
    """Return a line for an import with a value of every field."""
    return {field.name: example_value(field) for field in FINDING_FIELDS if not field.by_database}


def test_every_field_is_imported_stored_shown_and_exported(backend: Backend) -> None:
    line = example_line()
    tenant = backend.tenant()
    backend.import_(tenant.account, line)
    finding = tenant.finding(str(line["id"]))
    assert without_computed(finding) == line
    assert finding.keys() == line.keys() | COMPUTED_FIELDS
    assert lines(export_account(backend, tenant, ExportFormat.JSONL)) == [finding]


def test_every_field_is_a_column_of_a_csv_export(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, example_line())
    (line,) = tenant.get("/findings").json()["data"]
    text = export_account(backend, tenant, ExportFormat.CSV).decode()
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    for field in SHOWN_FIELDS:
        if field.name not in {"validation_detail", "pattern", "resolution_evidence"}:
            value = "" if line[field.name] is None else line[field.name]
            if isinstance(value, list):
                value = " ".join(map(str, value))
            assert row[field.name] == (str(value).lower() if isinstance(value, bool) else str(value))
    assert (row["pattern"], row["secret_type"], row["enabled_services"]) == ("A key", "a_key", "aws")
    assert (row["resolved_by"], row["auto_resolved"]) == ("jo@example.com", "false")
