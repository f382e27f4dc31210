"""Store imports over the API. An import that is still received is in no list."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.paging import Page
from outcrop.store.db import Connection, snapshot


class ImportStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """Why an import failed, and the number of the record; None if no single record is the reason."""

    record: int | None
    message: str


@dataclass(frozen=True, slots=True)
class ReportImport:
    id: UUID
    status: ImportStatus
    format: str
    repo: str | None  # the repository that the sender named
    commit: str | None
    created_at: datetime
    finished_at: datetime | None = None
    records: int = 0
    findings_new: int = 0
    findings_updated: int = 0
    findings_unchanged: int = 0
    error: ImportFailure | None = None


_SELECT = """
    SELECT id, status, format, repo, commit_id, date_trunc('second', created_at), finished_at,
           records, findings_new, findings_updated, findings_unchanged, error_record, error_message
    FROM imports WHERE account_id = %s AND status <> 'receiving'
"""


async def select(db: Connection, account_id: int, import_id: UUID) -> ReportImport | None:
    """Return one import of the account."""
    cursor = await db.execute(f"{_SELECT} AND id = %s".encode(), [account_id, import_id])
    row = await cursor.fetchone()
    return None if row is None else _build_import(row)


async def select_page(db: Connection, account_id: int, *, page: int, per_page: int) -> Page[ReportImport]:
    """Return a page of the account's imports, newest first."""
    async with snapshot(db):
        cursor = await db.execute(
            "SELECT count(*) FROM imports WHERE account_id = %s AND status <> 'receiving'", [account_id]
        )
        row = await cursor.fetchone()
        total = row[0] if row else 0
        offset = (page - 1) * per_page
        if offset >= total:
            return Page([], total, page, per_page)
        cursor = await db.execute(
            f"{_SELECT} ORDER BY created_at DESC, id DESC OFFSET %s LIMIT %s".encode(),
            [account_id, offset, per_page],
        )
        return Page([_build_import(row) for row in await cursor.fetchall()], total, page, per_page)


def _build_import(row: tuple[Any, ...]) -> ReportImport:
    """Return the import of a row of _SELECT."""
    id_, status, format_, repo, commit, created_at, finished_at, *counts, record, message = row
    records, new, updated, unchanged = counts
    return ReportImport(
        id_,
        ImportStatus(status),
        format_,
        repo,
        commit,
        created_at,
        finished_at,
        records,
        findings_new=new,
        findings_updated=updated,
        findings_unchanged=unchanged,
        error=None if message is None else ImportFailure(record, message),
    )
