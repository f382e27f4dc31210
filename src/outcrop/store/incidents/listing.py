"""Read one page of incidents and the exact total from one snapshot.

The total comes from the rollups if they count the query's filters, otherwise from an index. The page is read
in sort order from the nearer end of the list. If the rollups cover the query, a deep page begins at the
bucket in which it lies. Search terms and `service` are different: one statement finds all matches, counts
and sorts them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outcrop.domain.incident import Incident, IncidentOrder, IncidentQuery, IncidentStatus
from outcrop.domain.paging import OrderDir, Page
from outcrop.store.db import Connection, snapshot
from outcrop.store.findings import rollups
from outcrop.store.findings.rollups import CellFilter, Dimension
from outcrop.store.incidents import numbers
from outcrop.store.incidents.conditions import ASSIGNEE, TYPE, build_where, list_matching_facets
from outcrop.store.incidents.table import COLUMNS, build_incident
from outcrop.store.where import WhereClause, select_gathered_ids

_TOTAL = 21  # kind of the cells that count incidents by facet
_DIMENSION = {
    IncidentOrder.COMPOSITE_SCORE: Dimension("composite_score", 22, 23, 3),
    IncidentOrder.FIRST_SEEN_AT: Dimension("first_seen_at", 24, 25, 5),
    IncidentOrder.LAST_SEEN_AT: Dimension("last_seen_at", 26, 27, 5),
}
_SCORE = _DIMENSION[IncidentOrder.COMPOSITE_SCORE]
_FIRST_SEEN = _DIMENSION[IncidentOrder.FIRST_SEEN_AT]
MAX_SKIPPED = 2_000  # index entries; skipping them is faster than the statements of a jump


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan of the sort key's index: its direction, and how many matches it skips."""

    skip: int
    backwards: bool
    condition: str = "true"  # begins the scan at a bucket
    bound: tuple[Any, ...] = ()


async def select_page(
    db: Connection, account_id: int, query: IncidentQuery, *, now: datetime, max_skipped: int = MAX_SKIPPED
) -> Page[Incident]:
    """Return the page of incidents that the query asks for, sorted, and the exact total of matches."""
    cells = CellFilter(account_id, list_matching_facets(query))
    where = build_where(account_id, query, cells.facets, now)
    async with snapshot(db):
        if _has_others(query):
            return await _select_gathered(db, query, where)
        total = await _count_matches(db, cells, query, where, now)
        if query.offset >= total:
            return Page([], total, query.page, query.per_page)
        is_descending = query.order_dir is OrderDir.DESC
        length = min(query.per_page, total - query.offset)
        start = total - query.offset - length if is_descending else query.offset
        scan = min(_Scan(start, backwards=False), _Scan(total - start - length, backwards=True), key=_skip)
        dimension = _DIMENSION.get(query.order_by)
        if scan.skip > max_skipped and dimension is not None and _is_in_cells(query):
            scan = await _find_jump(db, cells, dimension, start, length)
        found = await _select_rows(db, query.order_by, where, scan, length)
    return Page(found[::-1] if scan.backwards != is_descending else found, total, query.page, query.per_page)


async def count(db: Connection, account_id: int, query: IncidentQuery, *, now: datetime) -> int:
    """Return the exact number of incidents that meet the query's filters."""
    cells = CellFilter(account_id, list_matching_facets(query))
    async with snapshot(db):
        where = build_where(account_id, query, cells.facets, now)
        return await _count_matches(db, cells, query, where, now)


def _skip(scan: _Scan) -> int:
    return scan.skip


def _has_scores(query: IncidentQuery) -> bool:
    return bool(query.lowest_score) or query.score_below is not None


def _has_dates(query: IncidentQuery) -> bool:
    return query.seen_from is not None or query.seen_before is not None


def _has_others(query: IncidentQuery) -> bool:
    """Whether the query has a filter that no rollup counts."""
    return bool(query.terms) or query.service is not None


def _has_attributes(query: IncidentQuery) -> bool:
    return query.secret_type is not None or query.assignee is not None


def _is_in_cells(query: IncidentQuery) -> bool:
    """Whether the query filters by facets at most, so that all incidents of the cells are its matches."""
    return query.overdue is None and _is_in_facets(query)


def _is_in_facets(query: IncidentQuery) -> bool:
    """Whether the query has no filter but those of facets, and `overdue`."""
    return not (_has_others(query) or _has_attributes(query) or _has_scores(query) or _has_dates(query))


async def _count_by_due_date(
    db: Connection, cells: CellFilter, query: IncidentQuery, where: WhereClause, now: datetime
) -> int:
    """Return the number of matches of a query with `overdue`.

    The rollups count the open incidents by day of the due date, whatever their verdict.
    """
    if query.validation is not None or query.closed_valid is not None or not _is_in_facets(query):
        return await _count_rows(db, where)
    overdue = 0
    if query.status is not IncidentStatus.CLOSED:
        due = await numbers.count_due(db, cells.account_id, now=now, soon=0)
        overdue = sum(count.overdue for count in due.values())
    return overdue if query.overdue else await rollups.count_kind(db, cells, _TOTAL) - overdue


async def _count_matches(
    db: Connection, cells: CellFilter, query: IncidentQuery, where: WhereClause, now: datetime
) -> int:
    """Return the number of matches: from the rollups if they count these filters, otherwise by an index."""
    if query.overdue is not None:
        return await _count_by_due_date(db, cells, query, where, now)
    chosen = [
        (attribute, value)
        for attribute, value in ((TYPE, query.secret_type), (ASSIGNEE, query.assignee))
        if value is not None
    ]
    ranges = _has_scores(query) + _has_dates(query)
    if _has_others(query) or ranges + len(chosen) > 1:
        return await _count_rows(db, where)
    if chosen:
        attribute, value = chosen[0]
        return await rollups.count_attribute(db, cells.account_id, cells.facets, attribute, value)
    in_cells = await rollups.count_kind(db, cells, _TOTAL)
    if not ranges:
        return in_cells
    if _has_scores(query):
        return await _count_range(
            db, cells, _SCORE, query.lowest_score or None, query.score_below, in_cells=in_cells
        )
    return await _count_range(db, cells, _FIRST_SEEN, query.seen_from, query.seen_before, in_cells=in_cells)


async def _count_range(
    db: Connection, cells: CellFilter, dimension: Dimension, low: Any, high: Any, *, in_cells: int
) -> int:
    """Count the incidents from `low` to below `high`; `in_cells` is their number without bounds."""
    below = 0 if low is None else await _count_below(db, cells, dimension, low)
    until = in_cells if high is None else await _count_below(db, cells, dimension, high)
    return max(0, until - below)


async def _count_below(db: Connection, cells: CellFilter, dimension: Dimension, bound: Any) -> int:
    """Count the incidents below a bound: full buckets by the rollups, the bound's own bucket by an index."""
    bucket = rollups.bucket_of(bound, dimension)
    start = rollups.bucket_start(dimension, bucket)
    number = await rollups.count_below(db, cells, dimension, bucket)
    if start == bound:
        return number
    where = WhereClause(cells.account_id)
    if cells.facets is not None:
        where.add("facet = ANY(%s)", cells.facets)
    where.add(f"{dimension.column} >= %s AND {dimension.column} < %s", start, bound)
    return number + await _count_rows(db, where)


async def _count_rows(db: Connection, where: WhereClause) -> int:
    """Count the incidents that meet the conditions."""
    cursor = await db.execute(
        f"SELECT count(*) FROM incidents WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


async def _find_jump(
    db: Connection, cells: CellFilter, dimension: Dimension, start: int, length: int
) -> _Scan:
    """Return the shorter scan: forwards from the first row's bucket, or backwards from the last row's."""
    first, last = await rollups.find_buckets(db, cells, dimension, [start, start + length - 1])
    column, end = dimension.column, rollups.bucket_end(dimension, last.bucket)
    low = rollups.bucket_start(dimension, first.bucket)
    forwards = _Scan(start - first.before, backwards=False, condition=f"{column} >= %s", bound=(low,))
    skip = last.before + last.count - start - length
    backwards = (
        _Scan(skip, backwards=True)
        if end is None
        else _Scan(skip, backwards=True, condition=f"{column} < %s", bound=(end,))
    )
    return min(forwards, backwards, key=_skip)


async def _select_gathered(db: Connection, query: IncidentQuery, where: WhereClause) -> Page[Incident]:
    """Return the page and the total of a query whose matches are all found, counted and sorted."""
    column, direction = query.order_by.value, query.order_dir.value
    total, ids = await select_gathered_ids(db, "incidents", where, query)
    cursor = await db.execute(
        f"""SELECT {COLUMNS}, i.assignee FROM incidents i WHERE account_id = %s AND id = ANY(%s)
            ORDER BY {column} {direction}, id {direction}""".encode(),
        [where.values[0], ids],
    )
    found = [build_incident(row) for row in await cursor.fetchall()]
    return Page(found, total, query.page, query.per_page)


async def _select_rows(
    db: Connection, order: IncidentOrder, where: WhereClause, scan: _Scan, length: int
) -> list[Incident]:
    """Return the incidents that the scan reaches, in its direction."""
    column, direction = order.value, "DESC" if scan.backwards else "ASC"
    cursor = await db.execute(
        f"""SELECT {COLUMNS}, i.assignee FROM incidents i
            WHERE account_id = %s AND id = ANY(ARRAY(
                SELECT id FROM incidents WHERE {where.sql} AND {scan.condition}
                ORDER BY {column} {direction}, id {direction} OFFSET %s LIMIT %s))
            ORDER BY {column} {direction}, id {direction}""".encode(),
        [where.values[0], *where.values, *scan.bound, scan.skip, length],
        prepare=False,
    )
    return [build_incident(row) for row in await cursor.fetchall()]
