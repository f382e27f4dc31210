"""Read the imports that an account has made over the API."""

from uuid import UUID

from outcrop.domain.errors import NotFoundError
from outcrop.domain.paging import Page
from outcrop.store import imports
from outcrop.store.db import Connection
from outcrop.store.imports import ReportImport


async def list_imports(db: Connection, account_id: int, *, page: int, per_page: int) -> Page[ReportImport]:
    """Return one page of imports, newest first."""
    return await imports.select_page(db, account_id, page=page, per_page=per_page)


async def get_import(db: Connection, account_id: int, import_id: UUID) -> ReportImport:
    """Return an import; raise NotFoundError if the account has none with this id."""
    report = await imports.select(db, account_id, import_id)
    if report is None:
        raise NotFoundError("no such import")
    return report
