"""Mentions in comments: who is mentioned, and where the member sees it."""

import pytest

from outcrop.domain.account import Role
from outcrop.domain.incident.mentions import find_mentions
from outcrop.limits import MENTIONS
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, make_person, sign_in


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("please look, @Ada@Example.com.", ["ada@example.com"]),
        ("(@a.b+c@x-y.example.org) and @d@e.org,@d@E.org", ["a.b+c@x-y.example.org", "d@e.org"]),
        ("mail ada@example.com, or me@@example.com", []),
        ("@ada @", []),
        ("@a@b " * 3, ["a@b"]),
    ],
)
def test_a_mention_is_an_at_sign_and_an_address(text: str, found: list[str]) -> None:
    assert find_mentions(text) == found
    assert len(find_mentions(" ".join(f"@m{n}@x.org" for n in range(100)))) == MENTIONS


def test_a_member_sees_who_mentioned_them_and_nobody_else_does(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ada = sign_in(backend, tenant, Role.MEMBER)
    elsewhere = make_person(backend, backend.tenant())
    backend.import_(tenant.account, line := make_line())
    incident = tenant.finding(str(line["id"]))["incident_id"]
    here = f"/incidents/{incident}"
    text = f"@{ada.email.upper()} @{elsewhere} @{owner.email} <b>look</b> \u202e"
    assert "mention you" not in ada.page("/")
    assert owner.post(f"{here}/comments", text=text).status_code == 303
    assert f"It mentions {ada.email}." in owner.page(here)
    assert "mention you" not in owner.page("/")
    assert backend.sql("SELECT count(*) FROM mentions WHERE account_id = %s", tenant.account.id) == [(1,)]
    overview = ada.page("/")
    assert "Comments that mention you" in overview
    assert "1 new" in overview
    assert f'href="{here}#comments"' in overview
    assert "&lt;b&gt;look" in overview
    assert "\u202e" not in overview
    assert "Mentions you" in ada.page(here)
    assert "Mentions you" not in owner.page(here)
    overview = ada.page("/")
    assert ("Comments that mention you" in overview, "1 new" in overview) == (True, False)
    api = tenant.post(f"/incidents/{incident}/comments", text=f"@{ada.email} over the API").raise_for_status()
    assert set(api.json()["data"]) == {"id", "at", "by", "text"}
    assert "1 new" in ada.page("/")
