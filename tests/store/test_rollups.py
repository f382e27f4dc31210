"""Test that the rollups always equal a recount of the findings, also during concurrent writes and folds."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outcrop.domain.account import Account, Plan, Role, token_digest
from outcrop.domain.clock import now
from outcrop.domain.finding import (
    Action,
    Confidence,
    CredentialPattern,
    Finding,
    FindingContext,
    SourceType,
    Status,
    Validation,
    Visibility,
)
from outcrop.domain.paging import FindingQuery
from outcrop.runtime import prepare_database
from outcrop.services import accounts
from outcrop.services import findings as triage
from outcrop.settings import SecretText, Settings
from outcrop.store import db as database
from outcrop.store import schema
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, rollups, suppressions
from outcrop.store.findings.facets import list_matching_facets
from outcrop.store.findings.record import FindingRecord
from outcrop.store.findings.rollups import CellFilter
from outcrop.store.findings.suppressions import SuppressionRule, SuppressionScope
from outcrop.store.locks import AdvisoryLock
from outcrop.store.people import keys
from tests.conftest import SECRET_KEY
from tests.support.backend import Backend
from tests.support.connections import borrow_connection
from tests.support.databases import migrated_database, new_database
from tests.support.factories import make_line, make_scan

DAYS = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2026, 1, 31, tzinfo=UTC),
    datetime(2026, 2, 1, tzinfo=UTC),
    datetime(9999, 12, 31, tzinfo=UTC),
]
SECONDS = [0, 1, 86_399]
SCORES = [0.0, 7.999, 8.0, 50.0, 50.5, 99.999, 100.0]
TYPES = ["aws", "stripe_key", ""]
SERVICES = ["aws", "aws_s3", "stripe", "ünï"]


@pytest.fixture(scope="module")
def store(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Create a database that no other test writes to, since the counts of all accounts are compared."""
    url = migrated_database(cluster, f"rollups_{worker_id}")
    settings = Settings(
        database_url=url, data_dir=tmp_path_factory.mktemp("data"), secret_key=SecretText(SECRET_KEY)
    )
    with Backend(settings, asyncio.run(prepare_database(settings, url)), "http://127.0.0.1") as backend:
        yield backend


def _connect(store: Backend) -> AbstractContextManager[psycopg.Connection[tuple[Any, ...]]]:
    """Return an autocommit connection."""
    assert store.settings.database_url is not None
    return borrow_connection(store.settings.database_url)


def _connect_for_transactions(store: Backend) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a new connection on which each statement begins a transaction."""
    assert store.settings.database_url is not None
    return psycopg.connect(store.settings.database_url)


def _mismatches(store: Backend) -> list[tuple[int, int, str, int, int, int, int]]:
    return store.run(rollups.find_mismatches)


# --- random writes


def _moment(rng: random.Random) -> datetime:
    return rng.choice(DAYS) + timedelta(seconds=rng.choice(SECONDS))


def _services(rng: random.Random) -> Jsonb:
    return Jsonb(
        {"enabled_services": rng.choices(SERVICES, k=rng.choice([0, 1, 2, 3])), "note": rng.random()}
    )


_INSERT = """
    INSERT INTO findings (account_id, id, status, validation_status, validation_confidence, validation_detail,
                          composite_score, source_type, source_visibility, matched_text, pattern_name,
                          pattern_secret_type, first_seen_at, last_seen_at, seen_count, resolved_at,
                          auto_resolved, suppressed_at)
    VALUES {}
    ON CONFLICT (account_id, id) DO UPDATE
    SET composite_score = excluded.composite_score, validation_detail = excluded.validation_detail,
        last_seen_at = excluded.last_seen_at"""
_ROW = "(%s, %s, %s, %s, 'low', %s, %s, %s, 'public', '********', 'rule', %s, %s, %s, 1, %s, %s, %s)"


def _insert(db: psycopg.Connection[Any], account: Account, rng: random.Random, ids: list[UUID]) -> None:
    """Insert or update findings with random values, all with the same status, in one statement."""
    status = rng.choice(list(Status))
    is_resolved = status is Status.RESOLVED
    rows: list[list[Any]] = [
        [
            *(account.id, id_, status, rng.choice(list(Validation)), _services(rng), rng.choice(SCORES)),
            *(rng.choice(list(SourceType)), rng.choice(TYPES), _moment(rng), _moment(rng)),
            *(DAYS[1] if is_resolved else None, False if is_resolved else None),
            rng.choice([None, DAYS[1]]),
        ]
        for id_ in ids
    ]
    statement = _INSERT.format(", ".join([_ROW] * len(rows)))
    db.execute(statement.encode(), [value for row in rows for value in row])


# Raw SQL, as an operator might write it: the triggers must count it without help from the caller.
_CHANGES: list[tuple[str, Callable[[random.Random], list[Any]]]] = [
    ("last_seen_at = %s", lambda rng: [_moment(rng)]),
    ("first_seen_at = %s", lambda rng: [_moment(rng)]),
    ("composite_score = %s", lambda rng: [rng.choice(SCORES)]),
    ("composite_score = 100 - composite_score, seen_count = seen_count + 1", lambda _: []),
    ("validation_detail = %s", lambda rng: [_services(rng)]),
    ("validation_detail = jsonb_set(validation_detail, '{enabled_services}', '[]')", lambda _: []),
    (
        "validation_detail = %s, composite_score = %s, last_seen_at = %s",
        lambda rng: [_services(rng), rng.choice(SCORES), _moment(rng)],
    ),
    ("status = 'stale', resolved_at = NULL, auto_resolved = NULL", lambda _: []),
    ("status = 'resolved', resolved_at = now(), auto_resolved = true", lambda _: []),
    ("suppressed_at = %s", lambda rng: [rng.choice([None, DAYS[2]])]),
    (
        "source_type = %s, validation_status = %s",
        lambda rng: [rng.choice(list(SourceType)), rng.choice(list(Validation))],
    ),
    ("pattern_secret_type = %s", lambda rng: [rng.choice(TYPES)]),
    (
        "pattern_secret_type = %s, status = 'active', resolved_at = NULL, auto_resolved = NULL",
        lambda rng: [rng.choice(TYPES)],
    ),
    ("seen_count = seen_count + 1", lambda _: []),
]


def _update(db: psycopg.Connection[Any], account: Account, rng: random.Random, ids: list[UUID]) -> None:
    change, values = rng.choice(_CHANGES)
    db.execute(
        f"UPDATE findings SET {change} WHERE account_id = %s AND id = ANY(%s)".encode(),
        [*values(rng), account.id, ids],
    )


def _delete(db: psycopg.Connection[Any], account: Account, ids: list[UUID]) -> None:
    db.execute("DELETE FROM findings WHERE account_id = %s AND id = ANY(%s)", [account.id, ids])


def _work(db: psycopg.Connection[Any], account: Account, rng: random.Random, pool: list[UUID]) -> None:
    """Insert, update or delete some findings of the pool at random."""
    ids = rng.sample(pool, rng.randint(1, len(pool)))
    match rng.choices(["insert", "update", "delete"], [3, 6, 1])[0]:
        case "insert":
            _insert(db, account, rng, ids)
        case "update":
            _update(db, account, rng, ids)
        case "delete":
            _delete(db, account, ids[: len(ids) // 3])


# --- checks independent of `find_mismatches`, which counts with the triggers' own functions


def _check_totals(store: Backend, account: Account) -> None:
    async def counted(db: Connection) -> dict[tuple[Any, ...], tuple[int, int]]:
        found = {}
        for status, suppressed, service in product([None, *Status], [None, False, True], ["", *SERVICES]):
            facets = list_matching_facets(FindingQuery(status=status, suppressed=suppressed))
            found[status, suppressed, service] = await rollups.count_totals(
                db, CellFilter(account.id, facets, service)
            )
        return found

    rows = store.sql(
        "SELECT status, suppressed_at IS NOT NULL, validation_detail -> 'enabled_services'"
        " FROM findings WHERE account_id = %s",
        account.id,
    )
    for (status, suppressed, service), (everything, chosen) in store.run(counted).items():
        hidden = False if status is Status.ACTIVE and suppressed is None else suppressed
        naive = sum(
            (status is None or s == status)
            and (hidden is None or h == hidden)
            and (not service or service in labels)
            for s, h, labels in rows
        )
        assert (everything, chosen) == (len(rows), naive), (status, suppressed, service)
    every_facet = store.run(lambda db: rollups.count_by_type(db, account.id, list(range(250))))
    assert every_facet == store.sql(
        """SELECT pattern_secret_type, count(*) FROM findings WHERE account_id = %s
           GROUP BY 1 ORDER BY 2 DESC, pattern_secret_type COLLATE "C" """,
        account.id,
    )


def _check_copies(store: Backend) -> None:
    """Check that the columns copied to finding_search and finding_services equal the finding's."""
    wrong = store.sql("""
        SELECT s.id FROM finding_services s LEFT JOIN findings f USING (account_id, id)
        WHERE (s.facet, s.composite_score, s.first_seen_at)
              IS DISTINCT FROM (f.facet, f.composite_score, f.first_seen_at)
           OR NOT f.validation_detail -> 'enabled_services' ? s.service
        UNION ALL
        SELECT f.id
        FROM findings f, jsonb_array_elements_text(f.validation_detail -> 'enabled_services') l (label)
        WHERE NOT EXISTS (SELECT FROM finding_services s
                          WHERE s.account_id = f.account_id AND s.id = f.id AND s.service = l.label)
        UNION ALL
        SELECT s.id FROM finding_search s LEFT JOIN findings f USING (account_id, id)
        WHERE (s.facet, s.composite_score, s.first_seen_at)
              IS DISTINCT FROM (f.facet, f.composite_score, f.first_seen_at)""")
    assert wrong == []


# --- tests


@pytest.mark.parametrize("seed", range(4))
def test_counts_equal_a_recount_after_random_writes(store: Backend, seed: int) -> None:
    rng = random.Random(seed)
    account, other = store.tenant().account, store.tenant().account
    pool = [UUID(int=rng.getrandbits(128)) for _ in range(40)]  # the same ids in both accounts
    store.import_(account, *(make_line(id=str(id_), composite_score=rng.choice(SCORES)) for id_ in pool[:20]))
    with _connect(store) as db:
        for _ in range(25):
            for _ in range(rng.randint(1, 4)):
                _work(db, rng.choice([account, other]), rng, pool)
            assert _mismatches(store) == []
            if rng.random() < 0.4:
                store.fold()
                assert _mismatches(store) == []
                assert store.sql("SELECT count(*) FROM rollup_deltas") == [(0,)]
    for checked_account in (account, other):
        _check_totals(store, checked_account)
    _check_copies(store)


def test_a_change_of_neither_type_nor_facet_adds_no_type_delta(store: Backend) -> None:
    account = store.tenant().account
    pool = [uuid4() for _ in range(10)]
    with _connect(store) as db:
        _insert(db, account, random.Random(8), pool)
        store.fold()
        for change in (
            "seen_count = seen_count + 1",
            "composite_score = 3, last_seen_at = '2026-03-01Z'",
            "pattern_name = 'better'",
        ):
            db.execute(f"UPDATE findings SET {change} WHERE account_id = %s".encode(), [account.id])
        assert store.sql(
            "SELECT count(*) FROM rollup_deltas WHERE account_id = %s AND kind = 11", account.id
        ) == [(0,)]
        db.execute(
            "UPDATE findings SET pattern_secret_type = 'other' WHERE account_id = %s AND id = %s",
            [account.id, pool[0]],
        )
        assert store.sql(
            "SELECT sum(n), count(*) FROM rollup_deltas WHERE account_id = %s AND kind = 11", account.id
        ) == [(0, 2)]
    assert _mismatches(store) == []


def test_the_migration_counts_existing_findings(cluster: str, worker_id: str) -> None:
    """Apply migration 0009 to a database that has findings."""
    url = new_database(cluster, f"upgraded_{worker_id}")

    async def upgrade() -> list[tuple[int, int, str, int, int, int, int]]:
        async with await database.connect(url) as db:
            async with db.transaction():
                await schema.create_schema(db, 8)
            await db.execute(
                "INSERT INTO accounts (slug, plan, email, created_at)"
                " VALUES ('old', 'growth', 'a@b.example', now())"
            )
            await db.execute(
                """INSERT INTO findings (account_id, id, status, validation_status, validation_confidence,
                       validation_detail, composite_score, source_type, source_visibility, matched_text,
                       pattern_name, pattern_secret_type, first_seen_at, last_seen_at, seen_count)
                   SELECT 1, gen_random_uuid(), (ARRAY['active', 'stale'])[n % 2 + 1], 'valid', 'low',
                       '{"enabled_services": []}', n, 'repo', 'public', '********', 'rule',
                       'type' || n % 3, now(), now(), 1
                   FROM generate_series(1, 30) n"""
            )
            assert "0009_material" in await schema.migrate(db)
            return await rollups.find_mismatches(db)

    assert asyncio.run(upgrade()) == []


def test_a_rolled_back_change_is_not_counted(store: Backend) -> None:
    rng = random.Random(5)
    account = store.tenant().account
    pool = [uuid4() for _ in range(10)]
    with _connect(store) as db:
        _insert(db, account, rng, pool)
        with db.transaction(force_rollback=True):
            for _ in range(5):
                _work(db, account, rng, pool)
    assert _mismatches(store) == []
    _check_totals(store, account)


def test_concurrent_folds_and_writes_lose_no_count(store: Backend) -> None:
    """Run four writers, two folds, and a reader that compares the total with a count in one snapshot."""
    account = store.tenant().account
    pools = [[uuid4() for _ in range(25)] for _ in range(4)]
    writing = threading.Barrier(5, timeout=60)
    done = threading.Event()
    deadline = time.monotonic() + 60

    def write(number: int) -> int:
        rng = random.Random(number)
        writing.wait()
        with _connect_for_transactions(store) as db:
            for _ in range(60):
                for _ in range(rng.randint(1, 3)):
                    _work(db, account, rng, pools[number])
                (db.rollback if rng.random() < 0.1 else db.commit)()
        return 0

    def fold() -> int:
        async def repeat(db: Connection) -> int:
            moved = 0
            while not done.is_set() and time.monotonic() < deadline:
                moved += await rollups.fold_deltas(db)
            return moved

        return store.run(repeat, transaction=False)

    def read() -> int:
        async def repeat(db: Connection) -> int:
            comparisons = 0
            while not done.is_set() and time.monotonic() < deadline:
                async with database.snapshot(db):
                    total, _ = await rollups.count_totals(db, CellFilter(account.id))
                    row = await (
                        await db.execute("SELECT count(*) FROM findings WHERE account_id = %s", [account.id])
                    ).fetchone()
                assert row is not None
                assert total == row[0]
                comparisons += 1
            return comparisons

        return store.run(repeat, transaction=False)

    with ThreadPoolExecutor(7) as threads:
        helpers = [threads.submit(fold), threads.submit(fold), threads.submit(read)]
        writers = [threads.submit(write, n) for n in range(4)]
        try:
            writing.wait()
            for writer in writers:
                writer.result(60)
        finally:
            done.set()
        first, second, comparisons = (helper.result(60) for helper in helpers)
    assert first + second > 200, "there was nothing to fold"
    assert comparisons > 20
    assert _mismatches(store) == []
    store.fold()
    assert _mismatches(store) == []
    assert store.sql("SELECT count(*) FROM rollup_deltas") == [(0,)]
    _check_totals(store, account)
    _check_copies(store)


def test_a_second_fold_at_the_same_time_does_nothing(store: Backend) -> None:
    account = store.tenant().account
    with _connect(store) as db:
        _insert(db, account, random.Random(1), [uuid4()])
    with _connect_for_transactions(store) as db:
        db.execute("SELECT pg_advisory_xact_lock(%s)", [AdvisoryLock.FOLD_ROLLUPS])
        assert store.fold() == 0
        db.rollback()
    assert store.fold() > 0
    assert _mismatches(store) == []


def test_count_below_and_find_buckets_agree_with_a_sort(store: Backend) -> None:
    rng = random.Random(11)
    account = store.tenant().account
    with _connect(store) as db:
        _insert(db, account, rng, [uuid4() for _ in range(60)])
        store.fold()
        _insert(db, account, rng, [uuid4() for _ in range(60)])  # half of the counts are deltas

    for dimension in (rollups.SCORE, rollups.FIRST_SEEN, rollups.LAST_SEEN):
        values = sorted(
            v
            for (v,) in store.sql(
                f"SELECT {dimension.column} FROM findings WHERE account_id = %s", account.id
            )
        )
        buckets = [rollups.bucket_of(value) for value in values]

        async def ask(
            db: Connection, dimension: rollups.Dimension = dimension, buckets: list[int] = buckets
        ) -> None:
            cells = CellFilter(account.id)
            for bucket in {b + step for b in buckets for step in (-1, 0, 1)}:
                assert await rollups.count_below(db, cells, dimension, bucket) == sum(
                    b < bucket for b in buckets
                )
            for position, place in enumerate(
                await rollups.find_buckets(db, cells, dimension, range(len(buckets)))
            ):
                assert place.bucket == buckets[position]
                assert (place.before, place.count) == (
                    sum(b < place.bucket for b in buckets),
                    buckets.count(place.bucket),
                )

        store.run(ask)


# --- a wrong count is reported


def _doctor(store: Backend) -> subprocess.CompletedProcess[str]:
    assert store.settings.database_url is not None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OUTCROP_")} | {
        "OUTCROP_DATABASE_URL": store.settings.database_url,
        "OUTCROP_DATA_DIR": str(store.settings.data_dir),
        "OUTCROP_SECRET_KEY": SECRET_KEY,
    }
    command = [sys.executable, "-m", "outcrop", "doctor", "--json"]
    return subprocess.run(
        command,
        env=environment,
        cwd=store.settings.data_dir,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("table", ["rollups", "rollup_deltas"])
def test_a_wrong_count_is_reported_and_doctor_exits_with_2(store: Backend, table: str) -> None:
    account = store.tenant().account
    store.import_(account, make_line(composite_score=50.5))
    store.fold()
    assert _mismatches(store) == []
    healthy = _doctor(store)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr

    wrong = (account.id, 1, "", 50, 17)
    ((recorded,),) = store.sql(
        "SELECT coalesce(sum(n), 0)::int FROM rollup_cells WHERE (account_id, kind, service, bucket, "
        "facet) = (%s, %s, %s, %s, %s)",
        *wrong,
    )
    assert recorded == 0, "no finding has this facet"
    store.sql(
        f"INSERT INTO {table} (account_id, kind, service, bucket, facet, n) VALUES (%s, %s, %s, %s, %s, 3)",
        *wrong,
    )
    try:
        assert _mismatches(store) == [(*wrong, 0, 3)]
        report = _doctor(store)
        assert report.returncode == 2
        assert {"check": "counts", "ok": False, "detail": "1 cells differ from a recount"} in json.loads(
            report.stdout
        )
    finally:
        store.sql(f"DELETE FROM {table} WHERE account_id = %s AND facet = 17 AND kind = 1", account.id)
    assert _mismatches(store) == []


def test_a_missing_count_is_reported(store: Backend) -> None:
    account = store.tenant().account
    store.import_(account, make_line(composite_score=50.5, validation_detail={"enabled_services": ["aws"]}))
    store.fold()
    cells = store.sql("SELECT kind, service, bucket, facet, n FROM rollups WHERE account_id = %s", account.id)
    assert len(cells) > 8
    for kind, service, bucket, facet, n in cells:
        cell = (account.id, kind, service, bucket, facet)
        store.sql(
            "DELETE FROM rollups WHERE (account_id, kind, service, bucket, facet) = (%s, %s, %s, %s, %s)",
            *cell,
        )
        assert _mismatches(store) == [(*cell, n, 0)]
        store.sql(
            "INSERT INTO rollups (account_id, kind, service, bucket, facet, n) VALUES (%s, %s, %s, %s, %s, "
            "%s)",
            *cell,
            n,
        )
    assert _mismatches(store) == []


# --- an import blocks nobody


def _record(id_: UUID, score: float) -> FindingRecord:
    moment = DAYS[1]
    return FindingRecord(
        Finding(
            *(
                id_,
                Status.ACTIVE,
                Validation.VALID,
                Confidence.HIGH,
                {"enabled_services": ["aws"]},
                score,
                SourceType.REPO,
                Visibility.PUBLIC,
            ),
            *(None, "acme/shop", "a.py", 1, "********", CredentialPattern("rule", "aws"), moment, moment, 1),
        )
    )


def test_triage_does_not_wait_for_an_open_import(store: Backend) -> None:
    account = store.tenant().account
    existing = [uuid4() for _ in range(6)]
    store.import_(account, *(make_line(id=str(id_), composite_score=50.0) for id_ in existing))

    async def triage_during_import(importer: Connection) -> None:
        assert store.settings.database_url is not None
        async with (
            await database.connect(store.settings.database_url) as db,
            bulk.open_bulk_import(importer),
        ):
            # New findings and an existing one, in the same cells as those of the triage below.
            await bulk.upsert_batch(
                importer,
                account.id,
                [_record(id_, 50.0) for id_ in [*(uuid4() for _ in range(300)), existing[5]]],
            )
            async with asyncio.timeout(60):
                async with db.transaction():
                    await triage.close_finding(
                        db,
                        store.keys,
                        account.id,
                        existing[0],
                        Action.RESOLVE,
                        note="now",
                        by="a@example.com",
                        now=now(),
                    )
                async with db.transaction():
                    await triage.suppress_finding(db, account.id, existing[1], by="a@example.com", now=now())
            async with asyncio.timeout(60):
                assert await rollups.fold_deltas(db) > 0
            async with asyncio.timeout(60):
                await db.execute(
                    "UPDATE findings SET composite_score = 90 WHERE account_id = %s AND id = %s",
                    [account.id, existing[2]],
                )
            total, _ = await rollups.count_totals(db, CellFilter(account.id))
            assert total == len(existing), "uncommitted findings are not counted"

    store.run(triage_during_import, transaction=False)
    assert store.sql("SELECT count(*) FROM findings WHERE account_id = %s", account.id) == [(306,)]
    assert _mismatches(store) == []
    _check_totals(store, account)


def test_an_import_counts_new_findings_together_as_the_triggers_count_them(store: Backend) -> None:
    """Every attribute, findings that the same import changes again, and some that a rule hides."""
    account = store.tenant().account
    rng = random.Random(41)

    def make(id_: UUID) -> FindingRecord:
        finding = replace(
            _record(id_, rng.choice(SCORES)).finding,
            status=rng.choice([Status.ACTIVE, Status.STALE]),
            validation_status=rng.choice(list(Validation)),
            validation_detail={"enabled_services": rng.sample(SERVICES, k=rng.randrange(3))},
            source_visibility=rng.choice(list(Visibility)),
            repo_full_name=rng.choice([None, "acme/shop", "Acme/" + "x" * 600]),
            pattern=CredentialPattern("rule", rng.choice(TYPES)),
            first_seen_at=_moment(rng),
            last_seen_at=_moment(rng),
            rule=rng.choice([None, "aws_key"]),
            author=rng.choice([None, "Ada"]),
            context=rng.choice([None, *FindingContext]),
        )
        fingerprint = rng.choice([None, b"one", b"two"])
        source = rng.choice([None, "github.com/repositories/1"])
        return FindingRecord(
            finding, fingerprint=fingerprint, source=source, new_scan_id=rng.choice([None, scan])
        )

    scan, ids = uuid4(), [uuid4() for _ in range(120)]

    async def add_rule(db: Connection) -> None:
        rule = SuppressionRule(
            uuid4(), SuppressionScope(secret_type=TYPES[0]), "a test", "a test", now(), None
        )
        await suppressions.insert(db, account.id, rule)

    async def import_all(db: Connection) -> None:
        async with bulk.open_bulk_import(db):
            for number, batch in enumerate((ids[:50], ids[50:], ids[20:80])):
                await bulk.upsert_batch(db, account.id, [make(id_) for id_ in batch])
                if number == 0:  # the others are counted at the end
                    await bulk.count_new(db)
        await bulk.count_new(db)  # nothing, and no error

    store.run(add_rule)
    store.run(import_all, transaction=False)
    assert store.sql("SELECT count(*) FROM findings WHERE account_id = %s", account.id) == [(120,)]
    hidden = "SELECT count(*) > 10 FROM findings WHERE account_id = %s AND suppressed_by IS NOT NULL"
    assert store.sql(hidden, account.id) == [(True,)]
    assert _mismatches(store) == []
    _check_totals(store, account)
    pending_ids = "SELECT DISTINCT id FROM incident_changes WHERE account_id = %s"
    places = "SELECT DISTINCT incident_id FROM findings WHERE account_id = %s"
    assert set(store.sql(places, account.id)) <= set(store.sql(pending_ids, account.id))
    kinds = "SELECT count(DISTINCT kind) FROM rollups WHERE account_id = %s AND n > 0"
    assert store.sql(kinds, account.id) == [(22,)]


# --- a deleted account leaves nothing


def _tables(store: Backend) -> list[str]:
    rows = store.sql(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = "
        "'BASE TABLE'"
    )
    return sorted(name for (name,) in rows)


def _with_account_id(store: Backend) -> list[str]:
    rows = store.sql(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = "
        "'account_id'"
    )
    return sorted({name for (name,) in rows} & set(_tables(store)))


def _traces(store: Backend, account_id: int, words: list[str]) -> dict[str, int]:
    """Return by table the number of rows that belong to the account or contain one of the words."""
    found = {}
    owned = _with_account_id(store)
    for table in _tables(store):
        texts = f"SELECT lower(t::text) AS text FROM {table} t OFFSET 0"  # OFFSET: written out once per row
        ((rows,),) = store.sql(
            f"SELECT count(*) FROM ({texts}) r"
            " WHERE EXISTS (SELECT FROM unnest(%s::text[]) w WHERE strpos(r.text, lower(w)) > 0)",
            words,
        )
        if table in owned:
            rows += store.sql(f"SELECT count(*) FROM {table} WHERE account_id = %s", account_id)[0][0]
        if rows:
            found[table] = rows
    return found


def test_a_deleted_account_leaves_no_trace(store: Backend) -> None:
    kept = store.tenant()
    store.import_(kept.account, make_line())
    deleted = store.tenant(Plan.ENTERPRISE, slug=f"gone-{uuid4().hex[:8]}")
    account, member = deleted.account, f"member-of-{deleted.account.slug}@example.org"
    store.run(
        lambda db: accounts.create_member(
            db, account, email=member, role=Role.ADMIN, password=None, by="test", now=now()
        )
    )
    lines = [
        make_line(
            secret=f"s3cret-{deleted.account.slug}-{n}",
            file_path=f"{account.slug}/{n}.py",
            composite_score=float(n),
        )
        for n in range(20)
    ]
    store.import_(account, *lines)
    scan = make_scan(target=f"github:{account.slug}")
    store.scan(account, scan)

    async def use_key(db: Connection) -> None:
        digest = token_digest(deleted.key)
        assert digest is not None
        assert (await keys.admit_request(db, digest, limit=None)).caller is not None

    store.run(use_key)

    async def close_one(db: Connection) -> None:
        await triage.close_finding(
            db, store.keys, account.id, UUID(lines[0]["id"]), Action.RESOLVE, note="x", by=member, now=now()
        )

    store.run(close_one)  # after the fold of the import: some counts are rollups, some are deltas
    words = [
        account.slug,
        account.email,
        member,
        deleted.key_id,
        str(scan.id),
        *(line["id"] for line in lines),
    ]
    before = _traces(store, account.id, words)
    assert set(before) >= {
        *(
            "accounts",
            "api_keys",
            "audit",
            "finding_search",
            "finding_services",
            "findings",
            "members",
            "outbox",
        ),
        *("rate_windows", "rollup_deltas", "rollups", "scans"),
    }
    neighbour = _traces(store, kept.account.id, [kept.account.slug])

    store.run(lambda db: accounts.delete_account(db, account.slug))

    assert _traces(store, account.id, words) == {}
    store.fold()
    assert _traces(store, account.id, words) == {}
    assert _mismatches(store) == []
    assert _traces(store, kept.account.id, [kept.account.slug]).keys() >= neighbour.keys() - {"rollup_deltas"}


def test_a_concurrent_fold_does_not_restore_a_deleted_account(store: Backend) -> None:
    """Delete an account while a fold runs: either one may come first."""
    for n in range(10):
        account = store.tenant().account
        with _connect(store) as db:
            _insert(db, account, random.Random(n), [uuid4() for _ in range(30)])
        with ThreadPoolExecutor(2) as threads:
            folding = threads.submit(store.fold)
            deleting = threads.submit(
                store.run, lambda db, slug=account.slug: accounts.delete_account(db, slug)
            )
            folding.result(30)
            deleting.result(30)
        store.fold()
        assert _traces(store, account.id, [account.slug]) == {}
