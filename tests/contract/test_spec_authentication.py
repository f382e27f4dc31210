"""The specification's part "Authentication": keys, plans, https, browsers, and every failure's exact body."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from outcrop.domain.account import Plan, Role
from outcrop.domain.clock import now
from outcrop.services import accounts
from outcrop.services import keys as key_service
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line, make_scan

UNKNOWN = "00000000-0000-4000-8000-000000000000"
ROUTES = [
    ("GET", "/api/v1/findings"),
    ("GET", f"/api/v1/findings/{UNKNOWN}"),
    ("POST", f"/api/v1/findings/{UNKNOWN}/suppress"),
    ("POST", f"/api/v1/findings/{UNKNOWN}/resolve"),
    ("POST", f"/api/v1/findings/{UNKNOWN}/restrict"),
    ("POST", f"/api/v1/findings/{UNKNOWN}/false_positive"),
    ("GET", "/api/v1/scans"),
    ("GET", f"/api/v1/scans/{UNKNOWN}"),
]
# Errors in the rest of a request are not reported before the key is authenticated.
WRONG_OTHERWISE = [
    ("GET", "/api/v1/findings?status=unheard-of"),
    ("GET", "/api/v1/findings/not-a-uuid"),
    ("GET", "/api/v1/nowhere"),
    ("GET", "/api/v1/"),
    ("GET", "/api"),
    ("GET", "/api/"),
    ("GET", "/api/v2/findings"),
    ("DELETE", "/api/v1/findings"),
    ("OPTIONS", "/api/v1/findings"),
    ("POST", f"/api/v1/findings/{UNKNOWN}/resolve?note={'x' * 501}"),
]
HTTPS = "https://outcrop.example.com"


@pytest.fixture(scope="module")
def anyone(stage: Backend) -> httpx.Client:
    """Return a client without a key."""
    return stage.client()


@pytest.fixture(scope="module")
def starter(stage: Backend) -> Tenant:
    return stage.tenant(Plan.STARTER)


def refused_with_401(answer: httpx.Response, code: str) -> None:
    assert answer.status_code == 401
    assert answer.content == f'{{"error":"{code}"}}'.encode()
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["Content-Type"] == "application/json"
    assert not any(name.lower().startswith("ratelimit") for name in answer.headers)


# --- the key


@pytest.mark.parametrize(("method", "path"), ROUTES + WRONG_OTHERWISE)
def test_every_request_needs_a_key_before_anything_else_is_reported(
    anyone: httpx.Client, method: str, path: str
) -> None:
    # 401 {"error": "missing_authorization"}: no Authorization header
    refused_with_401(anyone.request(method, path), "missing_authorization")


@pytest.mark.parametrize(("method", "path"), ROUTES + WRONG_OTHERWISE)
def test_a_token_that_matches_no_key_is_reported_before_anything_else(
    anyone: httpx.Client, tenant: Tenant, method: str, path: str
) -> None:
    # 401 {"error": "invalid_token"}: token matches no active key
    wrong = tenant.key[:-7] + ("A" if tenant.key[-7] != "A" else "B") + tenant.key[-6:]
    refused_with_401(
        anyone.request(method, path, headers={"Authorization": f"Bearer {wrong}"}), "invalid_token"
    )


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_good_key_opens_every_route(tenant: Tenant, method: str, path: str) -> None:
    # "Scheme: HTTP Bearer. Header `Authorization: Bearer <API_KEY>` on every request."
    assert tenant.client.request(method, path).status_code in {200, 404}


def test_a_head_without_a_key_is_refused_without_a_body(anyone: httpx.Client) -> None:
    answer = anyone.head("/api/v1/findings")
    assert (answer.status_code, answer.content, answer.headers["WWW-Authenticate"]) == (401, b"", "Bearer")


@pytest.mark.parametrize(
    "form",
    [
        "",
        "Bearer",
        "Basic {key}",
        "Token {key}",
        "{key}",
        "Bearer{key}",
        "Bearer {key} {key}",
        "Bearer, {key}",
    ],
)
def test_a_wrong_scheme_or_an_empty_token_is_an_invalid_token(
    anyone: httpx.Client, tenant: Tenant, form: str
) -> None:
    header = {"Authorization": form.format(key=tenant.key)}
    refused_with_401(anyone.get("/api/v1/findings", headers=header), "invalid_token")


@pytest.mark.parametrize(
    "change",
    ["upper case", "lower case", "one less", "one more", "other checksum", "another of the same form"],
)
def test_a_token_must_match_exactly(
    anyone: httpx.Client, tenant: Tenant, starter: Tenant, change: str
) -> None:
    key = tenant.key
    changed = {
        "upper case": key.upper(),
        "lower case": key.lower(),
        "one less": key[:-1],
        "one more": key + "0",
        "other checksum": key[:-1] + ("0" if key[-1] != "0" else "1"),
        "another of the same form": starter.key[:20] + key[20:],
    }[change]
    assert changed != key
    refused_with_401(
        anyone.get("/api/v1/findings", headers={"Authorization": f"Bearer {changed}"}), "invalid_token"
    )


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(anyone: httpx.Client, tenant: Tenant, scheme: str) -> None:
    assert (
        anyone.get("/api/v1/findings", headers={"Authorization": f"{scheme} {tenant.key}"}).status_code == 200
    )


def test_a_key_in_the_query_or_in_a_cookie_is_no_key(anyone: httpx.Client, tenant: Tenant) -> None:
    # "No OAuth flow, no session cookies."
    refused_with_401(
        anyone.get("/api/v1/findings", params={"access_token": tenant.key}), "missing_authorization"
    )
    refused_with_401(
        anyone.get("/api/v1/findings", headers={"Cookie": f"session={tenant.key}"}), "missing_authorization"
    )


def test_no_answer_sets_a_cookie(anyone: httpx.Client, tenant: Tenant) -> None:
    answers = [tenant.client.request(method, path) for method, path in ROUTES] + [
        anyone.get("/api/v1/findings")
    ]
    assert not any("set-cookie" in answer.headers for answer in answers)


def test_a_revoked_key_is_reported_as_revoked_for_good(stage: Backend) -> None:
    # 401 {"error": "revoked_token"}: token was revoked
    tenant = stage.tenant()
    stage.run(lambda db: key_service.revoke_key(db, tenant.key_id, by="test", now=now()))
    for method, path in ROUTES + WRONG_OTHERWISE:
        refused_with_401(tenant.client.request(method, path), "revoked_token")


def test_revoking_one_key_leaves_the_accounts_other_keys(stage: Backend) -> None:
    tenant = stage.tenant()
    _, other = stage.key(tenant.account)
    stage.run(lambda db: key_service.revoke_key(db, tenant.key_id, by="test", now=now()))
    assert stage.client(other).get("/api/v1/findings").status_code == 200


def test_a_key_has_no_expiry_unless_one_is_set(stage: Backend, tenant: Tenant) -> None:
    # "They are static; no refresh; no expiry unless one is set at creation."
    id_, token = stage.key(tenant.account, expires_at=now() + timedelta(hours=1))
    assert stage.client(token).get("/api/v1/findings").status_code == 200
    assert stage.sql("SELECT expires_at FROM api_keys WHERE id = %s", tenant.key_id) == [(None,)]
    stage.sql("UPDATE api_keys SET expires_at = now() - interval '1 s' WHERE id = %s", id_)
    refused_with_401(stage.client(token).get("/api/v1/findings"), "invalid_token")
    assert tenant.get("/findings").status_code == 200


def test_a_key_that_is_revoked_and_expired_is_revoked(stage: Backend, tenant: Tenant) -> None:
    id_, token = stage.key(tenant.account)
    stage.sql(
        "UPDATE api_keys SET expires_at = now() - interval '1 s', revoked_at = now() WHERE id = %s", id_
    )
    refused_with_401(stage.client(token).get("/api/v1/findings"), "revoked_token")


def test_keys_are_stored_so_that_they_cannot_be_shown_again(stage: Backend, tenant: Tenant) -> None:
    # "Keys are created in the portal and shown exactly once."
    assert stage.sql("SELECT count(*) FROM api_keys k WHERE k::text LIKE %s", f"%{tenant.key[20:]}%") == [
        (0,)
    ]
    assert stage.sql("SELECT count(*) FROM audit a WHERE a::text LIKE %s", f"%{tenant.key[20:]}%") == [(0,)]
    assert stage.sql("SELECT count(*) FROM api_keys WHERE id = %s", tenant.key_id) == [(1,)]


def test_keys_belong_to_the_account_and_outlive_the_member(stage: Backend, tenant: Tenant) -> None:
    # "Keys belong to the account, not a user. Removing a team member does not revoke keys."
    email = f"{uuid4().hex}@example.com"
    stage.run(
        lambda db: accounts.create_member(
            db,
            tenant.account,
            email=email,
            role=Role.ADMIN,
            password="quiet staples 42",
            by="test",
            now=now(),
        )
    )
    _, token = stage.key(tenant.account, member=email)
    stage.run(lambda db: accounts.remove_member(db, email, by="test", now=now()))
    assert stage.client(token).get("/api/v1/findings").status_code == 200


def test_every_key_of_an_account_sees_the_same_findings(stage: Backend) -> None:
    tenant = stage.tenant()
    stage.import_(tenant.account, line := make_line())
    _, token = stage.key(tenant.account, member="someone@example.com")
    assert (
        stage.client(token).get(f"/api/v1/findings/{line['id']}").json()
        == tenant.get(f"/findings/{line['id']}").json()
    )


# --- the plan


@pytest.mark.parametrize(("method", "path"), ROUTES + WRONG_OTHERWISE)
def test_a_plan_without_api_access_is_refused_before_anything_else(
    starter: Tenant, method: str, path: str
) -> None:
    # 403 {"error": "plan_required", "minimum": "growth"}: plan lacks API access
    answer = starter.client.request(method, path)
    assert answer.status_code == 403
    assert answer.content == b'{"error":"plan_required","minimum":"growth"}'
    assert "WWW-Authenticate" not in answer.headers
    assert not any(name.lower().startswith("ratelimit") for name in answer.headers)


@pytest.mark.parametrize("plan", [Plan.GROWTH, Plan.ENTERPRISE])
def test_a_plan_with_api_access_opens_the_api(stage: Backend, plan: Plan) -> None:
    # "Access requires a plan that includes API access."
    assert stage.tenant(plan).get("/findings").status_code == 200


def test_a_change_of_plan_counts_from_the_next_request(stage: Backend) -> None:
    tenant = stage.tenant()
    codes = []
    for plan in (Plan.STARTER, Plan.ENTERPRISE, Plan.STARTER, Plan.GROWTH):
        stage.run(
            lambda db, plan=plan: accounts.set_plan(db, tenant.account.slug, plan, by="test", now=now())
        )
        codes.append(tenant.get("/findings").status_code)
    assert codes == [403, 200, 403, 200]


def test_a_plan_without_api_access_changes_nothing(stage: Backend) -> None:
    tenant = stage.tenant(Plan.STARTER)
    stage.import_(tenant.account, line := make_line())
    assert tenant.post(f"/findings/{line['id']}/resolve").status_code == 403
    assert stage.sql("SELECT status FROM findings WHERE account_id = %s", tenant.account.id) == [("active",)]


def test_a_revoked_key_of_a_small_plan_is_reported_as_revoked(stage: Backend) -> None:
    tenant = stage.tenant(Plan.STARTER)
    stage.run(lambda db: key_service.revoke_key(db, tenant.key_id, by="test", now=now()))
    refused_with_401(tenant.get("/findings"), "revoked_token")


# --- https


@pytest.fixture(scope="module")
def secure(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    """Yield a service whose base URL is https; the proxy before it reports the scheme of a request."""
    with (
        running_server(settings, base_url=HTTPS, rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


@pytest.mark.parametrize(
    "target",
    [
        "/api/v1/findings",
        "/api/v1/findings/",
        "/api/v1/findings?status=active&q=a%20b+c%2Fd&q=%FF&empty=",
        f"/api/v1/findings/{UNKNOWN}/resolve?note=%C3%A9%00",
        "/api/v1/scans/a%2Fb%20c%3F",
        "/api/v1/nowhere",
        "/openapi.json",
        "/",
        "//evil.example/x",
        "/nowhere?",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
def test_plain_http_is_redirected_to_the_same_path_and_query(
    secure: Backend, anyone: httpx.Client, tenant: Tenant, method: str, target: str
) -> None:
    # "HTTPS only; plain HTTP requests are redirected."
    base = httpx.URL(secure.base_url)
    url = httpx.URL(scheme="http", host=base.host, port=base.port, raw_path=target.encode())
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {tenant.key}"}):
        answer = anyone.request(method, url, headers=headers)
        assert answer.status_code == 308
        assert answer.headers["Location"] == HTTPS + target.removesuffix("?")
        assert "Strict-Transport-Security" not in answer.headers
        assert "WWW-Authenticate" not in answer.headers


def test_a_redirected_request_changes_nothing_and_is_not_counted(secure: Backend, tenant: Tenant) -> None:
    secure.import_(tenant.account, line := make_line())
    before = secure.sql("SELECT used FROM rate_windows WHERE key_id = %s", tenant.key_id)
    assert secure.client(tenant.key).post(f"/api/v1/findings/{line['id']}/resolve").status_code == 308
    assert secure.sql("SELECT status FROM findings WHERE id = %s", line["id"]) == [("active",)]
    assert secure.sql("SELECT used FROM rate_windows WHERE key_id = %s", tenant.key_id) == before


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_probes_are_answered_over_plain_http(secure: Backend, method: str, path: str) -> None:
    answer = secure.client().request(method, path)
    assert answer.status_code == 200
    assert "Strict-Transport-Security" not in answer.headers


def test_an_https_request_is_served_with_hsts(secure: Backend, tenant: Tenant) -> None:
    proxied = {"X-Forwarded-Proto": "https"}
    answers = [
        secure.client(tenant.key).get("/api/v1/findings", headers=proxied),
        secure.client(tenant.key).get("/api/v1/findings/not-a-uuid", headers=proxied),
        secure.client().get("/api/v1/findings", headers=proxied),
        secure.client().get("/openapi.json", headers=proxied),
        secure.client().get("/nowhere", headers=proxied),
        secure.client().get("/healthz", headers=proxied),
    ]
    assert [answer.status_code for answer in answers] == [200, 422, 401, 200, 404, 200]
    for answer in answers:
        name, _, seconds = answer.headers["Strict-Transport-Security"].partition("=")
        assert name == "max-age"
        assert int(seconds) >= 31_536_000


def test_where_the_base_address_is_plain_http_nothing_is_redirected(tenant: Tenant) -> None:
    for headers in ({}, {"X-Forwarded-Proto": "https"}):
        answer = tenant.client.get("/api/v1/findings", headers=headers)
        assert answer.status_code == 200
        assert "Strict-Transport-Security" not in answer.headers


# --- browsers


ORIGIN = "https://app.example.com"
PREFLIGHT = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}


def cors_headers(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("origin", [ORIGIN, "null", "http://127.0.0.1", "*"])
def test_cross_origin_requests_are_not_allowed_by_default(
    anyone: httpx.Client, tenant: Tenant, origin: str
) -> None:
    # "Cross-origin (browser) requests are not allowed by default."
    preflight = anyone.options("/api/v1/findings", headers={"Origin": origin} | PREFLIGHT)
    refused_with_401(preflight, "missing_authorization")
    with_key = tenant.client.options("/api/v1/findings", headers={"Origin": origin} | PREFLIGHT)
    assert with_key.status_code == 405
    answers = [preflight, with_key, tenant.client.get("/api/v1/findings", headers={"Origin": origin})]
    answers.append(anyone.get("/openapi.json", headers={"Origin": origin}))
    assert [cors_headers(answer) for answer in answers] == [{}] * 4


@pytest.fixture(scope="module")
def browsers(settings: Settings, keys: Keyring) -> Iterator[Backend]:
    """Yield a service that allows one origin."""
    with (
        running_server(settings, rate_limit=0, cors_origins=[ORIGIN]) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        yield backend


def test_a_named_origin_is_allowed(browsers: Backend, tenant: Tenant) -> None:
    client = browsers.client(tenant.key)
    for path in ("/api/v1/findings", "/api/v1/findings?status=x", "/api/v1/nowhere"):
        answer = client.get(path, headers={"Origin": ORIGIN})
        assert cors_headers(answer)["access-control-allow-origin"] == ORIGIN
        assert answer.headers["Vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers
    refused = browsers.client().get("/api/v1/findings", headers={"Origin": ORIGIN})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)


def test_a_named_origin_may_ask_first(browsers: Backend) -> None:
    answer = browsers.client().options("/api/v1/findings", headers={"Origin": ORIGIN} | PREFLIGHT)
    assert answer.is_success
    allowed = cors_headers(answer)
    assert allowed["access-control-allow-origin"] == ORIGIN
    assert {method.strip() for method in allowed["access-control-allow-methods"].split(",")} >= {
        "GET",
        "POST",
    }
    assert allowed["access-control-allow-headers"].lower() == "authorization"


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.com", f"{ORIGIN}.evil.example", f"{ORIGIN}:444", ORIGIN.upper(), "null", "", "*"],
)
def test_no_other_origin_is_allowed(browsers: Backend, tenant: Tenant, origin: str) -> None:
    get = browsers.client(tenant.key).get("/api/v1/findings", headers={"Origin": origin})
    asked = browsers.client().options("/api/v1/findings", headers={"Origin": origin} | PREFLIGHT)
    assert (get.status_code, cors_headers(get)) == (200, {})
    assert (asked.status_code, cors_headers(asked)) == (401, {})


def test_options_that_is_no_preflight_is_a_method_like_any_other(browsers: Backend, tenant: Tenant) -> None:
    answer = browsers.client(tenant.key).options("/api/v1/findings", headers={"Origin": ORIGIN})
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


def test_csrf_protection_does_not_apply(stage: Backend, tenant: Tenant) -> None:
    # "CSRF protection does not apply to `/api/*`."
    stage.import_(tenant.account, line := make_line())
    foreign: dict[str, Any] = {
        "Origin": "https://evil.example.com",
        "Referer": "https://evil.example.com/",
        "Sec-Fetch-Site": "cross-site",
    }
    assert tenant.client.post(f"/api/v1/findings/{line['id']}/resolve", headers=foreign).status_code == 200


# --- open routes


@pytest.mark.parametrize("path", ["/openapi.json", "/api/v2/openapi.json", "/healthz", "/readyz"])
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic x"])
def test_open_routes_need_no_key(anyone: httpx.Client, path: str, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    assert anyone.get(path, headers=headers).status_code == 200
    assert anyone.head(path, headers=headers).status_code == 200


def test_an_open_route_shows_nothing_of_an_account(stage: Backend) -> None:
    tenant = stage.tenant()
    stage.scan(tenant.account, make_scan(target="a-target-that-nobody-else-has"))
    for path in ("/openapi.json", "/api/v2/openapi.json", "/healthz", "/readyz"):
        assert "a-target-that-nobody-else-has" not in stage.client(tenant.key).get(path).text
        assert tenant.account.slug not in stage.client(tenant.key).get(path).text
