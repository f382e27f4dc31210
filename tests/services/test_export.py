"""Test exports: complete, masked, and safe to open in other programs."""

import asyncio
import csv
import io
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from outcrop.domain.clock import now
from outcrop.domain.finding import SourceType, Status, Validation, severity_of
from outcrop.domain.paging import FindingQuery
from outcrop.services.exchange.exporter import ExportFormat, export_findings
from outcrop.services.findings import list_findings
from outcrop.store import db as database
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, without_computed
from tests.support.sarif import VALIDATOR

JO = "jo@example.com"
LEVELS = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}
SECRET = "made-up-" + "Xp9" * 8


def export_account(
    backend: Backend, tenant: Tenant, format_: ExportFormat, query: FindingQuery | None = None
) -> bytes:
    async def write() -> bytes:
        assert backend.settings.database_url is not None
        async with database.open_pool(backend.settings.database_url, size=1, statement_timeout=4) as pool:
            pieces = export_findings(
                pool.connection,
                tenant.account,
                query or FindingQuery(),
                format_,
                version="1.2.3",
                by="jo@example.com",
                now=now(),
                batch_size=7,
            )
            return b"".join([piece async for piece in pieces])

    return asyncio.run(write())


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def make_lines(count: int) -> list[dict[str, Any]]:
    rng = random.Random(9)
    cells = list(product(Status, Validation, SourceType))
    imported = []
    for n in range(count):
        status, validation, source = cells[n % len(cells)]
        imported.append(
            make_line(
                status=status,
                validation_status=validation,
                source_type=source,
                composite_score=float(rng.randint(0, 100)),
                file_path=rng.choice(
                    ["a b/ü.py", "=cmd|' /C calc'!A0", 'x,"y"\nz', "-1", "@a", "+b", "\tc", "\rd"]
                ),
                suppressed_at=rng.choice([None, "2026-02-01T00:00:00+00:00"]),
                resolution_note=None
                if status in {"active", "stale"}
                else rng.choice([None, "=1+1", "rotated"]),
                resolution_evidence={"auto_resolved": False, "resolved_by": "jo@example.com"},
                validation_detail={"enabled_services": ["aws", f"s_{n % 3}"], "reason": "x"},
                first_seen_at=f"2026-01-{rng.randint(1, 28):02}T12:00:00+00:00",
                current_line=rng.choice([None, 4]),
                line_number=rng.choice([None, 7]),
                context=rng.choice([None, "test", "production"]),
            )
        )
    return imported


def test_importing_an_export_creates_the_same_findings(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    backend.import_(tenant.account, *make_lines(130), make_line(secret=SECRET))
    first = export_account(backend, tenant, ExportFormat.JSONL)
    assert len(lines(first)) == 131
    assert SECRET.encode() not in first
    for line in lines(first)[::40]:
        assert tenant.finding(line["id"]) == line
    backend.import_(other.account, *lines(first))
    imported = lines(export_account(backend, other, ExportFormat.JSONL))
    assert list(map(without_computed, imported)) == list(map(without_computed, lines(first)))


@pytest.mark.parametrize(
    "query",
    [
        FindingQuery(status=Status.ACTIVE),
        FindingQuery(status=Status.RESOLVED, validation=Validation.VALID),
        FindingQuery(suppressed=True, min_score=50),
        FindingQuery(service="s_1", source_type=SourceType.GIST),
        FindingQuery(terms=("ü.py", "A B")),
        FindingQuery(terms=("%",)),
        FindingQuery(
            seen_from=datetime(2026, 1, 10, tzinfo=UTC), seen_before=datetime(2026, 1, 20, tzinfo=UTC)
        ),
    ],
    ids=str,
)
def test_an_export_has_the_same_filters_as_the_list(backend: Backend, query: FindingQuery) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    backend.import_(tenant.account, *make_lines(150))
    backend.import_(other.account, *make_lines(20))
    page = backend.run(
        lambda db: list_findings(db, tenant.account.id, replace(query, per_page=200)), transaction=False
    )
    ids = [line["id"] for line in lines(export_account(backend, tenant, ExportFormat.JSONL, query))]
    assert ids == sorted(str(finding.id) for finding in page.items)
    assert bool(ids) == (query.terms != ("%",))


def test_no_cell_of_a_csv_file_is_a_formula(backend: Backend) -> None:
    tenant = backend.tenant()
    imported = make_lines(130)
    backend.import_(tenant.account, *imported)
    rows = list(
        csv.DictReader(io.StringIO(export_account(backend, tenant, ExportFormat.CSV).decode(), newline=""))
    )
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows) == 130
    for line in imported:
        row = by_id[line["id"]]
        assert row["file_path"].removeprefix("'") == line["file_path"]
        assert (row["status"], float(row["composite_score"]), row["secret_type"]) == (
            line["status"],
            line["composite_score"],
            "aws",
        )
        assert row["enabled_services"].split() == line["validation_detail"]["enabled_services"]
        assert all(not cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in row.values())
    assert any(row["file_path"].startswith("'=cmd") for row in rows)


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t", "\r", "\n", " ", "\uff1d", "\ufeff", "\uff20", "\u3000"]
)
def test_a_cell_that_could_begin_a_formula_is_escaped_and_every_cell_is_quoted(
    backend: Backend, start: str
) -> None:
    tenant = backend.tenant()
    path = f"{start}=cmd|' /C calc'!A1"
    backend.import_(tenant.account, make_line(file_path=path))
    exported = export_account(backend, tenant, ExportFormat.CSV).decode()
    assert f',"\'{path}",' in exported
    header, rest = exported.split("\r\n", 1)
    assert all(cell.startswith('"') and cell.endswith('"') for cell in header.split(","))
    (row,) = csv.DictReader(io.StringIO(exported, newline=""))
    assert row["file_path"] == "'" + path
    assert rest.startswith('"')


def test_sarif_is_valid_and_marks_closed_findings(backend: Backend) -> None:
    tenant = backend.tenant()
    imported = make_lines(130)
    backend.import_(tenant.account, *imported, make_line(pattern={"name": "Other", "secret_type": "other"}))
    log = json.loads(export_account(backend, tenant, ExportFormat.SARIF))
    VALIDATOR.validate(log)
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert sorted(rules) == ["aws", "other"]
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    results = {result["partialFingerprints"]["outcrop/finding/v1"]: result for result in run["results"]}
    assert results.keys() >= {line["id"] for line in imported}
    for line in imported:
        result = results[line["id"]]
        assert result["rank"] == line["composite_score"]
        assert result["properties"]["context"] == line["context"]
        assert result["level"] == {"valid": "error", "invalid": "note"}.get(
            line["validation_status"], LEVELS[severity_of(line["composite_score"])]
        )
        closed = line["suppressed_at"] is not None or line["status"] not in {"active", "stale"}
        assert ("suppressions" in result) == closed


@pytest.mark.parametrize("format_", ExportFormat)
def test_an_empty_account_exports_a_valid_empty_file(backend: Backend, format_: ExportFormat) -> None:
    data = export_account(backend, backend.tenant(), format_)
    match format_:
        case ExportFormat.JSONL:
            assert data == b""
        case ExportFormat.CSV:
            assert data.count(b"\r\n") == 1
        case ExportFormat.SARIF:
            VALIDATOR.validate(json.loads(data))


def test_an_export_adds_an_audit_line(backend: Backend) -> None:
    tenant = backend.tenant()
    export_account(backend, tenant, ExportFormat.CSV)
    rows = backend.sql(
        "SELECT actor, target, detail FROM audit WHERE account_id = %s AND action = 'findings.export'",
        tenant.account.id,
    )
    assert rows == [("jo@example.com", tenant.account.slug, {"format": "csv"})]
