"""Build findings and scan runs with a default for every field."""

from dataclasses import fields as dataclass_fields
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from outcrop.domain.finding import Finding
from outcrop.domain.scan import ScanRun, ScanStatus, ScanType, Trigger


def additive_defaults() -> dict[str, Any]:
    """Return the default of each field of a finding that the specification does not have.

    Those that the service computes are left out (`without_computed`).
    """
    return {
        field.name: [] if field.default == () else field.default
        for field in dataclass_fields(Finding)
        if field.metadata and field.metadata["extension"] and not field.metadata["by_database"]
    }


def complete(line: dict[str, Any]) -> dict[str, Any]:
    """Return an imported line with the additive fields that the service adds to it."""
    number, current = line.get("line_number"), line.get("current_line")
    lines = {"lines": [] if number is None else [number], "lines_total": int(number is not None)}
    return additive_defaults() | lines | {"current_lines": [] if current is None else [current]} | line


COMPUTED_FIELDS = {"severity", "updated_at", "incident_id", "assignee"}  # no import sets them


def without_computed(finding: dict[str, Any]) -> dict[str, Any]:
    """Return a finding of the API without the fields that the service computes."""
    return {name: value for name, value in finding.items() if name not in COMPUTED_FIELDS}


def make_line(**fields: Any) -> dict[str, Any]:
    """Return one line for `outcrop import`, with the given fields."""
    return {
        "id": str(uuid4()),
        "status": "active",
        "validation_status": "valid",
        "validation_confidence": "high",
        "validation_detail": {"enabled_services": ["aws", "aws_s3"]},
        "composite_score": 72.5,
        "source_type": "repo",
        "source_visibility": "public",
        "source_url": "https://github.com/acme/shop/blob/main/config/settings.py#L12",
        "repo_full_name": "acme/shop",
        "file_path": "config/settings.py",
        "line_number": 12,
        "matched_text": "AKIA********WXYZ",
        "pattern": {"name": "AWS access key pair", "secret_type": "aws"},
        "first_seen_at": "2026-01-02T03:04:05+00:00",
        "last_seen_at": "2026-02-03T04:05:06+00:00",
        "seen_count": 3,
    } | fields


def make_scan(**fields: Any) -> ScanRun:
    """Return a scan run with the given fields."""
    defaults: dict[str, Any] = {
        "id": uuid4(),
        "type": ScanType.GITHUB,
        "status": ScanStatus.COMPLETED,
        "trigger": Trigger.CLI,
        "target": "github:acme",
        "created_at": datetime(2026, 3, 1, tzinfo=UTC),
    }
    return ScanRun(**(defaults | fields))
