"""Every finding that a list would give, however many: in stretches of a bounded size, by id, so that no statement takes long."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connection, Pool
from outcrop.store.findings import rows
from outcrop.store.findings.conditions import build_where, row_conditions
from outcrop.store.findings.facets import list_matching_facets

_STRETCH = 2_000  # findings that one statement looks at, whether they match or not
_BEFORE_ALL = UUID(int=0)


@dataclass(frozen=True, slots=True)
class ExportedFinding:
    """A finding with what a report names beside it."""

    finding: Finding
    rule: str | None
    commit: str | None


async def stream_findings(
    pool: Pool, account_id: int, query: FindingQuery
) -> AsyncIterator[list[ExportedFinding]]:
    """Give what matches the filters, in the order of the ids; order and page of the query play no part.

    A connection is held for one stretch at a time: whoever reads slowly keeps nobody waiting. What is there all the while is given once,
    as it was when its stretch was read; what comes or goes meanwhile may or may not be.
    """
    after: UUID | None = _BEFORE_ALL
    while after is not None:
        async with pool.connection() as db, db.transaction():
            upto = await _end_of_stretch(db, account_id, after)
            found = await _between(db, account_id, query, after, upto)
        if found:
            yield found
        after = upto


async def _end_of_stretch(db: Connection, account_id: int, after: UUID) -> UUID | None:
    cursor = await db.execute(
        "SELECT id FROM findings WHERE account_id = %s AND id > %s ORDER BY id OFFSET %s LIMIT 1",
        [account_id, after, _STRETCH - 1],
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def _between(
    db: Connection, account_id: int, query: FindingQuery, after: UUID, upto: UUID | None
) -> list[ExportedFinding]:
    where = build_where(account_id, query, list_matching_facets(query))
    where.add("id > %s", after)
    if upto is not None:
        where.add("id <= %s", upto)
    for condition, value in row_conditions(query):
        where.add(condition, value)
    cursor = await db.execute(
        f"SELECT rule, commit_id, {rows.COLUMNS} FROM findings f WHERE {where.sql} ORDER BY id".encode(),
        where.values,
        prepare=False,
    )
    return [ExportedFinding(rows.build_finding(row[2:]), row[0], row[1]) for row in await cursor.fetchall()]
