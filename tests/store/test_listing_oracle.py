"""Compare lists of findings with plain SQL over the table, for every access path of the listing."""

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID

import psycopg
import pytest

from outcrop.domain.account import Account
from outcrop.domain.finding import (
    CredentialPattern,
    Finding,
    FindingContext,
    Resolution,
    Severity,
    SourceType,
    Status,
    Validation,
    Visibility,
)
from outcrop.domain.paging import FindingQuery, OrderBy, OrderDir, Page
from outcrop.settings import Settings
from outcrop.store.db import Connection
from outcrop.store.findings import filtered, listing, rollups
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend
from tests.support.calls import recorded_calls

FINDINGS = 3_000
QUERIES = 240
NEVER_CHEAP, ALWAYS_CHEAP = 0, 10**12
MANY_DELTAS = 10_000  # more than the changes of the fixture leave; `_unfold` leaves more

SCORES = [0.0, 0.5, 1.0, 7.999, 8.0, 49.99, 50.0, 50.0, 50.5, 63.0, 64.0, 89.999999, 90.0, 90.0, 99.5, 100.0]
DAYS = [
    *(datetime(y, 1, 1, tzinfo=UTC) for y in (1, 1582, 1970, 2000, 2024, 9998)),
    *(datetime(2026, 1, d, tzinfo=UTC) for d in range(1, 29)),
    datetime(1969, 12, 31, tzinfo=UTC),
    datetime(2024, 2, 29, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]
SECONDS = [0, 1, 43_200, 86_398, 86_399]
SERVICES = ["aws", "aws_s3", "AWS", "stripe", "stripe_payments", "ünï", "100%", "a_b", "rare"]
PLACES = [
    "config/settings.py",
    "Config/SETTINGS.py",
    "src/100%/done.py",
    "src/100x/done.py",
    "a_b/c.py",
    "aXb/c.py",
    "back\\slash.ini",
    'it\'s "quoted".txt',
    "straße/größe.py",
    "STRASSE/x.py",
    "İstanbul/ı.js",
    "日本語/鍵.pem",
    "😀/secret.env",
    "a b/c d.txt",
    "%5C_%25",
    "tab\tin/name",
    "",
]
RULES = ["aws-key", "stripe-key", "Stripe-key"]
AUTHORS = ["Jo <jo@example.com>", "Łukasz <l@example.com>", "%"]
REPOS = ["ACME/Shop", "acme/shop", "acme/STRASSE", "acme/none"]
SOURCES = ("https://git.example.com/a", "1234567", "https://www.example.com")
SCANS = [UUID(int=n) for n in range(1, 4)]  # of the last no finding is
UPDATED = datetime(2026, 5, 6, 7, 58, 30, tzinfo=UTC)
TERMS = [
    "settings", "SETTINGS", "100%", "0%", "%", "_", "a_b", "\\", "\\s", "'", '"quoted"',
    "straße", "STRASSE", "ss", "größe", "i̇stanbul",
    "日本", "鍵", "😀", "py", ".py", "c", "acme/shop", "github.com", "nowhere", "%5C", "b/c",
]  # fmt: skip


def _moment(rng: random.Random) -> datetime:
    return rng.choice(DAYS) + timedelta(seconds=rng.choice(SECONDS))


def _line(
    rng: random.Random, number: int, facet: tuple[bool, Status, SourceType, Validation]
) -> dict[str, Any]:
    suppressed, status, source, validation = facet
    first = _moment(rng)
    place = rng.choice(PLACES)
    return {
        "id": str(UUID(int=rng.getrandbits(128))),
        "status": status,
        "source_type": source,
        "source_visibility": rng.choice(list(Visibility)),
        "validation_status": validation,
        "validation_confidence": rng.choice(["high", "medium", "low"]),
        "validation_detail": {
            "enabled_services": rng.choices(SERVICES[:-1], k=rng.choice([0, 0, 1, 2, 4]))
            + ["rare"] * (number % 500 == 0)
        },
        "composite_score": rng.choice(SCORES) if rng.random() < 0.8 else round(rng.uniform(0, 100), 3),
        "source_url": rng.choice([None, f"https://github.com/acme/{number % 7}/{place}"]),
        "repo_full_name": rng.choice([None, "acme/shop", "ACME/Straße"]),
        "file_path": rng.choice([None, place]),
        "line_number": rng.choice([None, number]),
        "matched_text": "AKIA********WXYZ",
        "pattern": {"name": f"rule {number % 5}", "secret_type": rng.choice(["aws", "aws", "stripe"])},
        "rule": rng.choice([None, *RULES]),
        "author": rng.choice([None, *AUTHORS]),
        "context": rng.choice([None, "production", "test", "vendored"]),
        "first_seen_at": first.isoformat(),
        "last_seen_at": _moment(rng).isoformat(),
        "seen_count": number,
        "resolution_note": f"note {number}",
        "resolution_evidence": {"auto_resolved": bool(number % 2), "resolved_by": None},
        "suppressed_at": first.isoformat() if suppressed else None,
    }


# --- the account


@pytest.fixture(scope="module")
def store(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    with Backend(settings, keys, "http://127.0.0.1") as backend:
        yield backend


@pytest.fixture(scope="module")
def account(store: Backend) -> Account:
    """Return an account with findings of all facets and unfolded changes of every kind.

    Another account has findings with the same ids.
    """
    rng = random.Random(20260101)
    facets = list(product([False, True], Status, SourceType, Validation))
    lines = [_line(rng, n, facets[n % len(facets)]) for n in range(FINDINGS + 60)]
    account, other_account = store.tenant().account, store.tenant().account
    store.import_(account, *lines)
    store.import_(other_account, *lines[:500])
    store.fold()
    ids = [UUID(line["id"]) for line in rng.sample(lines, 700)]
    changes = [
        ("UPDATE findings SET new_scan_id = %s WHERE account_id = %s AND id = ANY(%s)", SCANS[0], ids[:300]),
        (
            "UPDATE findings SET new_scan_id = %s WHERE account_id = %s AND id = ANY(%s)",
            SCANS[1],
            ids[250:400],
        ),
        *(
            ("UPDATE findings SET source = %s WHERE account_id = %s AND id = ANY(%s)", source, ids[at::3])
            for at, source in enumerate(SOURCES)
        ),
        ("UPDATE findings SET author = %s WHERE account_id = %s AND id = ANY(%s)", AUTHORS[1], ids[350:450]),
        ("UPDATE findings SET last_seen_at = %s WHERE account_id = %s AND id = ANY(%s)", DAYS[3], ids[:150]),
        (
            "UPDATE findings SET composite_score = %s WHERE account_id = %s AND id = ANY(%s)",
            50.5,
            ids[100:250],
        ),
        (
            "UPDATE findings SET suppressed_at = %s WHERE account_id = %s AND id = ANY(%s)",
            DAYS[3],
            ids[200:350],
        ),
        (
            "UPDATE findings SET first_seen_at = %s WHERE account_id = %s AND id = ANY(%s)",
            DAYS[-1] + timedelta(seconds=86_399),
            ids[300:450],
        ),
        (
            "UPDATE findings SET validation_detail = %s WHERE account_id = %s AND id = ANY(%s)",
            '{"enabled_services": ["rare", "rare"]}',
            ids[400:430],
        ),
        (
            "UPDATE findings SET validation_status = %s WHERE account_id = %s AND id = ANY(%s)",
            "unreachable",
            ids[500:640],
        ),
    ]
    for statement, value, changed in changes:
        store.sql(statement, value, account.id, changed)
    store.sql("DELETE FROM findings WHERE account_id = %s AND id = ANY(%s)", account.id, ids[640:])
    # A trigger sets the time of a change, so many times need a trigger that is off.
    store.sql("ALTER TABLE findings DISABLE TRIGGER findings_set_updated")
    for n in range(7):
        moment = UPDATED + timedelta(seconds=20 * n)
        store.sql(
            "UPDATE findings SET updated_at = %s WHERE account_id = %s AND seen_count %% 9 = %s",
            moment,
            account.id,
            n,
        )
    store.sql("ALTER TABLE findings ENABLE TRIGGER findings_set_updated")
    return account


# --- the oracle

_FILTERS = {
    "status": "status = %s",
    "source_type": "source_type = %s",
    "validation": "validation_status = %s",
    "suppressed": "(suppressed_at IS NOT NULL) = %s",
    "service": "validation_detail -> 'enabled_services' @> to_jsonb(%s::text)",
    "min_score": "composite_score >= %s",
    "seen_from": "first_seen_at >= %s",
    "seen_before": "first_seen_at < %s",
    "updated_since": "updated_at >= %s",
    "secret_type": "pattern_secret_type = %s",
    "rule": "rule = %s",
    "repo": "lower(repo_full_name) = lower(%s)",
    "visibility": "source_visibility = %s",
    "author": "author = %s",
    "scan": "new_scan_id = %s",
    "context": "context = %s",
    "secret_types": "pattern_secret_type = ANY(%s)",
    "sources": "source = ANY(%s)",
}
_SEVERITIES = {  # the condition of each
    Severity.CRITICAL: "composite_score >= 80",
    Severity.HIGH: "composite_score >= 60 AND composite_score < 80",
    Severity.MEDIUM: "composite_score >= 40 AND composite_score < 60",
    Severity.LOW: "composite_score < 40",
}
_COLUMNS = {"commit": "commit_id"}  # by the name of the field, if they differ
_PLAIN = [f.name for f in fields(Finding) if f.name not in {"pattern", "resolution_evidence"}]


def _where(account: Account, query: FindingQuery) -> tuple[str, list[Any]]:
    conditions, values = ["account_id = %s"], list[Any]([account.id])
    for name, condition in _FILTERS.items():
        if (value := getattr(query, name)) is not None:
            conditions.append(condition)
            values.append(list(value) if isinstance(value, tuple) else value)
    if query.severity is not None:
        conditions.append(_SEVERITIES[query.severity])
    if query.status is Status.ACTIVE and query.suppressed is None:
        conditions.append("suppressed_at IS NULL")
    return " AND ".join(conditions), values


@dataclass(frozen=True)
class Oracle:
    db: psycopg.Connection[tuple[Any, ...]]
    account: Account

    def total(self, query: FindingQuery) -> int:
        if query.terms:
            return len(self._matching(query))
        where, values = _where(self.account, query)
        row = self.db.execute(f"SELECT count(*) FROM findings WHERE {where}".encode(), values).fetchone()
        assert row is not None
        return int(row[0])

    def page(self, query: FindingQuery) -> list[Finding]:
        if query.terms:
            return self._matching(query)[query.offset : query.offset + query.per_page]
        return self._select(query, f"LIMIT {query.per_page} OFFSET {min(query.offset, 2**62)}")

    def _matching(self, query: FindingQuery) -> list[Finding]:
        terms = [(term.casefold(), query.types_of_term(number)) for number, term in enumerate(query.terms)]
        return [
            finding
            for finding in self._select(query, "")
            if all(_contains(term, finding) or finding.pattern.secret_type in types for term, types in terms)
        ]

    def _select(self, query: FindingQuery, slice_: str) -> list[Finding]:
        where, values = _where(self.account, query)
        order = f"{query.order_by} {query.order_dir}, id {query.order_dir}"
        plain = [_COLUMNS.get(name, name) for name in _PLAIN]
        columns = ", ".join([*plain, "pattern_name", "pattern_secret_type", "auto_resolved", "resolved_by"])
        cursor = self.db.execute(
            f"SELECT {columns} FROM findings WHERE {where} ORDER BY {order} {slice_}".encode(), values
        )
        return [_finding(row) for row in cursor.fetchall()]


def _finding(row: tuple[Any, ...]) -> Finding:
    *plain, name, secret_type, auto_resolved, resolved_by = row
    evidence = None if auto_resolved is None else Resolution(auto_resolved, resolved_by)
    return Finding(
        **{
            field: tuple(value) if isinstance(value, list) else value
            for field, value in zip(_PLAIN, plain, strict=True)
        },
        pattern=CredentialPattern(name, secret_type),
        resolution_evidence=evidence,
    )


def _contains(term: str, finding: Finding) -> bool:
    return any(
        term in (text or "").casefold()
        for text in (finding.source_url, finding.file_path, finding.repo_full_name)
    )


# --- the queries

ATTRIBUTES: dict[str, list[Any]] = {
    "updated_since": [UPDATED + timedelta(seconds=s) for s in (-1, 0, 20, 30, 50, 125, 10**8)],
    "severity": list(Severity),
    "secret_type": ["aws", "stripe", "AWS"],
    "rule": [*RULES, "none"],
    "repo": REPOS,
    "visibility": list(Visibility),
    "author": [*AUTHORS, "jo"],
    "scan": SCANS,
    "context": list(FindingContext),
    "secret_types": [(), ("stripe",), ("aws", "stripe", "none")],
    "sources": [(), SOURCES[:1], SOURCES[:2], (*SOURCES, "none")],
}


def _filters(rng: random.Random) -> dict[str, Any]:
    filters: dict[str, Any] = {}
    probability = rng.choice([0.0, 0.15, 0.15, 0.4])
    for name, values in {
        "status": Status,
        "source_type": SourceType,
        "validation": Validation,
        "suppressed": [True, False],
    }.items():
        if rng.random() < probability:
            filters[name] = rng.choice(list(values))  # type: ignore[call-overload]
    if rng.random() < 0.2:
        filters["service"] = rng.choice([*SERVICES, "nothing"])
    if rng.random() < 0.25:
        filters["min_score"] = rng.choice([*SCORES, 12.25, 99.99])
    if rng.random() < 0.25:
        filters["seen_from"] = _moment(rng)
    if rng.random() < 0.25:
        filters["seen_before"] = rng.choice([_moment(rng), rng.choice(DAYS) + timedelta(seconds=86_399)])
    if rng.random() < 0.15:
        filters["severity"] = rng.choice(list(Severity))
    if rng.random() < 0.3:
        filters |= _attribute(rng)
    if rng.random() < 0.2:
        filters["terms"] = terms = tuple(rng.sample(TERMS, rng.choice([1, 1, 2, 3])))
        if rng.random() < 0.5:
            filters["term_types"] = tuple(rng.choice([(), ("aws",), ("aws", "stripe")]) for _ in terms)
    return filters


def _attribute(rng: random.Random) -> dict[str, Any]:
    name, values = rng.choice(list(ATTRIBUTES.items()))
    return {name: rng.choice(values)}


def _page(rng: random.Random, total: int, per_page: int) -> int:
    last = max(1, -(-total // per_page))
    return rng.choice(
        [
            1,
            1,
            last,
            last,
            max(1, last - 1),
            (last + 1) // 2,
            rng.randint(1, last),
            last + 1,
            last + 1000,
            10**30,
        ]
    )


def _random_queries(oracle: Oracle) -> Iterator[tuple[FindingQuery, int, list[Finding]]]:
    rng = random.Random(42)
    for n in range(QUERIES + 90):
        filters = {"service": rng.choice(SERVICES)} if n % 12 == 0 else _filters(rng)
        if n % 24 == 8:  # dates alone, in the order of the score
            filters = {"seen_from": rng.choice(DAYS[:-1])}
        if n >= QUERIES:  # a service and a minimum score: the rollups count the findings below it too
            filters = {"service": rng.choice(SERVICES), "min_score": rng.choice(SCORES)}
        if n >= QUERIES + 30:  # one attribute alone, and active
            filters = _attribute(rng) | ({"status": Status.ACTIVE} if n % 2 else {})
        per_page = rng.choice([1, 2, 7, 25, 199, 200, rng.randint(1, 200)])
        query = FindingQuery(
            **filters, order_by=list(OrderBy)[n % 4], order_dir=list(OrderDir)[n // 4 % 2], per_page=per_page
        )
        total = oracle.total(query)
        query = replace(query, page=_page(rng, total, per_page))
        yield query, total, oracle.page(query)


@pytest.fixture(scope="module")
def answers(store: Backend, account: Account) -> list[tuple[FindingQuery, int, list[Finding]]]:
    assert store.settings.database_url is not None
    with psycopg.connect(store.settings.database_url, autocommit=True) as db:
        db.execute("SET timezone = 'UTC'")
        db.execute(
            "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off"
        )  # sequential scans only
        oracle = Oracle(db, account)
        return list(_random_queries(oracle))


# --- the comparison


@contextmanager
def _counting_access_paths() -> Iterator[Counter[str]]:
    """Count the access paths that lists use."""
    used: Counter[str] = Counter()
    jumps = (rollups.find_buckets, rollups.find_score_buckets)
    with recorded_calls(*jumps, listing._scan_statement, listing._gather_statement, listing._search) as calls:
        yield used
    for call in calls:
        path = call.function.__name__.removeprefix("_")
        used[path] += 1
        if (dimension := call.arguments.get("dimension")) is not None:
            used[f"{path} {dimension.column} {dimension.fine}"] += 1
    used["jump"] = used["find_buckets"] + used["find_score_buckets"]
    used["scan"] = used["scan_statement"] - used["jump"]  # a jump ends in a scan


def _compare(
    store: Backend,
    account: Account,
    answers: list[tuple[FindingQuery, int, list[Finding]]],
    max_cheap_cost: int,
) -> None:
    async def ask(db: Connection) -> list[Page[Finding]]:
        return [
            await listing.select_page(
                db,
                account.id,
                query,
                max_cheap_cost=max_cheap_cost,
                max_gathered=0 if max_cheap_cost == NEVER_CHEAP else filtered.MAX_GATHERED,
            )
            for query, _, _ in answers
        ]

    for (query, total, rows), page in zip(answers, store.run(ask, transaction=False), strict=True):
        assert (page.total, page.page, page.per_page) == (total, query.page, query.per_page), query
        assert [f.id for f in page.items] == [f.id for f in rows], query
        assert page.items == rows, query


@contextmanager
def _other_transactions(store: Backend, account: Account) -> Iterator[None]:
    """Run the block during uncommitted changes of the account, after committed ones of another account."""
    other = store.tenant().account
    line = {"id": str(UUID(int=1)), "composite_score": 50.0, "matched_text": "*" * 8}
    store.import_(other, line)
    store.sql("UPDATE findings SET composite_score = 90 WHERE account_id = %s", other.id)
    assert store.settings.database_url is not None
    with psycopg.connect(store.settings.database_url) as db:
        db.execute(
            "UPDATE findings SET composite_score = 12, "
            "last_seen_at = now() WHERE account_id = %s AND status = 'stale'",
            [account.id],
        )
        db.execute("DELETE FROM findings WHERE account_id = %s AND status = 'resolved'", [account.id])
        yield
        db.rollback()


_CHANGES_AND_REVERSALS = [
    (
        "first_seen_at = first_seen_at + interval '40 days'",
        "first_seen_at = first_seen_at - interval '40 days'",
    ),
    ("last_seen_at = last_seen_at + interval '1 day'", "last_seen_at = last_seen_at - interval '1 day'"),
    ("composite_score = composite_score / 2", "composite_score = composite_score * 2"),
    ("updated_at = updated_at + interval '70 seconds'", "updated_at = updated_at - interval '70 seconds'"),
    ("author = author || '+'", "author = left(author, -1)"),
    (
        "validation_detail = jsonb_set(validation_detail, '{enabled_services,9}', '\"nothing\"')",
        """validation_detail = jsonb_set(validation_detail, '{enabled_services}',
                                         (validation_detail -> 'enabled_services') - 'nothing')""",
    ),
]


def _unfold(store: Backend, account: Account) -> None:
    """Make the rollups differ much from the findings, with deltas that compensate the difference.

    Do nothing if there are such deltas from an earlier test: making them takes longer than the lists.
    """
    if _deltas(store, account) > MANY_DELTAS:
        return
    change = "UPDATE findings SET {} WHERE account_id = %s AND get_byte(uuid_send(id), 0) %% 3 <> 0"
    store.sql("ALTER TABLE findings DISABLE TRIGGER findings_set_updated")
    for change_sql, _ in _CHANGES_AND_REVERSALS:
        store.sql(change.format(change_sql), account.id)
    store.fold()
    for _, reverse_sql in _CHANGES_AND_REVERSALS:
        store.sql(change.format(reverse_sql), account.id)
    store.sql("ALTER TABLE findings ENABLE TRIGGER findings_set_updated")


def _deltas(store: Backend, account: Account) -> int:
    return int(store.sql("SELECT count(*) FROM rollup_deltas WHERE account_id = %s", account.id)[0][0])


def test_the_random_queries_cover_all_filters_and_orders(
    answers: list[tuple[FindingQuery, int, list[Finding]]],
) -> None:
    """Check that the random queries cover every filter, order and kind of page."""
    for name in (
        "status",
        "source_type",
        "validation",
        "suppressed",
        "service",
        "min_score",
        "seen_from",
        "seen_before",
    ):
        assert sum(getattr(query, name) is not None for query, _, _ in answers) > 20, name
    assert sum(bool(query.terms) for query, _, _ in answers) > 30
    assert sum(bool(query.terms) and total > 0 for query, total, _ in answers) > 15
    assert sum(total > 0 and not rows for _, total, rows in answers) > 30, "pages past the end"
    assert sum(total == 0 for _, total, _ in answers) > 10
    assert sum(total > 1000 for _, total, _ in answers) > 30
    assert {1, 200} <= {query.per_page for query, _, _ in answers}
    assert {(query.order_by, query.order_dir) for query, _, rows in answers if rows} == set(
        product(OrderBy, OrderDir)
    )


@pytest.mark.parametrize(
    "cheap",
    [listing.MAX_CHEAP_COST, NEVER_CHEAP, ALWAYS_CHEAP],
    ids=["as it is", "jumping", "never jumping"],
)
@pytest.mark.parametrize("folded", [False, True], ids=["deltas", "folded"])
def test_every_list_equals_plain_sql(
    store: Backend,
    account: Account,
    answers: list[Any],
    *,
    folded: bool,
    cheap: int,
) -> None:
    if folded:
        store.fold()
    else:
        _unfold(store, account)
    assert (_deltas(store, account) == 0) is folded
    with _counting_access_paths() as used:
        _compare(store, account, answers, cheap)
    assert used["search"] > 30
    if cheap == NEVER_CHEAP:
        assert used["jump"] > 50
        for column, kind in (
            ("composite_score", 1),
            ("first_seen_at", 3),
            ("last_seen_at", 5),
            ("composite_score", 7),
            ("updated_at", 17),
        ):
            assert used[f"find_buckets {column} {kind}"] > 2, (column, kind)
        assert used["find_score_buckets"] > 0
    else:
        assert min(used["scan"], used["gather_statement"]) > 20
    if cheap == ALWAYS_CHEAP:
        assert used["jump"] == 0


@pytest.mark.parametrize("cheap", [NEVER_CHEAP, ALWAYS_CHEAP], ids=["jumping", "never jumping"])
def test_uncommitted_changes_are_in_no_list(
    store: Backend, account: Account, answers: list[Any], cheap: int
) -> None:
    some = answers[::3]  # of every filter and order; each list of them is compared by the tests above
    _unfold(store, account)
    with _other_transactions(store, account):
        _compare(store, account, some, cheap)
        store.fold()
        _compare(store, account, some, cheap)


@pytest.mark.parametrize("filters", [{"sources": SOURCES[:1]}, {"secret_types": ("stripe",)}], ids=str)
def test_a_list_with_one_value_is_read_in_the_order_of_its_index(
    store: Backend, account: Account, filters: dict[str, Any]
) -> None:
    """With `= ANY(%s)` the planner sorts, or passes all findings with a higher score of other sources."""

    async def explain(db: Connection) -> str:
        _, statement = await filtered.choose_statement(db, account.id, FindingQuery(**filters))
        assert statement is not None
        await db.execute("SET LOCAL enable_seqscan = off")
        cursor = await db.execute(f"EXPLAIN {statement[0]}".encode(), statement[1], prepare=False)
        return "\n".join(line for (line,) in await cursor.fetchall())

    plan = store.run(explain)
    assert re.search(r"using findings_(source_score|type) ", plan), plan
    assert "Sort" not in plan
