"""What needs attention now, and how an account's findings stand: the figures of the portal's first page."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from outcrop.domain.finding import Finding, SourceType, Status, Validation
from outcrop.domain.paging import FindingQuery
from outcrop.domain.scan import ScanRun
from outcrop.store.db import Connection
from outcrop.store.findings import counts, listing
from outcrop.store.findings.counts import DayCount
from outcrop.store.runs import scans

K = TypeVar("K", bound=Hashable)
DAYS = 30
TYPES = 10
URGENT = 8
SCANS = 5


@dataclass(frozen=True, slots=True)
class Overview:
    """Every member of each enumeration is in its dictionary, with 0 where there is none. The active view leaves out what is suppressed."""

    total: int
    suppressed: int
    by_status: dict[Status, int]  # of what is not suppressed
    by_validation: dict[Validation, int]  # of the active view, as are the following
    by_source: dict[SourceType, int]
    by_type: tuple[tuple[str, int], ...]  # the most frequent, most first
    other_types: int  # how many more types there are
    of_other_types: int  # and findings of them
    days: tuple[DayCount, ...]  # first seen on each of the last 30 UTC days, of whatever status, oldest first
    urgent: tuple[Finding, ...]  # active: valid ones first, highest score first
    scans: tuple[ScanRun, ...]  # newest first

    @property
    def active(self) -> int:
        return self.by_status[Status.ACTIVE]


async def get_overview(db: Connection, account_id: int, *, now: datetime) -> Overview:
    """Read it all: the figures of one moment, then the findings and the runs. Not to be called within a transaction, as no list is."""
    found = await counts.select_counts(db, account_id, now=now, days=DAYS)
    shown = [cell for cell in found.facets if not cell.suppressed]
    active = [cell for cell in shown if cell.status is Status.ACTIVE]
    total = sum(cell.n for cell in found.facets)
    runs = await scans.select_page(db, account_id, type_=None, page=1, per_page=SCANS)
    return Overview(
        total=total,
        suppressed=total - sum(cell.n for cell in shown),
        by_status=_tally(Status, ((cell.status, cell.n) for cell in shown)),
        by_validation=_tally(Validation, ((cell.validation, cell.n) for cell in active)),
        by_source=_tally(SourceType, ((cell.source_type, cell.n) for cell in active)),
        by_type=tuple(found.types[:TYPES]),
        other_types=len(found.types[TYPES:]),
        of_other_types=sum(n for _, n in found.types[TYPES:]),
        days=tuple(found.days),
        urgent=tuple(await _urgent(db, account_id)),
        scans=tuple(runs.items),
    )


async def _urgent(db: Connection, account_id: int) -> list[Finding]:
    valid = await listing.select_page(
        db, account_id, FindingQuery(status=Status.ACTIVE, validation=Validation.VALID, per_page=URGENT)
    )
    if len(valid.items) == URGENT:
        return valid.items
    # Fewer are valid than fit: whatever of these stands among the first of all is passed over, and enough of the others are left.
    first = await listing.select_page(db, account_id, FindingQuery(status=Status.ACTIVE, per_page=URGENT))
    others = [finding for finding in first.items if finding.validation_status is not Validation.VALID]
    return (valid.items + others)[:URGENT]


def _tally(every: Iterable[K], counted: Iterable[tuple[K, int]]) -> dict[K, int]:
    sums: Counter[K] = Counter()
    for key, n in counted:
        sums[key] += n
    return {key: sums[key] for key in every}
