"""Collect the conditions of a list, and read a page of rows that no index has in order."""

from typing import Any
from uuid import UUID

from outcrop.domain.incident import IncidentQuery
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connection


class WhereClause:
    """SQL conditions joined by AND, and the values of their placeholders in order."""

    def __init__(self, account_id: int) -> None:
        self.sql = "account_id = %s"
        self.values: list[Any] = [account_id]

    def add(self, condition: str, *values: Any) -> None:
        """Append a condition and the values of its placeholders."""
        self.sql += f" AND {condition}"
        self.values += values


async def select_gathered_ids(
    db: Connection, source: str, where: WhereClause, query: FindingQuery | IncidentQuery
) -> tuple[int, list[UUID]]:
    """Return the number of rows that match, and the ids of the page: all matches are found and sorted."""
    column, direction = query.order_by.value, query.order_dir.value
    cursor = await db.execute(
        f"""WITH hits AS MATERIALIZED (SELECT id, {column} FROM {source} WHERE {where.sql})
            SELECT (SELECT count(*) FROM hits),
                   ARRAY(SELECT id FROM hits ORDER BY {column} {direction}, id {direction}
                         OFFSET %s LIMIT %s)""".encode(),
        [*where.values, min(query.offset, 2**63 - 1), query.per_page],  # OFFSET is a bigint
        prepare=False,
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]
