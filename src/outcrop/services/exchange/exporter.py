"""An account's findings as a file: JSON Lines in the API's shape, CSV for spreadsheets, SARIF for other tools; piece by piece."""

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from outcrop.domain import sarif
from outcrop.domain.account import Account
from outcrop.domain.finding import Status, Validation, public_fields
from outcrop.domain.paging import FindingQuery
from outcrop.store import audit
from outcrop.store.db import Pool
from outcrop.store.findings.export import ExportedFinding, stream_findings


class ExportFormat(StrEnum):
    JSONL = "jsonl"
    CSV = "csv"
    SARIF = "sarif"

    @property
    def media_type(self) -> str:
        return {
            "jsonl": "application/x-ndjson",
            "csv": "text/csv; charset=utf-8",
            "sarif": "application/sarif+json",
        }[self.value]


async def export_findings(
    pool: Pool,
    account: Account,
    query: FindingQuery,
    format_: ExportFormat,
    *,
    version: str,
    by: str,
    now: datetime,
) -> AsyncIterator[bytes]:
    """Give the findings that match the query's filters, in the order of their ids. It opens short transactions itself.

    That somebody took them along is in the audit trail before the first is given.
    """
    async with pool.connection() as db, db.transaction():
        await audit.append(
            db,
            account.id,
            audit.AuditLine(now, by, "findings.export", account.slug, detail={"format": format_}),
        )
    writer = _WRITERS[format_](version)
    if head := writer.head():
        yield head
    async for found in stream_findings(pool, account.id, query):
        yield writer.body(found)
    if tail := writer.tail():
        yield tail


class _Lines:
    def __init__(self, _version: str) -> None:
        pass

    def head(self) -> bytes:
        return b""

    def body(self, found: list[ExportedFinding]) -> bytes:
        return b"".join(
            orjson.dumps(public_fields(one.finding), option=orjson.OPT_APPEND_NEWLINE) for one in found
        )

    def tail(self) -> bytes:
        return b""


# --- CSV

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
    "allowed_in_source": lambda f: f["allowed_in_source"],
}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class _Csv:
    def __init__(self, _version: str) -> None:
        pass

    def head(self) -> bytes:
        return _rows([list(_COLUMNS)])

    def body(self, found: list[ExportedFinding]) -> bytes:
        return _rows(
            [_cell(value(fields)) for value in _COLUMNS.values()]
            for fields in (public_fields(one.finding) for one in found)
        )

    def tail(self) -> bytes:
        return b""


def _rows(rows: Any) -> bytes:
    out = io.StringIO(newline="")
    csv.writer(out).writerows(rows)
    return out.getvalue().encode()


def _cell(value: object) -> object:
    """Keep a spreadsheet from reading a text as a formula: who leaks a file chooses its name."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else str(value)
    return value


# --- SARIF

_LEVEL = {Validation.VALID: "error", Validation.INVALID: "note"}
_CLOSED = {Status.FALSE_POSITIVE, Status.CUSTOMER_RESTRICTED, Status.RESOLVED}


class _Sarif:
    """Results come as they are read; the rules they name stand behind them, which JSON does not mind."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._rules: dict[str, tuple[int, dict[str, Any]]] = {}
        self._first = True

    def head(self) -> bytes:
        return (
            b'{"$schema":%s,"version":"2.1.0","runs":[{"columnKind":"unicodeCodePoints","results":['
            % orjson.dumps(sarif.SCHEMA)
        )

    def body(self, found: list[ExportedFinding]) -> bytes:
        written = b",".join(map(orjson.dumps, self._results(found)))
        first, self._first = self._first, False
        return written if first else b"," + written

    def tail(self) -> bytes:
        driver = {
            "name": "outcrop",
            "semanticVersion": self._version,
            "rules": [rule for _, rule in self._rules.values()],
        }
        return b'],"tool":%s}]}\n' % orjson.dumps({"driver": driver})

    def _results(self, found: list[ExportedFinding]) -> Iterator[dict[str, Any]]:
        for one in found:
            finding = one.finding
            fields = public_fields(finding) | {
                "rule": one.rule or finding.pattern_secret_type or "unknown",
                "commit": one.commit,
            }
            index, _ = self._rules.setdefault(fields["rule"], (len(self._rules), sarif.rule_of(fields)))
            result = sarif.result_of(fields, index, level=_LEVEL.get(finding.validation_status, "warning"))
            result["partialFingerprints"] = {sarif.FINDING: str(finding.id)}
            result["properties"] = {name: fields[name] for name in _KEPT}
            if finding.suppressed_at is not None or finding.status in _CLOSED:
                kind = {"kind": "external", "status": "accepted"}
                result["suppressions"] = [
                    kind | ({"justification": finding.resolution_note} if finding.resolution_note else {})
                ]
            yield result


_KEPT = (
    *(
        "status",
        "validation_status",
        "validation_confidence",
        "source_type",
        "source_visibility",
        "source_url",
        "repo_full_name",
    ),
    *("commit", "first_seen_at", "last_seen_at", "seen_count", "suppressed_at", "resolved_at"),
)
_WRITERS: dict[ExportFormat, Callable[[str], _Lines | _Csv | _Sarif]] = {
    ExportFormat.JSONL: _Lines,
    ExportFormat.CSV: _Csv,
    ExportFormat.SARIF: _Sarif,
}
