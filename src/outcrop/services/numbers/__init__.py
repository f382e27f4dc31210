"""Compute what the page Numbers shows: how many incidents are open, and how fast they are closed.

All numbers are those of the incidents as they are now: one that was opened again counts as open since it was
first seen, and its severity is that of its present score. Months are in UTC.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime

from outcrop.domain.finding import Severity
from outcrop.store.db import Connection, snapshot
from outcrop.store.incidents import numbers, pending
from outcrop.store.incidents.numbers import ClosedCount, DueCount

SOON = 7  # days
PERIODS = (6, 12, 24)  # months that can be shown
TOP = 10  # types and repositories on the page


@dataclass(frozen=True, slots=True)
class TimeToClose:
    """How long incidents were open: the time within which half of them were closed, and 90% of them."""

    median: int  # hours
    ninety: int


@dataclass(frozen=True, slots=True)
class MonthNumbers:
    """The numbers of one month."""

    month: date  # its first day
    opened: int
    closed: int
    open: dict[Severity, int]  # at its end, or now
    time: TimeToClose | None  # None: nothing was closed
    in_time: int  # closed before the due date
    late: int

    @property
    def open_total(self) -> int:
        """The number of open incidents at the end of the month."""
        return sum(self.open.values())


@dataclass(frozen=True, slots=True)
class SeverityNumbers:
    """The open incidents of a severity by due date, and those closed in the period."""

    severity: Severity
    due: DueCount
    closed: int
    in_time: int
    late: int
    time: TimeToClose | None


@dataclass(frozen=True, slots=True)
class TypeNumbers:
    """The incidents of a credential type: open now; new and closed in this month and the one before."""

    type: str
    open: int
    new: int
    new_before: int
    closed: int
    closed_before: int


@dataclass(frozen=True, slots=True)
class RepositoryNumbers:
    """The active findings of a repository, and the valid ones among them."""

    name: str
    active: int
    valid: int


@dataclass(frozen=True, slots=True)
class Numbers:
    """All numbers of an account, from one snapshot."""

    months: tuple[MonthNumbers, ...]  # oldest first; the last one is the present month
    severities: tuple[SeverityNumbers, ...]
    time: TimeToClose | None  # of all that were closed in these months
    types: tuple[TypeNumbers, ...]
    repositories: tuple[RepositoryNumbers, ...]


async def get_numbers(
    db: Connection, account_id: int, *, now: datetime, months: int, top: int | None = TOP
) -> Numbers:
    """Return the numbers of the last `months` months; of repositories the first `top`, None for all.

    Not for use in a transaction: changes of incidents are applied first, in their own.
    """
    await pending.catch_up(db, account_id)
    last = numbers.month_number(now.astimezone(UTC).date())
    first = last - months + 1
    async with snapshot(db):
        due = await numbers.count_due(db, account_id, now=now, soon=SOON)
        opened = await numbers.count_first_seen(db, account_id, first, last)
        closed = await numbers.count_closed(db, account_id, first, last)
        types = await numbers.count_types(db, account_id, last)
        repositories = await numbers.count_repositories(db, account_id, top)
    return Numbers(
        _list_months(
            range(first, last + 1), {severity: n.open for severity, n in due.items()}, opened, closed
        ),
        tuple(_of_severity(severity, due[severity], closed) for severity in Severity),
        time_to_close(closed),
        tuple(TypeNumbers(*row) for row in types),
        tuple(RepositoryNumbers(*row) for row in repositories),
    )


def _list_months(
    months: range,
    open_now: dict[Severity, int],
    opened: dict[tuple[int, Severity], int],
    closed: list[ClosedCount],
) -> tuple[MonthNumbers, ...]:
    """Return the numbers of each month. What was open at the end of a month follows from the month after."""
    closed_by_severity: Counter[tuple[int, Severity]] = Counter()
    for count in closed:
        closed_by_severity[count.month, count.severity] += count.n
    found = []
    open_at_end = dict(open_now)
    for month in reversed(months):
        of_month = [count for count in closed if count.month == month]
        found.append(
            MonthNumbers(
                numbers.month_start(month),
                sum(opened.get((month, severity), 0) for severity in Severity),
                sum(count.n for count in of_month),
                open_at_end,
                time_to_close(of_month),
                *_count_outcomes(of_month),
            )
        )
        open_at_end = {
            severity: n - opened.get((month, severity), 0) + closed_by_severity[month, severity]
            for severity, n in open_at_end.items()
        }
    return tuple(reversed(found))


def _of_severity(severity: Severity, due: DueCount, closed: list[ClosedCount]) -> SeverityNumbers:
    """Return the numbers of one severity."""
    own = [count for count in closed if count.severity is severity]
    return SeverityNumbers(
        severity, due, sum(count.n for count in own), *_count_outcomes(own), time_to_close(own)
    )


def _count_outcomes(closed: list[ClosedCount]) -> tuple[int, int]:
    """Return how many were closed before their due date, and after it."""
    in_time, late = (sum(count.n for count in closed if count.is_late is wanted) for wanted in (False, True))
    return in_time, late


def time_to_close(closed: Iterable[ClosedCount]) -> TimeToClose | None:
    """Return the median and the 90th percentile by nearest rank; None if nothing was closed."""
    by_hours: Counter[int] = Counter()
    for count in closed:
        by_hours[count.hours] += count.n
    if not (total := by_hours.total()):
        return None
    return TimeToClose(_find_rank(by_hours, -(-total // 2)), _find_rank(by_hours, -(-total * 9 // 10)))


def _find_rank(by_hours: Counter[int], rank: int) -> int:
    """Return the value at a rank, counted from 1, of the sorted values."""
    for hours in sorted(by_hours):
        rank -= by_hours[hours]
        if rank <= 0:
            return hours
    raise AssertionError("the rank is higher than the number of values")
