"""The specification's parts "Errors", "Limits" and "Versioning"."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from outcrop.domain.account import Plan
from outcrop.domain.clock import now
from outcrop.services import keys as key_service
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line

UNKNOWN = "00000000-0000-4000-8000-000000000000"


# --- Errors


def test_an_error_has_a_code_and_an_explanation(stage: Backend, tenant: Tenant) -> None:
    # Error body: {"error": "<code>", "message": "<explanation>"}. The HTTP status is set to match.
    stage.import_(tenant.account, line := make_line(status="false_positive"))
    answers = {
        (400, "invalid_transition"): tenant.post(f"/findings/{line['id']}/resolve"),
        (404, "not_found"): tenant.get(f"/findings/{UNKNOWN}"),
        (405, "method_not_allowed"): tenant.client.put("/api/v1/findings"),
    }
    for (status, code), answer in answers.items():
        assert answer.status_code == status
        assert answer.json().keys() == {"error", "message"}
        assert answer.json()["error"] == code
        assert isinstance(answer.json()["message"], str)
        assert answer.json()["message"]


def test_an_unknown_address_beside_the_api_is_not_found_either(stage: Backend) -> None:
    for path in ("/nowhere", "/docs", "/redoc", "/apix/v1/findings", "/API/v1/findings", "//api/v1/findings"):
        answer = stage.client().get(stage.base_url + path)
        assert (answer.status_code, answer.json()["error"]) == (404, "not_found"), path


@pytest.mark.parametrize("path", ["/openapi.json", "/api/v2/openapi.json", "/healthz", "/readyz"])
def test_an_open_route_takes_get_only(stage: Backend, path: str) -> None:
    answer = stage.client().post(path)
    assert (answer.status_code, answer.headers["Allow"], answer.json()["error"]) == (
        405,
        "GET, HEAD",
        "method_not_allowed",
    )


def test_what_is_wrong_is_reported_in_a_fixed_order(settings: Settings, keys: Keyring) -> None:
    # redirect, 401, 403, 429, 404 or 405, 422, and only then is anything looked up
    secure = {"X-Forwarded-Proto": "https"}
    with (
        running_server(settings, base_url="https://outcrop.example.com", rate_limit=3) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        starter, growth = backend.tenant(Plan.STARTER), backend.tenant()
        wrong = f"/api/v1/findings/not-a-uuid/resolve?note={'x' * 501}"
        codes = [
            growth.client.delete(wrong),
            backend.client().delete(wrong, headers=secure),
            backend.client("wrong").delete(wrong, headers=secure),
            starter.client.delete(wrong, headers=secure),
            growth.client.delete(wrong, headers=secure),  # counted: 1
            growth.client.post(wrong, headers=secure),  # 2
            growth.client.post(f"/api/v1/findings/{UNKNOWN}/resolve", headers=secure),  # 3
            growth.client.delete(wrong, headers=secure),
            growth.client.get("/api/v1/nowhere", headers=secure),
        ]
        assert [answer.status_code for answer in codes] == [308, 401, 401, 403, 405, 422, 404, 429, 429]
        assert backend.sql("SELECT used FROM rate_windows WHERE key_id = %s", growth.key_id) == [(3,)]
        assert backend.sql("SELECT used FROM rate_windows WHERE key_id = %s", starter.key_id) == []


# --- Limits


@pytest.mark.parametrize(
    ("path", "name", "allowed", "refused"),
    [
        ("/findings", "per_page", ["1", "2", "199", "200"], ["0", "-1", "201", "1000000"]),
        ("/findings", "page", ["1", "2", "1000000"], ["0", "-1"]),
        ("/scans", "limit", ["1", "2", "99", "100"], ["0", "-1", "101"]),
        ("/scans", "page", ["1", "2", "1000000"], ["0", "-1"]),
        (
            "/findings",
            "min_score",
            ["0", "0.5", "99.9", "100", "1e2", "100.0"],
            ["-0.1", "-1", "100.0001", "101", "1e3"],
        ),
    ],
)
def test_a_number_is_allowed_from_its_least_to_its_greatest(
    tenant: Tenant, path: str, name: str, allowed: list[str], refused: list[str]
) -> None:
    # "per_page on findings: 1 to 200; page: minimum 1; limit on scans: 1 to 100; min_score: 0 to 100"
    for value in allowed:
        assert tenant.get(path, **{name: value}).status_code == 200, value
    for value in refused:
        answer = tenant.get(path, **{name: value})
        assert answer.status_code == 422, value
        assert [entry["loc"] for entry in answer.json()["detail"]] == [["query", name]]


# --- the rate


@pytest.fixture(scope="module")
def limited(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    """Yield a service with a rate limit of five requests per minute."""
    with (
        running_server(settings, rate_limit=5) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


def rate(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (
        int(answer.headers[f"RateLimit-{name}"]) for name in ("Limit", "Remaining", "Reset")
    )
    return limit, remaining, reset


def test_exactly_the_limit_is_let_through_and_every_answer_shows_what_is_left(limited: Backend) -> None:
    # "API request rate: per-minute limit applies; exceeding returns 429"
    tenant = limited.tenant()
    answers = [tenant.get("/findings") for _ in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
    assert [rate(answer)[:2] for answer in answers] == [
        (5, 4),
        (5, 3),
        (5, 2),
        (5, 1),
        (5, 0),
        (5, 0),
        (5, 0),
        (5, 0),
    ]
    resets = [rate(answer)[2] for answer in answers]
    assert resets == sorted(resets, reverse=True)
    assert all(50 <= reset <= 60 for reset in resets)


def test_a_refusal_has_the_specifications_body_and_says_when_to_come_back(limited: Backend) -> None:
    # 429 {"error": "rate_limited"} plus `Retry-After` header: over the per-minute limit
    tenant = limited.tenant()
    for _ in range(5):
        assert "Retry-After" not in tenant.get("/findings").headers
    answer = tenant.get("/findings")
    assert answer.status_code == 429
    assert answer.content == b'{"error":"rate_limited"}'
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["Retry-After"].isdecimal()
    assert 1 <= int(answer.headers["Retry-After"]) == rate(answer)[2] <= 60


def test_what_is_not_found_or_refused_for_its_parameters_counts(limited: Backend) -> None:
    tenant = limited.tenant()
    answers = [
        tenant.get(f"/findings/{UNKNOWN}"),
        tenant.get("/findings", page=0),
        tenant.client.put("/api/v1/findings"),
        tenant.client.head("/api/v1/findings"),
        tenant.get("/nowhere"),
        tenant.get("/findings"),
    ]
    assert [answer.status_code for answer in answers] == [404, 422, 405, 200, 404, 429]
    assert [rate(answer)[1] for answer in answers] == [4, 3, 2, 1, 0, 0]


def test_refused_requests_do_not_count(limited: Backend) -> None:
    tenant = limited.tenant()
    for _ in range(12):
        tenant.get("/findings")
    assert limited.sql("SELECT used FROM rate_windows WHERE key_id = %s", tenant.key_id) == [(5,)]


def test_a_refused_request_changes_nothing(limited: Backend) -> None:
    tenant = limited.tenant()
    limited.import_(tenant.account, line := make_line())
    for _ in range(5):
        tenant.get("/findings")
    assert tenant.post(f"/findings/{line['id']}/resolve").status_code == 429
    assert limited.sql("SELECT status FROM findings WHERE account_id = %s", tenant.account.id) == [
        ("active",)
    ]


def test_after_a_minute_a_new_window_opens_with_its_first_request(limited: Backend) -> None:
    tenant = limited.tenant()
    for _ in range(6):
        answer = tenant.get("/findings")
    assert answer.status_code == 429
    limited.sql(
        "UPDATE rate_windows SET started_at = started_at - interval '57 s' WHERE key_id = %s", tenant.key_id
    )
    almost = tenant.get("/findings")
    assert almost.status_code == 429
    assert 1 <= int(almost.headers["Retry-After"]) <= 3
    limited.sql(
        "UPDATE rate_windows SET started_at = started_at - interval '3 s' WHERE key_id = %s", tenant.key_id
    )
    answers = [tenant.get("/findings") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    assert rate(answers[0])[:2] == (5, 4)
    assert rate(answers[0])[2] >= 55


def test_the_limit_is_per_key(limited: Backend) -> None:
    tenant = limited.tenant()
    _, token = limited.key(tenant.account)
    for _ in range(5):
        tenant.get("/findings")
    other = limited.client(token).get("/api/v1/findings")
    assert (tenant.get("/findings").status_code, other.status_code, rate(other)[1]) == (429, 200, 4)


def test_a_key_that_is_over_its_limit_and_revoked_is_revoked(limited: Backend) -> None:
    tenant = limited.tenant()
    for _ in range(6):
        answer = tenant.get("/findings")
    assert answer.status_code == 429
    limited.run(lambda db: key_service.revoke_key(db, tenant.key_id, by="test", now=now()))
    assert tenant.get("/findings").json() == {"error": "revoked_token"}


def test_open_routes_have_no_limit(limited: Backend) -> None:
    tenant = limited.tenant()
    for path in ("/openapi.json", "/api/v2/openapi.json", "/healthz", "/readyz"):
        answers = [tenant.client.get(path) for _ in range(7)]
        assert {answer.status_code for answer in answers} == {200}
        assert not any("RateLimit-Limit" in answer.headers for answer in answers)
    assert rate(tenant.get("/findings"))[1] == 4


@pytest.mark.parametrize("already", [0, 11])
def test_two_servers_share_the_count_exactly_under_concurrent_requests(
    settings: Settings, keys: Keyring, already: int
) -> None:
    with (
        running_server(settings, rate_limit=20) as item,
        running_server(settings, rate_limit=20) as two,
        Backend(settings, keys, item.base_url) as backend,
    ):
        tenant = backend.tenant()
        for _ in range(already):
            tenant.get("/findings")
        clients = [tenant.client, Backend(settings, keys, two.base_url).client(tenant.key)]
        try:
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(lambda n: clients[n % 2].get("/api/v1/scans"), range(60)))
        finally:
            clients[1].close()
        assert Counter(answer.status_code for answer in answers) == {200: 20 - already, 429: 40 + already}
        left = sorted(rate(answer)[1] for answer in answers if answer.status_code == 200)
        assert left == list(range(20 - already))
        assert all(
            1 <= int(answer.headers["Retry-After"]) <= 60 for answer in answers if answer.status_code == 429
        )
        assert backend.sql("SELECT used FROM rate_windows WHERE key_id = %s", tenant.key_id) == [(20,)]


@pytest.mark.parametrize(("plan", "limit"), [(Plan.GROWTH, 300), (Plan.ENTERPRISE, 1200)])
def test_without_a_setting_the_plan_sets_the_limit(
    settings: Settings, keys: Keyring, plan: Plan, limit: int
) -> None:
    # "Gap: the numeric per-minute request limit: not shown" -> 300 on growth, 1,200 on enterprise
    with running_server(settings) as server, Backend(settings, keys, server.base_url) as backend:
        tenant = backend.tenant(plan)
        assert rate(tenant.get("/findings"))[:2] == (limit, limit - 1)
        backend.sql("UPDATE rate_windows SET used = %s WHERE key_id = %s", limit - 1, tenant.key_id)
        assert [tenant.get("/findings").status_code for _ in range(2)] == [200, 429]


def test_where_the_setting_is_0_there_is_no_limit(tenant: Tenant) -> None:
    answers = [tenant.get("/scans") for _ in range(20)]
    assert {answer.status_code for answer in answers} == {200}
    assert not any(name.lower().startswith("ratelimit") for answer in answers for name in answer.headers)


# --- Versioning


def test_the_version_is_in_the_path_and_in_the_description(stage: Backend, tenant: Tenant) -> None:
    # "The version is carried in the path prefix `/api/v1`; the description version is `v1`."
    described = stage.client().get("/openapi.json").json()
    assert described["info"]["version"] == "v1"
    assert all(path.startswith("/api/v1/") for path in described["paths"])
    for prefix in ("/api", "/api/v2", "/api/V1", "/v1"):
        assert tenant.client.get(f"{prefix}/findings").status_code == 404
    page = tenant.client.get("/findings")  # the portal's, where a key means nothing
    assert (page.status_code, page.headers["Location"]) == (303, "/sign-in?next=/findings")


def test_v1_takes_no_arguments_from_a_body(stage: Backend, tenant: Tenant) -> None:
    # "A future v2 may add bulk operations and body-based arguments; v1 stays query-parameter based."
    stage.import_(tenant.account, line := make_line())
    answer = tenant.client.post(f"/api/v1/findings/{line['id']}/resolve", json={"note": "from the body"})
    assert answer.status_code == 200
    assert tenant.finding(line["id"])["resolution_note"] is None
