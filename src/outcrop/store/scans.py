"""Scan runs at rest."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from outcrop.domain.paging import Page
from outcrop.domain.scan import Gap, ScanRun, ScanStatus, ScanType, Trigger
from outcrop.store.db import Connection, snapshot

_COLUMNS = (
    "id, type, status, trigger, target, created_at, started_at, finished_at, progress, "
    "findings_new, findings_seen, findings_resolved, coverage_gaps, error"
)


async def insert(db: Connection, account_id: int, run: ScanRun) -> None:
    values = [
        *(run.id, run.type, run.status, run.trigger, run.target, run.created_at, run.started_at, run.finished_at),
        *(Jsonb(run.progress), run.findings_new, run.findings_seen, run.findings_resolved),
        *(Jsonb([{"what": gap.what, "why": gap.why} for gap in run.coverage_gaps]), run.error),
    ]
    places = ", ".join(["%s"] * len(values))
    await db.execute(f"INSERT INTO scans (account_id, {_COLUMNS}) VALUES (%s, {places})".encode(), [account_id, *values])


async def select(db: Connection, account_id: int, scan_id: UUID) -> ScanRun | None:
    cursor = await db.execute(f"SELECT {_COLUMNS} FROM scans WHERE account_id = %s AND id = %s".encode(), [account_id, scan_id])
    row = await cursor.fetchone()
    return None if row is None else _run(row)


async def select_page(db: Connection, account_id: int, *, type_: ScanType | None, page: int, per_page: int) -> Page[ScanRun]:
    """Newest first."""
    where, values = "account_id = %s", list[object]([account_id])
    if type_ is not None:
        where, values = f"{where} AND type = %s", [*values, type_]
    async with snapshot(db):
        row = await (await db.execute(f"SELECT count(*) FROM scans WHERE {where}".encode(), values)).fetchone()
        total = row[0] if row else 0
        offset = (page - 1) * per_page
        if offset >= total:
            return Page([], total, page, per_page)
        cursor = await db.execute(
            f"SELECT {_COLUMNS} FROM scans WHERE {where} ORDER BY created_at DESC, id DESC OFFSET %s LIMIT %s".encode(),
            [*values, offset, per_page],
        )
        return Page([_run(row) for row in await cursor.fetchall()], total, page, per_page)


def _run(row: tuple[Any, ...]) -> ScanRun:
    gaps = tuple(Gap(gap["what"], gap["why"]) for gap in row[12])
    return ScanRun(
        id=row[0],
        type=ScanType(row[1]),
        status=ScanStatus(row[2]),
        trigger=Trigger(row[3]),
        target=row[4],
        created_at=row[5],
        started_at=row[6],
        finished_at=row[7],
        progress=row[8],
        findings_new=row[9],
        findings_seen=row[10],
        findings_resolved=row[11],
        coverage_gaps=gaps,
        error=row[13],
    )
