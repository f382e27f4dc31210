"""One page of findings and the exact total, both of the same moment, at any size of account (docs/adr/0002-lists-at-scale.md).

Totals come from the rollups where they can, and the rollups also tell which index to walk, from which end, and where to start.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outcrop.domain.finding import Finding
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir, Page
from outcrop.store.db import Connection, snapshot
from outcrop.store.findings import rollups, rows
from outcrop.store.findings.facets import list_matching_facets
from outcrop.store.findings.rollups import CellFilter, Dimension

_DIMENSION = {
    OrderBy.COMPOSITE_SCORE: rollups.SCORE,
    OrderBy.FIRST_SEEN_AT: rollups.FIRST_SEEN,
    OrderBy.LAST_SEEN_AT: rollups.LAST_SEEN,
}
_CHEAP = 2_000  # index entries that are walked sooner than three more statements are made


async def select_page(db: Connection, account_id: int, query: FindingQuery) -> Page[Finding]:
    async with snapshot(db):
        if query.terms:
            total, ids = await _search(db, account_id, query)
            found = await _rows(db, "SELECT unnest(%s::uuid[])", [ids], account_id) if ids else []
        else:
            total, ids_sql, values = await _choose(db, account_id, query)
            found = await _rows(db, ids_sql, values, account_id) if ids_sql else []
    column, descending = query.order_by.value, query.order_dir is OrderDir.DESC
    found.sort(key=lambda f: (getattr(f, column), f.id.int), reverse=descending)
    return Page(found, total, query.page, query.per_page)


async def _rows(db: Connection, ids_sql: str, values: list[Any], account_id: int) -> list[Finding]:
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = ANY(ARRAY({ids_sql}))".encode(),
        [account_id, *values],
        prepare=False,
    )
    return [rows.build_finding(row) for row in await cursor.fetchall()]


class _Where:
    """Conditions joined by AND, with their values in order."""

    def __init__(self, account_id: int) -> None:
        self.sql = "account_id = %s"
        self.values: list[Any] = [account_id]

    def add(self, condition: str, *values: Any) -> None:
        self.sql += f" AND {condition}"
        self.values += values


def filters(account_id: int, query: FindingQuery, facets: list[int] | None) -> _Where:
    """Every filter that the findings, the search and the service table all have columns for."""
    where = _Where(account_id)
    if facets is not None:
        where.add("facet = ANY(%s)", facets)
    if query.min_score:
        where.add("composite_score >= %s", query.min_score)
    if query.seen_from is not None:
        where.add("first_seen_at >= %s", query.seen_from)
    if query.seen_before is not None:
        where.add("first_seen_at < %s", query.seen_before)
    return where


def matches(query: FindingQuery) -> Iterator[tuple[str, str]]:
    """Give the other filters as conditions on one finding `f`, each with its value: for who has few findings at hand already."""
    same = "s.account_id = f.account_id AND s.id = f.id"
    for term in query.terms:
        yield (
            f"EXISTS (SELECT FROM finding_search s WHERE {same} AND s.text LIKE %s)",
            f"%{_plain(term.casefold())}%",
        )
    if query.service is not None:
        yield f"EXISTS (SELECT FROM finding_services s WHERE {same} AND s.service = %s)", query.service


# --- q


async def _search(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, list[Any]]:
    where = filters(account_id, query, list_matching_facets(query))
    for term in query.terms:
        where.add("text LIKE %s", f"%{_plain(term.casefold())}%")
    if query.service is not None:
        where.add(
            "id IN (SELECT id FROM finding_services WHERE account_id = %s AND service = %s)",
            account_id,
            query.service,
        )
    column, direction = query.order_by.value, query.order_dir.value
    source = "finding_search"
    if (
        query.order_by is OrderBy.LAST_SEEN_AT
    ):  # the one key that the search table leaves out: every rescan changes it
        source = "(SELECT s.*, f.last_seen_at FROM finding_search s JOIN findings f USING (account_id, id)) s"
    cursor = await db.execute(
        f"""WITH hits AS MATERIALIZED (SELECT id, {column} FROM {source} WHERE {where.sql})
            SELECT (SELECT count(*) FROM hits),
                   ARRAY(SELECT id FROM hits ORDER BY {column} {direction}, id {direction} OFFSET %s LIMIT %s)""".encode(),
        [*where.values, _within_bigint(query.offset), query.per_page],
        prepare=False,
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return row[0], row[1]


def _plain(term: str) -> str:
    return term.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _within_bigint(offset: int) -> int:
    return min(offset, 2**63 - 1)


# --- everything else


@dataclass(frozen=True, slots=True)
class _Walk:
    """A stretch of an index, from which end it is walked, and how many matching entries are passed over."""

    skip: int
    backwards: bool
    low: Any = None
    high: Any = None


async def _choose(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, str, list[Any]]:
    """Give the total, and the SQL that selects the ids of the page (empty where the page lies past the end)."""
    facets = list_matching_facets(query)
    cells = CellFilter(account_id, facets, query.service or "")
    everything, of_facets = await rollups.count_totals(db, cells)
    dated = query.seen_from is not None or query.seen_before is not None
    scored = bool(query.min_score)

    below = 0
    if not dated and not scored:
        total = of_facets
    elif query.service is None and not (dated and scored):
        below, total = await _range(db, cells, query, of_facets)
    else:
        total = await _count(db, account_id, query, facets)
        below = (
            0 if dated else of_facets - total
        )  # a score has no upper bound: what is not in the range lies below it

    if query.offset >= total:
        return total, "", []
    length = min(query.per_page, total - query.offset)
    start = total - query.offset - length if query.order_dir is OrderDir.DESC else query.offset

    dimension = _DIMENSION[query.order_by]
    other_range = (dated and dimension is not rollups.FIRST_SEEN) or (
        scored and dimension is not rollups.SCORE
    )
    walk = min(
        _Walk(start, backwards=False), _Walk(total - start - length, backwards=True), key=lambda w: w.skip
    )
    same_index = query.service is None or dimension is rollups.SCORE
    walk_cost, gather_cost = _costs(
        query,
        walk.skip + length,
        total,
        of_facets,
        everything,
        same_index=same_index,
        other_range=other_range,
    )

    if (
        min(walk_cost, gather_cost) > _CHEAP
        and same_index
        and not other_range
        and not (query.service is not None and facets is not None)
    ):
        located = rollups.SERVICE_SCORE if query.service is not None else dimension
        first = below + start
        places = await rollups.find_buckets(db, cells, located, [first, first + length - 1])
        walk = _nearer(places, located, first, length, within=(below, below + total))
        return total, *_walk_sql(account_id, query, facets, walk, length)
    if (
        min(walk_cost, gather_cost) > _CHEAP
        and dimension is rollups.SCORE
        and facets is None
        and query.service is None
        and not scored
    ):
        scores = await rollups.find_score_buckets(
            db, account_id, query.seen_from, query.seen_before, [start, start + length - 1]
        )
        if scores is not None:
            return total, *_walk_sql(
                account_id,
                query,
                facets,
                _nearer(scores, dimension, start, length, within=(0, total)),
                length,
            )
    if gather_cost < walk_cost:
        return total, *_gather_sql(account_id, query, facets, start, length)
    return total, *_walk_sql(account_id, query, facets, walk, length)


def _costs(
    query: FindingQuery,
    walked: int,
    total: int,
    of_facets: int,
    everything: int,
    *,
    same_index: bool,
    other_range: bool,
) -> tuple[float, float]:
    """Estimate both ways in index entries: walking in order past what does not match, or taking all that matches and sorting."""
    spread = (
        total * everything / of_facets
    )  # rows in the range, whatever their facet, if the two are independent
    if query.service is not None:
        scope = (
            of_facets if same_index else everything * 12
        )  # a probe into the service table costs a dozen entries
        return walked * scope / total, 2 * of_facets + 100
    return walked * (everything if other_range else spread) / total, 2 * min(of_facets, spread) + 100


async def _range(db: Connection, cells: CellFilter, query: FindingQuery, of_facets: int) -> tuple[int, int]:
    """Count what lies below the one range that is asked for, and in it."""
    dimension = rollups.SCORE if query.min_score else rollups.FIRST_SEEN
    low = query.min_score or query.seen_from
    high = None if query.min_score else query.seen_before
    below = 0 if low is None else await _below(db, cells, dimension, low)
    above_end = of_facets if high is None else await _below(db, cells, dimension, high)
    return below, max(0, above_end - below)


async def _below(db: Connection, cells: CellFilter, dimension: Dimension, bound: Any) -> int:
    """Count what lies below a bound: whole buckets from the rollups, the rest of its own bucket by the index."""
    bucket = rollups.bucket_of(bound)
    whole = await rollups.count_below(db, cells, dimension, bucket)
    start = rollups.bucket_start(dimension, bucket)
    if start == bound:
        return whole
    where = _Where(cells.account_id)
    if cells.facets is not None:
        where.add("facet = ANY(%s)", cells.facets)
    where.add(f"{dimension.column} >= %s AND {dimension.column} < %s", start, bound)
    cursor = await db.execute(
        f"SELECT count(*) FROM findings WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return whole + int(row[0])


async def _count(db: Connection, account_id: int, query: FindingQuery, facets: list[int] | None) -> int:
    where = filters(account_id, query, facets)
    table = "findings"
    if query.service is not None:
        table = "finding_services"
        where.add("service = %s", query.service)
    cursor = await db.execute(
        f"SELECT count(*) FROM {table} WHERE {where.sql}".encode(), where.values, prepare=False
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


def _nearer(
    places: list[rollups.BucketPosition],
    dimension: Dimension,
    start: int,
    length: int,
    *,
    within: tuple[int, int],
) -> _Walk:
    """Begin at the bucket that holds the page's first row, or backwards at the end of the one that holds its last.

    Positions are those of the whole account; `within` are the first and the end of the range asked for, which may cut its outer buckets.
    """
    first, last = places
    forwards = _Walk(
        start - max(first.before, within[0]),
        backwards=False,
        low=rollups.bucket_start(dimension, first.bucket),
    )
    end = min(last.before + last.count, within[1])
    backwards = _Walk(end - start - length, backwards=True, high=rollups.bucket_end(dimension, last.bucket))
    return min(forwards, backwards, key=lambda w: w.skip)


def _walk_sql(
    account_id: int, query: FindingQuery, facets: list[int] | None, walk: _Walk, length: int
) -> tuple[str, list[Any]]:
    column = query.order_by.value
    where = filters(account_id, query, facets)
    table = "findings f"
    if query.service is not None and query.order_by is OrderBy.COMPOSITE_SCORE:
        table = "finding_services f"
        where.add("service = %s", query.service)
    elif query.service is not None:
        where.add(
            "EXISTS (SELECT FROM finding_services s WHERE s.account_id = f.account_id AND s.id = f.id AND s.service = %s OFFSET 0)",
            query.service,
        )
    if walk.low is not None:
        where.add(f"{column} >= %s", walk.low)
    if walk.high is not None:
        where.add(f"{column} < %s", walk.high)
    direction = "DESC" if walk.backwards else "ASC"
    sql = f"SELECT id FROM {table} WHERE {where.sql} ORDER BY {column} {direction}, id {direction} OFFSET %s LIMIT %s"
    return sql, [*where.values, walk.skip, length]


def _gather_sql(
    account_id: int, query: FindingQuery, facets: list[int] | None, start: int, length: int
) -> tuple[str, list[Any]]:
    """Few rows match: take them all from the index that names them, then sort."""
    column = query.order_by.value
    where = filters(account_id, query, facets)
    table = "findings"
    if query.service is not None:
        table = "finding_services"
        where.add("service = %s", query.service)
        if query.order_by is OrderBy.LAST_SEEN_AT:
            table = "(SELECT s.*, f.last_seen_at FROM finding_services s JOIN findings f USING (account_id, id)) s"
    sql = (
        f"WITH hits AS MATERIALIZED (SELECT id, {column} FROM {table} WHERE {where.sql}) "
        f"SELECT id FROM hits ORDER BY {column}, id OFFSET %s LIMIT %s"
    )
    return sql, [*where.values, start, length]
