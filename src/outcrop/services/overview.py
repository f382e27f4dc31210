"""Compute the figures of the portal's first page: counts, the most urgent findings, runs, first steps."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from outcrop.domain.finding import Finding, SourceType, Status, Validation
from outcrop.domain.incident import IncidentQuery, IncidentStatus
from outcrop.domain.paging import FindingQuery
from outcrop.domain.scan import ScanRun
from outcrop.store.db import Connection
from outcrop.store.findings import counts, listing
from outcrop.store.findings.counts import DayCount
from outcrop.store.incidents import due, pending
from outcrop.store.incidents import listing as incident_list
from outcrop.store.people import checklist
from outcrop.store.people.checklist import Checklist
from outcrop.store.runs import scans

K = TypeVar("K", bound=Hashable)
DAYS = 30  # in the chart of new findings
TYPES = 10  # most frequent types that are listed
URGENT = 8  # findings that are listed
SCANS = 5  # runs that are listed


@dataclass(frozen=True, slots=True)
class Overview:
    """The figures of an account. A dictionary has all members of its enumeration, with 0 if there are none.

    The active view is the active findings without the suppressed ones.
    """

    total: int
    suppressed: int
    by_status: dict[Status, int]  # as the lists count them: the active ones without the suppressed ones
    by_validation: dict[Validation, int]  # in the active view, like the following
    by_source: dict[SourceType, int]
    by_type: tuple[tuple[str, int], ...]  # the TYPES most frequent, most frequent first
    other_types: int  # number of further types
    of_other_types: int  # number of findings of these types
    days: tuple[
        DayCount, ...
    ]  # findings first seen on each of the last 30 UTC days, of any status, oldest first
    urgent: tuple[Finding, ...]  # active findings, valid ones first, then by score
    scans: tuple[ScanRun, ...]  # newest first
    closed_valid: int = 0  # incidents that are closed, but whose credential is valid
    overdue: int | None = None  # open incidents past their due date; None if the account has no due dates

    @property
    def active(self) -> int:
        """The number of findings in the active view."""
        return self.by_status[Status.ACTIVE]


async def get_overview(db: Connection, account_id: int, *, now: datetime) -> Overview:
    """Return the figures of an account. Not for use in a transaction: `select_page` starts its own."""
    counted = await counts.select_counts(db, account_id, now=now, days=DAYS)
    listed = [
        cell for cell in counted.facets if not (cell.suppressed and cell.status is Status.ACTIVE)
    ]  # a list of active findings has no suppressed ones, every other list has
    active = [cell for cell in listed if cell.status is Status.ACTIVE]
    total = sum(cell.n for cell in counted.facets)
    runs = await scans.select_page(db, account_id, type_=None, page=1, per_page=SCANS)
    await pending.catch_up(db, account_id)
    closed_valid = IncidentQuery(closed_valid=True)
    has_due_dates = bool(await due.select_days(db, account_id))
    overdue = IncidentQuery(status=IncidentStatus.OPEN, overdue=True)
    return Overview(
        total=total,
        suppressed=sum(cell.n for cell in counted.facets if cell.suppressed),
        by_status=_tally(Status, ((cell.status, cell.n) for cell in listed)),
        by_validation=_tally(Validation, ((cell.validation, cell.n) for cell in active)),
        by_source=_tally(SourceType, ((cell.source_type, cell.n) for cell in active)),
        by_type=tuple(counted.types[:TYPES]),
        other_types=len(counted.types[TYPES:]),
        of_other_types=sum(n for _, n in counted.types[TYPES:]),
        days=tuple(counted.days),
        urgent=tuple(await _list_urgent(db, account_id)),
        scans=tuple(runs.items),
        closed_valid=await incident_list.count(db, account_id, closed_valid, now=now),
        overdue=await incident_list.count(db, account_id, overdue, now=now) if has_due_dates else None,
    )


async def _list_urgent(db: Connection, account_id: int) -> list[Finding]:
    """Return the URGENT most urgent active findings: valid ones first, then by score."""
    valid = await listing.select_page(
        db, account_id, FindingQuery(status=Status.ACTIVE, validation=Validation.VALID, per_page=URGENT)
    )
    if len(valid.items) == URGENT:
        return valid.items
    # Fewer than URGENT are valid, so the first URGENT of all hold enough others to fill the list.
    first = await listing.select_page(db, account_id, FindingQuery(status=Status.ACTIVE, per_page=URGENT))
    others = [finding for finding in first.items if finding.validation_status is not Validation.VALID]
    return (valid.items + others)[:URGENT]


def _tally(members: Iterable[K], counted: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Add up the numbers of each key; every one of `members` is in the result, if need be with 0."""
    sums: Counter[K] = Counter()
    for key, n in counted:
        sums[key] += n
    return {key: sums[key] for key in members}


async def get_checklist(db: Connection, account_id: int, member_id: UUID, *, now: datetime) -> Checklist:
    """Return which of its first steps an account has done."""
    return await checklist.select(db, account_id, member_id, now=now)


async def dismiss_checklist(db: Connection, account_id: int, *, now: datetime) -> None:
    """Show the first steps of an account no longer."""
    await checklist.dismiss(db, account_id, now=now)
