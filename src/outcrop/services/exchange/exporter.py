"""Export the findings of an account piece by piece: JSON Lines, CSV or SARIF."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import orjson

from outcrop.domain.account import Account
from outcrop.domain.finding import OPEN_STATUSES, Finding, public_fields
from outcrop.domain.finding_fields import SHOWN_FIELDS
from outcrop.domain.paging import FindingQuery
from outcrop.domain.reports import sarif
from outcrop.domain.reports.csv_cells import to_cell, write_rows
from outcrop.store import audit
from outcrop.store.db import Connect
from outcrop.store.findings.export import BATCH_SIZE, stream_findings


class ExportFormat(StrEnum):
    """The formats of exported files."""

    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"

    @property
    def media_type(self) -> str:
        """The media type for the Content-Type header."""
        return {
            "jsonl": "application/x-ndjson",
            "csv": "text/csv; charset=utf-8",
            "sarif": "application/sarif+json",
        }[self.value]


async def export_findings(
    connect: Connect,
    account: Account,
    query: FindingQuery,
    format_: ExportFormat,
    *,
    version: str,
    by: str,
    now: datetime,
    batch_size: int = BATCH_SIZE,
) -> AsyncIterator[bytes]:
    """Yield the bytes of a file with the findings that match the query's filters, in the order of their ids.

    The audit line is committed before the first finding is read. `version` is the program's, for SARIF.
    """
    async with connect() as db, db.transaction():
        line = audit.AuditLine(now, by, "findings.export", account.slug, detail={"format": format_})
        await audit.append(db, account.id, line)
    writer = _WRITERS[format_](version)
    if head := writer.head():
        yield head
    async for batch in stream_findings(connect, account.id, query, batch_size):
        yield await asyncio.to_thread(writer.body, batch)
    if tail := writer.tail():
        yield tail


class _JsonlWriter:
    """Writes one JSON object per line, in the shape of the API."""

    def __init__(self, _version: str) -> None:
        pass

    def head(self) -> bytes:
        """Return the bytes before the first finding."""
        return b""

    def body(self, batch: list[Finding]) -> bytes:
        """Return the bytes of a batch of findings."""
        return b"".join(
            orjson.dumps(public_fields(finding), option=orjson.OPT_APPEND_NEWLINE) for finding in batch
        )

    def tail(self) -> bytes:
        """Return the bytes after the last finding."""
        return b""


# --- CSV


def _plain_value(name: str, fields: dict[str, Any]) -> Any:
    """Return the field `name` of a finding; a time as text, numbers with spaces between them."""
    value = fields[name]
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return value.isoformat() if isinstance(value, datetime) else value


_COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "id": lambda f: f["id"],
    "status": lambda f: f["status"],
    "composite_score": lambda f: f["composite_score"],
    "secret_type": lambda f: f["pattern"]["secret_type"],
    "pattern": lambda f: f["pattern"]["name"],
    "matched_text": lambda f: f["matched_text"],
    "validation_status": lambda f: f["validation_status"],
    "validation_confidence": lambda f: f["validation_confidence"],
    "enabled_services": lambda f: " ".join(f["validation_detail"]["enabled_services"]),
    "source_type": lambda f: f["source_type"],
    "source_visibility": lambda f: f["source_visibility"],
    "repo_full_name": lambda f: f["repo_full_name"],
    "file_path": lambda f: f["file_path"],
    "line_number": lambda f: f["line_number"],
    "current_line": lambda f: f["current_line"],
    "source_url": lambda f: f["source_url"],
    "first_seen_at": lambda f: f["first_seen_at"].isoformat(),
    "last_seen_at": lambda f: f["last_seen_at"].isoformat(),
    "seen_count": lambda f: f["seen_count"],
    "suppressed_at": lambda f: f["suppressed_at"] and f["suppressed_at"].isoformat(),
    "resolved_at": lambda f: f["resolved_at"] and f["resolved_at"].isoformat(),
    "resolved_by": lambda f: f["resolution_evidence"] and f["resolution_evidence"]["resolved_by"],
    "auto_resolved": lambda f: f["resolution_evidence"] and f["resolution_evidence"]["auto_resolved"],
    "resolution_note": lambda f: f["resolution_note"],
}
_SHOWN_IN_PARTS = {"pattern", "validation_detail", "resolution_evidence"}
# Every other field of a finding is a column of its own, after these.
_COLUMNS |= {
    field.name: partial(_plain_value, field.name)
    for field in SHOWN_FIELDS
    if field.name not in _COLUMNS | dict.fromkeys(_SHOWN_IN_PARTS)
}


class _CsvWriter:
    """Writes CSV with a header line, safe for spreadsheets."""

    def __init__(self, _version: str) -> None:
        pass

    def head(self) -> bytes:
        """Return the bytes before the first finding."""
        return write_rows([list(_COLUMNS)])

    def body(self, batch: list[Finding]) -> bytes:
        """Return the bytes of a batch of findings."""
        return write_rows(
            [to_cell(value(fields)) for value in _COLUMNS.values()] for fields in map(public_fields, batch)
        )

    def tail(self) -> bytes:
        """Return the bytes after the last finding."""
        return b""


# --- SARIF


class _SarifWriter:
    """Writes SARIF 2.1.0. The rules follow the results, because they are known only after the last result."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._rules: dict[str, tuple[int, dict[str, Any]]] = {}  # rule id -> index and SARIF rule
        self._is_first = True

    def head(self) -> bytes:
        """Return the bytes before the first finding."""
        return (
            b'{"$schema":%s,"version":"2.1.0","runs":[{"columnKind":"unicodeCodePoints","results":['
            % orjson.dumps(sarif.SCHEMA)
        )

    def body(self, batch: list[Finding]) -> bytes:
        """Return the bytes of a batch of findings."""
        results = b",".join(map(orjson.dumps, self._results(batch)))
        is_first, self._is_first = self._is_first, False
        return results if is_first else b"," + results

    def tail(self) -> bytes:
        """Return the bytes after the last finding."""
        driver = sarif.driver_of(self._version) | {"rules": [rule for _, rule in self._rules.values()]}
        return b'],"tool":%s}]}\n' % orjson.dumps({"driver": driver})

    def _results(self, batch: list[Finding]) -> Iterator[dict[str, Any]]:
        """Yield the SARIF result of each finding, and collect its rule."""
        for finding in batch:
            fields = public_fields(finding)
            fields["rule"] = finding.rule or finding.pattern.secret_type or "unknown"
            index, _ = self._rules.setdefault(fields["rule"], (len(self._rules), sarif.rule_of(fields)))
            result = sarif.result_of(fields, index)
            result["partialFingerprints"] = {sarif.FINDING: str(finding.id)}
            result["properties"] = {name: fields[name] for name in _PROPERTIES}
            if finding.suppressed_at is not None or finding.status not in OPEN_STATUSES:
                kind = {"kind": "external", "status": "accepted"}
                result["suppressions"] = [
                    kind | ({"justification": finding.resolution_note} if finding.resolution_note else {})
                ]
            yield result


_PROPERTIES = (
    "status",
    "validation_status",
    "validation_confidence",
    "detection_confidence",
    "context",
    "source_type",
    "source_visibility",
    "source_url",
    "repo_full_name",
    "commit",
    "author",
    "committed_at",
    "severity",
    "first_seen_at",
    "last_seen_at",
    "seen_count",
    "suppressed_at",
    "resolved_at",
    "updated_at",
)
_WRITERS: dict[ExportFormat, Callable[[str], _JsonlWriter | _CsvWriter | _SarifWriter]] = {
    ExportFormat.JSONL: _JsonlWriter,
    ExportFormat.CSV: _CsvWriter,
    ExportFormat.SARIF: _SarifWriter,
}
