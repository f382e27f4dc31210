"""Who gets in, what a form must prove, and what every answer carries."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from outcrop.domain.account import Plan, Role
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import (
    PASSWORD,
    Person,
    csrf_in,
    make_person,
    origin,
    sign_in,
    sign_in_by_form,
)

PAGES = [
    *(
        "/",
        "/findings",
        "/incidents",
        "/scans",
        "/suppressions",
        "/assignment-rules",
        "/targets",
        "/numbers",
        "/targets/new",
        "/reference",
        "/profile/keys",
        "/profile/webhook",
        "/profile/hooks",
        "/profile/team",
    ),
    *("/profile/security", "/profile/display", "/profile/plan", "/profile/audit", "/profile/export"),
]
FORMS = [
    *(
        "/sign-out",
        "/findings/triage",
        "/findings/validate",
        "/findings/bulk",
        "/undo",
        "/views",
        "/targets",
        "/first-steps/dismiss",
        "/suppressions",
        "/assignment-rules",
        "/profile/keys",
        "/profile/webhook",
        "/profile/webhook/remove",
        "/profile/hooks",
    ),
    *(
        "/profile/webhook/test",
        "/profile/team/invite",
        "/profile/team/second-factor",
        "/profile/security/password",
        "/profile/security/totp",
        "/profile/security/totp/recovery",
    ),
    *("/profile/security/sessions/end", "/profile/display"),
]


def test_every_page_is_there_with_data_and_without(backend: Backend, tenant: Tenant, owner: Person) -> None:
    assert [page for page in PAGES if "</html>" not in owner.page(page)] == []
    backend.import_(tenant.account, *(make_line() for _ in range(3)))
    backend.scan(tenant.account, run := make_scan())
    finding = tenant.get("/findings").json()["data"][0]
    records = [f"/scans/{run.id}", f"/findings/{finding['id']}", f"/incidents/{finding['incident_id']}"]
    every = [*PAGES, *records]
    assert [page for page in every if "</html>" not in owner.page(page)] == []


def test_nobody_sees_a_page_without_signing_in(backend: Backend) -> None:
    client = backend.client()
    for page in PAGES[1:]:
        answer = client.get(page)
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/sign-in?next={page}")
    assert client.get("/").headers["Location"] == "/sign-in"
    for form in FORMS:
        assert client.post(form, data={}).headers["Location"] == "/sign-in"


def test_every_answer_forbids_what_a_page_does_not_need(owner: Person) -> None:
    for path in [*PAGES, "/sign-in", "/nothing", "/findings/no-id"]:
        headers = owner.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
    for path in PAGES:  # what the policy would block is not there either
        page = owner.page(path)
        assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page), path


def test_files_that_pages_load_may_be_kept_for_ever(owner: Person) -> None:
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)"', owner.page("/")):
        answer = owner.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["Cache-Control"]
    assert owner.get("/static/0000/portal.css").status_code == 404


# --- signing in


def test_a_wrong_password_and_an_unknown_address_get_the_same_answer(
    backend: Backend, tenant: Tenant
) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    pages = []
    for who, password in (
        (email, "wrong wrong wrong"),
        (f"nobody-{tenant.account.slug}@example.com", "wrong wrong wrong"),
    ):
        answer = sign_in_by_form(client, who, password)
        assert answer.status_code == 401
        pages.append(answer.text.replace(who, ""))
    assert pages[0] == pages[1]
    assert client.get("/").status_code == 303


def test_the_session_cookie_is_kept_from_scripts_and_other_sites(backend: Backend, tenant: Tenant) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    answer = sign_in_by_form(client, email, PASSWORD, next="/findings?status=stale")
    assert answer.headers["Location"] == "/findings?status=stale"
    cookie = next(
        value
        for value in answer.headers.get_list("Set-Cookie")
        if "session" in value and "Max-Age=0" not in value
    )
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/" in cookie
    assert "Domain" not in cookie


@pytest.mark.parametrize(
    "elsewhere",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "\\\\evil", "x"],
)
def test_signing_in_leads_nowhere_else(backend: Backend, tenant: Tenant, elsewhere: str) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    assert 'name="next" value="/"' in client.get("/sign-in", params={"next": elsewhere}).text
    assert sign_in_by_form(client, email, PASSWORD, next=elsewhere).headers["Location"] == "/"


def test_signing_in_makes_a_new_session_and_signing_out_ends_it(backend: Backend, owner: Person) -> None:
    token = owner.client.cookies["outcrop_session"]
    assert owner.get("/sign-in").headers["Location"] == "/"  # there is nothing to do there
    other = backend.client()
    other.cookies.set("outcrop_session", "x" * 43)  # a token that somebody else has planted is not taken over
    made = sign_in_by_form(other, owner.email, PASSWORD).cookies["outcrop_session"]
    assert made not in {token, "x" * 43}
    assert owner.post("/sign-out").headers["Location"] == "/sign-in"
    owner.client.cookies.set("outcrop_session", token)
    assert owner.get("/findings").status_code == 303


def test_over_https_the_cookie_is_bound_to_this_host(settings: Settings, keys: Keyring) -> None:
    with (
        running_server(settings, base_url="https://portal.example.com", rate_limit=0) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        client = backend.client()
        assert client.get("/sign-in").status_code == 308


# --- forms


@pytest.fixture
def finding(backend: Backend, tenant: Tenant) -> str:
    backend.import_(tenant.account, line := make_line())
    return str(line["id"])


def attempts(person: Person, finding: str) -> Iterator[dict[str, Any]]:
    """Return forms that another site could send, or whose token is missing."""
    good = {"csrf": person.csrf(), "id": finding, "action": "resolve"}
    here = {"Origin": origin(person.client)}
    yield {"data": good}  # no origin
    yield {"data": good, "headers": {"Origin": "null"}}
    yield {"data": good, "headers": {"Origin": "https://evil.example"}}
    yield {"data": good, "headers": {"Origin": here["Origin"] + ".evil.example"}}
    yield {"data": good, "headers": {"Origin": here["Origin"].replace("http:", "https:")}}
    yield {"data": good, "headers": {"Origin": "http://evil.example", "Host": "evil.example"}}
    yield {"data": good | {"csrf": ""}, "headers": here}
    yield {"data": good | {"csrf": "0" * 64}, "headers": here}
    yield {"data": {key: value for key, value in good.items() if key != "csrf"}, "headers": here}


def test_a_form_from_elsewhere_changes_nothing(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    other = sign_in(backend, backend.tenant())
    of_another = {
        "data": {"csrf": other.csrf(), "id": finding, "action": "resolve"},
        "headers": {"Origin": origin(owner.client)},
    }
    for attempt in [*attempts(owner, finding), of_another]:
        answer = owner.client.post("/findings/triage", **attempt)
        assert answer.status_code == 403, attempt
        assert tenant.finding(finding)["status"] == "active"
    assert owner.post("/findings/triage", id=finding, action="resolve", confirmed="yes").status_code == 303
    assert tenant.finding(finding)["status"] == "resolved"


def test_the_sign_in_form_has_its_token_too(backend: Backend, tenant: Tenant) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    csrf = csrf_in(client.get("/sign-in").text)
    fields = {"email": email, "password": PASSWORD}
    for data, headers in [
        (fields, {"Origin": origin(client)}),
        (fields | {"csrf": csrf}, {}),
        (fields | {"csrf": csrf}, {"Origin": "https://evil.example"}),
    ]:
        assert client.post("/sign-in", data=data, headers=headers).status_code == 403
    fresh = backend.client()  # a browser that has not loaded the form
    assert (
        fresh.post("/sign-in", data=fields | {"csrf": csrf}, headers={"Origin": origin(fresh)}).status_code
        == 403
    )


@pytest.mark.parametrize(
    "body", [b"\xff=\xff", b"csrf=%00", b"a" * 300_000, b"&".join(b"a=1" for _ in range(3000))]
)
def test_a_form_that_cannot_be_read_is_refused(owner: Person, body: bytes) -> None:
    answer = owner.client.post("/findings/triage", content=body, headers={"Origin": origin(owner.client)})
    assert answer.status_code in {400, 403}


# --- doors do not mix


def test_a_cookie_means_nothing_to_the_api_and_a_key_nothing_to_the_portal(
    owner: Person, tenant: Tenant
) -> None:
    assert owner.client.get("/api/v1/findings").json() == {"error": "missing_authorization"}
    assert tenant.client.get("/").headers["Location"] == "/sign-in"


def test_what_is_not_there_is_reported_to_a_person_and_to_a_program(owner: Person) -> None:
    assert "Not found" in owner.get("/nothing").text
    for page in (
        owner.get("/nothing"),
        owner.get("/findings/x/y/z"),
        owner.get("/findings/triage"),
        owner.get("/sign-out"),
    ):
        assert page.status_code in {404, 405}
        assert '<nav aria-label="Main">' in page.text
        assert 'href="/findings"' in page.text
        assert owner.email in page.text
    stranger = owner.client.get("/nothing", headers={"Accept": "text/html", "Cookie": "outcrop_session=x"})
    assert (stranger.status_code, owner.email in stranger.text) == (404, False)
    assert owner.client.get("/nothing", headers={"Accept": "application/json"}).json()["error"] == "not_found"
    assert owner.client.put("/findings", headers={"Accept": "*/*"}).status_code == 405
    for path in (
        "/findings/x",
        "/findings/00000000-0000-4000-8000-000000000000",
        "/scans/x",
        "/targets/x",
        "/join/x",
        "/export/findings.exe",
    ):
        assert owner.get(path).status_code == 404, path


def test_what_is_not_there_in_time_is_reported_to_a_person_and_to_a_program(
    settings: Settings, keys: Keyring
) -> None:
    with (
        running_server(settings, rate_limit=0, deadline=0.5) as server,
        Backend(settings, keys, server.base_url) as backend,
        psycopg.connect(settings.database_url or "") as db,
        capture_logs() as logs,
        ThreadPoolExecutor(2) as pool,
    ):
        db.execute("LOCK TABLE sessions")
        client = backend.client()
        client.cookies.set("outcrop_session", "x" * 43)
        asked = [
            pool.submit(client.get, "/", headers={"Accept": accept})
            for accept in ("text/html", "application/json")
        ]
        page, reported = (item.result() for item in asked)
    assert (page.status_code, reported.status_code) == (503, 503)
    assert "Busy" in page.text
    assert page.text.startswith("<!doctype html>")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert page.headers["Cache-Control"] == "no-store"
    assert reported.json()["error"] == "busy"
    ids = {answer.headers["X-Request-Id"] for answer in (page, reported)}
    assert ids == {entry["request_id"] for entry in logs if entry["event"] == "request_timed_out"}


# --- roles and accounts

ADMIN_ONLY = [
    *("/targets/new", "/profile/keys", "/profile/webhook", "/profile/hooks"),
    *("/profile/audit", "/profile/audit.jsonl"),
]


def test_a_member_reads_and_triages_and_nothing_else(backend: Backend, tenant: Tenant, finding: str) -> None:
    member = sign_in(backend, tenant, Role.MEMBER)
    for path in ADMIN_ONLY:
        assert member.get(path).status_code == 403, path
    for path, fields in [
        ("/profile/keys", {"name": "mine"}),
        ("/profile/webhook", {"url": "https://a.example/"}),
        ("/profile/hooks", {"host": "github"}),
        ("/targets", {"target": "github:a"}),
    ]:
        assert member.post(path, fields).status_code == 403
    assert member.post("/profile/team/invite", email="x@example.com", role="owner").status_code == 403
    assert member.post(f"/findings/{finding}/resolve").status_code == 303
    page = member.page("/")
    assert "/profile/keys" not in page


def test_an_admin_appoints_no_owner(backend: Backend, tenant: Tenant) -> None:
    admin = sign_in(backend, tenant, Role.ADMIN)
    assert admin.post("/profile/team/invite", email="boss@example.com", role="owner").status_code in {
        400,
        403,
    }
    assert 'value="owner"' not in admin.page("/profile/team")


def test_nothing_of_another_account_can_be_reached(backend: Backend, tenant: Tenant, owner: Person) -> None:
    other = backend.tenant()
    backend.import_(other.account, line := make_line(repo_full_name="theirs/alone"))
    backend.scan(other.account, run := make_scan())
    stranger = sign_in(backend, other)
    stranger.post("/targets", target="github:theirs", schedule="off")
    target = backend.sql("SELECT id FROM targets WHERE account_id = %s", other.account.id)[0][0]
    view = stranger.post("/views", name="theirs", view="?q=x")
    assert view.status_code == 303
    view_id = backend.sql("SELECT id FROM views WHERE account_id = %s", other.account.id)[0][0]
    member = backend.sql("SELECT id FROM members WHERE account_id = %s", other.account.id)[0][0]
    incident = other.finding(str(line["id"]))["incident_id"]
    for path in (
        f"/findings/{line['id']}",
        f"/incidents/{incident}",
        f"/scans/{run.id}",
        f"/targets/{target}",
    ):
        assert owner.get(path).status_code == 404, path
    for path in (
        *(
            f"/findings/{line['id']}/resolve",
            f"/findings/{line['id']}/validate",
            f"/incidents/{incident}/resolve",
            f"/incidents/{incident}/assign",
            f"/incidents/{incident}/comments",
            f"/targets/{target}/run",
            f"/targets/{target}/remove",
        ),
        *(
            f"/targets/{target}",
            f"/views/{view_id}/remove",
            f"/profile/keys/{other.key_id}/revoke",
            f"/profile/team/{member}/remove",
        ),
    ):
        assert owner.post(path).status_code == 404, path
    assert owner.post(f"/profile/team/{member}/role", role="member").status_code == 404
    assert (
        "no longer exist"
        in owner.client.post(
            "/findings/triage",
            data={"csrf": owner.csrf(), "id": line["id"], "action": "resolve"},
            headers={"Origin": origin(owner.client), "X-Part": "triage"},
        ).json()["message"]
    )
    for path in PAGES:
        assert "theirs" not in owner.page(path), path
    assert other.finding(str(line["id"]))["status"] == "active"
    assert other.get("/findings").status_code == 200


def test_a_plan_without_the_webhook_is_reported(backend: Backend) -> None:
    owner = sign_in(backend, backend.tenant(Plan.STARTER))
    answer = owner.post("/profile/webhook", url="https://receiver.example.com/")
    assert answer.status_code == 400
    assert "growth" in answer.text
