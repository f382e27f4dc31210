"""Incidents equal a recount by plain SQL after random histories of changes, also with open transactions."""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from outcrop.domain.account import Account
from outcrop.domain.finding import Severity, SourceType, Status, Validation
from outcrop.domain.incident import Incident, IncidentOrder, IncidentQuery, IncidentStatus
from outcrop.domain.paging import OrderDir, Page
from outcrop.runtime import prepare_database
from outcrop.services import maintenance
from outcrop.services.findings import incidents as service
from outcrop.settings import SecretText, Settings
from outcrop.store.findings import rollups
from outcrop.store.incidents import listing, pending
from outcrop.store.operator_key import OperatorKey
from tests.conftest import SECRET_KEY
from tests.support.backend import Backend
from tests.support.databases import migrated_database

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FINGERPRINTS = [None, None, *(bytes([n]) * 32 for n in range(8))]
SCORES = [0.0, 39.9, 40.0, 60.0, 62.5, 80.0, 99.5, 100.0]
JO = "Jo@example.com"
# Every column of an incident by its definition, independent of the view that computes them.
RECOUNT = """
    SELECT f.incident_id, count(*), count(*) FILTER (WHERE status IN ('active', 'stale')),
           (SELECT max(composite_score) FROM findings o WHERE o.incident_id = f.incident_id AND (
                o.status IN ('active', 'stale')
                OR NOT EXISTS (SELECT FROM findings p WHERE p.incident_id = o.incident_id
                               AND p.status IN ('active', 'stale')))),
           CASE WHEN bool_or(validation_status = 'valid') THEN 'valid'
                ELSE (SELECT validation_status FROM findings o WHERE o.incident_id = f.incident_id
                      ORDER BY validation_status = 'unvalidated', validation_detail ->> 'checked_at' DESC NULLS LAST,
                               composite_score DESC, id LIMIT 1) END,
           min(first_seen_at), max(last_seen_at),
           CASE WHEN NOT bool_or(status IN ('active', 'stale')) THEN max(closed_at) END
    FROM findings f WHERE account_id = %s GROUP BY f.incident_id ORDER BY 1"""
STORED = """
    SELECT id, places, open_places, composite_score, validation_status, first_seen_at, last_seen_at, closed_at
    FROM incidents WHERE account_id = %s ORDER BY 1"""


@pytest.fixture(scope="module")
def store(cluster: str, worker_id: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Create a database that no other test writes to, since the counts of all accounts are compared."""
    url = migrated_database(cluster, f"incidents_{worker_id}")
    settings = Settings(
        database_url=url, data_dir=tmp_path_factory.mktemp("data"), secret_key=SecretText(SECRET_KEY)
    )
    with Backend(settings, asyncio.run(prepare_database(settings, url)), "http://127.0.0.1") as backend:
        yield backend


def _values(rng: random.Random) -> dict[str, Any]:
    """Return random values of the columns that a change sets."""
    status = rng.choice(list(Status))
    is_resolved = status is Status.RESOLVED
    return {
        "status": status,
        "validation_status": rng.choice(list(Validation)),
        "validation_detail": Jsonb(
            {"enabled_services": rng.choice([[], ["aws"], ["aws", "s3"]])}
            | ({"checked_at": f"2026-01-{rng.randint(10, 19)}T00:00:00+00:00"} if rng.random() < 0.7 else {})
        ),
        "composite_score": rng.choice(SCORES),
        "pattern_secret_type": rng.choice(["aws", "stripe"]),
        "first_seen_at": NOW - timedelta(days=rng.randint(50, 90), seconds=rng.randint(0, 3)),
        "last_seen_at": NOW - timedelta(days=rng.randint(0, 40)),
        "resolved_at": NOW if is_resolved else None,
        "auto_resolved": False if is_resolved else None,
        "fingerprint": rng.choice(FINGERPRINTS),
    }


def _insert(db: psycopg.Connection[Any], account: Account, rng: random.Random, ids: list[UUID]) -> None:
    for id_ in ids:
        values = _values(rng) | {
            "account_id": account.id,
            "id": id_,
            "validation_confidence": "low",
            "source_type": rng.choice(list(SourceType)),
            "source_visibility": "public",
            "matched_text": "AKIA********WXYZ",
            "pattern_name": "rule",
            "seen_count": 1,
        }
        names = ", ".join(values)
        db.execute(
            f"INSERT INTO findings ({names}) VALUES ({', '.join(['%s'] * len(values))})".encode(),
            list(values.values()),
        )


def _update(db: psycopg.Connection[Any], account: Account, rng: random.Random, ids: list[UUID]) -> None:
    values = _values(rng)
    if rng.random() < 0.7:
        del values["fingerprint"]
    group = ["status", "resolved_at", "auto_resolved"]
    kept = rng.choice([list(values), group, group, *([name] for name in values if name not in group)])
    values = {name: values[name] for name in kept}
    columns = ", ".join(f"{name} = %s" for name in values)
    db.execute(
        f"UPDATE findings SET {columns} WHERE account_id = %s AND id = ANY(%s)".encode(),
        [*values.values(), account.id, ids],
    )


def _delete(db: psycopg.Connection[Any], account: Account, _: random.Random, ids: list[UUID]) -> None:
    db.execute("DELETE FROM findings WHERE account_id = %s AND id = ANY(%s)", [account.id, ids])


def _assert_equal(store: Backend, account: Account) -> None:
    store.run(lambda db: pending.apply_changes(db, account.id), transaction=False)
    assert store.sql(STORED, account.id) == store.sql(RECOUNT, account.id)
    assert store.run(rollups.find_mismatches) == []
    counted, wrong = store.run(lambda db: pending.find_mismatches(db, 1000))
    assert (counted > 0, wrong) == (True, [])


@pytest.mark.parametrize("seed", range(3))
def test_incidents_equal_a_recount_after_a_random_history_of_open_transactions(
    store: Backend, seed: int
) -> None:
    rng, account = random.Random(seed), store.tenant().account
    ids: list[UUID] = []
    for _ in range(12):
        with (
            psycopg.connect(store.settings.database_url or "") as early,
            psycopg.connect(store.settings.database_url or "") as late,
        ):
            rng.shuffle(ids)
            half = len(ids) // 2
            for db, own in ((early, ids[:half]), (late, ids[half:])):  # no row is written by both
                added = [UUID(int=rng.getrandbits(128)) for _ in range(rng.randint(0, 6))]
                _insert(db, account, rng, added)
                if own:
                    _update(db, account, rng, rng.sample(own, rng.randint(1, len(own))))
                gone = rng.sample(own, len(own) // 4)
                _delete(db, account, rng, gone)
                ids = [id_ for id_ in [*ids, *added] if id_ not in gone]
            # Neither transaction waits for the other, nor does the process that counts.
            early.commit()
            store.run(lambda db: pending.apply_changes(db, account.id), transaction=False)
            rng.choice([late.commit, late.commit, late.rollback])()
        ids = [id_ for (id_,) in store.sql("SELECT id FROM findings WHERE account_id = %s", account.id)]
        _assert_equal(store, account)
    assert len({id_ for (id_, *_) in store.sql(STORED, account.id)}) < len(ids)


def test_a_wrong_row_is_noticed_by_the_doctor(store: Backend) -> None:
    account = store.tenant().account
    with psycopg.connect(store.settings.database_url or "") as db:
        _insert(db, account, random.Random(5), [uuid4() for _ in range(5)])
    _assert_equal(store, account)
    operator = OperatorKey(SECRET_KEY, store.settings.data_dir / "key")

    def check() -> list[bool]:
        checks = store.run(lambda db: maintenance.run_health_checks(db, operator, None))
        return [check.ok for check in checks if check.name == "incidents"]

    assert check() == [True]
    store.sql("UPDATE incidents SET places = places + 1 WHERE account_id = %s", account.id)
    assert check() == [False]
    store.sql("UPDATE incidents SET places = places - 1 WHERE account_id = %s", account.id)


def test_a_finding_that_gets_a_fingerprint_takes_assignee_and_comments_along(store: Backend) -> None:
    account, id_ = store.tenant().account, uuid4()
    with psycopg.connect(store.settings.database_url or "") as db:
        _insert(db, account, random.Random(1), [id_])
        db.execute("UPDATE findings SET fingerprint = NULL WHERE id = %s", [id_])
    _assert_equal(store, account)
    ((old,),) = store.sql(
        "UPDATE incidents SET assignee = %s WHERE account_id = %s RETURNING id", JO, account.id
    )
    store.sql("UPDATE findings SET assignee = %s WHERE account_id = %s RETURNING id", JO, account.id)
    store.sql(
        "INSERT INTO incident_comments (account_id, id, incident_id, at, by, text) VALUES (%s, %s, %s, now(), 'jo', 'x')",
        account.id, uuid4(), old,
    )  # fmt: skip
    store.sql("UPDATE findings SET fingerprint = %s WHERE id = %s", b"new" * 8, id_)
    _assert_equal(store, account)
    ((new, assignee),) = store.sql("SELECT id, assignee FROM incidents WHERE account_id = %s", account.id)
    assert (new != old, assignee) == (True, JO)
    assert store.sql("SELECT incident_id FROM incident_comments WHERE account_id = %s", account.id) == [
        (new,)
    ]
    twin = uuid4()
    with psycopg.connect(store.settings.database_url or "") as db:  # another place of the same credential
        _insert(db, account, random.Random(2), [twin])
        db.execute("UPDATE findings SET fingerprint = %s WHERE id = %s", [b"new" * 8, twin])
    _assert_equal(store, account)
    assert store.sql("SELECT assignee FROM findings WHERE id = %s", twin) == [(JO,)]


def test_two_accounts_have_different_incidents_for_one_credential(store: Backend) -> None:
    accounts = [store.tenant().account for _ in range(2)]
    for account in accounts:
        with psycopg.connect(store.settings.database_url or "") as db:
            _insert(db, account, random.Random(1), [uuid4(), uuid4()])
            db.execute("UPDATE findings SET fingerprint = %s WHERE account_id = %s", [b"k" * 32, account.id])
        _assert_equal(store, account)
    first, second = ({id_ for (id_, *_) in store.sql(STORED, account.id)} for account in accounts)
    assert (len(first), len(second), first & second) == (1, 1, set())


# --- lists


def _queries() -> Iterator[IncidentQuery]:
    """Yield every filter alone and some together, in every order."""
    q = IncidentQuery
    filters = [
        q(),
        *(q(status=status) for status in IncidentStatus),
        *(q(validation=validation) for validation in Validation),
        *(q(closed_valid=value) for value in (True, False)),
        q(status=IncidentStatus.OPEN, validation=Validation.VALID),
        q(status=IncidentStatus.OPEN, closed_valid=True),
        q(service="s3"),
        q(service="S3"),
        q(secret_type="aws"),
        q(secret_type="aws", status=IncidentStatus.OPEN, min_score=60.0),
        q(min_score=62.5),
        q(min_score=61.2),
        *(q(severity=severity) for severity in Severity),
        q(seen_from=NOW - timedelta(days=70), seen_before=NOW - timedelta(days=60, seconds=-2)),
        q(seen_from=NOW - timedelta(days=70), min_score=60.0),
        q(assignee=JO.lower()),
        q(assignee=""),
        q(assignee="", secret_type="stripe"),
        *(q(overdue=value) for value in (True, False)),
        *(q(overdue=value, status=status) for value, status in product((True, False), IncidentStatus)),
        q(overdue=True, validation=Validation.VALID),
        q(terms=("config",)),
        q(terms=("CONFIG", "shop"), status=IncidentStatus.CLOSED),
    ]
    for query, order, direction in product(filters, IncidentOrder, OrderDir):
        yield replace(query, order_by=order, order_dir=direction)


def _matches(incident: Incident, query: IncidentQuery, texts: dict[UUID, list[str]]) -> bool:
    """Whether an incident meets the filters of a query, by their definition."""
    services = incident.validation_detail["enabled_services"]
    is_closed_valid = incident.status is IncidentStatus.CLOSED and incident.validation_status == "valid"
    checks = {
        "status": incident.status == query.status,
        "validation": incident.validation_status == query.validation,
        "service": query.service in services,
        "secret_type": incident.pattern.secret_type == query.secret_type,
        "min_score": incident.composite_score >= (query.min_score or 0),
        "severity": incident.severity == query.severity,
        "seen_from": query.seen_from is not None and incident.first_seen_at >= query.seen_from,
        "seen_before": query.seen_before is not None and incident.first_seen_at < query.seen_before,
        "assignee": (incident.assignee or "").lower() == (query.assignee or "").lower(),
        "overdue": incident.is_overdue(NOW) is query.overdue,
        "closed_valid": is_closed_valid is query.closed_valid,
        "terms": any(
            all(term.casefold() in text for term in query.terms) for text in texts.get(incident.id, [])
        ),
    }
    return all(is_true for name, is_true in checks.items() if getattr(query, name) not in (None, ()))


@pytest.fixture(scope="module")
def filled(store: Backend) -> Account:
    """Return an account with incidents of every kind, half of the counts not folded yet."""
    account, rng = store.tenant().account, random.Random(11)
    with psycopg.connect(store.settings.database_url or "") as db:
        for severity, days in (("critical", 1), ("high", 60), ("medium", 3650)):
            db.execute("INSERT INTO due_days VALUES (%s, %s, %s)", [account.id, severity, days])
        _insert(db, account, rng, [UUID(int=rng.getrandbits(128)) for _ in range(150)])
        db.execute(
            """UPDATE findings SET fingerprint = decode(md5((random() * 80)::int::text), 'hex')
               WHERE account_id = %s""",
            [account.id],
        )
        db.execute(
            """INSERT INTO finding_search
               SELECT account_id, id, CASE WHEN composite_score > 50 THEN 'acme/shop/config.py' ELSE 'other' END,
                      facet, composite_score, first_seen_at FROM findings WHERE account_id = %s""",
            [account.id],
        )
    store.run(lambda db: pending.apply_changes(db, account.id), transaction=False)
    store.fold()
    store.sql(
        "UPDATE incidents SET assignee = %s WHERE account_id = %s AND places > 2 RETURNING id", JO, account.id
    )
    store.sql(
        """UPDATE findings f SET assignee = i.assignee FROM incidents i
           WHERE i.account_id = f.account_id AND i.id = f.incident_id AND f.account_id = %s RETURNING f.id""",
        account.id,
    )
    return account


@pytest.mark.parametrize("max_skipped", [0, 10**9], ids=["jump", "scan"])
def test_every_list_has_the_rows_and_the_total_of_its_definition(
    store: Backend, filled: Account, max_skipped: int
) -> None:
    async def read(db: Any) -> list[tuple[IncidentQuery, list[Page[Incident]]]]:
        pages = []
        for query in _queries():
            first = await listing.select_page(db, filled.id, query, now=NOW, max_skipped=max_skipped)
            others = [
                await listing.select_page(
                    db, filled.id, replace(query, page=page, per_page=7), now=NOW, max_skipped=max_skipped
                )
                for page in range(1, first.total // 7 + 3)
            ]
            pages.append((query, others))
        return pages

    every = store.run(
        lambda db: listing.select_page(db, filled.id, IncidentQuery(per_page=200), now=NOW), transaction=False
    ).items
    assert len(every) > 60
    texts: dict[UUID, list[str]] = {}
    for id_, text in store.sql(
        """SELECT f.incident_id, s.text FROM findings f JOIN finding_search s USING (account_id, id)
           WHERE account_id = %s""",
        filled.id,
    ):
        texts.setdefault(id_, []).append(text)
    matched = set()
    for query, pages in store.run(read, transaction=False):
        expected = [incident for incident in every if _matches(incident, query, texts)]
        far = datetime.max.replace(tzinfo=UTC)
        expected.sort(
            key=lambda i: (
                getattr(i, query.order_by) or (far if query.order_by == "due_at" else 0),
                i.id.int,
            ),
            reverse=query.order_dir is OrderDir.DESC,
        )
        assert {page.total for page in pages} == {len(expected)}, query
        assert [incident for page in pages for incident in page.items] == expected, query
        matched.add(0 < len(expected) < len(every))
    assert True in matched


def test_places_are_read_open_ones_first(store: Backend, filled: Account) -> None:
    incident = store.run(
        lambda db: service.list_incidents(db, filled.id, IncidentQuery(status=IncidentStatus.OPEN), now=NOW),
        transaction=False,
    ).items[0]
    shown = store.run(lambda db: service.get_places(db, filled.id, incident.id, page=1))
    is_open = [place.status in {"active", "stale"} for place in shown.places]
    assert is_open == sorted(is_open, reverse=True)
    assert len(shown.places) == incident.places
