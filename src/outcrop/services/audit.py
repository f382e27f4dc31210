"""Reading the audit trail."""

from collections.abc import AsyncIterator
from typing import Any

from outcrop.domain.account import Account
from outcrop.domain.audit import OUTCOMES, AuditFilter
from outcrop.domain.errors import BadInputError
from outcrop.store import audit
from outcrop.store.audit import AuditLine
from outcrop.store.db import Connection


async def read_trail(
    db: Connection, account: Account, wanted: AuditFilter | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Give the account's lines, oldest first, as plain JSON values; they are read as they are asked for."""
    async for line in audit.stream_lines(db, account.id, _checked(wanted)):
        yield public_fields(line)


async def list_trail(
    db: Connection,
    account: Account,
    wanted: AuditFilter | None = None,
    *,
    limit: int,
    before: int | None = None,
) -> list[tuple[int, AuditLine]]:
    """Give a page of lines with their numbers, newest first; `before` is the last number of the page before."""
    return await audit.select_page(db, account.id, _checked(wanted), limit=limit, before=before)


def public_fields(line: AuditLine) -> dict[str, Any]:
    return {
        "at": line.at.isoformat(),
        "actor": line.actor,
        "action": line.action,
        "target": line.target,
        "outcome": line.outcome,
        "detail": line.detail,
    }


def _checked(wanted: AuditFilter | None) -> AuditFilter:
    wanted = wanted or AuditFilter()
    if wanted.outcome is not None and wanted.outcome not in OUTCOMES:
        raise BadInputError(f"an outcome is one of {', '.join(OUTCOMES)}")
    if any("\0" in text for text in (wanted.action, wanted.actor, wanted.target) if text is not None):
        raise BadInputError("no line holds a NUL")
    return wanted
