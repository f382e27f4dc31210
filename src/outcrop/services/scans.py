"""Read scan runs."""

from outcrop.domain.errors import NotFoundError
from outcrop.domain.ids import parse_id
from outcrop.domain.paging import Page
from outcrop.domain.scan import ScanRun, ScanType
from outcrop.store.db import Connection
from outcrop.store.runs import scans


async def list_scans(
    db: Connection, account_id: int, *, type_: ScanType | None, page: int, per_page: int
) -> Page[ScanRun]:
    """Return one page of scan runs, newest first, of one type or of all."""
    return await scans.select_page(db, account_id, type_=type_, page=page, per_page=per_page)


async def get_scan(db: Connection, account_id: int, scan_id: str) -> ScanRun:
    """Return a scan run; raise NotFoundError if there is none, or `scan_id` is not a UUID."""
    id_ = parse_id(scan_id)
    run = None if id_ is None else await scans.select(db, account_id, id_)
    if run is None:
        raise NotFoundError("no such scan run")
    return run
