"""Measure lists of findings by each filter that the specification does not have."""

from datetime import datetime
from functools import partial
from typing import Any

from bench import corpus, team_work
from bench.measure import LIST_HEADINGS, measure, measure_list, ms, table
from outcrop.domain.finding import Finding, FindingContext, Severity, Status, Visibility
from outcrop.domain.paging import FindingQuery, Page
from outcrop.runtime import Runtime
from outcrop.services import findings
from outcrop.store.findings import rollups, rows
from outcrop.store.findings.attributes import ATTRIBUTES

GOAL = "50 ms"


async def measure_filters(runtime: Runtime, account_id: int) -> None:
    """Print the time of page 1 by each filter, alone and with `status=active`, with the number of matches."""

    async def page_of(query: FindingQuery) -> Page[Finding]:
        async with runtime.pool.connection() as db:
            return await findings.list_findings(db, account_id, query)

    first = await page_of(FindingQuery())
    ids = [finding.id for finding in first.items]
    sql = f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = ANY(%s)".encode()

    async def read_by_key() -> None:
        async with runtime.pool.connection() as db:
            await (await db.execute(sql, [account_id, ids])).fetchall()

    base = await measure(read_by_key, runs=2000, max_seconds=10)
    table_rows = [["25 rows by primary key", ms(base.p50), ms(base.p99), "1", "", "", ""]]
    for name, values in await _filters(runtime, account_id, first.items[0]):
        for status in (None, Status.ACTIVE):
            query = FindingQuery(**values, status=status)
            shown = f"{name}, active" if status else name
            measured = await measure_list(shown, GOAL, base, partial(page_of, query))
            total = await _count_plainly(runtime, account_id, query)
            if (await page_of(query)).total != total:
                raise SystemExit(f"{shown}: the total is wrong, {total:,} match")
            table_rows.append([*measured, f"{total:,}"])
    table(
        f"Lists over {first.total:,} findings by one filter, page 1",
        [*LIST_HEADINGS, "matches"],
        table_rows,
    )


async def _filters(runtime: Runtime, account_id: int, finding: Finding) -> list[tuple[str, dict[str, Any]]]:
    """Return a name and a filter for each row of the table: a frequent value, and mostly a rare one."""
    sources = next(attribute for attribute in ATTRIBUTES if attribute.name == "sources")
    async with runtime.pool.connection() as db:
        known = await rollups.select_values(db, account_id, sources, limit=500)
        cursor = await db.execute(
            """SELECT percentile_disc(ARRAY[0.5, 0.999]) WITHIN GROUP (ORDER BY updated_at)
               FROM findings WHERE account_id = %s""",
            [account_id],
        )
        (((half, late),),) = await cursor.fetchall()
    return [
        ("secret_type common", {"secret_type": corpus.COMMON_TYPE}),
        ("secret_type rare", {"secret_type": corpus.RARE_TYPE}),
        ("rule common", {"rule": f"{corpus.COMMON_TYPE}_key"}),
        ("issuer of three types", {"secret_types": (corpus.COMMON_TYPE, corpus.RARE_TYPE, "stripe")}),
        ("repo common", {"repo": corpus.COMMON_REPO.upper()}),
        ("repo of one in 5,000", {"repo": finding.repo_full_name}),
        ("target of one source", {"sources": tuple(known[:1])}),
        ("target of 500 sources", {"sources": tuple(known)}),
        ("visibility public", {"visibility": Visibility.PUBLIC}),
        ("visibility unknown", {"visibility": Visibility.UNKNOWN}),
        *((f"severity {severity}", {"severity": severity}) for severity in Severity),
        ("context production", {"context": FindingContext.PRODUCTION}),
        ("context example", {"context": FindingContext.EXAMPLE}),
        ("assignee common", {"assignee": team_work.COMMON_MEMBER}),
        ("assignee rare", {"assignee": team_work.RARE_MEMBER}),
        ("nobody assigned", {"assignee": ""}),
        ("author common", {"author": corpus.COMMON_AUTHOR}),
        ("author rare", {"author": corpus.RARE_AUTHOR}),
        ("run common", {"scan": team_work.COMMON_RUN}),
        ("run rare", {"scan": team_work.RARE_RUN}),
        ("incident", {"incident_id": finding.incident_id}),
        ("updated_since, half", {"updated_since": _minute(half)}),
        ("updated_since, 1 in 1,000", {"updated_since": _minute(late)}),
    ]


def _minute(moment: datetime) -> datetime:
    """Return a time 30 seconds after the start of its minute: the rollups count minutes."""
    return moment.replace(second=30)


async def _count_plainly(runtime: Runtime, account_id: int, query: FindingQuery) -> int:
    """Count the matches with a statement that uses no rollup."""
    columns = {
        "secret_type": "pattern_secret_type = %s",
        "rule": "rule = %s",
        "secret_types": "pattern_secret_type = ANY(%s)",
        "repo": "lower(repo_full_name) = lower(%s)",
        "sources": "source = ANY(%s)",
        "visibility": "source_visibility = %s",
        "context": "context = %s",
        "assignee": "coalesce(assignee, '') = %s",
        "author": "author = %s",
        "scan": "new_scan_id = %s",
        "incident_id": "incident_id = %s",
        "updated_since": "updated_at >= %s",
        "status": "status = %s AND suppressed_at IS NULL",
    }
    conditions, values = ["account_id = %s"], list[Any]([account_id])
    for name, condition in columns.items():
        if (value := getattr(query, name)) is not None:
            conditions.append(condition)
            values.append(list(value) if isinstance(value, tuple) else value)
    if query.severity is not None:
        conditions.append("severity_number(composite_score) = %s")
        values.append(list(Severity).index(query.severity))
    async with runtime.pool.connection() as db:
        cursor = await db.execute(
            f"SELECT count(*) FROM findings WHERE {' AND '.join(conditions)}".encode(), values
        )
        ((total,),) = await cursor.fetchall()
    return int(total)
