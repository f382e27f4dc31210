"""A rejected form shows the error on its own page, with the typed values."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, origin


@pytest.fixture
def finding(backend: Backend, tenant: Tenant) -> str:
    backend.import_(tenant.account, line := make_line())
    return str(line["id"])


@contextmanager
def held(backend: Backend, finding: str) -> Iterator[None]:
    """Lock a finding in another transaction."""
    with psycopg.connect(backend.settings.database_url or "") as db:
        db.execute("SELECT FROM findings WHERE id = %s FOR UPDATE", [finding])
        yield


def test_a_finding_that_is_being_changed_is_shown_with_the_note_and_a_refusal(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    with held(backend, finding):
        refused = owner.post(f"/findings/{finding}/resolve", note="rotated & gone")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert 'role="alert">Another request is changing this record' in refused.text
    assert 'value="rotated &amp; gone"' in refused.text
    assert f'data-address="/findings/{finding}"' in refused.text
    assert tenant.finding(finding)["status"] == "active"
    assert owner.post(f"/findings/{finding}/resolve").status_code == 303


def test_of_several_none_is_changed_while_one_is_being_changed(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    backend.import_(tenant.account, *(others := [make_line(), make_line()]))
    ids = [finding, *(str(line["id"]) for line in others)]
    sent = {"id": ids, "action": "resolve", "view": "?q=acme", "confirmed": "yes"}
    with held(backend, max(ids)):
        asked = owner.post(
            "/findings/triage", sent, headers={"X-Part": "triage", "Accept": "application/json"}
        )
        led = owner.post("/findings/triage", sent)
    assert led.headers["Location"] == "/findings?q=acme"
    assert 'class="wrong" role="alert">Another request is changing this record' in owner.page(
        led.headers["Location"]
    )
    assert (asked.status_code, asked.headers["Retry-After"], asked.json()["error"]) == (503, "1", "busy")
    assert {tenant.finding(id_)["status"] for id_ in ids} == {"active"}


def test_a_credential_that_is_not_stored_is_reported_where_it_was_asked_about(
    owner: Person, finding: str
) -> None:
    refused = owner.post(f"/findings/{finding}/validate", note="once more, please")
    assert refused.status_code == 400
    assert 'class="wrong" role="alert">Its credential is not stored' in refused.text
    assert 'value="once more, please"' in refused.text
    assert '<h2 id="act">Triage</h2>' in refused.text


def test_a_name_that_is_taken_is_reported_over_the_list_and_stays_typed(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    assert owner.post("/views", name="Mine", view="?q=acme").status_code == 303
    refused = owner.post("/views", name="MINE", view="?q=settings&status=all")
    assert refused.status_code == 400
    assert 'class="wrong" role="alert">There is a view named MINE already' in refused.text
    assert '<details class="save" open>' in refused.text
    assert '<a href="/findings" aria-current="page">Findings</a>' in refused.text
    assert 'placeholder="Name" value="MINE"' in refused.text
    assert 'name="q" value="settings"' in refused.text
    assert f'href="/findings/{finding}"' in refused.text
    assert 'data-address="/findings?status=all&amp;q=settings"' in refused.text
    assert backend.sql("SELECT name FROM views WHERE account_id = %s", tenant.account.id) == [("Mine",)]


@pytest.mark.parametrize(
    ("form", "fields", "page", "reported"),
    [
        (
            "/findings/triage",
            {"action": "resolve"},
            "/findings?q=acme&page=2",
            "Select 1 to 200 findings first",
        ),
        ("/profile/team/{}/remove", {}, "/profile/team", "is the last owner"),
        ("/profile/team/{}/role", {"role": "king"}, "/profile/team", "Choose a role from the list"),
    ],
)
def test_any_other_refusal_is_reported_on_the_page_that_the_form_was_sent_from(
    backend: Backend,
    tenant: Tenant,
    owner: Person,
    form: str,
    fields: dict[str, str],
    page: str,
    reported: str,
) -> None:
    ((own,),) = backend.sql("SELECT id FROM members WHERE account_id = %s", tenant.account.id)
    refused = owner.post(form.format(own), fields, headers={"Referer": f"{origin(owner.client)}{page}"})
    assert (refused.status_code, refused.headers["Location"]) == (303, page)
    shown = owner.page(page)
    assert 'class="wrong" role="alert">' in shown
    assert reported in shown


@pytest.mark.parametrize(
    "referer",
    [
        "https://elsewhere.example/findings",
        "{}/findings/triage/x",
        "{}/sign-out",
        "{}//elsewhere.example/",
        "",
    ],
)
def test_a_refusal_leads_to_no_page_that_is_not_there_or_not_ours(owner: Person, referer: str) -> None:
    refused = owner.post(
        "/findings/triage", {"action": "resolve"}, headers={"Referer": referer.format(origin(owner.client))}
    )
    assert (refused.status_code, "Select 1 to 200 findings first" in refused.text) == (400, True)
