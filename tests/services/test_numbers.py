"""Compare the numbers of the page Numbers with counts and percentiles of the incidents themselves."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from statistics import median_low
from typing import Any

from outcrop.domain.finding import Severity, severity_of
from outcrop.services.numbers import Numbers, TimeToClose, get_numbers, time_to_close
from outcrop.store.findings import rollups
from outcrop.store.incidents import due
from outcrop.store.incidents.numbers import ClosedCount, month_number, month_start
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

NOW = datetime(2026, 3, 15, 10, 30, tzinfo=UTC)


def _numbers(backend: Backend, tenant: Tenant, months: int = 6) -> Numbers:
    return backend.run(
        lambda db: get_numbers(db, tenant.account.id, now=NOW, months=months), transaction=False
    )


def _fill(backend: Backend, tenant: Tenant, count: int = 200) -> None:
    """Import findings, each an incident of its own, some closed, over ten months; with due dates."""
    rng = random.Random(7)
    lines: list[dict[str, Any]] = []
    for n in range(count):
        first = NOW - timedelta(seconds=rng.randint(0, 300 * 86_400))
        closed = first + timedelta(hours=rng.choice([0, 1, 30, 71, 72, 100, 2_000]), minutes=5)
        more: dict[str, Any] = {}
        if rng.random() < 0.5 and closed < NOW:
            evidence = {"auto_resolved": False, "resolved_by": None}
            more = {"status": "resolved", "resolved_at": closed.isoformat(), "resolution_evidence": evidence}
        lines.append(
            make_line(
                composite_score=float(rng.randint(0, 100)),
                repo_full_name=f"acme/r{rng.randint(0, 14)}",
                file_path=f"f{n}",
                pattern={"name": "x", "secret_type": f"type{rng.randint(0, 4)}"},
                validation_status=rng.choice(["valid", "invalid"]),
                first_seen_at=first.isoformat(),
                last_seen_at=NOW.isoformat(),
                **more,
            )
        )
    for hours in (29, 20):  # a critical one is due after a day: one since this morning, one this afternoon
        seen = (NOW - timedelta(hours=hours)).isoformat()
        lines.append(make_line(composite_score=90.0, first_seen_at=seen, repo_full_name="acme/r0"))
    backend.import_(tenant.account, *lines)
    days = {Severity.CRITICAL: 1, Severity.HIGH: 40, Severity.MEDIUM: 400}
    backend.run(lambda db: due.save_days(db, tenant.account.id, days))


def test_all_numbers_equal_those_of_the_incidents(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    _fill(backend, tenant)
    _fill(backend, other, 30)
    found = _numbers(backend, tenant)
    rows = backend.sql(
        """SELECT composite_score, first_seen_at, closed_at, due_at, pattern_secret_type
           FROM incidents WHERE account_id = %s""",
        tenant.account.id,
    )
    assert len(rows) == 202
    assert len(found.months) == 6
    assert (found.months[0].month, found.months[-1].month) == (date(2025, 10, 1), date(2026, 3, 1))
    for month in found.months:
        following = month_start(month_number(month.month) + 1)
        end = datetime(following.year, following.month, 1, tzinfo=UTC)
        start = datetime(month.month.year, month.month.month, 1, tzinfo=UTC)
        closed = [row for row in rows if row[2] is not None and start <= row[2] < end]
        assert month.opened == sum(start <= row[1] < end for row in rows)
        assert month.closed == len(closed)
        assert month.in_time == sum(row[3] is not None and row[2] <= row[3] for row in closed)
        assert month.late == sum(row[3] is not None and row[2] > row[3] for row in closed)
        open_then = Counter(severity_of(r[0]) for r in rows if r[1] < end and (not r[2] or r[2] >= end))
        assert month.open == {severity: open_then[severity] for severity in Severity}
        assert month.open_total == open_then.total()
    for numbers in found.severities:
        own = [row for row in rows if severity_of(row[0]) is numbers.severity]
        still_open = [row for row in own if row[2] is None]
        assert numbers.due.open == len(still_open)
        assert numbers.due.overdue == sum(row[3] is not None and row[3] < NOW for row in still_open)
        assert numbers.due.without == sum(row[3] is None for row in still_open)
    open_types = Counter(row[4] for row in rows if row[2] is None)
    assert {numbers.type: numbers.open for numbers in found.types if numbers.open} == open_types
    assert sum(numbers.new for numbers in found.types) == found.months[-1].opened
    assert sum(numbers.closed_before for numbers in found.types) == found.months[-2].closed
    repositories = backend.sql(
        """SELECT repo_full_name, count(*), count(*) FILTER (WHERE validation_status = 'valid') FROM findings
           WHERE account_id = %s AND status = 'active' GROUP BY 1 ORDER BY 2 DESC, 3 DESC, 1 LIMIT 10""",
        tenant.account.id,
    )
    assert [(n.name, n.active, n.valid) for n in found.repositories] == repositories


def test_the_time_to_close_is_exact_to_the_hour_and_later_to_the_day(backend: Backend) -> None:
    tenant = backend.tenant()
    _fill(backend, tenant)
    found = _numbers(backend, tenant, 24)
    hours = [
        int((closed - first) / timedelta(hours=1))
        for closed, first in backend.sql(
            "SELECT closed_at, first_seen_at FROM incidents WHERE account_id = %s AND closed_at IS NOT NULL",
            tenant.account.id,
        )
    ]
    rounded = sorted(n if n < 72 else n // 24 * 24 for n in hours)
    assert found.time == TimeToClose(median_low(rounded), rounded[-(-len(rounded) * 9 // 10) - 1])


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    def count(hours: int, n: int) -> ClosedCount:
        return ClosedCount(0, Severity.LOW, hours, None, n)

    assert time_to_close([]) is None
    assert time_to_close([count(5, 1)]) == TimeToClose(5, 5)
    assert time_to_close([count(9, 1), count(1, 9)]) == TimeToClose(1, 1)
    assert time_to_close([count(9, 2), count(1, 8)]) == TimeToClose(1, 9)
    assert time_to_close([count(9, 5), count(1, 5)]) == TimeToClose(1, 9)


def test_numbers_follow_when_an_incident_is_closed_and_opened_again(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, line := make_line(composite_score=90, first_seen_at=NOW.isoformat()))

    def current() -> tuple[int, int]:
        found = backend.run(
            lambda db: get_numbers(db, tenant.account.id, now=datetime.now(UTC), months=6), transaction=False
        ).months[-1]
        return found.open[Severity.CRITICAL], found.closed

    assert current() == (1, 0)
    tenant.post(f"/findings/{line['id']}/resolve").raise_for_status()
    assert current() == (0, 1)
    backend.sql(
        """UPDATE findings SET status = 'active', resolved_at = NULL, auto_resolved = NULL
           WHERE account_id = %s""",
        tenant.account.id,
    )
    assert current() == (1, 0)
    assert [cell for cell in backend.run(rollups.find_mismatches) if cell[0] == tenant.account.id] == []


def test_the_months_of_the_calendar_have_a_number_and_a_start(backend: Backend) -> None:
    for day in (date(1969, 12, 31), date(1970, 1, 1), date(2026, 3, 15), date(9999, 12, 31)):
        assert month_start(month_number(day)) == day.replace(day=1)
        moment = datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=UTC)
        assert backend.sql("SELECT utc_month(%s)", moment) == [(month_number(day),)]
