"""Compare lists of findings with a simple SQL query, for random parameters."""

import random
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from bench import corpus, team_work
from bench.measure import table
from outcrop.domain.finding import (
    Finding,
    FindingContext,
    Severity,
    SourceType,
    Status,
    Validation,
    Visibility,
)
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir
from outcrop.runtime import Runtime
from outcrop.services import findings
from outcrop.store.db import Connection
from outcrop.store.findings import rows

_TERMS = [
    corpus.RARE_TERM,
    corpus.COMMON_TERM,
    corpus.TWO_CHARACTERS,
    "Config",
    "a",
    "50%",
    "_",
    ".PY",
    "github.com/auth",
    "#l1",
]
_ATTRIBUTES: dict[str, list[Any]] = {
    "severity": list(Severity),
    "secret_type": [corpus.COMMON_TYPE, corpus.RARE_TYPE, "nothing"],
    "rule": [f"{corpus.COMMON_TYPE}_key", f"{corpus.RARE_TYPE}_key"],
    "repo": [corpus.COMMON_REPO, "Monolith/MONOLITH"],
    "visibility": list(Visibility),
    "context": list(FindingContext),
    "author": [corpus.COMMON_AUTHOR, corpus.RARE_AUTHOR],
    "assignee": [team_work.COMMON_MEMBER, team_work.RARE_MEMBER.upper(), ""],
    "scan": [team_work.COMMON_RUN, team_work.RARE_RUN],
    "secret_types": [(corpus.COMMON_TYPE, "stripe"), (corpus.RARE_TYPE,), ()],
}
# How a row meets each of them, without an index.
_CONDITIONS = {
    "secret_type": "pattern_secret_type = %s",
    "rule": "rule = %s",
    "repo": "lower(repo_full_name) = lower(%s)",
    "visibility": "source_visibility = %s",
    "context": "context = %s",
    "author": "author = %s",
    "assignee": "lower(coalesce(assignee, '')) = lower(%s)",
    "scan": "new_scan_id = %s",
    "secret_types": "pattern_secret_type = ANY(%s)",
}
_LOWEST_SCORE = {Severity.CRITICAL: 80, Severity.HIGH: 60, Severity.MEDIUM: 40, Severity.LOW: 0}
_SERVICES = [corpus.COMMON_SERVICE, corpus.RARE_SERVICE, "stripe", "service7_read", "nothing"]


async def compare(runtime: Runtime, account_id: int, count: int) -> None:
    """Run `count` random queries both ways; exit at the first difference."""
    dice = random.Random(11)
    start_time = time.perf_counter()
    rows_compared = 0
    async with runtime.pool.connection() as db:
        for number in range(count):
            query = _random_query(dice)
            page = await findings.list_findings(db, account_id, query)
            if page.total and dice.random() < 0.7:  # the first, the last or any page
                query = replace(query, page=dice.choice([1, page.pages, dice.randint(1, page.pages)]))
                page = await findings.list_findings(db, account_id, query)
            total, expected = await _select_simply(db, account_id, query)
            if (page.total, page.items) != (total, expected):
                raise SystemExit(f"query {number} differs: {query}: total {page.total}, expected {total}")
            rows_compared += len(expected)
    seconds = time.perf_counter() - start_time
    table(
        "Lists compared with a simple SQL query",
        ["queries", "rows compared", "differences", "seconds"],
        [[count, f"{rows_compared:,}", 0, f"{seconds:.0f}"]],
    )


def _random_query(dice: random.Random) -> FindingQuery:
    """Return a query in which each filter is present with some probability."""

    def maybe(chance: float, value: Any) -> Any:
        return value if dice.random() < chance else None

    start = corpus.NOW - timedelta(
        days=dice.randrange(corpus.SPAN_DAYS + 20), seconds=dice.choice([0, 43200, dice.randrange(86400)])
    )
    attribute = dice.choice(list(_ATTRIBUTES))
    attributes = {attribute: dice.choice(_ATTRIBUTES[attribute])} if dice.random() < 0.3 else {}
    return FindingQuery(
        **attributes,
        status=maybe(0.3, dice.choice(list(Status))),
        source_type=maybe(0.2, dice.choice(list(SourceType))),
        validation=maybe(0.2, dice.choice(list(Validation))),
        suppressed=maybe(0.1, dice.random() < 0.5),
        service=maybe(0.2, dice.choice(_SERVICES)),
        min_score=maybe(0.3, dice.choice([0.0, 50.5, 90.0, 99.95, 100.0, round(dice.random() * 100, 2)])),
        seen_from=maybe(0.25, start),
        seen_before=maybe(0.25, start + timedelta(days=dice.choice([-5, 1, 30, 700]))),
        terms=tuple(dice.sample(_TERMS, k=dice.choice([1, 1, 2]))) if dice.random() < 0.2 else (),
        per_page=dice.choice([1, 25, 25, 200]),
        order_by=dice.choice(list(OrderBy)),
        order_dir=dice.choice(list(OrderDir)),
    )


async def _select_simply(db: Connection, account_id: int, query: FindingQuery) -> tuple[int, list[Finding]]:
    """Return the total and the page of a query, from SQL that uses no index on purpose."""
    where: list[str] = ["account_id = %s"]
    values: list[Any] = [account_id]

    def add(condition: str, *parameters: Any) -> None:
        where.append(condition)
        values.extend(parameters)

    if query.status is not None:
        add("status = %s", query.status)
    if query.status is Status.ACTIVE and query.suppressed is None:
        add("suppressed_at IS NULL")
    if query.suppressed is not None:
        add("(suppressed_at IS NOT NULL) = %s", query.suppressed)
    if query.source_type is not None:
        add("source_type = %s", query.source_type)
    if query.validation is not None:
        add("validation_status = %s", query.validation)
    if query.service is not None:
        add("validation_detail -> 'enabled_services' ? %s", query.service)
    if query.min_score is not None:
        add("composite_score >= %s", query.min_score)
    if query.seen_from is not None:
        add("first_seen_at >= %s", query.seen_from)
    if query.seen_before is not None:
        add("first_seen_at < %s", query.seen_before)
    for name, condition in _CONDITIONS.items():
        if (value := getattr(query, name)) is not None:
            add(condition, list(value) if isinstance(value, tuple) else value)
    if query.severity is not None:
        lowest = _LOWEST_SCORE[query.severity]
        add(
            "composite_score >= %s AND composite_score < %s",
            lowest,
            {80: 101, 0: 40}.get(lowest, lowest + 20),
        )
    for term in query.terms:
        add(
            "(strpos(lower(source_url), %s) > 0 OR strpos(lower(file_path), %s) > 0"
            " OR strpos(lower(repo_full_name), %s) > 0)",
            *[term.lower()] * 3,
        )
    condition = " AND ".join(where)
    order = f"{query.order_by} {query.order_dir}, id {query.order_dir}"
    cursor = await db.execute(
        f"""WITH matching AS MATERIALIZED (SELECT id, {query.order_by} FROM findings WHERE {condition})
            SELECT (SELECT count(*) FROM matching),
                   ARRAY(SELECT id FROM matching ORDER BY {order} OFFSET %s LIMIT %s)""".encode(),
        [*values, query.offset, query.per_page],
    )
    total, ids = await cursor.fetchone() or (0, [])
    cursor = await db.execute(
        f"SELECT {rows.COLUMNS} FROM findings WHERE account_id = %s AND id = ANY(%s)".encode(),
        [account_id, ids],
    )
    by_id = {row[0]: rows.build_finding(row) for row in await cursor.fetchall()}
    return total, [by_id[id_] for id_ in ids]
