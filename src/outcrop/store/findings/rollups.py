"""Keep and read counts of findings by cell, for exact totals and for a fast start near a deep page.

A cell is an account, a kind (what is counted, such as scores), a service or a value of another attribute, a
bucket (such as one score) and a facet. Triggers of the migrations append changes to `rollup_deltas`;
`fold_deltas` adds them to `rollups`. Readers sum both tables, through the view `rollup_cells`, in one
snapshot.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from psycopg import sql

from outcrop.store.db import Connection, fetch_single_row
from outcrop.store.findings.attributes import Attribute
from outcrop.store.locks import AdvisoryLock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Kinds of cells; the dimensions below name the kinds 1 to 6, 17 and 18, and `attributes.py` 11 to 16, 19, 20
# and 30. The kinds 21 to 29 and 40 to 44 count incidents (store/incidents).
_TOTAL, _SERVICE_SCORE, _SERVICE_FACET, _DAY_SCORE, _MONTH_SCORE, _TYPE = 0, 7, 8, 9, 10, 11
_UPDATED = 17
_ALL_FACETS = -1  # the facet of cells that count every facet
_MONTH_SHIFT = 5  # a "month" is a coarse bucket of 2**5 days
_SCORES = 128  # a bucket of kinds 9 and 10 is day * 128 + score
_MAX_DAY = 2**23  # later than the day of any date

Histogram = list[tuple[int, int]]  # (bucket, number of findings), sorted, without empty buckets


@dataclass(frozen=True, slots=True)
class Dimension:
    """A sort key that is counted in fine buckets, and in coarse buckets of 2**shift fine ones."""

    column: str
    fine: int  # kind of the cells of fine buckets
    coarse: int
    shift: int
    seconds: int = 86_400  # in a fine bucket of times


SCORE = Dimension("composite_score", 1, 2, 3)
FIRST_SEEN = Dimension("first_seen_at", 3, 4, 5)
LAST_SEEN = Dimension("last_seen_at", 5, 6, 5)
UPDATED = Dimension("updated_at", _UPDATED, 18, 10, seconds=60)
SERVICE_SCORE = Dimension("composite_score", _SERVICE_SCORE, _SERVICE_SCORE, 0)


def bucket_of(value: float | datetime, dimension: Dimension = FIRST_SEEN) -> int:
    """Return the fine bucket of a value: a score rounded down, or the number of UTC days since 1970.

    Of `updated_at`, minutes are counted.
    """
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(seconds=dimension.seconds)
    return int(value // 1)


def bucket_start(dimension: Dimension, bucket: int) -> float | datetime:
    """Return the lowest value in a fine bucket."""
    if dimension.column == "composite_score":
        return float(bucket)
    return _EPOCH + timedelta(seconds=bucket * dimension.seconds)


def bucket_end(dimension: Dimension, bucket: int) -> float | datetime | None:
    """Return the lowest value above a fine bucket; None if it holds the last day that a datetime can have."""
    try:
        return bucket_start(dimension, bucket + 1)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class CellFilter:
    """A choice of cells: an account's, of one service or of none (""), of some facets or of all (None)."""

    account_id: int
    facets: list[int] | None = None
    service: str = ""

    def where(self, kind: int) -> tuple[str, list[Any]]:
        """Return the SQL condition for these cells of one kind, and its values."""
        sql = "account_id = %s AND kind = %s AND service = %s AND facet "
        values = [self.account_id, kind, self.service]
        return (
            (sql + "= %s", [*values, _ALL_FACETS])
            if self.facets is None
            else (sql + "= ANY(%s)", [*values, self.facets])
        )


async def count_totals(db: Connection, cells: CellFilter) -> tuple[int, int]:
    """Return the number of all findings of the account, and of those in the cells."""
    chosen, values = cells.where(_SERVICE_FACET if cells.service else _TOTAL)
    every, every_values = CellFilter(cells.account_id).where(_TOTAL)
    cursor = await db.execute(
        f"""SELECT (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {every}),
                   (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {chosen})""".encode(),
        [*every_values, *values],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0]), int(row[1])


async def count_kind(db: Connection, cells: CellFilter, kind: int) -> int:
    """Return the sum of the cells of one kind."""
    where, values = cells.where(kind)
    cursor = await db.execute(
        f"SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {where}".encode(), values
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


async def count_attribute(
    db: Connection, account_id: int, facets: list[int] | None, attribute: Attribute, value: Any
) -> int:
    """Count the findings of the account with these facets (None: any) and this value of an attribute."""
    condition, values = ("facet >= 0", []) if facets is None else ("facet = ANY(%s)", [facets])
    cursor = await db.execute(
        f"""SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells
            WHERE account_id = %s AND kind = %s AND service = {attribute.value} AND {condition}""".encode(),
        [account_id, attribute.kind, value, *values],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


async def select_values(
    db: Connection, account_id: int, attribute: Attribute, *, limit: int | None
) -> list[str]:
    """Return the values of an attribute that findings of the account have, the most frequent first."""
    cursor = await db.execute(
        """SELECT service FROM rollup_cells WHERE account_id = %s AND kind = %s
           GROUP BY service HAVING sum(n) > 0 ORDER BY sum(n) DESC, service LIMIT %s""",
        [account_id, attribute.kind, limit],
    )
    return [value for (value,) in await cursor.fetchall()]


async def count_below(db: Connection, cells: CellFilter, dimension: Dimension, bucket: int) -> int:
    """Count the findings in the fine buckets below `bucket`.

    Coarse buckets are summed as far as they lie below it, then the remaining fine ones.
    """
    coarse, coarse_values = cells.where(dimension.coarse)
    fine, fine_values = cells.where(dimension.fine)
    coarse_bucket = bucket >> dimension.shift
    cursor = await db.execute(
        f"""SELECT (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {coarse} AND bucket < %s)
                 + (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells
                    WHERE {fine} AND bucket >= %s AND bucket < %s)""".encode(),
        [*coarse_values, coarse_bucket, *fine_values, coarse_bucket << dimension.shift, bucket],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


@dataclass(frozen=True, slots=True)
class BucketPosition:
    """A bucket, the number of findings in lower buckets, and the number of findings in it."""

    bucket: int
    before: int
    count: int


async def find_buckets(
    db: Connection, cells: CellFilter, dimension: Dimension, positions: Sequence[int]
) -> list[BucketPosition]:
    """Return the fine bucket of each position (from 0) in the ascending list of the cells' findings."""
    coarse = await _select_histogram(db, cells, dimension.coarse, [])
    found = [_find_in_histogram(coarse, 0, position) for position in positions]
    if dimension.shift == 0:
        return found
    fine_of_coarse = {}
    for bucket in {position.bucket for position in found}:
        low = bucket << dimension.shift
        fine_of_coarse[bucket] = await _select_histogram(
            db, cells, dimension.fine, [low, low + (1 << dimension.shift)]
        )
    return [
        _find_in_histogram(fine_of_coarse[coarse_position.bucket], coarse_position.before, position)
        for coarse_position, position in zip(found, positions, strict=True)
    ]


async def find_score_buckets(
    db: Connection, account_id: int, low: datetime | None, high: datetime | None, positions: Sequence[int]
) -> list[BucketPosition] | None:
    """Return the score bucket of each position among the findings first seen from `low` to before `high`.

    Positions count from 0 in ascending order of the score. None if the range contains no full day: full
    days and months are summed from the rollups, the parts of days at both ends are counted by the index.
    """
    from_day = -_MAX_DAY if low is None else -((_EPOCH - low) // timedelta(days=1))  # the first full day
    to_day = _MAX_DAY if high is None else bucket_of(high)  # the day after the last full day
    if from_day > to_day:
        return None
    parts, values = [], list[Any]()
    for kind, start, end in _split_into_months(from_day, to_day):
        where, cell_values = CellFilter(account_id).where(kind)
        parts.append(
            f"""SELECT bucket & {_SCORES - 1} AS score, n FROM rollup_cells
                WHERE {where} AND bucket >= %s AND bucket < %s"""
        )
        values += [*cell_values, start * _SCORES, end * _SCORES]
    for since, until in _partial_days(low, high, from_day, to_day):
        parts.append(
            """SELECT floor(composite_score)::int, 1 FROM findings
               WHERE account_id = %s AND first_seen_at >= %s AND first_seen_at < %s"""
        )
        values += [account_id, since, until]
    cursor = await db.execute(
        f"""SELECT score, sum(n)::bigint FROM ({" UNION ALL ".join(parts)}) AS cells
            GROUP BY score HAVING sum(n) > 0 ORDER BY score""".encode(),
        values,
        prepare=False,
    )
    histogram = [(int(score), int(n)) for score, n in await cursor.fetchall()]
    return [_find_in_histogram(histogram, 0, position) for position in positions]


def _split_into_months(from_day: int, to_day: int) -> list[tuple[int, int, int]]:
    """Split a range of days into (kind, start, end): full months, and the days before and after them."""
    from_month, to_month = -(-from_day >> _MONTH_SHIFT), to_day >> _MONTH_SHIFT
    if from_month > to_month:
        return [(_DAY_SCORE, from_day, to_day)]
    return [
        (_MONTH_SCORE, from_month, to_month),
        (_DAY_SCORE, from_day, from_month << _MONTH_SHIFT),
        (_DAY_SCORE, to_month << _MONTH_SHIFT, to_day),
    ]


def _partial_days(
    low: datetime | None, high: datetime | None, from_day: int, to_day: int
) -> list[tuple[datetime, datetime]]:
    """Return the parts of the range before its first full day and after its last one."""
    parts = []
    if low is not None and (first := _EPOCH + timedelta(days=from_day)) != low:
        parts.append((low, first))
    if high is not None and (last := _EPOCH + timedelta(days=to_day)) != high:
        parts.append((last, high))
    return parts


async def count_by_facet(db: Connection, account_id: int) -> Histogram:
    """Return (facet, number of findings) of the account, without empty facets."""
    cursor = await db.execute(
        """SELECT facet, sum(n)::bigint FROM rollup_cells
           WHERE account_id = %s AND kind = %s AND service = '' AND facet >= 0
           GROUP BY facet HAVING sum(n) > 0""",
        [account_id, _TOTAL],
    )
    return [(int(facet), int(n)) for facet, n in await cursor.fetchall()]


async def count_by_type(db: Connection, account_id: int, facets: list[int]) -> list[tuple[str, int]]:
    """Return (credential type, number of findings with these facets), highest number first."""
    cursor = await db.execute(
        """SELECT service, sum(n)::bigint AS n FROM rollup_cells
           WHERE account_id = %s AND kind = %s AND facet = ANY(%s)
           GROUP BY service HAVING sum(n) > 0 ORDER BY n DESC, service""",
        [account_id, _TYPE, facets],
    )
    return [(service, int(n)) for service, n in await cursor.fetchall()]


async def count_by_bucket(
    db: Connection, cells: CellFilter, dimension: Dimension, buckets: range
) -> dict[int, int]:
    """Return the number of findings in each of these fine buckets; empty ones are left out."""
    return dict(await _select_histogram(db, cells, dimension.fine, [buckets.start, buckets.stop]))


async def _select_histogram(db: Connection, cells: CellFilter, kind: int, bounds: list[int]) -> Histogram:
    """Return the histogram of one kind of cells; `bounds` is [first bucket, end bucket] or [] for all."""
    where, values = cells.where(kind)
    within = "AND bucket >= %s AND bucket < %s" if bounds else ""
    cursor = await db.execute(
        f"""SELECT bucket, sum(n)::bigint FROM rollup_cells WHERE {where} {within}
            GROUP BY bucket HAVING sum(n) > 0 ORDER BY bucket""".encode(),
        [*values, *bounds],
    )
    return [(int(bucket), int(n)) for bucket, n in await cursor.fetchall()]


def _find_in_histogram(histogram: Histogram, before: int, position: int) -> BucketPosition:
    """Return the bucket that contains a position, if `before` positions lie before the histogram."""
    ends = list(accumulate((n for _, n in histogram), initial=before))
    i = bisect_right(ends, position) - 1
    bucket, count = histogram[i]
    return BucketPosition(bucket, ends[i], count)


@asynccontextmanager
async def collect_deltas(db: Connection) -> AsyncIterator[None]:
    """Collect the changes of counts of the block, which is in a transaction, and add them at its end.

    A temporary table `rollup_deltas` hides the real one, because it comes first in the session's search path.
    It has no index, and changes of many statements become one row of the rollups.
    """
    (schema,) = await fetch_single_row(
        db, "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'rollup_deltas'::regclass"
    )
    await db.execute("CREATE TEMP TABLE rollup_deltas (LIKE rollup_deltas) ON COMMIT DROP")
    await db.execute("DISCARD PLANS")  # cached plans of triggers know the real table
    yield
    if not await fold_deltas(db):  # nothing changed, or another process folds
        await db.execute(
            sql.SQL("""INSERT INTO {}.rollup_deltas
                       SELECT account_id, kind, service, bucket, facet, sum(n) FROM pg_temp.rollup_deltas
                       GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0""").format(sql.Identifier(str(schema)))
        )


async def fold_deltas(db: Connection) -> int:
    """Add all visible changes of counts to the rollups and delete them; return their number.

    Only one process folds at a time. Another one returns 0 at once. Minutes in which no finding was updated
    last are deleted: otherwise their number would grow with every change.
    """
    async with db.transaction():
        cursor = await db.execute("SELECT pg_try_advisory_xact_lock(%s)", [AdvisoryLock.FOLD_ROLLUPS])
        row = await cursor.fetchone()
        if row is None or not row[0]:
            return 0
        cursor = await db.execute(
            """
            WITH moved AS (DELETE FROM rollup_deltas RETURNING account_id, kind, service, bucket, facet, n),
                 folded AS (
                    INSERT INTO rollups
                    SELECT account_id, kind, service, bucket, facet, sum(n) FROM moved
                    GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0
                    ORDER BY account_id, kind, service, facet, bucket  -- as the primary key: that is quicker
                    ON CONFLICT (account_id, kind, service, bucket, facet)
                    DO UPDATE SET n = rollups.n + excluded.n
                    RETURNING account_id, kind, bucket, facet, n)
            SELECT (SELECT count(*) FROM moved), array_agg(account_id), array_agg(facet), array_agg(bucket)
            FROM folded WHERE kind = %s AND n = 0""",
            [_UPDATED],
        )
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101
        moved, *empty = row
        if empty[0]:
            await db.execute(
                """DELETE FROM rollups r USING unnest(%s::int[], %s::smallint[], %s::int[])
                       AS empty (account_id, facet, bucket)
                   WHERE r.account_id = empty.account_id AND r.kind = %s AND r.service = ''
                     AND r.facet = empty.facet AND r.bucket = empty.bucket""",
                [*empty, _UPDATED],
            )
    return int(moved)


async def find_mismatches(db: Connection) -> list[tuple[int, int, str, int, int, int, int]]:
    """Recount every cell from findings and incidents, and return at most 100 whose stored count differs.

    Each is (account id, kind, service, bucket, facet, counted, stored).
    """
    cursor = await db.execute("""
        WITH truth AS (
            SELECT f.account_id, c.kind, ''::text AS service, c.bucket, c.facet, count(*) AS n
            FROM findings f, finding_cells(f.facet, f.composite_score, f.first_seen_at, f.last_seen_at) c
            GROUP BY 1, 2, 4, 5
            UNION ALL
            SELECT f.account_id, c.kind, s.service, c.bucket, c.facet, count(*)
            FROM findings f,
                 LATERAL (SELECT DISTINCT jsonb_array_elements_text(
                              f.validation_detail -> 'enabled_services') AS service) s,
                 service_cells(f.facet, f.composite_score) c
            GROUP BY 1, 2, 3, 4, 5
            UNION ALL
            SELECT f.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
            FROM findings f, LATERAL (
                SELECT 11::smallint, f.pattern_secret_type, 0, f.facet
                UNION ALL
                SELECT 30, f.source, 0, f.facet WHERE f.source IS NOT NULL
                UNION ALL
                SELECT * FROM attribute_cells(
                    f.facet, f.source_visibility, f.rule, f.repo_full_name, f.author, f.new_scan_id,
                    f.updated_at, f.context, f.assignee)
                ) c (kind, service, bucket, facet)
            GROUP BY 1, 2, 3, 4, 5
            UNION ALL
            SELECT i.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
            FROM incidents i,
                 incident_cells(i.facet, i.composite_score, i.first_seen_at, i.last_seen_at,
                                i.pattern_secret_type, i.assignee) c
            GROUP BY 1, 2, 3, 4, 5
            UNION ALL
            SELECT i.account_id, c.kind, c.service, c.bucket, c.facet, count(*)
            FROM incidents i,
                 number_cells(i.composite_score, i.first_seen_at, i.closed_at, i.due_at,
                              i.pattern_secret_type) c
            GROUP BY 1, 2, 3, 4, 5),
        recorded AS (
            SELECT account_id, kind, service, bucket, facet, sum(n) AS n FROM rollup_cells
            GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0)
        SELECT account_id, kind, service, bucket, facet, coalesce(t.n, 0)::bigint, coalesce(r.n, 0)::bigint
        FROM truth t FULL JOIN recorded r USING (account_id, kind, service, bucket, facet)
        WHERE t.n IS DISTINCT FROM r.n ORDER BY 1, 2, 3, 4, 5 LIMIT 100""")
    return [(a, k, s, b, f, n, m) for a, k, s, b, f, n, m in await cursor.fetchall()]
