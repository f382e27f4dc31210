"""The specification's part "Endpoints", parameter by parameter."""

import json
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from outcrop.domain.scan import ScanType
from outcrop.settings import Settings
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line, make_scan

UNKNOWN = "00000000-0000-4000-8000-000000000000"
GET_ROUTES = ["/findings", f"/findings/{UNKNOWN}", "/scans", f"/scans/{UNKNOWN}"]
POST_ROUTES = [
    f"/findings/{UNKNOWN}/{action}" for action in ("suppress", "resolve", "restrict", "false_positive")
]


# The findings that every list below is made of; the letter is the finding's name and the end of its id.
FINDINGS: dict[str, dict[str, Any]] = {
    "a": {
        "composite_score": 90,
        "first_seen_at": "2026-01-01T00:00:00Z",
        "last_seen_at": "2026-05-01T00:00:00Z",
    },
    "b": {
        "composite_score": 80,
        "first_seen_at": "2026-01-01T23:59:59Z",
        "last_seen_at": "2026-04-01T00:00:00Z",
        "status": "resolved",
    },
    "c": {
        "composite_score": 80,
        "first_seen_at": "2026-01-02T00:00:00Z",
        "last_seen_at": "2026-04-01T00:00:00Z",
        "status": "stale",
    },
    "d": {
        "composite_score": 79.5,
        "first_seen_at": "2026-01-02T12:00:00Z",
        "status": "false_positive",
        "source_type": "gist",
    },
    "e": {
        "composite_score": 50,
        "first_seen_at": "2026-01-03T00:00:00Z",
        "status": "customer_restricted",
        "source_type": "commit",
    },
    "f": {"composite_score": 50, "validation_status": "invalid", "source_type": "endpoint"},
    "g": {"composite_score": 50, "validation_status": "unvalidated", "source_type": "js_bundle"},
    "h": {
        "composite_score": 0,
        "validation_status": "error",
        "validation_detail": {"enabled_services": ["github"]},
    },
    "i": {
        "composite_score": 100,
        "validation_status": "unreachable",
        "validation_detail": {"enabled_services": ["AWS", "stripe"]},
    },
    "j": {
        "composite_score": 10,
        "source_url": "https://Files.Example.com/Reports?id=7",
        "repo_full_name": "Umbrella/Corp",
        "file_path": "secret dir/100%_done\\now.txt",
    },
}
IDS = {name: f"{n:08x}-0000-4000-8000-{ord(name):012x}" for n, name in enumerate("jihgfedcba")}
NAMES = {id_: name for name, id_ in IDS.items()}


@pytest.fixture(scope="module")
def tenant(stage: Backend) -> Tenant:
    tenant = stage.tenant()
    defaults = {"first_seen_at": "2026-02-01T00:00:00Z", "last_seen_at": "2026-03-01T00:00:00Z"}
    stage.import_(
        tenant.account, *(make_line(id=IDS[name], **(defaults | given)) for name, given in FINDINGS.items())
    )
    return tenant


def names(tenant: Tenant, **params: Any) -> str:
    """Return the names of the listed findings in order; check the total."""
    answer = tenant.get("/findings", **params)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["meta"]["total"] == len(body["data"])
    return "".join(NAMES[finding["id"]] for finding in body["data"])


def the_set(tenant: Tenant, **params: Any) -> str:
    return "".join(sorted(names(tenant, **params)))


# --- all endpoints


@pytest.mark.parametrize("method", ["PATCH", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", GET_ROUTES + POST_ROUTES)
def test_only_get_and_post_are_used(tenant: Tenant, path: str, method: str) -> None:
    # "Only GET and POST are used; PATCH, PUT and DELETE are not."
    answer = tenant.client.request(method, f"/api/v1{path}")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == ("GET, HEAD" if path in GET_ROUTES else "POST")
    assert answer.json()["error"] == "method_not_allowed"
    assert answer.json().keys() == {"error", "message"}


@pytest.mark.parametrize("path", GET_ROUTES)
def test_a_reading_address_takes_no_post(tenant: Tenant, path: str) -> None:
    answer = tenant.post(path)
    assert (answer.status_code, answer.headers["Allow"], answer.json()["error"]) == (
        405,
        "GET, HEAD",
        "method_not_allowed",
    )


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", POST_ROUTES)
def test_a_changing_address_takes_no_get(tenant: Tenant, path: str, method: str) -> None:
    answer = tenant.client.request(method, f"/api/v1{path}")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def test_post_takes_its_arguments_from_the_query_and_needs_neither_body_nor_content_type(
    stage: Backend,
) -> None:
    # "POST endpoints take their arguments from query parameters;
    # no request body and no Content-Type are needed."
    tenant = stage.tenant()
    line = make_line()
    stage.import_(tenant.account, line)
    request = tenant.client.build_request(
        "POST", f"/api/v1/findings/{line['id']}/resolve?note=from+the%20query"
    )
    assert "content-type" not in request.headers
    assert not request.content
    assert tenant.client.send(request).status_code == 200
    assert tenant.finding(line["id"])["resolution_note"] == "from the query"


def test_every_answer_is_json(stage: Backend) -> None:
    # "All responses are JSON."
    tenant = stage.tenant()
    stage.import_(tenant.account, line := make_line(status="false_positive"))
    answers = [
        *(tenant.get(path) for path in GET_ROUTES),
        *(tenant.post(path) for path in POST_ROUTES),
        tenant.post(f"/findings/{line['id']}/suppress"),
        tenant.post(f"/findings/{line['id']}/resolve"),
        tenant.get("/findings", status="x"),
        tenant.client.put("/api/v1/findings"),
        tenant.get("/nowhere"),
        stage.client().get("/api/v1/findings"),
        stage.client("wrong").get("/api/v1/findings"),
        stage.client().get("/nowhere"),
        stage.client().get("/openapi.json"),
        stage.client().get("/healthz"),
        stage.client().get("/readyz"),
    ]
    assert {answer.status_code for answer in answers} == {200, 400, 401, 404, 405, 422}
    for answer in answers:
        assert answer.headers["Content-Type"] == "application/json"
        assert isinstance(answer.json(), dict)


@pytest.mark.parametrize("path", GET_ROUTES)
def test_head_is_answered_like_get_without_a_body(tenant: Tenant, path: str) -> None:
    head, get = tenant.client.head(f"/api/v1{path}"), tenant.get(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    for name in ("content-type", "content-length"):
        assert head.headers[name] == get.headers[name]
    assert int(head.headers["content-length"]) == len(get.content) > 0


@pytest.mark.parametrize("path", GET_ROUTES + POST_ROUTES)
def test_the_slash_form_serves_the_same_route_without_a_redirect(tenant: Tenant, path: str) -> None:
    method = "GET" if path in GET_ROUTES else "POST"
    plain, slash = (tenant.client.request(method, f"/api/v1{form}") for form in (path, f"{path}/"))
    assert (slash.status_code, slash.content) == (plain.status_code, plain.content)
    assert slash.status_code in {200, 404}


def test_the_slash_form_of_a_change_changes(stage: Backend) -> None:
    tenant = stage.tenant()
    stage.import_(tenant.account, line := make_line())
    answer = tenant.post(f"/findings/{line['id']}/resolve/", note="with a slash")
    assert answer.json() == {"data": {"id": line["id"], "status": "resolved"}}
    assert tenant.finding(line["id"])["resolution_note"] == "with a slash"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nowhere",
        "/findings//",
        "/finding",
        f"/findings/{UNKNOWN}/delete",
        "/team",
        "/billing",
        "/rules",
    ],
)
def test_what_the_specification_does_not_name_is_not_there(tenant: Tenant, path: str) -> None:
    # "Read team, billing, configuration: no. Write integrations: no. Create suppression rules: no (planned)."
    for method in ("GET", "POST", "DELETE"):
        answer = tenant.client.request(method, f"/api/v1{path}")
        assert answer.status_code == 404
        assert answer.json()["error"] == "not_found"


def test_a_scan_cannot_be_triggered_through_the_api(stage: Backend) -> None:
    # "Trigger a scan: no (portal only)"
    tenant = stage.tenant()
    assert tenant.post("/scans", type="github").status_code == 405
    assert stage.sql("SELECT count(*) FROM scans WHERE account_id = %s", tenant.account.id) == [(0,)]


# --- unknown and foreign ids


def stripped(answer: httpx.Response) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Everything of an answer but what names the request and the moment."""
    return (
        answer.status_code,
        answer.content,
        [(n, v) for n, v in answer.headers.raw if n.lower() not in {b"x-request-id", b"date"}],
    )


@pytest.mark.parametrize(
    ("method", "form"),
    [
        ("GET", "/findings/{}"),
        ("POST", "/findings/{}/suppress"),
        ("POST", "/findings/{}/resolve"),
        ("POST", "/findings/{}/resolve?note=mine"),
        ("POST", "/findings/{}/restrict"),
        ("POST", "/findings/{}/false_positive"),
    ],
)
@pytest.mark.parametrize("status", ["active", "false_positive"])
def test_another_accounts_finding_is_byte_for_byte_as_unknown_as_any(
    stage: Backend, tenant: Tenant, method: str, form: str, status: str
) -> None:
    # "404: not found"
    other = stage.tenant()
    stage.import_(other.account, line := make_line(status=status))
    before = other.finding(line["id"])
    foreign = tenant.client.request(method, f"/api/v1{form.format(line['id'])}")
    unknown = tenant.client.request(method, f"/api/v1{form.format(UNKNOWN)}")
    assert stripped(foreign) == stripped(unknown)
    assert foreign.status_code == 404
    assert foreign.json().keys() == {"error", "message"}
    assert foreign.json()["error"] == "not_found"
    assert other.finding(line["id"]) == before
    assert stage.sql("SELECT count(*) FROM audit WHERE target = %s", line["id"]) == [(0,)]


def test_another_accounts_scan_run_is_byte_for_byte_as_unknown_as_any(stage: Backend, tenant: Tenant) -> None:
    other = stage.tenant()
    stage.scan(other.account, run := make_scan())
    assert other.get(f"/scans/{run.id}").status_code == 200
    answers = [
        stripped(tenant.get(f"/scans/{id_}")) for id_ in (str(run.id), UNKNOWN, "no-uuid-at-all", "x" * 36)
    ]
    assert answers.count(answers[0]) == 4
    assert answers[0][0] == 404
    assert json.loads(answers[0][1])["error"] == "not_found"


def test_two_accounts_can_hold_the_same_id_and_each_sees_its_own(stage: Backend) -> None:
    entry, two = stage.tenant(), stage.tenant()
    id_ = str(uuid4())
    stage.import_(entry.account, make_line(id=id_, file_path="one"))
    stage.import_(two.account, make_line(id=id_, file_path="two"))
    assert entry.post(f"/findings/{id_}/resolve").status_code == 200
    assert (entry.finding(id_)["file_path"], entry.finding(id_)["status"]) == ("one", "resolved")
    assert (two.finding(id_)["file_path"], two.finding(id_)["status"]) == ("two", "active")


def test_lists_hold_nothing_of_other_accounts(stage: Backend, tenant: Tenant) -> None:
    other = stage.tenant()
    for path in ("/findings", "/scans"):
        assert other.get(path).json() == {
            "data": [],
            "meta": {"total": 0, "page": 1, "per_page": 25 if path == "/findings" else 20, "pages": 0},
        }
    for params in (
        {"q": "settings"},
        {"service": "aws"},
        {"min_score": 1},
        {"date_from": "2020-01-01"},
        {"status": "active"},
    ):
        assert other.get("/findings", **params).json()["meta"]["total"] == 0


@pytest.mark.parametrize(
    "id_",
    [
        "1",
        UNKNOWN.replace("-", ""),
        f"{{{UNKNOWN}}}",
        f"urn:uuid:{UNKNOWN}",
        UNKNOWN[:-1],
        UNKNOWN + "0",
        UNKNOWN[:-1] + "g",
        "----" + UNKNOWN.replace("-", ""),
        "0000000-00000-4000-8000-000000000000",
        UNKNOWN[:-1] + "٣",
        f" {UNKNOWN}",
    ],
)
@pytest.mark.parametrize(
    "form", ["/findings/{}", "/findings/{}/resolve", "/findings/{}/restrict", "/findings/{}/suppress"]
)
def test_a_finding_id_that_is_no_uuid_in_its_36_character_form_is_a_parameter_error(
    tenant: Tenant, id_: str, form: str
) -> None:
    # "Path: `finding_id` string (UUID)."
    answer = tenant.client.request("GET" if form.endswith("}") else "POST", f"/api/v1{form.format(id_)}")
    assert answer.status_code == 422
    assert [entry["loc"] for entry in answer.json()["detail"]] == [["path", "finding_id"]]


@pytest.mark.parametrize(
    "odd", ["dashes elsewhere", "no dashes", "braces", "urn", "digits of another script"]
)
def test_a_scan_run_is_found_by_its_36_character_form_only(stage: Backend, odd: str) -> None:
    # "Path: `scan_id` string."
    tenant = stage.tenant()
    stage.scan(tenant.account, run := make_scan(id=UUID("12345678-1234-4234-8234-123456789abc")))
    forms = {
        "dashes elsewhere": "----" + run.id.hex,
        "no dashes": run.id.hex,
        "braces": f"{{{run.id}}}",
        "urn": run.id.urn,
        "digits of another script": str(run.id).replace("1", "١"),
    }
    assert tenant.get(f"/scans/{run.id}").status_code == 200
    assert tenant.get(f"/scans/{forms[odd]}").status_code == 404


# --- GET /api/v1/findings: filters


def test_without_parameters_the_list_is_sorted_by_score_from_the_highest(tenant: Tenant) -> None:
    # order_by default `composite_score`, order_dir default `desc`; "All filters are optional"
    assert names(tenant) == "iabcdefgjh"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("active", "afghij"),
        ("resolved", "b"),
        ("stale", "c"),
        ("false_positive", "d"),
        ("customer_restricted", "e"),
    ],
)
def test_status_filters(tenant: Tenant, status: str, expected: str) -> None:
    assert the_set(tenant, status=status) == expected


@pytest.mark.parametrize(
    ("source_type", "expected"),
    [("repo", "abchij"), ("gist", "d"), ("commit", "e"), ("endpoint", "f"), ("js_bundle", "g")],
)
def test_source_type_filters(tenant: Tenant, source_type: str, expected: str) -> None:
    assert the_set(tenant, source_type=source_type) == expected


@pytest.mark.parametrize(
    ("validation", "expected"),
    [("valid", "abcdej"), ("invalid", "f"), ("unvalidated", "g"), ("error", "h"), ("unreachable", "i")],
)
def test_validation_filters_on_validation_status(tenant: Tenant, validation: str, expected: str) -> None:
    assert the_set(tenant, validation=validation) == expected


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        ("aws", "abcdefgj"),
        ("aws_s3", "abcdefgj"),
        ("AWS", "i"),
        ("stripe", "i"),
        ("github", "h"),
        ("Stripe", ""),
        ("strip", ""),
        ("s", ""),
    ],
)
def test_service_is_one_label_exactly(tenant: Tenant, service: str, expected: str) -> None:
    # "an enabled service/capability label from `validation_detail.enabled_services`"
    assert the_set(tenant, service=service) == expected


@pytest.mark.parametrize(
    ("min_score", "expected"),
    [
        ("0", "abcdefghij"),
        ("0.0", "abcdefghij"),
        ("10", "abcdefgij"),
        ("50", "abcdefgi"),
        ("50.0001", "abcdi"),
        ("79.5", "abcdi"),
        ("80", "abci"),
        ("8e1", "abci"),
        ("100", "i"),
    ],
)
def test_min_score_is_the_least_composite_score(tenant: Tenant, min_score: str, expected: str) -> None:
    # "number 0..100: minimum composite_score"
    assert the_set(tenant, min_score=min_score) == expected


JANUARY = "abcde"  # a and b on the 1st, c and d on the 2nd, e on the 3rd; everything else in February


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"date_from": "2026-01-01", "date_to": "2026-01-01"}, "ab"),
        ({"date_from": "2026-01-02", "date_to": "2026-01-02"}, "cd"),
        ({"date_to": "2026-01-02"}, "abcd"),
        ({"date_to": "2026-01-31"}, JANUARY),
        ({"date_from": "2026-01-02"}, "cdefghij"),
        ({"date_from": "2026-01-02T00:00:00Z", "date_to": "2026-01-02T00:00:00Z"}, "c"),
        ({"date_from": "2026-01-01T23:59:59Z", "date_to": "2026-01-02T00:00:00Z"}, "bc"),
        ({"date_from": "2026-01-02T00:00:01Z", "date_to": "2026-01-31"}, "de"),
        ({"date_to": "2026-01-01T23:59:58Z"}, "a"),
        ({"date_to": "2026-01-01T23:59:58.999Z"}, "a"),
        ({"date_from": "2026-01-01T23:59:59.001Z", "date_to": "2026-01-31"}, "cde"),
        ({"date_from": "2026-01-02T01:00:00+01:00", "date_to": "2026-01-02T01:00:00+01:00"}, "c"),
        ({"date_from": "2026-01-01T19:00:00-05:00", "date_to": "2026-01-01T19:00:00-05:00"}, "c"),
        ({"date_from": "2026-01-02T00:00:00", "date_to": "2026-01-02T00:00:00"}, "c"),
        ({"date_from": "2026-01-02T01:00:00 01:00", "date_to": "2026-01-02T01:00:00 01:00"}, "c"),
        ({"date_from": "2026-01-03", "date_to": "2026-01-01"}, ""),
        ({"date_from": "2026-01-02T00:00:01Z", "date_to": "2026-01-02T00:00:00Z"}, ""),
        ({"date_from": "0001-01-01", "date_to": "9999-12-31"}, "abcdefghij"),
    ],
)
def test_dates_bound_first_seen_at_both_ends_included(
    tenant: Tenant, params: dict[str, str], expected: str
) -> None:
    # "date_from: first seen on or after; date_to: first seen on or before"
    assert the_set(tenant, **params) == expected
    assert the_set(tenant, order_by="last_seen_at", **params) == expected
    assert the_set(tenant, q="e", **params) == expected
    assert the_set(tenant, min_score=0.5, **params) == expected.replace("h", "")


def test_a_plus_that_a_url_made_a_space_still_is_an_offset(tenant: Tenant) -> None:
    answer = tenant.client.get(
        "/api/v1/findings?date_from=2026-01-02T01:00:00+01:00&date_to=2026-01-02T01:00:00+01:00"
    )
    assert [NAMES[finding["id"]] for finding in answer.json()["data"]] == ["c"]


@pytest.mark.parametrize(
    ("q", "expected"),
    [
        ("umbrella", "j"),  # repo_full_name
        ("UMBRELLA/corp", "j"),
        ("files.example.com", "j"),  # source_url
        ("?id=7", "j"),
        ("dir/100", "j"),  # file_path
        ("settings.py", "abcdefghi"),
        ("SETTINGS.PY", "abcdefghi"),
        ("umbrella reports secret", "j"),  # every term, each in any field
        ("umbrella settings", ""),
        ("  umbrella \t corp  ", "j"),
        ("corp umbrella", "j"),
        ("secret", "j"),
        ("u", "abcdefghij"),
        ("%", "j"),
        ("_", "j"),
        ("\\", "j"),
        ("100%_done\\now", "j"),
        ("100_", ""),
        ("100%done", ""),
        ("_done", "j"),
        ("shop acme", "abcdefghi"),
        ("corpsecret", ""),  # no term matches across two fields
        ("7secret", ""),
        ("aws", ""),  # pattern and services are not searched
        ("nothing-of-the-kind", ""),
    ],
)
def test_q_searches_the_three_fields_for_every_term(tenant: Tenant, q: str, expected: str) -> None:
    # "full-text search across source_url, file_path, repo_full_name"
    assert the_set(tenant, q=q) == expected


def test_filters_combine_with_and(tenant: Tenant) -> None:
    # "All filters are optional and combine with AND."
    given = {
        "status": "active",
        "source_type": "repo",
        "validation": "valid",
        "service": "aws",
        "min_score": 50,
        "date_from": "2026-01-01",
        "date_to": "2026-01-31",
        "q": "acme settings",
        "suppressed": "false",
    }
    assert names(tenant, **given) == "a"
    fails = {
        "status": "false_positive",
        "source_type": "gist",
        "validation": "error",
        "service": "github",
        "min_score": 91,
        "date_from": "2026-01-02",
        "date_to": "2025-12-31",
        "q": "acme umbrella",
        "suppressed": "true",
    }
    assert fails.keys() == given.keys()
    for name, value in fails.items():
        assert names(tenant, **(given | {name: value})) == "", name
    assert the_set(tenant, service="aws", min_score=80) == "abc"
    assert the_set(tenant, service="aws", date_to="2026-01-31", status="resolved") == "b"
    assert the_set(tenant, min_score=80, q="settings") == "abci"


@pytest.mark.parametrize("name", ["status", "source_type", "validation", "order_by", "order_dir"])
@pytest.mark.parametrize("value", ["", "unheard-of", "ACTIVE", "valid ", "active,stale", "null", "*"])
def test_an_unrecognised_value_is_a_parameter_error(tenant: Tenant, name: str, value: str) -> None:
    # "Behaviour for an unrecognised value of status, source_type, validation, order_by or order_dir:
    # not shown" -> 422
    answer = tenant.get("/findings", **{name: value})
    assert answer.status_code == 422
    assert [entry["loc"] for entry in answer.json()["detail"]] == [["query", name]]


def test_an_unknown_parameter_is_ignored(tenant: Tenant) -> None:
    assert tenant.get("/findings", unheard="of", Status="stale").json() == tenant.get("/findings").json()


# --- GET /api/v1/findings: order and pages


@pytest.mark.parametrize(
    ("order_by", "ascending"),
    [("composite_score", "hjgfedcbai"), ("first_seen_at", "abcdejihgf"), ("last_seen_at", "jihgfedcba")],
)
def test_the_list_is_sorted_as_asked_and_ties_by_id_in_the_same_direction(
    tenant: Tenant, order_by: str, ascending: str
) -> None:
    # order_by: `composite_score`, `first_seen_at` or `last_seen_at`; order_dir: `asc` or `desc`
    assert names(tenant, order_by=order_by, order_dir="asc") == ascending
    assert names(tenant, order_by=order_by, order_dir="desc") == ascending[::-1]
    assert names(tenant, order_by=order_by) == ascending[::-1]
    searched = "".join(name for name in ascending if name != "j")
    assert names(tenant, order_by=order_by, order_dir="asc", q="settings") == searched
    assert names(tenant, order_by=order_by, order_dir="desc", q="settings") == searched[::-1]
    served = "".join(name for name in ascending if name not in "hi")
    assert names(tenant, order_by=order_by, order_dir="asc", service="aws") == served


@pytest.mark.parametrize("order_by", ["composite_score", "first_seen_at", "last_seen_at"])
@pytest.mark.parametrize("order_dir", ["asc", "desc"])
@pytest.mark.parametrize(
    "filters", [{}, {"q": "e"}, {"service": "aws"}, {"min_score": 1}, {"validation": "valid"}], ids=str
)
def test_the_pages_together_are_the_whole_list(
    tenant: Tenant, order_by: str, order_dir: str, filters: dict[str, Any]
) -> None:
    # "1-based page"; "results per page"
    complete = tenant.get("/findings", order_by=order_by, order_dir=order_dir, per_page=200, **filters).json()
    total = complete["meta"]["total"]
    found = []
    for page in range(1, -(-total // 3) + 1):
        body = tenant.get(
            "/findings", order_by=order_by, order_dir=order_dir, per_page=3, page=page, **filters
        ).json()
        assert body["meta"] == {"total": total, "page": page, "per_page": 3, "pages": -(-total // 3)}
        assert len(body["data"]) == min(3, total - 3 * (page - 1))
        found += body["data"]
    assert found == complete["data"]


def test_an_empty_result_has_no_pages(tenant: Tenant) -> None:
    for params in (
        {"q": "nothing-of-the-kind"},
        {"service": "none"},
        {"status": "active", "source_type": "gist"},
    ):
        body = tenant.get("/findings", **params).json()
        assert body == {"data": [], "meta": {"total": 0, "page": 1, "per_page": 25, "pages": 0}}


@pytest.mark.parametrize(
    "filters", [{}, {"q": "e"}, {"service": "aws"}, {"date_from": "2026-01-01"}], ids=str
)
def test_a_page_past_the_end_is_empty(tenant: Tenant, filters: dict[str, str]) -> None:
    first = tenant.get("/findings", per_page=5, **filters).json()["meta"]
    for page in (first["pages"] + 1, 1000, 2**63, 10**30):
        answer = tenant.get("/findings", per_page=5, page=page, **filters)
        assert answer.status_code == 200
        assert answer.json() == {"data": [], "meta": first | {"page": page}}


def test_a_page_has_25_results_unless_asked_otherwise(stage: Backend) -> None:
    tenant = stage.tenant()
    stage.import_(tenant.account, *(make_line() for _ in range(201)))
    sizes = {None: 25, 1: 1, 199: 199, 200: 200}
    for per_page, size in sizes.items():
        body = tenant.get("/findings", **({} if per_page is None else {"per_page": per_page})).json()
        assert len(body["data"]) == body["meta"]["per_page"] == size
        assert body["meta"]["pages"] == -(-201 // size)


# --- GET /api/v1/scans


@pytest.fixture(scope="module")
def runs(stage: Backend) -> Tenant:
    """Twenty-five runs, every fifth a scrape; two of them of the same moment."""
    tenant = stage.tenant()
    first = make_scan().created_at
    for n in range(25):
        type_ = ScanType.SCRAPE if n % 5 == 0 else ScanType.GITHUB
        stage.scan(
            tenant.account,
            make_scan(type=type_, created_at=first.replace(minute=max(n, 1)), target=f"{n:02}"),
        )
    return tenant


def test_scan_runs_are_listed_newest_first_twenty_at_a_time(runs: Tenant) -> None:
    # "Recent scan runs of the account ... `limit` (integer 1..100, default 20)"
    body = runs.get("/scans").json()
    assert body["meta"] == {"total": 25, "page": 1, "per_page": 20, "pages": 2}
    assert [run["target"] for run in body["data"]] == [f"{n:02}" for n in range(24, 4, -1)]
    times = [(run["created_at"], run["id"]) for run in runs.get("/scans", limit=100).json()["data"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == 25


def test_scan_runs_are_filtered_by_type(runs: Tenant) -> None:
    # "`type` (string, optional: `github` or `scrape`)"
    scrapes, repositories = (
        runs.get("/scans", type="scrape", limit=100).json(),
        runs.get("/scans", type="github", limit=100).json(),
    )
    assert (scrapes["meta"]["total"], repositories["meta"]["total"]) == (5, 20)
    assert {run["type"] for run in scrapes["data"]} == {"scrape"}
    assert {run["type"] for run in repositories["data"]} == {"github"}


@pytest.mark.parametrize(("limit", "shown"), [("1", 1), ("24", 24), ("25", 25), ("100", 25)])
def test_limit_is_the_number_of_scan_runs_per_page(runs: Tenant, limit: str, shown: int) -> None:
    body = runs.get("/scans", limit=limit).json()
    assert len(body["data"]) == shown
    assert body["meta"] == {"total": 25, "page": 1, "per_page": int(limit), "pages": -(-25 // int(limit))}


def test_scan_runs_have_pages(runs: Tenant) -> None:
    complete = runs.get("/scans", limit=100).json()["data"]
    found = []
    for page in (1, 2, 3, 4):
        body = runs.get("/scans", limit=10, page=page).json()
        assert body["meta"] == {"total": 25, "page": page, "per_page": 10, "pages": 3}
        found += body["data"]
    assert found == complete
    assert runs.get("/scans", page=10**30).json() == {
        "data": [],
        "meta": {"total": 25, "page": 10**30, "per_page": 20, "pages": 2},
    }


@pytest.mark.parametrize("value", ["", "Github", "web", "github,scrape"])
def test_an_unrecognised_type_is_a_parameter_error(runs: Tenant, value: str) -> None:
    answer = runs.get("/scans", type=value)
    assert answer.status_code == 422
    assert [entry["loc"] for entry in answer.json()["detail"]] == [["query", "type"]]


# --- /openapi.json


def test_the_description_is_served_without_a_key_and_names_every_route(stage: Backend) -> None:
    # "The machine-readable description is served at `/openapi.json`."
    answer = stage.client().get("/openapi.json")
    assert answer.status_code == 200
    described = answer.json()
    assert described["openapi"].startswith("3.")
    routes = {(path, method) for path, item in described["paths"].items() for method in item}
    extensions = {
        (path, method)
        for path, item in described["paths"].items()
        for method, operation in item.items()
        if operation.get("x-extension") and path != "/api/v1/findings/{finding_id}/false_positive"
    }
    assert routes - extensions == {
        ("/api/v1/findings", "get"),
        ("/api/v1/findings/{finding_id}", "get"),
        ("/api/v1/findings/{finding_id}/suppress", "post"),
        ("/api/v1/findings/{finding_id}/resolve", "post"),
        ("/api/v1/findings/{finding_id}/restrict", "post"),
        ("/api/v1/findings/{finding_id}/false_positive", "post"),
        ("/api/v1/scans", "get"),
        ("/api/v1/scans/{scan_id}", "get"),
    }
    assert not any(
        "requestBody" in operation for item in described["paths"].values() for operation in item.values()
    )


def test_the_description_names_every_parameter_with_its_default(stage: Backend) -> None:
    paths = stage.client().get("/openapi.json").json()["paths"]
    parameters = {
        parameter["name"]: parameter for parameter in paths["/api/v1/findings"]["get"]["parameters"]
    }
    assert parameters.keys() == {
        *(
            "status",
            "source_type",
            "validation",
            "service",
            "min_score",
            "date_from",
            "date_to",
            "q",
            "page",
            "per_page",
        ),
        *("order_by", "order_dir", "suppressed"),
        *(
            "updated_since",
            "severity",
            "secret_type",
            "rule",
            "repo",
            "visibility",
            "author",
            "context",
            "scan",
        ),
        *("assignee", "incident_id"),
    }
    assert not any(parameter["required"] for parameter in parameters.values())
    defaults = {
        name: parameter["schema"]["default"]
        for name, parameter in parameters.items()
        if "default" in parameter["schema"]
    }
    assert defaults == {"page": 1, "per_page": 25, "order_by": "composite_score", "order_dir": "desc"}
    scans = {
        parameter["name"]: parameter["schema"].get("default")
        for parameter in paths["/api/v1/scans"]["get"]["parameters"]
    }
    assert scans == {"type": None, "limit": 20, "page": 1}
    for action in ("resolve", "restrict", "false_positive"):
        (note,) = [
            p
            for p in paths[f"/api/v1/findings/{{finding_id}}/{action}"]["post"]["parameters"]
            if p["in"] == "query"
        ]
        assert (note["name"], note["required"], note["schema"]["maxLength"]) == ("note", False, 500)


def test_the_description_asks_for_a_bearer_key_and_names_the_base_address(settings: Settings) -> None:
    with running_server(settings, base_url="http://127.0.0.1:1234") as server:
        described = httpx.get(f"{server.base_url}/openapi.json", trust_env=False).json()
    (scheme,) = described["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert described["security"]
    assert described["servers"] == [{"url": "http://127.0.0.1:1234"}]
