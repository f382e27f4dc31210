"""Reading scan runs."""

from uuid import UUID

from outcrop.domain.errors import NotFoundError
from outcrop.domain.paging import Page
from outcrop.domain.scan import ScanRun, ScanType
from outcrop.store import scans
from outcrop.store.db import Connection


async def list_scans(db: Connection, account_id: int, *, type_: ScanType | None, page: int, per_page: int) -> Page[ScanRun]:
    return await scans.select_page(db, account_id, type_=type_, page=page, per_page=per_page)


async def get_scan(db: Connection, account_id: int, scan_id: str) -> ScanRun:
    """Any text may be asked for; what is no id names no run."""
    try:
        run = await scans.select(db, account_id, UUID(scan_id)) if len(scan_id) == 36 else None
    except ValueError:
        run = None
    if run is None:
        raise NotFoundError("no such scan run")
    return run
