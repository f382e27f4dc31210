"""Measure lists of incidents: every order and every filter, the first page and a deep one."""

from datetime import timedelta
from functools import partial
from typing import Any

from bench import corpus, team_work
from bench.measure import LIST_HEADINGS, measure, measure_list, ms, table
from outcrop.domain.finding import Severity, Validation
from outcrop.domain.incident import Incident, IncidentOrder, IncidentQuery, IncidentStatus
from outcrop.domain.paging import OrderDir, Page
from outcrop.runtime import Runtime
from outcrop.services.findings import incidents


async def measure_incidents(runtime: Runtime, account_id: int) -> None:
    """Print the time of every list of incidents, relative to 25 rows by primary key."""

    async def page_of(query: IncidentQuery) -> Page[Incident]:
        async with runtime.pool.connection() as db:
            return await incidents.list_incidents(db, account_id, query, now=corpus.NOW)

    first = await page_of(IncidentQuery())
    ids = [incident.id for incident in first.items]

    async def read_by_key() -> None:
        async with runtime.pool.connection() as db:
            sql = "SELECT * FROM incidents WHERE account_id = %s AND id = ANY(%s)"
            await (await db.execute(sql, [account_id, ids])).fetchall()

    base = await measure(read_by_key, runs=2000, max_seconds=10)
    rows = [["25 rows by primary key", ms(base.p50), ms(base.p99), "1", "", ""]]
    for name, goal, query in _cases(first.total):
        rows.append(await measure_list(name, goal, base, partial(page_of, query)))
    table(f"Lists over {first.total:,} incidents in one account", LIST_HEADINGS, rows)


def _cases(total: int) -> list[tuple[str, str, IncidentQuery]]:
    """Return name, goal and query of each list; a goal is a multiple of the time by primary key."""
    q, last = IncidentQuery, total // 25
    cases = [
        ("no filter, middle page", "40", q(page=last // 2)),
        ("no filter, last page", "40", q(page=last)),
    ]
    for order in IncidentOrder:
        for direction in OrderDir:
            query = q(order_by=order, order_dir=direction, page=last * 3 // 10)
            cases.append((f"{order} {direction}", "10", q(order_by=order, order_dir=direction)))
            cases.append((f"{order} {direction}, page at 0.3", "40", query))
    days30: dict[str, Any] = {
        "seen_from": corpus.NOW - timedelta(days=400),
        "seen_before": corpus.NOW - timedelta(days=370),
    }
    # The part of the matches at which the deep page lies; 0 if there is none.
    filters: list[tuple[str, float, dict[str, Any]]] = [
        ("open", 0.2, {"status": IncidentStatus.OPEN}),
        ("closed", 0.05, {"status": IncidentStatus.CLOSED}),
        ("closed, still valid", 0.02, {"closed_valid": True}),
        ("all but closed and valid", 0.2, {"closed_valid": False}),
        ("validation valid", 0.1, {"validation": Validation.VALID}),
        ("open and valid", 0.1, {"status": IncidentStatus.OPEN, "validation": Validation.VALID}),
        ("severity critical", 0.05, {"severity": Severity.CRITICAL}),
        ("severity medium", 0.02, {"severity": Severity.MEDIUM}),
        ("min_score 90", 0.05, {"min_score": 90.0}),
        ("secret_type common", 0.05, {"secret_type": corpus.COMMON_TYPE}),
        ("secret_type rare", 0, {"secret_type": corpus.RARE_TYPE}),
        ("service common", 0.05, {"service": corpus.COMMON_SERVICE}),
        ("service rare", 0, {"service": corpus.RARE_SERVICE}),
        ("30 days", 0.01, days30),
        ("assignee common", 0.02, {"assignee": team_work.COMMON_MEMBER}),
        ("assignee rare", 0, {"assignee": team_work.RARE_MEMBER}),
        ("nobody assigned", 0.3, {"assignee": ""}),
        ("overdue", 0.1, {"overdue": True}),
        ("not overdue", 0.2, {"overdue": False}),
        ("q rare", 0, {"terms": (corpus.RARE_TERM,)}),
        ("q in 1 of 10", 0.05, {"terms": (corpus.COMMON_TERM,)}),
    ]
    for name, depth, values in filters:
        cases.append((name, "10", q(**values)))
        if depth:
            cases.append((f"{name}, deep", "40", q(**values, page=int(last * depth))))
    of_member: dict[str, Any] = {"status": IncidentStatus.OPEN, "assignee": team_work.COMMON_MEMBER}
    return [
        *cases,
        ("open of a member", "10", q(**of_member)),
        ("open of a member, by due date", "10", q(**of_member, order_by=IncidentOrder.DUE_AT)),
        ("open, by due date", "10", q(status=IncidentStatus.OPEN, order_by=IncidentOrder.DUE_AT)),
        ("overdue, by due date", "10", q(overdue=True, order_by=IncidentOrder.DUE_AT)),
    ]
