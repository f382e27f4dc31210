"""Test that `updated_at` follows changes, and that polling with `updated_since` misses none."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from outcrop.store.findings.rows import WRITTEN_COLUMN_TYPES
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

LONG_AGO = datetime(2026, 5, 6, tzinfo=UTC)
UNCHANGED = {"id", "last_seen_at", "seen_count"}  # a new sighting is no change
EXAMPLES = {  # other values than those of `make_line`, by column or else by type
    "status": "'stale'",
    "validation_status": "'error'",
    "source_type": "'gist'",
    "validation_detail": """'{"enabled_services": ["other"]}'""",
    "uuid": "gen_random_uuid()",
    "text": "'other'",
    "int4": "987",
    "int4[]": "'{987, 988}'",
    "float8": "12.25",
    "bool": "true",
    "timestamptz": "'2026-03-03T03:03:03Z'",
}
CLOSED = {"resolved_at", "auto_resolved"}  # only a resolved finding has them


def connect(backend: Backend) -> psycopg.Connection[Any]:
    assert backend.settings.database_url is not None
    return psycopg.connect(backend.settings.database_url)


def make_old(backend: Backend, tenant: Tenant) -> None:
    """Set the time of every finding's last change back."""
    with connect(backend) as db:
        db.execute("ALTER TABLE findings DISABLE TRIGGER findings_set_updated")
        db.execute("UPDATE findings SET updated_at = %s WHERE account_id = %s", [LONG_AGO, tenant.account.id])
        db.execute("ALTER TABLE findings ENABLE TRIGGER findings_set_updated")


def poll(tenant: Tenant, since: str) -> tuple[list[str], str]:
    answer = tenant.get("/findings", updated_since=since, per_page=200).raise_for_status().json()
    assert answer["meta"]["total"] == len(answer["data"])
    return [finding["id"] for finding in answer["data"]], answer["meta"]["updated_until"]


def test_exactly_a_change_of_a_shown_column_is_an_update(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, make_line(status="resolved", resolved_at="2026-02-02T00:00:00Z"))
    for column, type_ in WRITTEN_COLUMN_TYPES.items():
        backend.sql(
            """UPDATE findings SET status = 'active', resolved_at = NULL, auto_resolved = NULL
               WHERE account_id = %s""",
            tenant.account.id,
        )
        if column in CLOSED:
            backend.sql(
                """UPDATE findings SET status = 'resolved', resolved_at = '2026-01-01', auto_resolved = false
                   WHERE account_id = %s""",
                tenant.account.id,
            )
        make_old(backend, tenant)
        value = EXAMPLES.get(column) or EXAMPLES[type_]
        backend.sql(f"UPDATE findings SET {column} = {value} WHERE account_id = %s", tenant.account.id)
        ((updated_at,),) = backend.sql(
            "SELECT updated_at FROM findings WHERE account_id = %s", tenant.account.id
        )
        assert (updated_at == LONG_AGO) is (column in UNCHANGED), column


def test_a_new_time_of_the_same_verdict_is_no_update(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, make_line())
    make_old(backend, tenant)
    change = (
        """UPDATE findings SET validation_detail = validation_detail || %s::jsonb WHERE account_id = %s"""
    )
    backend.sql(change, '{"checked_at": "2026-11-18T09:30:00+00:00"}', tenant.account.id)
    assert poll(tenant, "2026-05-07")[0] == []
    backend.sql(change, '{"reason": "refused"}', tenant.account.id)
    assert len(poll(tenant, "2026-05-07")[0]) == 1


def test_polling_misses_no_change_that_is_committed_later(backend: Backend) -> None:
    """Commit two transactions in the opposite order of their times, and poll after each."""
    tenant = backend.tenant()
    lines = [make_line(), make_line()]
    backend.import_(tenant.account, *lines)
    make_old(backend, tenant)
    earlier, later = (line["id"] for line in lines)
    change = "UPDATE findings SET composite_score = 1 WHERE account_id = %s AND id = %s"
    with connect(backend) as first, connect(backend) as second:
        first.execute(change, [tenant.account.id, earlier])
        time.sleep(2.1)  # times are whole seconds
        second.execute(change, [tenant.account.id, later])
        second.commit()
        found, until = poll(tenant, "2026-05-07")
        assert found == [later]
        first.commit()
    found, final = poll(tenant, until)
    assert set(found) == {earlier, later}
    times = {id_: tenant.finding(id_)["updated_at"] for id_ in (earlier, later)}
    assert until <= times[earlier] < times[later] <= final


def test_an_insert_is_an_update_and_its_own_second_is_included(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, line := make_line())
    moment = tenant.finding(line["id"])["updated_at"]
    after = (datetime.fromisoformat(moment) + timedelta(seconds=1)).isoformat()
    assert poll(tenant, moment)[0] == [line["id"]]
    assert poll(tenant, moment.replace("+", ".9+"))[0] == [
        line["id"]
    ]  # the change may be later in its second
    assert poll(tenant, after)[0] == []


@pytest.mark.parametrize(
    ("filter_", "is_match"),
    [
        ({"repo": "ACME/shop"}, True),
        ({"repo": "acme/sho"}, False),
        ({"author": "Jo <jo@example.com>"}, True),
        ({"author": "jo <jo@example.com>"}, False),
        ({"scan": "00000000-0000-4000-8000-000000000000"}, False),
        ({"scan": "no-id"}, False),
        ({"severity": "high"}, True),
        ({"severity": "critical"}, False),
        ({"severity": "high", "min_score": "72.5"}, True),
        ({"severity": "medium", "min_score": "72.5"}, False),
        ({"severity": "high", "service": "aws"}, True),
        ({"secret_type": "aws", "visibility": "public", "q": "shop", "status": "active"}, True),
        ({"rule": "aws-key"}, False),
    ],
)
def test_filters_by_attribute(backend: Backend, filter_: dict[str, str], *, is_match: bool) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, make_line(author="Jo <jo@example.com>"))
    answer = tenant.get("/findings", **filter_).raise_for_status().json()
    assert (answer["meta"]["total"], len(answer["data"])) == (is_match, is_match)


@pytest.mark.parametrize(
    "name", ["repo", "author", "rule", "scan", "secret_type", "severity", "updated_since"]
)
def test_an_empty_filter_is_refused(backend: Backend, name: str) -> None:
    answer = backend.tenant().get("/findings", **{name: ""})
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", name])
