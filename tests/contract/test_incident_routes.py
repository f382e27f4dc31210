"""The routes of `/api/v1/incidents`, and the filters of findings that belong to them."""

import time
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from outcrop.domain.account import Plan
from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Severity
from outcrop.services import accounts
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.members import add_member

SECRET = "made-up-" + "Zx9" * 8
FIELDS = {
    *("id", "status", "composite_score", "severity", "validation_status", "validation_confidence"),
    *("validation_detail", "matched_text", "pattern", "places", "open_places", "first_seen_at"),
    *("last_seen_at", "closed_at", "assignee", "due_at", "overdue", "ticket_url"),
}


def _import(backend: Backend, tenant: Tenant, count: int = 3, **fields: Any) -> str:
    """Import places of one credential and return the incident's id."""
    lines = [make_line(secret=SECRET, file_path=f"config/{n}.py", **fields) for n in range(count)]
    backend.import_(tenant.account, *lines)
    found: str = tenant.finding(lines[0]["id"])["incident_id"]
    return found


def _incident(tenant: Tenant, id_: str) -> dict[str, Any]:
    found: dict[str, Any] = tenant.get(f"/incidents/{id_}").raise_for_status().json()["data"]
    return found


def _total(tenant: Tenant, path: str, **params: Any) -> int:
    total: int = tenant.get(path, **params).raise_for_status().json()["meta"]["total"]
    return total


def test_an_incident_has_all_its_fields_and_the_list_has_the_same(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant)
    backend.import_(tenant.account, make_line(validation_status="invalid"))
    shown = _incident(tenant, id_)
    assert shown.keys() == FIELDS
    assert (shown["places"], shown["open_places"], shown["status"]) == (3, 3, "open")
    assert [shown[name] for name in ("closed_at", "assignee", "due_at", "overdue", "ticket_url")] == [
        *(None, None, None, False, None)
    ]
    listed = tenant.get("/incidents", validation="valid").json()
    assert listed["data"] == [shown]
    assert listed["meta"] == {"total": 1, "page": 1, "per_page": 25, "pages": 1}
    assert _total(tenant, "/incidents") == 2
    assert _total(tenant, "/findings", incident_id=id_) == 3
    assert _total(tenant, "/findings", incident_id=id_, status="resolved") == 0
    assert _total(tenant, "/findings", incident_id=id_, q="config/1") == 1


def test_closing_an_incident_closes_each_place_with_its_event_and_its_audit_line(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant)
    first = tenant.get("/findings", incident_id=id_).json()["data"][0]["id"]
    tenant.post(f"/findings/{first}/false_positive").raise_for_status()
    answer = tenant.post(f"/incidents/{id_}/resolve", note=f"rotated {SECRET}").raise_for_status()
    assert answer.json() == {
        "data": {"id": id_, "status": "closed", "changed": 2, "unchanged": 0, "refused": 1}
    }
    events = backend.sql("SELECT event FROM outbox WHERE account_id = %s ORDER BY event", tenant.account.id)
    assert [event for (event,) in events] == ["finding.false_positive", *["finding.resolved"] * 2]
    lines = backend.sql(
        "SELECT count(*) FROM audit WHERE account_id = %s AND action = 'finding.resolve'", tenant.account.id
    )
    assert lines == [(2,)]
    note = tenant.get("/findings", incident_id=id_, status="resolved").json()["data"][0]["resolution_note"]
    assert SECRET not in note
    shown = _incident(tenant, id_)
    assert (shown["status"], shown["open_places"], shown["closed_at"] is not None) == ("closed", 0, True)
    assert _total(tenant, "/incidents", closed_valid="true") == 1
    assert _total(tenant, "/incidents", status="open") == 0
    repeated = tenant.post(f"/incidents/{id_}/resolve").json()["data"]
    assert (repeated["changed"], repeated["unchanged"], repeated["refused"]) == (0, 2, 1)


@pytest.mark.parametrize(
    ("action", "status", "is_closed"),
    [
        ("restrict", "customer_restricted", True),
        ("false_positive", "false_positive", True),
        ("suppress", "active", False),
    ],
)
def test_every_action_reaches_every_place(
    backend: Backend, action: str, status: str, *, is_closed: bool
) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant, 2)
    answer = tenant.post(f"/incidents/{id_}/{action}", note="n").raise_for_status().json()["data"]
    assert answer == {
        "id": id_,
        "status": "closed" if is_closed else "open",
        "changed": 2,
        "unchanged": 0,
        "refused": 0,
    }
    places = tenant.get("/findings", incident_id=id_).json()["data"]
    assert {place["status"] for place in places} == {status}
    assert all((place["suppressed_at"] is not None) is not is_closed for place in places)


def test_an_incident_is_assigned_to_a_member_only_and_its_findings_follow(backend: Backend) -> None:
    tenant = backend.tenant()
    address = add_member(backend, tenant.account).email
    id_ = _import(backend, tenant)
    finding = tenant.get("/findings", incident_id=id_).json()["data"][0]
    time.sleep(1.1)  # `updated_at` has whole seconds
    answer = tenant.post(f"/incidents/{id_}/assign", assignee=address.upper()).raise_for_status()
    assert answer.json()["data"]["assignee"] == address
    after = tenant.finding(finding["id"])
    assert (after["assignee"], after["updated_at"] > finding["updated_at"]) == (address, True)
    assert _total(tenant, "/findings", assignee=address.lower(), status="active") == 3
    assert _total(tenant, "/incidents", assignee=address) == 1
    assert _total(tenant, "/incidents", assignee="none") == 0
    backend.import_(tenant.account, make_line(secret=SECRET, file_path="later.py"))
    assert _total(tenant, "/incidents", assignee=address) == 1
    assert _total(tenant, "/findings", assignee=address) == 4
    assert _total(tenant, "/findings", assignee="none") == 0
    for wrong in ("nobody@example.com", backend.tenant().account.email, "none", "x" * 400, "a\0b"):
        refused = tenant.post(f"/incidents/{id_}/assign", assignee=wrong)
        assert (refused.status_code, refused.json()["detail"][0]["loc"]) == (422, ["query", "assignee"])
    assert tenant.post(f"/incidents/{id_}/assign").status_code == 422
    cleared = tenant.post(f"/incidents/{id_}/assign", assignee="").raise_for_status()
    assert cleared.json()["data"]["assignee"] is None
    assert tenant.finding(finding["id"])["assignee"] is None
    lines = backend.sql(
        "SELECT detail FROM audit WHERE account_id = %s AND action = 'incident.assign' ORDER BY id",
        tenant.account.id,
    )
    assert lines == [({"from": None, "to": address},), ({"from": address, "to": None},)]


def test_comments_are_listed_newest_first_and_masked(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant)
    posted = [
        tenant.post(f"/incidents/{id_}/comments", text=text).raise_for_status().json()["data"]
        for text in ("first", f"it is {SECRET}", "𝄞" * 2000)
    ]
    assert posted[0].keys() == {"id", "at", "by", "text"}
    listed = tenant.get(f"/incidents/{id_}/comments", per_page=2).raise_for_status().json()
    assert listed["data"] == posted[:0:-1]
    assert listed["meta"] == {"total": 3, "page": 1, "per_page": 2, "pages": 2}
    assert SECRET not in str(backend.sql("SELECT text FROM incident_comments"))
    for wrong in ("", "x" * 2001, "a\0b"):
        refused = tenant.post(f"/incidents/{id_}/comments", text=wrong)
        assert (refused.status_code, "input" in refused.json()["detail"][0]) == (422, False)
    assert tenant.post(f"/incidents/{id_}/comments").status_code == 422
    assert _total(tenant, f"/incidents/{id_}/comments", page=9) == 3


ROUTES = [
    ("GET", "", {}),
    ("GET", "/{id}", {}),
    *(("POST", "/{id}/" + action, {}) for action in ("resolve", "restrict", "suppress", "false_positive")),
    ("POST", "/{id}/assign", {"assignee": ""}),
    ("GET", "/{id}/comments", {}),
    ("POST", "/{id}/comments", {"text": "x"}),
]


@pytest.mark.parametrize(
    ("method", "path", "params"), ROUTES, ids=[method + path for method, path, _ in ROUTES]
)
def test_checks_run_in_their_order(backend: Backend, method: str, path: str, params: dict[str, str]) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    id_ = _import(backend, tenant)

    def ask(client: httpx.Client, incident: str, verb: str = method, **more: str) -> httpx.Response:
        return client.request(verb, "/api/v1/incidents" + path.format(id=incident), params=params | more)

    assert ask(backend.client(), "x", status="wrong").json() == {"error": "missing_authorization"}
    assert ask(backend.client("x"), "x").json() == {"error": "invalid_token"}
    assert ask(backend.tenant(Plan.STARTER).client, "x").json() == {
        "error": "plan_required",
        "minimum": "growth",
    }
    assert (
        ask(tenant.client, id_, "POST" if method == "GET" and path != "/{id}/comments" else "PUT").status_code
        == 405
    )
    assert ask(tenant.client, id_).status_code == 200
    assert ask(tenant.client, id_ + "/" if path == "/{id}" else id_).status_code == 200
    if not path:
        assert ask(other.client, id_).json()["meta"]["total"] == 0
        return
    unknown, foreign = ask(tenant.client, str(uuid4())), ask(other.client, id_)
    assert (unknown.status_code, unknown.content) == (404, foreign.content)
    malformed = ask(tenant.client, "x")
    assert (malformed.status_code, malformed.json()["detail"][0]["loc"]) == (422, ["path", "incident_id"])


@pytest.mark.parametrize(
    "params",
    [
        *({name: ""} for name in ("status", "validation", "secret_type", "assignee", "overdue", "date_from")),
        {"status": "active"},
        {"order_by": "updated_at"},
        {"overdue": "yes"},
        {"min_score": "101"},
        {"per_page": "201"},
        {"q": "x" * 1001},
        {"severity": "urgent"},
    ],
    ids=str,
)
def test_a_wrong_value_of_a_filter_is_refused(backend: Backend, params: dict[str, str]) -> None:
    answer = backend.tenant().get("/incidents", **params)
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", *params])


def test_an_unknown_incident_matches_no_finding(backend: Backend) -> None:
    tenant = backend.tenant()
    _import(backend, tenant)
    assert [_total(tenant, "/findings", incident_id=id_) for id_ in (str(uuid4()), "no id")] == [0, 0]


def test_a_locked_place_makes_the_action_wait_and_changes_nothing(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant, 2)
    with psycopg.connect(backend.settings.database_url or "") as db:
        db.execute("SELECT FROM findings WHERE incident_id = %s LIMIT 1 FOR UPDATE", [id_])
        answer = tenant.post(f"/incidents/{id_}/resolve")
    assert (answer.status_code, answer.json()["error"]) == (503, "busy")
    assert _incident(tenant, id_)["open_places"] == 2


def test_bulk_takes_the_filters_of_incidents(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant)
    backend.import_(tenant.account, make_line())
    body = {"action": "resolve", "filter": {"incident_id": id_, "assignee": "none"}, "expected_total": 3}
    answer = tenant.client.post("/api/v2/findings/bulk", json=body).raise_for_status().json()
    assert answer["meta"]["changed"] == 3
    assert _incident(tenant, id_)["status"] == "closed"


def test_due_dates_follow_the_days_of_the_account(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant, composite_score=72.5)

    def set_days(**days: int) -> None:
        slug, by_severity = tenant.account.slug, {Severity(name): n for name, n in days.items()}
        backend.run(lambda db: accounts.set_due_days(db, slug, by_severity, by="test", now=now()))
        backend.run(lambda db: accounts.apply_due_days(db, slug), transaction=False)

    set_days(high=7, low=90)
    shown = _incident(tenant, id_)
    assert (shown["due_at"], shown["overdue"]) == ("2026-01-09T03:04:05+00:00", True)
    assert tenant.get("/incidents", overdue="true").json()["data"] == [shown]
    set_days(high=3650)
    assert (_incident(tenant, id_)["overdue"], _total(tenant, "/incidents", overdue="true")) == (False, 0)
    with pytest.raises(BadInputError):
        set_days(critical=4000)
    set_days(high=0)
    tenant.post(f"/incidents/{id_}/resolve").raise_for_status()
    assert _incident(tenant, id_)["overdue"] is False


def test_deleting_an_account_leaves_nothing_of_its_incidents(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _import(backend, tenant)
    tenant.post(f"/incidents/{id_}/comments", text="x").raise_for_status()
    backend.run(lambda db: accounts.delete_account(db, tenant.account.slug))
    for table in ("incidents", "incident_changes", "incident_comments", "rollup_deltas", "rollups"):
        assert backend.sql(f"SELECT 1 FROM {table} WHERE account_id = %s", tenant.account.id) == [], table


def test_a_path_with_two_methods_names_both(backend: Backend) -> None:
    tenant = backend.tenant()
    answer = tenant.client.put(f"/api/v1/incidents/{_import(backend, tenant)}/comments")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD, POST")
