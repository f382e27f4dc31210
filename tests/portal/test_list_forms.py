"""The list and its forms: what is taken, what is refused, and where a person is led then."""

import pytest

from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import Person, csrf_in, origin


@pytest.fixture
def finding(backend: Backend, tenant: Tenant) -> str:
    backend.import_(tenant.account, line := make_line(validation_status="invalid"))
    return str(line["id"])


@pytest.mark.parametrize("form", ["/findings/triage", "/findings/{}/resolve", "/findings/{}/validate"])
def test_a_note_is_no_longer_than_the_specification_says(
    tenant: Tenant, owner: Person, finding: str, form: str
) -> None:
    refused = owner.post(form.format(finding), {"id": finding, "action": "resolve", "note": "x" * 501})
    assert (refused.status_code, "at most 500 characters" in refused.text) == (400, True)
    assert tenant.finding(finding)["status"] == "active"
    assert (
        owner.post("/findings/triage", {"id": finding, "action": "resolve", "note": "x" * 500}).status_code
        == 303
    )
    assert tenant.finding(finding)["resolution_note"] == "x" * 500


def test_what_was_not_done_is_reported_as_a_refusal(tenant: Tenant, owner: Person, finding: str) -> None:
    assert owner.post(f"/findings/{finding}/false_positive").status_code == 303
    assert 'class="flash" role="status">The finding is marked as false positive.' in owner.page(
        f"/findings/{finding}"
    )
    for form in (f"/findings/{finding}/resolve", "/findings/triage"):
        led = owner.post(form, {"id": finding, "action": "resolve"}).headers["Location"]
        shown = owner.page(led)
        assert 'class="wrong" role="alert">' in shown
        assert "cannot be resolved" in shown
        assert 'class="flash"' not in shown
    assert tenant.finding(finding)["status"] == "false_positive"


def test_a_form_leads_back_to_the_page_of_the_list_that_it_was_sent_from(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    backend.import_(tenant.account, *(make_line(validation_status="invalid") for _ in range(52)))
    assert 'name="view" value="?q=a&amp;page=2"' in owner.page("/findings", q="a", page=2)
    (first, *_) = tenant.get("/findings").json()["data"]
    led = owner.post("/findings/triage", {"id": first["id"], "action": "resolve", "view": "?q=a&page=2"})
    assert led.headers["Location"] == "/findings?q=a&page=2"


@pytest.mark.parametrize("page", ["0", "-1", "1e2", "5.0", "\u0665", "9" * 16, "9" * 5000, "x"])
def test_a_page_that_is_none_is_reported_and_the_first_one_shown(
    owner: Person, finding: str, page: str
) -> None:
    shown = owner.page("/findings", page=page)
    assert f"because it is invalid: page “{page[:40]}”." in shown
    assert f'href="/findings/{finding}"' in shown


def test_whose_session_has_ended_sees_that_and_returns(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    csrf, page = csrf_in(owner.page("/findings")), f"{origin(owner.client)}/findings?q=file"
    token = owner.client.cookies["outcrop_session"]
    owner.post("/sign-out")
    owner.client.cookies.set("outcrop_session", token)
    sent = {"csrf": csrf, "id": finding, "action": "resolve"}
    answer = owner.client.post(
        "/findings/triage", data=sent, headers={"Origin": origin(owner.client), "Referer": page}
    )
    assert (answer.status_code, answer.headers["Location"]) == (303, "/sign-in?next=/findings%3Fq%3Dfile")
    assert "Your session has ended, and nothing was changed." in owner.get(answer.headers["Location"]).text
    assert tenant.finding(finding)["status"] == "active"
    elsewhere = owner.client.post(
        "/findings/triage", data=sent, headers={"Referer": "https://elsewhere.example/findings?q=file"}
    )
    assert elsewhere.headers["Location"] == "/sign-in"


def test_the_view_that_is_looked_at_can_be_exported(backend: Backend, tenant: Tenant, owner: Person) -> None:
    backend.import_(tenant.account, make_line(file_path="one.py"), make_line(file_path="two.py"))
    assert 'href="/export/findings.csv?q=one&amp;status=active"' in owner.page("/findings", q="one")
    exported = owner.get("/export/findings.csv?q=one&status=active").text
    assert ("one.py" in exported, "two.py" in exported) == (True, False)


def test_behind_the_last_page_there_is_a_way_back(
    backend: Backend, tenant: Tenant, owner: Person, finding: str
) -> None:
    backend.scan(tenant.account, make_scan())
    for path in ("/scans", "/findings"):
        shown = owner.page(path, page=99)
        assert "There is no page 99." in shown
        assert f'<a href="{path}?">To the first</a>' in shown
