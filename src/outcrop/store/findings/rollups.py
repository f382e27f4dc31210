"""Counts of findings by cell: exact totals and the way to a deep page without walking there.

Writers append deltas (triggers of migrations 0002 and 0009); readers sum rollups and deltas in one snapshot; `fold` moves the ones into
the others.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

from outcrop.store.db import Connection

FOLD_LOCK = 7_264_002
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TOTAL, _SERVICE_SCORE, _SERVICE_FACET, _DAY_SCORE, _MONTH_SCORE, _TYPE = 0, 7, 8, 9, 10, 11
_ALL = -1  # the facet of the cells that count every facet
_MONTH = 5  # a coarse bucket of days is 2**5 of them
_SCORES = 128  # a bucket of days and scores is day * 128 + score
_FAR = 2**23  # days; no date is as far


@dataclass(frozen=True, slots=True)
class Dimension:
    """A sort key counted in buckets, fine ones and coarse ones of 2**shift fine ones."""

    column: str
    fine: int
    coarse: int
    shift: int


SCORE = Dimension("composite_score", 1, 2, 3)
FIRST_SEEN = Dimension("first_seen_at", 3, 4, 5)
LAST_SEEN = Dimension("last_seen_at", 5, 6, 5)
SERVICE_SCORE = Dimension("composite_score", _SERVICE_SCORE, _SERVICE_SCORE, 0)


def bucket_of(value: float | datetime) -> int:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(days=1)
    return int(value // 1)


def bucket_start(dimension: Dimension, bucket: int) -> float | datetime:
    if dimension.column == "composite_score":
        return float(bucket)
    return _EPOCH + timedelta(days=bucket)


def bucket_end(dimension: Dimension, bucket: int) -> float | datetime | None:
    """Give where the next bucket starts; None after the last day there is."""
    try:
        return bucket_start(dimension, bucket + 1)
    except OverflowError:
        return None


@dataclass(frozen=True, slots=True)
class CellFilter:
    """Which cells are meant: an account's, with or without a service, of some facets or of all."""

    account_id: int
    facets: list[int] | None = None
    service: str = ""

    def where(self, kind: int) -> tuple[str, list[Any]]:
        sql = "account_id = %s AND kind = %s AND service = %s AND facet "
        values = [self.account_id, kind, self.service]
        return (
            (sql + "= %s", [*values, _ALL])
            if self.facets is None
            else (sql + "= ANY(%s)", [*values, self.facets])
        )


async def count_totals(db: Connection, cells: CellFilter) -> tuple[int, int]:
    """Count the account's findings, and those of the given facets (and service)."""
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


async def count_below(db: Connection, cells: CellFilter, dimension: Dimension, bucket: int) -> int:
    """Count what lies in the buckets below the given one: whole coarse buckets, then the fine ones of the last coarse one."""
    coarse, coarse_values = cells.where(dimension.coarse)
    fine, fine_values = cells.where(dimension.fine)
    edge = bucket >> dimension.shift
    cursor = await db.execute(
        f"""SELECT (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {coarse} AND bucket < %s)
                 + (SELECT coalesce(sum(n), 0)::bigint FROM rollup_cells WHERE {fine} AND bucket >= %s AND bucket < %s)""".encode(),
        [*coarse_values, edge, *fine_values, edge << dimension.shift, bucket],
    )
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101
    return int(row[0])


@dataclass(frozen=True, slots=True)
class BucketPosition:
    """The bucket that holds a position: where it starts and how many positions lie before it and in it."""

    bucket: int
    before: int
    count: int


async def find_buckets(
    db: Connection, cells: CellFilter, dimension: Dimension, positions: Sequence[int]
) -> list[BucketPosition]:
    """Find the fine buckets that hold the given 0-based positions in ascending order of the dimension."""
    coarse = await _histogram(db, cells, dimension.coarse, [])
    found = [_place(coarse, 0, position) for position in positions]
    if dimension.shift == 0:
        return found
    fine_of = {}
    for place in {p.bucket: p for p in found}.values():
        low = place.bucket << dimension.shift
        fine_of[place.bucket] = await _histogram(
            db, cells, dimension.fine, [low, low + (1 << dimension.shift)]
        )
    return [
        _place(fine_of[p.bucket], p.before, position) for p, position in zip(found, positions, strict=True)
    ]


async def find_score_buckets(
    db: Connection, account_id: int, low: datetime | None, high: datetime | None, positions: Sequence[int]
) -> list[BucketPosition] | None:
    """Find the score buckets of positions among the findings first seen in a range; None where it spans no whole day."""
    from_day = (
        -_FAR if low is None else -((_EPOCH - low) // timedelta(days=1))
    )  # the first day that lies in it whole
    to_day = _FAR if high is None else bucket_of(high)
    if from_day > to_day:
        return None
    from_month, to_month = -(-from_day >> _MONTH), to_day >> _MONTH
    stretches = [(_DAY_SCORE, from_day, to_day)]
    if from_month <= to_month:
        edges = [(_DAY_SCORE, from_day, from_month << _MONTH), (_DAY_SCORE, to_month << _MONTH, to_day)]
        stretches = [(_MONTH_SCORE, from_month, to_month), *edges]
    parts, values = [], list[Any]()
    for kind, start, end in stretches:
        where, cell_values = CellFilter(account_id).where(kind)
        parts.append(
            f"SELECT bucket & {_SCORES - 1} AS score, n FROM rollup_cells WHERE {where} AND bucket >= %s AND bucket < %s"
        )
        values += [*cell_values, start * _SCORES, end * _SCORES]
    for since, until in _rests(low, high, from_day, to_day):
        parts.append(
            "SELECT floor(composite_score)::int, 1 FROM findings WHERE account_id = %s AND first_seen_at >= %s AND first_seen_at < %s"
        )
        values += [account_id, since, until]
    cursor = await db.execute(
        f"""SELECT score, sum(n)::bigint FROM ({" UNION ALL ".join(parts)}) AS cells
            GROUP BY score HAVING sum(n) > 0 ORDER BY score""".encode(),
        values,
        prepare=False,
    )
    histogram = [(int(score), int(n)) for score, n in await cursor.fetchall()]
    return [_place(histogram, 0, position) for position in positions]


def _rests(
    low: datetime | None, high: datetime | None, from_day: int, to_day: int
) -> list[tuple[datetime, datetime]]:
    """Give what lies before the first whole day and after the last one."""
    rests = []
    if low is not None and (first := _EPOCH + timedelta(days=from_day)) != low:
        rests.append((low, first))
    if high is not None and (last := _EPOCH + timedelta(days=to_day)) != high:
        rests.append((last, high))
    return rests


async def count_by_facet(db: Connection, account_id: int) -> list[tuple[int, int]]:
    """Count the account's findings by facet."""
    cursor = await db.execute(
        """SELECT facet, sum(n)::bigint FROM rollup_cells WHERE account_id = %s AND kind = %s AND service = '' AND facet >= 0
           GROUP BY facet HAVING sum(n) > 0""",
        [account_id, _TOTAL],
    )
    return [(int(facet), int(n)) for facet, n in await cursor.fetchall()]


async def count_by_type(db: Connection, account_id: int, facets: list[int]) -> list[tuple[str, int]]:
    """Count the findings of some facets by type of credential, most first."""
    cursor = await db.execute(
        """SELECT service, sum(n)::bigint AS n FROM rollup_cells WHERE account_id = %s AND kind = %s AND facet = ANY(%s)
           GROUP BY service HAVING sum(n) > 0 ORDER BY n DESC, service""",
        [account_id, _TYPE, facets],
    )
    return [(service, int(n)) for service, n in await cursor.fetchall()]


async def count_by_bucket(
    db: Connection, cells: CellFilter, dimension: Dimension, buckets: range
) -> dict[int, int]:
    """Count what lies in each of a stretch of fine buckets; empty ones are left out."""
    return dict(await _histogram(db, cells, dimension.fine, [buckets.start, buckets.stop]))


async def _histogram(
    db: Connection, cells: CellFilter, kind: int, bounds: list[int]
) -> list[tuple[int, int]]:
    where, values = cells.where(kind)
    within = "AND bucket >= %s AND bucket < %s" if bounds else ""
    cursor = await db.execute(
        f"""SELECT bucket, sum(n)::bigint FROM rollup_cells WHERE {where} {within}
            GROUP BY bucket HAVING sum(n) > 0 ORDER BY bucket""".encode(),
        [*values, *bounds],
    )
    return [(int(bucket), int(n)) for bucket, n in await cursor.fetchall()]


def _place(histogram: list[tuple[int, int]], before: int, position: int) -> BucketPosition:
    ends = list(accumulate((n for _, n in histogram), initial=before))
    i = bisect_right(ends, position) - 1
    bucket, count = histogram[i]
    return BucketPosition(bucket, ends[i], count)


async def fold_deltas(db: Connection) -> int:
    """Move every delta that can be seen into the rollups; give how many there were. One at a time: others pass by."""
    async with db.transaction():
        cursor = await db.execute("SELECT pg_try_advisory_xact_lock(%s)", [FOLD_LOCK])
        row = await cursor.fetchone()
        if row is None or not row[0]:
            return 0
        cursor = await db.execute("""
            WITH moved AS (DELETE FROM rollup_deltas RETURNING account_id, kind, service, bucket, facet, n),
                 folded AS (
                    INSERT INTO rollups
                    SELECT account_id, kind, service, bucket, facet, sum(n) FROM moved GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0
                    ON CONFLICT (account_id, kind, service, bucket, facet) DO UPDATE SET n = rollups.n + excluded.n)
            SELECT count(*) FROM moved""")
        row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def find_mismatches(db: Connection) -> list[tuple[int, int, str, int, int, int, int]]:
    """Recount every cell from the findings; give (account, kind, service, bucket, facet, counted, recorded) where the two differ."""
    cursor = await db.execute("""
        WITH truth AS (
            SELECT f.account_id, c.kind, ''::text AS service, c.bucket, c.facet, count(*) AS n
            FROM findings f, finding_cells(f.facet, f.composite_score, f.first_seen_at, f.last_seen_at) c GROUP BY 1, 2, 4, 5
            UNION ALL
            SELECT f.account_id, c.kind, s.service, c.bucket, c.facet, count(*)
            FROM findings f,
                 LATERAL (SELECT DISTINCT jsonb_array_elements_text(f.validation_detail -> 'enabled_services') AS service) s,
                 service_cells(f.facet, f.composite_score) c GROUP BY 1, 2, 3, 4, 5
            UNION ALL
            SELECT account_id, 11::smallint, pattern_secret_type, 0, facet, count(*) FROM findings GROUP BY 1, 3, 5),
        recorded AS (
            SELECT account_id, kind, service, bucket, facet, sum(n) AS n FROM rollup_cells GROUP BY 1, 2, 3, 4, 5 HAVING sum(n) <> 0)
        SELECT account_id, kind, service, bucket, facet, coalesce(t.n, 0)::bigint, coalesce(r.n, 0)::bigint
        FROM truth t FULL JOIN recorded r USING (account_id, kind, service, bucket, facet)
        WHERE t.n IS DISTINCT FROM r.n ORDER BY 1, 2, 3, 4, 5 LIMIT 100""")
    return [(a, k, s, b, f, n, m) for a, k, s, b, f, n, m in await cursor.fetchall()]
