"""Test `POST /api/v2/findings/bulk`: outcomes, events, conflicts and bad bodies."""

from collections import Counter
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

BULK = "/api/v2/findings/bulk"


def post(tenant: Tenant, **body: Any) -> httpx.Response:
    return tenant.client.post(BULK, json=body)


def events(backend: Backend, tenant: Tenant) -> Counter[tuple[str, str]]:
    rows = backend.sql("SELECT event, finding_id::text FROM outbox WHERE account_id = %s", tenant.account.id)
    return Counter((event, id_) for event, id_ in rows)


def audited(backend: Backend, tenant: Tenant) -> Counter[tuple[str, str]]:
    rows = backend.sql(
        "SELECT action, target FROM audit WHERE account_id = %s AND action LIKE 'finding.%%'",
        tenant.account.id,
    )
    return Counter((action, target) for action, target in rows)


def test_each_finding_has_its_outcome_and_no_event_is_sent_twice(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    lines = [
        make_line(),
        make_line(status="stale"),
        make_line(status="resolved"),
        make_line(status="false_positive"),
    ]
    backend.import_(tenant.account, *lines)
    backend.import_(other.account, foreign := make_line())
    active, stale, resolved, refused = (line["id"] for line in lines)
    ids = [refused, active, stale, resolved, str(uuid4()), foreign["id"], active]
    answer = post(tenant, action="resolve", note="rotated", ids=ids)
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "data": [
            {"id": refused, "status": "false_positive", "outcome": "refused"},
            {"id": active, "status": "resolved", "outcome": "changed"},
            {"id": stale, "status": "resolved", "outcome": "changed"},
            {"id": resolved, "status": "resolved", "outcome": "unchanged"},
            {"id": ids[4], "status": None, "outcome": "not_found"},
            {"id": ids[5], "status": None, "outcome": "not_found"},
        ],
        "meta": {"matched": 4, "changed": 2, "unchanged": 1, "refused": 1, "not_found": 2},
    }
    assert tenant.finding(active)["resolution_note"] == "rotated"
    once = Counter({("finding.resolved", active): 1, ("finding.resolved", stale): 1})
    assert events(backend, tenant) == once
    assert audited(backend, tenant) == Counter(
        {("finding.resolve", active): 1, ("finding.resolve", stale): 1}
    )
    assert post(tenant, action="resolve", ids=ids).json()["meta"]["changed"] == 0
    assert events(backend, tenant) == once
    assert other.finding(foreign["id"])["status"] == "active"


def test_a_filter_changes_what_it_matches_or_nothing(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(
        tenant.account,
        *(make_line(composite_score=20.0, file_path=f"a/{n}.py") for n in range(3)),
        make_line(composite_score=90.0),
    )
    filter_ = {"severity": "low", "status": "active", "q": "a/"}
    conflict = post(tenant, action="suppress", filter=filter_, expected_total=4)
    assert (conflict.status_code, conflict.json()["error"]) == (409, "conflict")
    assert tenant.get("/findings", suppressed="true").json()["meta"]["total"] == 0
    done = post(tenant, action="suppress", note="ignored", filter=filter_, expected_total=3).json()
    assert done["meta"] == {"matched": 3, "changed": 3, "unchanged": 0, "refused": 0, "not_found": 0}
    assert {entry["status"] for entry in done["data"]} == {"active"}
    assert tenant.get("/findings", suppressed="true").json()["meta"]["total"] == 3
    nothing = post(tenant, action="resolve", filter=filter_, expected_total=0)
    assert (nothing.status_code, nothing.json()["data"]) == (200, [])
    assert events(backend, tenant) == Counter()


ID = "00000000-0000-4000-8000-000000000000"


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"action": "delete", "ids": []}, ["body", "action"]),
        ({"ids": []}, ["body", "action"]),
        ({"action": "resolve"}, ["body"]),
        ({"action": "resolve", "ids": [], "filter": {}, "expected_total": 0}, ["body"]),
        ({"action": "resolve", "ids": [], "expected_total": 0}, ["body"]),
        ({"action": "resolve", "filter": {}}, ["body"]),
        ({"action": "resolve", "filter": {}, "expected_total": 1001}, ["body", "expected_total"]),
        ({"action": "resolve", "filter": {}, "expected_total": "1"}, ["body", "expected_total"]),
        ({"action": "resolve", "filter": {}, "expected_total": True}, ["body", "expected_total"]),
        (
            {"action": "resolve", "filter": {"min_score": 5}, "expected_total": 1},
            ["body", "filter", "min_score"],
        ),
        (
            {"action": "resolve", "filter": {"min_score": "x"}, "expected_total": 1},
            ["body", "filter", "min_score"],
        ),
        (
            {"action": "resolve", "filter": {"stauts": "active"}, "expected_total": 1},
            ["body", "filter", "stauts"],
        ),
        ({"action": "resolve", "ids": ["x"]}, ["body", "ids", 0]),
        ({"action": "resolve", "ids": [ID, 7]}, ["body", "ids", 1]),
        ({"action": "resolve", "ids": [ID] * 501}, ["body", "ids"]),
        ({"action": "resolve", "ids": [], "note": "x" * 501}, ["body", "note"]),
        ({"action": "resolve", "ids": [], "note": "a\0b"}, ["body", "note"]),
        ({"action": "resolve", "ids": [], "more": 1}, ["body", "more"]),
        ([], ["body"]),
    ],
)
def test_a_body_that_is_not_as_described_is_refused(backend: Backend, body: Any, loc: list[Any]) -> None:
    answer = backend.tenant().client.post(BULK, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"][0]["loc"] == loc


def test_a_body_that_is_no_json_or_too_large_is_refused(backend: Backend) -> None:
    client = backend.tenant().client
    for body in (b"", b"{", b"\xff", b"action=resolve"):
        answer = client.post(BULK, content=body)
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    answer = client.post(BULK, content=b" " * 300_000)
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
    assert client.get(BULK).status_code == 405


def test_the_score_of_a_finding_is_explained(backend: Backend) -> None:
    tenant = backend.tenant()
    backend.import_(tenant.account, line := make_line())
    answer = tenant.get(f"/findings/{line['id']}/score").json()["data"]
    assert answer == {
        "composite_score": 72.5,
        "version": None,
        "parts": [
            {
                "name": "imported",
                "points": 72.5,
                "max": 100,
                "reason": "the score was imported, and no scan has computed another",
            }
        ],
    }
    report = make_line(secret="s3cret-" + "value-9", fingerprint="x")
    del report["id"]
    backend.import_(tenant.account, report)
    found = next(finding for finding in tenant.get("/findings").json()["data"] if finding["id"] != line["id"])
    scored = tenant.get(f"/findings/{found['id']}/score").json()["data"]
    assert scored["composite_score"] == found["composite_score"] == sum(p["points"] for p in scored["parts"])
    assert isinstance(scored["version"], int)
    assert tenant.get(f"/findings/{ID}/score").status_code == 404
