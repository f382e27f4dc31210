"""Count findings and select a page of ids, for filters that only the table of findings can answer.

These are the attributes (`attributes.py`), `incident_id` and `updated_since`. The total of one attribute or
of `updated_since`, alone or with those of a facet, is in the rollups. Others are counted by an index.
"""

from typing import Any

from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir
from outcrop.store.db import Connection
from outcrop.store.findings import rollups
from outcrop.store.findings.attributes import chosen_attributes
from outcrop.store.findings.conditions import (
    add_finding_conditions,
    build_where,
    row_conditions,
)
from outcrop.store.findings.facets import list_matching_facets
from outcrop.store.findings.rollups import CellFilter
from outcrop.store.where import WhereClause

# Up to this number, all matches are read and sorted. A scan in sort order may have to pass far more findings
# than their share suggests: those of one repository often have similar scores and dates.
MAX_GATHERED = 50_000
_ROW_COST = 8  # index entries that cost as much as one row of the table

Statement = tuple[str, list[Any]]


async def choose_statement(
    db: Connection, account_id: int, query: FindingQuery, *, max_gathered: int = MAX_GATHERED
) -> tuple[int, Statement | None]:
    """Return the total, and a statement for the ids of the page; None if the page is past the end."""
    facets = list_matching_facets(query)
    where = build_where(account_id, query, facets)
    add_finding_conditions(where, query)
    for condition, values in row_conditions(query):
        where.add(condition, *values)
    total = await _count_matches(db, account_id, query, facets, where)
    if query.offset >= total:
        return total, None
    in_account, _ = await rollups.count_totals(db, CellFilter(account_id))
    length = min(query.per_page, total - query.offset)
    is_descending = query.order_dir is OrderDir.DESC
    start = total - query.offset - length if is_descending else query.offset
    from_end = total - start - length
    scanned = min(start, from_end) + length
    if not _is_in_order(query) and (
        total <= max_gathered or 2 * total < _ROW_COST * scanned * in_account / total
    ):
        return total, _gather_statement(query, where, start, length)
    return total, _scan_statement(query, where, min(start, from_end), length, backwards=from_end < start)


def _is_in_order(query: FindingQuery) -> bool:
    """Whether an index has the matches of one filter in the order of the list."""
    if query.incident_id is not None:
        return False
    has_attribute = any(
        not isinstance(value, list) or len(value) == 1 for _, value in chosen_attributes(query)
    )
    if query.order_by is OrderBy.COMPOSITE_SCORE:
        return has_attribute
    return query.order_by is OrderBy.UPDATED_AT and query.updated_since is not None and not has_attribute


async def _count_matches(
    db: Connection, account_id: int, query: FindingQuery, facets: list[int] | None, where: WhereClause
) -> int:
    """Return the number of matches: from the rollups if they count this filter, otherwise by an index."""
    chosen = list(chosen_attributes(query))
    has_others = (
        query.service is not None
        or query.incident_id is not None
        or query.seen_from is not None
        or query.seen_before is not None
        or bool(query.lowest_score)
        or query.score_below is not None
    )
    if not has_others and len(chosen) == 1 and query.updated_since is None:
        attribute, value = chosen[0]
        return await rollups.count_attribute(db, account_id, facets, attribute, value)
    if not has_others and not chosen and query.updated_since is not None:
        return await _count_updated(db, account_id, query, facets)
    cursor = await db.execute(
        f"SELECT count(*) FROM findings f WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


async def _count_updated(
    db: Connection, account_id: int, query: FindingQuery, facets: list[int] | None
) -> int:
    """Return the number of findings changed since a time: minutes by the rollups, the rest by the index."""
    assert query.updated_since is not None  # noqa: S101 - the caller checks it
    cells = CellFilter(account_id, facets)
    _, in_cells = await rollups.count_totals(db, cells)
    bucket = rollups.bucket_of(query.updated_since, rollups.UPDATED)
    below = await rollups.count_below(db, cells, rollups.UPDATED, bucket)
    where = WhereClause(account_id)
    if facets is not None:
        where.add("facet = ANY(%s)", facets)
    start = rollups.bucket_start(rollups.UPDATED, bucket)
    where.add("updated_at >= %s AND updated_at < %s", start, query.updated_since)
    cursor = await db.execute(
        f"SELECT count(*) FROM findings WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return in_cells - below - int(row[0])


def _gather_statement(query: FindingQuery, where: WhereClause, start: int, length: int) -> Statement:
    """Return the statement that reads all matches by the index of a filter, and sorts them."""
    column = query.order_by.value
    sql = (
        f"WITH hits AS MATERIALIZED (SELECT id, {column} FROM findings f WHERE {where.sql}) "
        f"SELECT id FROM hits ORDER BY {column}, id OFFSET %s LIMIT %s"
    )
    return sql, [*where.values, start, length]


def _scan_statement(
    query: FindingQuery, where: WhereClause, skip: int, length: int, *, backwards: bool
) -> Statement:
    """Return the statement that reads findings in sort order, skips `skip` matches and stops."""
    column, direction = query.order_by.value, "DESC" if backwards else "ASC"
    sql = (
        f"SELECT id FROM findings f WHERE {where.sql}"
        f" ORDER BY {column} {direction}, id {direction} OFFSET %s LIMIT %s"
    )
    return sql, [*where.values, skip, length]
