"""What an account's findings come to, read from the rollups: the same few rows at a hundred findings and at a million."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from outcrop.domain.finding import SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connection, snapshot
from outcrop.store.findings import rollups
from outcrop.store.findings.facets import facets_of, parts_of
from outcrop.store.findings.rollups import Cells


@dataclass(frozen=True, slots=True)
class Cell:
    """How many findings share one facet."""

    suppressed: bool
    status: Status
    source_type: SourceType
    validation: Validation
    n: int


@dataclass(frozen=True, slots=True)
class Day:
    """What was first seen on one UTC day, by whether it is known to be alive."""

    day: date
    valid: int
    other: int


@dataclass(frozen=True, slots=True)
class Counts:
    cells: list[Cell]
    days: list[Day]  # oldest first, empty ones too
    types: list[tuple[str, int]]  # of the active view, most first


async def select_counts(db: Connection, account_id: int, *, now: datetime, days: int) -> Counts:
    """Give everything of one moment."""
    async with snapshot(db):
        cells = [Cell(*parts_of(facet), n) for facet, n in await rollups.by_facet(db, account_id)]
        last = rollups.bucket_of(now)
        span = range(last - days + 1, last + 1)
        every = await rollups.in_buckets(db, Cells(account_id), rollups.FIRST_SEEN, span)
        alive = facets_of(FindingQuery(validation=Validation.VALID))
        valid = await rollups.in_buckets(db, Cells(account_id, alive), rollups.FIRST_SEEN, span)
        types = await rollups.by_type(db, account_id, facets_of(FindingQuery(status=Status.ACTIVE)) or [])
    dated = [Day(_date(day), valid.get(day, 0), every.get(day, 0) - valid.get(day, 0)) for day in span]
    return Counts(cells, dated, types)


def _date(bucket: int) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=bucket)).date()
