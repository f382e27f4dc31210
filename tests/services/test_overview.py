"""Compare the numbers of the overview with counts of the findings."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from outcrop.domain.finding import SourceType, Status, Validation
from outcrop.domain.scan import Gap
from outcrop.services.overview import DAYS, URGENT, Overview, get_overview
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan

NOW = datetime(2026, 3, 1, 0, 30, tzinfo=UTC)


def _overview(backend: Backend, tenant: Tenant) -> Overview:
    return backend.run(lambda db: get_overview(db, tenant.account.id, now=NOW), transaction=False)


def _lines(rng: random.Random, count: int) -> list[dict[str, Any]]:
    return [
        make_line(
            status=rng.choice(list(Status)),
            validation_status=rng.choice(list(Validation)),
            source_type=rng.choice(list(SourceType)),
            composite_score=float(rng.randint(0, 100)),
            pattern={"name": "x", "secret_type": f"type_{min(rng.randint(0, 20), rng.randint(0, 20)):02}"},
            first_seen_at=(NOW - timedelta(seconds=rng.randint(0, 40 * 86_400))).isoformat(),
            suppressed_at=rng.choice([None, None, "2026-02-01T00:00:00Z"]),
        )
        for _ in range(count)
    ]


def test_all_numbers_of_an_empty_account_are_zero(backend: Backend) -> None:
    overview = _overview(backend, backend.tenant())
    assert (
        overview.total,
        overview.suppressed,
        overview.active,
        overview.other_types,
        overview.of_other_types,
    ) == (
        0,
        0,
        0,
        0,
        0,
    )
    assert overview.by_status == dict.fromkeys(Status, 0)
    assert overview.by_validation == dict.fromkeys(Validation, 0)
    assert overview.by_source == dict.fromkeys(SourceType, 0)
    assert (overview.by_type, overview.urgent, overview.scans) == ((), (), ())
    assert len(overview.days) == DAYS
    assert [day.valid + day.other for day in overview.days] == [0] * DAYS
    assert (overview.days[0].day, overview.days[-1].day) == ((NOW - timedelta(days=29)).date(), NOW.date())


def test_all_numbers_equal_counts_of_the_findings(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    lines = _lines(random.Random(3), 300)
    backend.import_(tenant.account, *lines)
    backend.import_(other.account, *_lines(random.Random(4), 50))
    for status in ("resolve", "suppress"):  # leaves some deltas unfolded
        tenant.post(f"/findings/{lines[0]['id']}/{status}")
    listed = (
        tenant.get("/findings", per_page=200).json()["data"]
        + tenant.get("/findings", per_page=200, page=2).json()["data"]
    )
    shown = [f for f in listed if f["suppressed_at"] is None]
    active = [f for f in shown if f["status"] == "active"]
    types = Counter(f["pattern"]["secret_type"] for f in active)
    most = sorted(types.items(), key=lambda item: (-item[1], item[0]))

    overview = _overview(backend, tenant)

    assert (overview.total, overview.suppressed, overview.active) == (300, 300 - len(shown), len(active))
    # Only the active view leaves suppressed findings out, so each number is that of the list behind its link.
    in_view = {s: shown if s is Status.ACTIVE else listed for s in Status}
    assert overview.by_status == {s: sum(f["status"] == s for f in in_view[s]) for s in Status}
    assert overview.by_validation == {v: sum(f["validation_status"] == v for f in active) for v in Validation}
    assert overview.by_source == {s: sum(f["source_type"] == s for f in active) for s in SourceType}
    assert list(overview.by_type) == most[:10]
    assert (overview.other_types, overview.of_other_types) == (len(most) - 10, sum(n for _, n in most[10:]))
    for day in overview.days:
        of_day = [f for f in listed if f["first_seen_at"][:10] == day.day.isoformat()]
        valid = sum(f["validation_status"] == "valid" for f in of_day)
        assert (day.valid, day.other) == (valid, len(of_day) - valid)
    assert sum(day.valid + day.other for day in overview.days) < 300, (
        "some findings were seen before these days"
    )


def test_urgent_findings_are_valid_ones_first_then_the_highest_scores(backend: Backend) -> None:
    tenant = backend.tenant()
    valid = [make_line(validation_status="valid", composite_score=s) for s in (40.0, 90.0, 60.0)]
    others = [make_line(validation_status="error", composite_score=float(s)) for s in range(50, 79)]
    hidden = make_line(validation_status="valid", composite_score=99.0, suppressed_at="2026-02-01T00:00:00Z")
    closed = make_line(validation_status="valid", composite_score=98.0, status="false_positive")
    backend.import_(tenant.account, *valid, *others, hidden, closed)
    overview = _overview(backend, tenant).urgent
    assert [f.composite_score for f in overview] == [90, 60, 40, 78, 77, 76, 75, 74]
    backend.import_(
        tenant.account, *(make_line(validation_status="valid", composite_score=10.0) for _ in range(URGENT))
    )
    assert {f.validation_status for f in _overview(backend, tenant).urgent} == {Validation.VALID}


def test_the_last_five_runs_are_listed_with_their_gaps(backend: Backend) -> None:
    tenant = backend.tenant()
    runs = [
        make_scan(created_at=NOW - timedelta(hours=n), coverage_gaps=(Gap(f"repo {n}", "no access"),))
        for n in range(7)
    ]
    for run in runs:
        backend.scan(tenant.account, run)
    overview = _overview(backend, tenant).scans
    assert [run.id for run in overview] == [run.id for run in runs[:5]]
    assert overview[2].coverage_gaps == (Gap("repo 2", "no access"),)
