"""What an account's findings come to, read from the rollups: the same few rows at a hundred findings and at a million."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from outcrop.domain.finding import SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.store.db import Connection, snapshot
from outcrop.store.findings import rollups
from outcrop.store.findings.facets import decode_facet, list_matching_facets
from outcrop.store.findings.rollups import CellFilter


@dataclass(frozen=True, slots=True)
class FacetCount:
    """How many findings share one facet."""

    suppressed: bool
    status: Status
    source_type: SourceType
    validation: Validation
    n: int


@dataclass(frozen=True, slots=True)
class DayCount:
    """What was first seen on one UTC day, by whether it is known to be alive."""

    day: date
    valid: int
    other: int


@dataclass(frozen=True, slots=True)
class FindingCounts:
    cells: list[FacetCount]
    days: list[DayCount]  # oldest first, empty ones too
    types: list[tuple[str, int]]  # of the active view, most first


async def select_counts(db: Connection, account_id: int, *, now: datetime, days: int) -> FindingCounts:
    """Give everything of one moment."""
    async with snapshot(db):
        cells = [
            FacetCount(*decode_facet(facet), n) for facet, n in await rollups.count_by_facet(db, account_id)
        ]
        last = rollups.bucket_of(now)
        span = range(last - days + 1, last + 1)
        every = await rollups.count_by_bucket(db, CellFilter(account_id), rollups.FIRST_SEEN, span)
        alive = list_matching_facets(FindingQuery(validation=Validation.VALID))
        valid = await rollups.count_by_bucket(db, CellFilter(account_id, alive), rollups.FIRST_SEEN, span)
        types = await rollups.count_by_type(
            db, account_id, list_matching_facets(FindingQuery(status=Status.ACTIVE)) or []
        )
    dated = [DayCount(_date(day), valid.get(day, 0), every.get(day, 0) - valid.get(day, 0)) for day in span]
    return FindingCounts(cells, dated, types)


def _date(bucket: int) -> date:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=bucket)).date()
