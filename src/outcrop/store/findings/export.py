"""Read every finding that matches a query, in batches by id, so that no statement takes long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connect, Connection
from outcrop.store.findings import rows
from outcrop.store.findings.conditions import add_finding_conditions, build_where, row_conditions
from outcrop.store.findings.facets import list_matching_facets

BATCH_SIZE = 2_000  # findings that one statement reads, whether they match or not
_LOWEST_ID = UUID(int=0)


async def stream_findings(
    connect: Connect, account_id: int, query: FindingQuery, batch_size: int = BATCH_SIZE
) -> AsyncIterator[list[Finding]]:
    """Yield the findings that meet the query's filters, in batches, by id. Its order and page are ignored.

    A connection is held for one batch at a time, so that a slow reader blocks nobody. A finding that exists
    the whole time is yielded once, as it was when its batch was read. One that is added or deleted meanwhile
    may or may not be yielded.
    """
    after: UUID | None = _LOWEST_ID
    while after is not None:
        async with connect() as db, db.transaction():
            last = await _find_batch_end(db, account_id, after, batch_size)
            found = await _select_batch(db, account_id, query, after, last)
        if found:
            yield await asyncio.to_thread(_build_batch, found)
        after = last


async def _find_batch_end(db: Connection, account_id: int, after: UUID, size: int) -> UUID | None:
    """Return the last id of the batch that follows `after`; None if less than a full batch follows."""
    cursor = await db.execute(
        "SELECT id FROM findings WHERE account_id = %s AND id > %s ORDER BY id OFFSET %s LIMIT 1",
        [account_id, after, size - 1],
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def _select_batch(
    db: Connection, account_id: int, query: FindingQuery, after: UUID, last: UUID | None
) -> list[tuple[Any, ...]]:
    """Return the rows of the matching findings with ids above `after`, up to `last` or up to the end."""
    where = build_where(account_id, query, list_matching_facets(query))
    where.add("id > %s", after)
    if last is not None:
        where.add("id <= %s", last)
    add_finding_conditions(where, query)
    for condition, values in row_conditions(query):
        where.add(condition, *values)
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings f WHERE {where.sql} ORDER BY id".encode(),
        where.values,
        prepare=False,
    )
    return await cursor.fetchall()


def _build_batch(batch: list[tuple[Any, ...]]) -> list[Finding]:
    """Return the findings of the rows of a batch."""
    return [rows.build_finding(row) for row in batch]
