"""The code has its own step; recovery codes are made again; an owner requires a second factor of everybody."""

from datetime import timedelta

import httpx
import pyotp
import pytest

from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.store.people import sign_in_ticket
from outcrop.store.people.accounts import MemberCredentials
from tests.portal.test_profile_pages import pending, wrong_code
from tests.support.backend import Backend, Tenant
from tests.support.portal_client import PASSWORD, Person, csrf_in, origin, sign_in, sign_in_by_form


def turn_on(person: Person) -> tuple[pyotp.TOTP, list[str]]:
    secret = pending(person.post("/profile/security/totp", password=PASSWORD).text)
    assert secret is not None
    app = pyotp.TOTP(secret)
    page = person.post("/profile/security/totp/confirm", code=app.now()).text
    return app, recovery_codes(page)


def recovery_codes(page: str) -> list[str]:
    return page.partition('id="recovery" tabindex="0">')[2].partition("<")[0].split()


def enter(client: httpx.Client, code: str, **fields: str) -> httpx.Response:
    csrf = csrf_in(client.get("/sign-in/code").text)
    return client.post(
        "/sign-in/code",
        data={"csrf": csrf, "code": code} | fields,
        headers={"Origin": origin(client), "Accept": "text/html"},
    )


def test_the_code_is_entered_without_the_password_again(backend: Backend, owner: Person) -> None:
    app, codes = turn_on(owner)
    client = backend.client()
    asked = sign_in_by_form(client, owner.email, PASSWORD, next="/findings?status=stale")
    assert (asked.status_code, asked.headers["Location"]) == (
        303, "/sign-in/code?next=/findings%3Fstatus%3Dstale",
    )  # fmt: skip
    page = client.get(asked.headers["Location"]).text
    assert 'inputmode="numeric"' in page
    assert 'name="password"' not in page
    assert 'value="/findings?status=stale"' in page
    assert client.get("/findings").status_code == 303  # not signed in yet
    wrong = enter(client, wrong_code(app.secret))
    assert (wrong.status_code, "The code is wrong" in wrong.text) == (401, True)
    assert "outcrop_session" not in client.cookies
    done = enter(client, codes[0], recovery="1", next="/findings?status=stale")
    assert (done.status_code, done.headers["Location"]) == (303, "/findings?status=stale")
    assert client.get("/findings").status_code == 200
    assert enter_again(client) == "/sign-in"


def enter_again(client: httpx.Client) -> str:
    """Return where the page for the code leads without a ticket."""
    return str(client.get("/sign-in/code").headers["Location"])


def test_a_ticket_ends_with_time_and_with_the_password(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    _, codes = turn_on(owner)
    client = backend.client()
    sign_in_by_form(client, owner.email, PASSWORD)
    ticket = client.cookies["outcrop_ticket"]
    other = backend.client()
    csrf = csrf_in(other.get("/sign-in").text)
    for text in ("", "x", ticket[:-1], ticket.replace(".", ".A", 1), "0" + ticket, "9" * 4000, "1.e.2"):
        other.cookies.set("outcrop_ticket", text)
        refused = other.post(
            "/sign-in/code", data={"csrf": csrf, "code": codes[0]}, headers={"Origin": origin(other)}
        )
        assert refused.status_code == 401, text
        assert "took too long" in refused.text
    owner.post(
        "/profile/security/password",
        old=PASSWORD,
        new="another long pass phrase",
        again="another long pass phrase",
    )
    assert "took too long" in enter(client, codes[0]).text
    assert backend.sql("SELECT count(*) FROM sessions s JOIN members m ON m.id = s.member_id WHERE m.email = %s",
                       owner.email) == [(1,)]  # fmt: skip


def test_a_ticket_is_for_one_member_one_password_and_five_minutes(owner: Person, backend: Backend) -> None:
    member = backend.run(lambda db: _credentials(db, owner.email))
    key, moment = b"k" * 32, now()
    ticket = sign_in_ticket.write_ticket(key, member, moment)
    assert sign_in_ticket.read_email(ticket, moment) == owner.email
    assert sign_in_ticket.read_email(ticket, moment + sign_in_ticket.LIFETIME) is None
    assert sign_in_ticket.is_genuine(key, ticket, member)
    assert not sign_in_ticket.is_genuine(b"j" * 32, ticket, member)
    assert not sign_in_ticket.is_genuine(
        key, ticket, MemberCredentials(member.account_id, member.member, "other")
    )
    end, rest = ticket.split(".", 1)
    later = f"{int(end) + 600}.{rest}"
    assert sign_in_ticket.read_email(later, moment + timedelta(minutes=6)) == owner.email
    assert not sign_in_ticket.is_genuine(key, later, member)


async def _credentials(db, email: str) -> MemberCredentials:  # type: ignore[no-untyped-def]
    from outcrop.store.people import accounts  # noqa: PLC0415

    found = await accounts.select_credentials(db, email)
    assert found is not None
    return found


def test_guessing_codes_is_slowed_down_like_guessing_passwords(backend: Backend, owner: Person) -> None:
    app, _ = turn_on(owner)
    client = backend.client()
    sign_in_by_form(client, owner.email, PASSWORD)
    answers = [enter(client, wrong_code(app.secret)).status_code for _ in range(7)]
    assert answers[:5] == [401] * 5
    assert answers[-1] == 429


def test_recovery_codes_are_made_again_and_the_old_ones_end(backend: Backend, owner: Person) -> None:
    _, old = turn_on(owner)
    assert owner.post("/profile/security/totp/recovery", password="wrong wrong wrong").status_code == 400
    new = recovery_codes(owner.post("/profile/security/totp/recovery", password=PASSWORD).text)
    assert len(set(new)) == 10
    assert not set(new) & set(old)
    client = backend.client()
    sign_in_by_form(client, owner.email, PASSWORD)
    assert enter(client, old[0], recovery="1").status_code == 401
    assert enter(client, new[0].upper().replace("-", " "), recovery="1").status_code == 303


def test_an_owner_requires_a_second_factor_of_every_member(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    member = sign_in(backend, tenant, Role.MEMBER)
    refused = owner.post("/profile/team/second-factor", required="yes")
    assert (refused.status_code, "your own second factor" in refused.text) == (400, True)
    turn_on(owner)
    assert member.post("/profile/team/second-factor", required="yes").status_code == 403
    assert owner.post("/profile/team/second-factor", required="yes").status_code == 303
    team = owner.page("/profile/team")
    assert team.count(">On</span>") == 1
    assert "Required, off" in team
    for page in ("/", "/findings", "/profile/team", "/export/findings.jsonl"):
        assert (member.get(page).status_code, member.get(page).headers.get("Location")) == (
            303,
            "/profile/security",
        )
    assert member.client.post("/findings/triage", data={}).headers["Location"] == "/profile/security"
    assert "requires a second factor" in member.page("/profile/security")
    turn_on(_Limited(member))
    assert member.get("/findings").status_code == 200
    off = member.post("/profile/security/totp/remove", password=PASSWORD)
    assert (off.status_code, "requires a second factor" in off.text) == (400, True)
    assert tenant.get("/findings").status_code == 200  # keys are not affected
    for wrong in ({}, {"required": "perhaps"}):
        assert owner.post("/profile/team/second-factor", wrong).status_code == 400
    assert "Make it optional" in owner.page("/profile/team")
    assert owner.post("/profile/team/second-factor", required="no").status_code == 303
    assert member.post("/profile/security/totp/remove", password=PASSWORD).status_code == 303


class _Limited(Person):
    """A member who sees only the page Security, which has the token of the forms."""

    def __init__(self, person: Person) -> None:
        super().__init__(person.client, person.email, person.tenant)

    def csrf(self, path: str = "/profile/security") -> str:
        return csrf_in(self.page(path))


@pytest.mark.parametrize("path", ["/sign-in/code", "/sign-in/code?recovery=1&next=//elsewhere.example"])
def test_the_page_for_the_code_leads_back_without_a_ticket(backend: Backend, path: str) -> None:
    answer = backend.client().get(path)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in")
