"""Read an account's finding counts from the rollups. The work does not grow with the number of findings."""

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
    """The number of findings with the same suppressed, status, source type and validation."""

    suppressed: bool
    status: Status
    source_type: SourceType
    validation: Validation
    n: int


@dataclass(frozen=True, slots=True)
class DayCount:
    """The numbers of findings first seen on one UTC day: with a valid credential, and all others."""

    day: date
    valid: int
    other: int


@dataclass(frozen=True, slots=True)
class FindingCounts:
    """An account's counts, all from the same snapshot."""

    facets: list[FacetCount]
    days: list[DayCount]  # oldest first, days without findings too
    types: list[tuple[str, int]]  # (credential type, number) of active findings, highest number first


async def select_counts(db: Connection, account_id: int, *, now: datetime, days: int) -> FindingCounts:
    """Return the account's counts; those by day for the last `days` days."""
    async with snapshot(db):
        facets = [
            FacetCount(*decode_facet(facet), n) for facet, n in await rollups.count_by_facet(db, account_id)
        ]
        last = rollups.bucket_of(now)
        buckets = range(last - days + 1, last + 1)
        all_by_day = await rollups.count_by_bucket(db, CellFilter(account_id), rollups.FIRST_SEEN, buckets)
        valid_facets = list_matching_facets(FindingQuery(validation=Validation.VALID))
        valid_by_day = await rollups.count_by_bucket(
            db, CellFilter(account_id, valid_facets), rollups.FIRST_SEEN, buckets
        )
        active_facets = list_matching_facets(FindingQuery(status=Status.ACTIVE)) or []
        types = await rollups.count_by_type(db, account_id, active_facets)
    day_counts = []
    for bucket in buckets:
        valid = valid_by_day.get(bucket, 0)
        day_counts.append(DayCount(_date_of_bucket(bucket), valid, all_by_day.get(bucket, 0) - valid))
    return FindingCounts(facets, day_counts, types)


def _date_of_bucket(bucket: int) -> date:
    """Return the UTC date of a day bucket, which counts days since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=bucket)).date()
