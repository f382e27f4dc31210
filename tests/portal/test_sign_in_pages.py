"""The sign-in form in two tabs, after a slip, and after a link that lets somebody join."""

import re

import httpx
import pytest

from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.services import team
from tests.support.backend import Backend, Tenant
from tests.support.portal_client import (
    PASSWORD,
    Person,
    csrf_in,
    make_person,
    origin,
    sign_in,
    sign_in_by_form,
)

NEW = "four unrelated words here"


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def send(client: httpx.Client, path: str, **fields: str) -> httpx.Response:
    return client.post(path, data=fields, headers={"Origin": origin(client), "Accept": "text/html"})


def focused(page: str) -> list[str]:
    return re.findall(r'<input[^>]* name="(\w+)"[^>]* autofocus', page)


# --- two tabs


def test_the_second_of_two_tabs_leads_on_where_the_first_has_signed_in(
    backend: Backend, tenant: Tenant
) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    csrf = csrf_in(client.get("/sign-in").text)
    fields = {"csrf": csrf, "email": email, "password": PASSWORD}
    assert send(client, "/sign-in", **fields).status_code == 303
    token = client.cookies["outcrop_session"]
    second = send(client, "/sign-in", **fields | {"email": email.upper()}, next="/findings?status=stale")
    assert (second.status_code, second.headers["Location"]) == (303, "/findings?status=stale")
    assert client.cookies["outcrop_session"] == token  # the session is the first tab's


def test_the_second_of_two_tabs_leads_nobody_into_the_account_of_another(
    backend: Backend, tenant: Tenant
) -> None:
    first, second = make_person(backend, tenant), make_person(backend, backend.tenant())
    client = backend.client()
    csrf = csrf_in(client.get("/sign-in").text)
    assert send(client, "/sign-in", csrf=csrf, email=first, password=PASSWORD).status_code == 303
    asked = send(client, "/sign-in", csrf=csrf, email=second, password=PASSWORD)
    assert asked.status_code == 403
    assert "open for too long" in asked.text
    assert (
        send(client, "/sign-in", csrf=csrf_in(asked.text), email=second, password=PASSWORD).status_code == 303
    )
    assert second in client.get("/profile/plan").text


def test_a_sign_in_form_without_its_token_is_shown_again_and_signs_nobody_in(
    backend: Backend, tenant: Tenant
) -> None:
    email = make_person(backend, tenant)
    for token in ("", "0" * 64, "gone"):
        client = backend.client()
        given = csrf_in(client.get("/sign-in").text) if token == "gone" else token
        if token == "gone":
            client.cookies.clear()  # the form was open for longer than its cookie lives
        asked = send(client, "/sign-in", csrf=given, email=email, password=PASSWORD, next="/scans")
        assert asked.status_code == 403
        assert "outcrop_session" not in client.cookies
        assert "open for too long" in asked.text
        assert f'value="{email}"' in asked.text
        assert PASSWORD not in asked.text
        done = send(
            client, "/sign-in", csrf=csrf_in(asked.text), email=email, password=PASSWORD, next="/scans"
        )
        assert (done.status_code, done.headers["Location"]) == (303, "/scans")


def test_a_sign_in_form_of_another_site_is_not_shown_again(backend: Backend, tenant: Tenant) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    fields = {"csrf": csrf_in(client.get("/sign-in").text), "email": email, "password": PASSWORD}
    for data in (fields, fields | {"csrf": "0" * 64}, fields | {"csrf": ""}):
        refused = client.post(
            "/sign-in", data=data, headers={"Origin": "https://evil.example", "Accept": "text/html"}
        )
        assert refused.status_code == 403
        assert "another site" in refused.text
        assert 'name="password"' not in refused.text
        assert "Set-Cookie" not in refused.headers


# --- where typing goes on


def test_the_first_empty_field_is_focused(backend: Backend, tenant: Tenant) -> None:
    email = make_person(backend, tenant)
    client = backend.client()
    assert focused(client.get("/sign-in").text) == ["email"]
    assert focused(sign_in_by_form(client, email, "wrong wrong wrong").text) == ["password"]
    assert focused(sign_in_by_form(client, "", "wrong wrong wrong").text) == ["email"]


# --- joining


def test_who_joins_at_the_browser_of_another_has_signed_that_one_out(
    backend: Backend, tenant: Tenant
) -> None:
    owner: Person = sign_in(backend, tenant)
    session = owner.client.cookies["outcrop_session"]
    guest = f"guest-{tenant.account.slug}@example.com"
    token = backend.run(
        lambda db: team.invite_member(db, tenant.account, "test", email=guest, role=Role.MEMBER, now=now())
    )
    form = {"csrf": csrf_in(owner.page(f"/join/{token}"))}
    assert (
        send(owner.client, f"/join/{token}", **form, password=NEW, again="another one altogether").status_code
        == 400
    )
    assert owner.get("/").status_code == 200  # nothing was set, nobody is signed out
    joined = send(owner.client, f"/join/{token}", **form, password=NEW, again=NEW)
    assert (joined.status_code, joined.headers["Location"]) == (303, "/sign-in")
    assert "outcrop_session" not in owner.client.cookies
    page = owner.page("/sign-in")
    assert "Your password is set. Sign in with it." in page
    assert f"{owner.email} is signed out" in page
    assert sign_in_by_form(owner.client, guest, NEW).status_code == 303
    assert guest in owner.page("/")
    owner.client.cookies.set("outcrop_session", session)
    assert owner.get("/findings").status_code == 303  # the session is over, not merely forgotten here


def test_who_joins_where_nobody_is_signed_in_sees_no_other_name(backend: Backend, tenant: Tenant) -> None:
    guest = f"guest-{tenant.account.slug}@example.com"
    token = backend.run(
        lambda db: team.invite_member(db, tenant.account, "test", email=guest, role=Role.MEMBER, now=now())
    )
    client = backend.client()
    send(client, f"/join/{token}", csrf=csrf_in(client.get(f"/join/{token}").text), password=NEW, again=NEW)
    assert (
        '<p class="flash" role="status">Your password is set. Sign in with it.</p>'
        in client.get("/sign-in").text
    )
