"""Read the audit trail of an account, or of the operator."""

from collections.abc import AsyncIterator
from typing import Any

from outcrop.domain.account import Account
from outcrop.domain.audit import OUTCOMES, AuditFilter
from outcrop.domain.errors import BadInputError
from outcrop.store import audit
from outcrop.store.audit import AuditLine
from outcrop.store.db import Connect, Connection

_BATCH_SIZE = 500  # lines


async def read_trail(
    connect: Connect,
    account: Account | None,
    filter_: AuditFilter | None = None,
    batch_size: int = _BATCH_SIZE,
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield batches of the lines that match the filter, oldest first, as JSON values.

    Without an account these are the operator's lines, which belong to no account.

    `connect` opens the connection for one batch. None is held while a batch is used. A line that is written
    meanwhile may be missing, also in the middle: its transaction may have taken its number earlier.
    """
    filter_ = _check_filter(filter_)
    after, is_last = 0, False
    while not is_last:
        async with connect() as db:
            lines = await audit.select_batch(
                *(db, None if account is None else account.id, filter_), after=after, limit=batch_size
            )
        is_last = len(lines) < batch_size
        if lines:
            after = lines[-1][0]
            yield [public_fields(line) for _, line in lines]


async def list_trail(
    db: Connection,
    account: Account,
    filter_: AuditFilter | None = None,
    *,
    limit: int,
    before: int | None = None,
) -> list[tuple[int, AuditLine]]:
    """Return up to `limit` lines with their numbers, newest first.

    `before` is the last number of the previous page.
    """
    return await audit.select_page(db, account.id, _check_filter(filter_), limit=limit, before=before)


def public_fields(line: AuditLine) -> dict[str, Any]:
    """Return an audit line as JSON values."""
    return {
        "at": line.at.isoformat(),
        "actor": line.actor,
        "action": line.action,
        "target": line.target,
        "outcome": line.outcome,
        "detail": line.detail,
    }


def _check_filter(filter_: AuditFilter | None) -> AuditFilter:
    """Return the filter, or an empty one for None; raise BadInputError if it is invalid."""
    filter_ = filter_ or AuditFilter()
    if filter_.outcome is not None and filter_.outcome not in OUTCOMES:
        raise BadInputError(f"an outcome is one of {', '.join(OUTCOMES)}")
    if any("\0" in text for text in (filter_.action, filter_.actor, filter_.target) if text is not None):
        raise BadInputError("an audit filter must not contain a NUL character")
    return filter_
