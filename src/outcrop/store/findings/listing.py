"""Read one page of findings and the exact total from one snapshot, in any size of account.

1. With search terms: one statement finds all matches by the trigram index (`_search`).
2. With a filter that only the table of findings can answer: `filtered` counts and selects.
3. Otherwise: the rollups give the total (`_count_matches`) and so the page's position in the sorted list.
   The id statement with the lowest estimated cost is chosen (`_choose_statement`). It reads an index in sort
   order and skips to the page; or it starts that scan at a bucket that the rollups locate; or it gathers all
   matches and sorts them.
4. The rows of these ids are read (`_select_rows`).

docs/adr/0002-lists-at-scale.md explains why.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir, Page
from outcrop.store.db import Connection, snapshot
from outcrop.store.findings import attributes, filtered, rollups, rows
from outcrop.store.findings.conditions import (
    add_finding_conditions,
    build_where,
    has_finding_conditions,
    like_pattern,
)
from outcrop.store.findings.facets import list_matching_facets
from outcrop.store.findings.rollups import BucketPosition, CellFilter, Dimension
from outcrop.store.where import WhereClause, select_gathered_ids

_DIMENSION = {
    OrderBy.COMPOSITE_SCORE: rollups.SCORE,
    OrderBy.FIRST_SEEN_AT: rollups.FIRST_SEEN,
    OrderBy.LAST_SEEN_AT: rollups.LAST_SEEN,
    OrderBy.UPDATED_AT: rollups.UPDATED,
}
_ONLY_IN_FINDINGS = {OrderBy.LAST_SEEN_AT, OrderBy.UPDATED_AT}  # sort keys that no other table has
MAX_CHEAP_COST = 2_000  # index entries; reading them is faster than the extra statements of a jump
_SERVICE_PROBE_COST = 12  # index entries that cost as much as one lookup in finding_services


@dataclass(frozen=True, slots=True)
class _IdStatement:
    """A statement that selects the ids of the page's findings."""

    sql: str
    values: list[Any]


async def select_page(
    db: Connection,
    account_id: int,
    query: FindingQuery,
    *,
    max_cheap_cost: int = MAX_CHEAP_COST,
    max_gathered: int = filtered.MAX_GATHERED,
) -> Page[Finding]:
    """Return the page of findings that the query asks for, sorted, and the exact total of matches.

    No jump is searched if a plan without one reads at most `max_cheap_cost` index entries. `max_gathered` is
    explained in `filtered`.
    """
    async with snapshot(db):
        total, statement = await _find_page(db, account_id, query, max_cheap_cost, max_gathered)
        found = [] if statement is None else await _select_rows(db, account_id, statement)
    column, descending = query.order_by.value, query.order_dir is OrderDir.DESC
    found.sort(key=lambda f: (getattr(f, column), f.id.int), reverse=descending)
    return Page(found, total, query.page, query.per_page)


async def select_page_ids(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, list[UUID]]:
    """Return the exact total of matches, and the ids of the page's findings in no particular order."""
    async with snapshot(db):
        total, statement = await _find_page(db, account_id, query, MAX_CHEAP_COST, filtered.MAX_GATHERED)
        if statement is None:
            return total, []
        cursor = await db.execute(statement.sql.encode(), statement.values, prepare=False)
        return total, [finding_id for (finding_id,) in await cursor.fetchall()]


async def _find_page(
    db: Connection, account_id: int, query: FindingQuery, max_cheap_cost: int, max_gathered: int
) -> tuple[int, _IdStatement | None]:
    """Return the total, and a statement for the ids of the page; None if the page is past the end."""
    if query.terms:
        total, ids = await _search(db, account_id, query)
        return total, _IdStatement("SELECT unnest(%s::uuid[])", [ids]) if ids else None
    if has_finding_conditions(query) or (query.service is not None and query.severity is not None):
        total, chosen = await filtered.choose_statement(db, account_id, query, max_gathered=max_gathered)
        return total, None if chosen is None else _IdStatement(*chosen)
    return await _choose_statement(db, account_id, query, max_cheap_cost)


async def _select_rows(db: Connection, account_id: int, ids: _IdStatement) -> list[Finding]:
    """Return the account's findings with the ids that the statement selects, in no particular order."""
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = ANY(ARRAY({ids.sql}))".encode(),
        [account_id, *ids.values],
        prepare=False,
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


async def _fetch_count(db: Connection, table: str, where: WhereClause) -> int:
    """Count the rows of a table that meet the conditions."""
    cursor = await db.execute(
        f"SELECT count(*) FROM {table} WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


# --- with search terms


async def _search(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, list[Any]]:
    """Return how many findings contain all search terms and meet the filters, and the ids of the page."""
    where = build_where(account_id, query, list_matching_facets(query))
    for number, term in enumerate(query.terms):
        if types := query.types_of_term(number):
            where.add(
                """id IN (SELECT id FROM finding_search WHERE account_id = %s AND text LIKE %s
                          UNION
                          SELECT id FROM findings WHERE account_id = %s AND pattern_secret_type = ANY(%s))""",
                *(account_id, like_pattern(term), account_id, types),
            )
        else:
            where.add("text LIKE %s", like_pattern(term))
    if query.service is not None:
        where.add(
            "id IN (SELECT id FROM finding_services WHERE account_id = %s AND service = %s)",
            account_id,
            query.service,
        )
    source = "finding_search"
    if query.order_by in _ONLY_IN_FINDINGS or has_finding_conditions(query):
        add_finding_conditions(where, query)
        source = f"""(SELECT s.*, {attributes.COLUMNS}
                      FROM finding_search s JOIN findings f USING (account_id, id)) s"""
    return await select_gathered_ids(db, source, where, query)


# --- without search terms


@dataclass(frozen=True, slots=True)
class _Request:
    """A query with the properties that decide how it can be run."""

    account_id: int
    query: FindingQuery
    facets: list[int] | None  # None: the query does not filter by facet
    cells: CellFilter
    dimension: Dimension  # of the sort key
    has_dates: bool
    has_scores: bool
    has_other_range: bool  # a range filter on another column than the sort key
    has_service_index: bool  # no service filter, or an index with both the service and the sort key


def _describe_query(account_id: int, query: FindingQuery) -> _Request:
    """Derive the properties of a query that decide how it can be run."""
    facets = list_matching_facets(query)
    dimension = _DIMENSION[query.order_by]
    has_dates = query.seen_from is not None or query.seen_before is not None
    has_scores = bool(query.lowest_score) or query.score_below is not None
    return _Request(
        account_id=account_id,
        query=query,
        facets=facets,
        cells=CellFilter(account_id, facets, query.service or ""),
        dimension=dimension,
        has_dates=has_dates,
        has_scores=has_scores,
        has_other_range=(has_dates and dimension is not rollups.FIRST_SEEN)
        or (has_scores and dimension is not rollups.SCORE),
        has_service_index=query.service is None or dimension is rollups.SCORE,
    )


@dataclass(frozen=True, slots=True)
class _MatchCounts:
    """Numbers of findings, all from the same snapshot."""

    in_account: int
    in_cells: int  # with the query's facets and service, in any range of scores and dates
    below: int  # of those, below the range that the query asks for
    total: int  # that match the whole query


@dataclass(frozen=True, slots=True)
class _Slice:
    """The page's part of all matches in ascending order."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class _IndexScan:
    """A scan of the sort key's index: where it starts, its direction, and how many matches it skips.

    `low` (inclusive) and `high` (exclusive) bound the sort key; None means no bound.
    """

    skip: int
    backwards: bool
    low: Any = None
    high: Any = None


@dataclass(frozen=True, slots=True)
class _Costs:
    """Estimated numbers of index entries that the two plans without a jump read."""

    scan: float  # scan in sort order, from the nearer end of the list to the page
    gather: float  # read all matches, then sort them


async def _choose_statement(
    db: Connection, account_id: int, query: FindingQuery, max_cheap_cost: int
) -> tuple[int, _IdStatement | None]:
    """Return the total, and the cheapest statement for the page's ids; None if the page is past the end."""
    request = _describe_query(account_id, query)
    counts = await _count_matches(db, request)
    if query.offset >= counts.total:
        return counts.total, None
    page = _slice_page(query, counts.total)
    scan = _scan_from_nearer_end(page, counts.total)
    costs = _estimate_costs(request, counts, scan.skip + page.length)
    if min(costs.scan, costs.gather) > max_cheap_cost:
        jump = await _find_jump(db, request, counts, page)
        if jump is not None:
            return counts.total, _scan_statement(request, jump, page.length)
    if costs.gather < costs.scan:
        return counts.total, _gather_statement(request, page)
    return counts.total, _scan_statement(request, scan, page.length)


async def _count_matches(db: Connection, request: _Request) -> _MatchCounts:
    """Count the matches: from the rollups if they cover the query's filters, otherwise by an index."""
    in_account, in_cells = await rollups.count_totals(db, request.cells)
    below, total = 0, in_cells
    if request.has_dates or request.has_scores:
        if request.query.service is None and not (request.has_dates and request.has_scores):
            below, total = await _count_range(db, request, in_cells)
        else:
            total = await _count_by_index(db, request)
            # With a service a score has no upper bound: all findings outside the range are below it.
            below = 0 if request.has_dates else in_cells - total
    return _MatchCounts(in_account, in_cells, below, total)


async def _count_range(db: Connection, request: _Request, in_cells: int) -> tuple[int, int]:
    """Return how many findings are below the query's one range (of scores or dates), and how many in it."""
    query = request.query
    dimension: Dimension
    low: float | datetime | None
    high: float | datetime | None
    if request.has_scores:
        dimension, low, high = rollups.SCORE, query.lowest_score or None, query.score_below
    else:
        dimension, low, high = rollups.FIRST_SEEN, query.seen_from, query.seen_before
    below_low = 0 if low is None else await _count_below(db, request.cells, dimension, low)
    below_high = in_cells if high is None else await _count_below(db, request.cells, dimension, high)
    return below_low, max(0, below_high - below_low)


async def _count_below(db: Connection, cells: CellFilter, dimension: Dimension, bound: Any) -> int:
    """Count the findings below a bound: full buckets by the rollups, the bound's own bucket by an index."""
    bucket = rollups.bucket_of(bound, dimension)
    in_full_buckets = await rollups.count_below(db, cells, dimension, bucket)
    start = rollups.bucket_start(dimension, bucket)
    if start == bound:
        return in_full_buckets
    where = WhereClause(cells.account_id)
    if cells.facets is not None:
        where.add("facet = ANY(%s)", cells.facets)
    where.add(f"{dimension.column} >= %s AND {dimension.column} < %s", start, bound)
    return in_full_buckets + await _fetch_count(db, "findings", where)


async def _count_by_index(db: Connection, request: _Request) -> int:
    """Count the matches by a statement over the findings or the service table."""
    where = build_where(request.account_id, request.query, request.facets)
    if request.query.service is None:
        return await _fetch_count(db, "findings", where)
    where.add("service = %s", request.query.service)
    return await _fetch_count(db, "finding_services", where)


def _slice_page(query: FindingQuery, total: int) -> _Slice:
    """Return the page's part of the ascending list of `total` matches. The page must not be past the end."""
    length = min(query.per_page, total - query.offset)
    is_descending = query.order_dir is OrderDir.DESC
    return _Slice(total - query.offset - length if is_descending else query.offset, length)


def _scan_from_nearer_end(page: _Slice, total: int) -> _IndexScan:
    """Return the scan over all matches that starts at the end of the list that is nearer to the page."""
    forwards = _IndexScan(page.start, backwards=False)
    backwards = _IndexScan(total - page.start - page.length, backwards=True)
    return min(forwards, backwards, key=lambda scan: scan.skip)


def _estimate_costs(request: _Request, counts: _MatchCounts, matches_read: int) -> _Costs:
    """Estimate both plans without a jump. `matches_read` is the number of matches that the scan passes.

    A scan also reads the entries between matches. Gathering reads the matches only; each counts twice,
    because they are sorted.
    """
    # Findings in the query's range, with any facet, if range and facets are independent.
    in_range = counts.total * counts.in_account / counts.in_cells
    if request.query.service is not None:
        scanned: float = (
            counts.in_cells if request.has_service_index else counts.in_account * _SERVICE_PROBE_COST
        )
        gathered: float = counts.in_cells
    else:
        scanned = counts.in_account if request.has_other_range else in_range
        gathered = min(counts.in_cells, in_range)
    return _Costs(scan=matches_read * scanned / counts.total, gather=2 * gathered + 100)


async def _find_jump(
    db: Connection, request: _Request, counts: _MatchCounts, page: _Slice
) -> _IndexScan | None:
    """Return a scan that starts at a bucket near the page; None if no rollup covers the query."""
    has_service = request.query.service is not None
    has_facets = request.facets is not None
    if request.has_service_index and not request.has_other_range and not (has_service and has_facets):
        dimension = rollups.SERVICE_SCORE if has_service else request.dimension
        first = counts.below + page.start
        positions = await rollups.find_buckets(db, request.cells, dimension, [first, first + page.length - 1])
        in_cells = _Slice(first, page.length)
        return _scan_from_bucket(positions, dimension, in_cells, (counts.below, counts.below + counts.total))
    if request.dimension is rollups.SCORE and not has_facets and not has_service and not request.has_scores:
        query = request.query
        found = await rollups.find_score_buckets(
            db,
            request.account_id,
            query.seen_from,
            query.seen_before,
            [page.start, page.start + page.length - 1],
        )
        if found is not None:
            return _scan_from_bucket(found, request.dimension, page, (0, counts.total))
    return None


def _scan_from_bucket(
    buckets: list[BucketPosition], dimension: Dimension, page: _Slice, matches: tuple[int, int]
) -> _IndexScan:
    """Return the shorter scan: forwards from the first row's bucket, or backwards from the last row's.

    `buckets` are those of the page's first and last row. All positions are counted as the buckets count
    them; `matches` are the first position of the query's range and the one after its last. The range may
    begin or end inside a bucket.
    """
    first, last = buckets
    forwards = _IndexScan(
        page.start - max(first.before, matches[0]),
        backwards=False,
        low=rollups.bucket_start(dimension, first.bucket),
    )
    end = min(last.before + last.count, matches[1])
    backwards = _IndexScan(
        end - page.start - page.length, backwards=True, high=rollups.bucket_end(dimension, last.bucket)
    )
    return min(forwards, backwards, key=lambda scan: scan.skip)


def _scan_statement(request: _Request, scan: _IndexScan, length: int) -> _IdStatement:
    """Return the statement that reads the sort key's index in order, skips `scan.skip` matches and stops."""
    query = request.query
    column = query.order_by.value
    where = build_where(request.account_id, query, request.facets)
    table = "findings f"
    if query.service is not None and query.order_by is OrderBy.COMPOSITE_SCORE:
        table = "finding_services f"
        where.add("service = %s", query.service)
    elif query.service is not None:
        # OFFSET 0 keeps the planner from turning the lookup into a semi-join, which would need a sort.
        where.add(
            "EXISTS (SELECT FROM finding_services s"
            " WHERE s.account_id = f.account_id AND s.id = f.id AND s.service = %s OFFSET 0)",
            query.service,
        )
    if scan.low is not None:
        where.add(f"{column} >= %s", scan.low)
    if scan.high is not None:
        where.add(f"{column} < %s", scan.high)
    direction = "DESC" if scan.backwards else "ASC"
    sql = (
        f"SELECT id FROM {table} WHERE {where.sql}"
        f" ORDER BY {column} {direction}, id {direction} OFFSET %s LIMIT %s"
    )
    return _IdStatement(sql, [*where.values, scan.skip, length])


def _gather_statement(request: _Request, page: _Slice) -> _IdStatement:
    """Return the statement that reads all matches by the index of their filters, and sorts them."""
    query = request.query
    column = query.order_by.value
    where = build_where(request.account_id, query, request.facets)
    table = "findings"
    if query.service is not None:
        table = "finding_services"
        where.add("service = %s", query.service)
        if query.order_by in _ONLY_IN_FINDINGS:
            table = (
                f"(SELECT s.*, f.{column} FROM finding_services s JOIN findings f USING (account_id, id)) s"
            )
    sql = (
        f"WITH hits AS MATERIALIZED (SELECT id, {column} FROM {table} WHERE {where.sql}) "
        f"SELECT id FROM hits ORDER BY {column}, id OFFSET %s LIMIT %s"
    )
    return _IdStatement(sql, [*where.values, page.start, page.length])
