"""One action on all findings that match: the question, the job, its progress, and stopping it."""

import asyncio
import re
from uuid import UUID

import pytest

from outcrop.domain.account import Role
from outcrop.portal.triage import bulk as bulk_page
from outcrop.services.findings import bulk_triage
from outcrop.store import db as database
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, sign_in

SENT = {"action": "resolve", "note": "moved to a vault", "view": "?q=bulky&page=2"}


def fill(backend: Backend, tenant: Tenant) -> None:
    """Import 55 findings that match the view, two of them valid, and one that does not."""
    lines = [
        make_line(repo_full_name="acme/bulky", validation_status="valid" if n < 2 else "invalid")
        for n in range(55)
    ]
    backend.import_(
        tenant.account, *lines, make_line(repo_full_name="acme/lone", validation_status="invalid")
    )


def start(owner: Person, total: int = 55) -> str:
    answer = owner.post("/findings/bulk", SENT, total=str(total))
    assert answer.status_code == 303, answer.text
    return answer.headers["Location"]


def work(backend: Backend, tenant: Tenant, page: str) -> None:
    """Do the work of the job as a worker does."""

    async def main() -> None:
        assert backend.settings.database_url is not None
        async with database.open_pool(backend.settings.database_url, size=1, statement_timeout=30) as pool:
            await bulk_triage.run_bulk(pool, backend.keys, tenant.account.id, UUID(page.rpartition("/")[2]))

    asyncio.run(main())


def count(tenant: Tenant, **filters: str) -> int:
    return int(tenant.get("/findings", **filters).json()["meta"]["total"])


def test_the_list_offers_all_and_asks_first(backend: Backend, tenant: Tenant, owner: Person) -> None:
    fill(backend, tenant)
    assert 'name="all" value="55"' in owner.page("/findings?q=bulky")
    assert 'name="all"' not in owner.page("/findings?q=lone")
    asked = owner.post("/findings/triage", SENT, all="55")
    assert asked.status_code == 200
    assert "Resolve all 55 findings that match?" in asked.text
    assert "2 of them have a credential that worked" in asked.text
    assert 'href="/findings?q=bulky&amp;validation=valid"' in asked.text
    assert "moved to a vault" in asked.text
    assert 'formaction="/findings/validate">Check the valid ones again first' in asked.text
    assert asked.text.count('type="hidden" name="id"') == 2
    assert count(tenant, status="resolved") == 0
    assert "worked when" not in owner.post("/findings/triage", SENT, all="55", action="suppress").text


def test_all_that_match_are_changed_and_the_page_shows_it(
    backend: Backend, tenant: Tenant, owner: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(backend, tenant)
    monkeypatch.setattr(bulk_triage, "_BATCH", 20)
    page = start(owner)
    assert "0 of 55" in owner.page(page)
    assert "data-poll" in owner.page(page)
    assert f'href="{page}"' in owner.page("/findings")
    refused = owner.post("/findings/bulk", SENT, total="55")
    assert "still running" in owner.page(refused.headers.get("Location", "/")) or refused.status_code == 400
    (first, *_) = tenant.get("/findings", q="bulky").json()["data"]
    tenant.post(f"/findings/{first['id']}/false_positive").raise_for_status()
    work(backend, tenant, page)
    assert count(tenant, status="resolved") == 54
    assert count(tenant, status="active") == 1
    shown = owner.page(page)
    assert ("55 of 55" in shown, "Completed" in shown, "data-poll" in shown) == (True, True, False)
    tiles = re.findall(r"<strong>(\d+)</strong><span>(\w+)", shown)
    assert {word: int(number) for number, word in tiles} == {
        "resolved": 54,
        "in": 0,
        "refused": 1,
        "no": 0,
    }
    note = tenant.get("/findings", status="resolved").json()["data"][0]["resolution_note"]
    assert note == "moved to a vault"
    assert page not in owner.page("/findings")
    work(backend, tenant, page)  # a second worker finds nothing to do
    part = owner.client.get(page, headers={"X-Part": "list"}).text
    assert "</html>" not in part


def test_another_number_too_many_and_a_wrong_filter_change_nothing(
    backend: Backend, tenant: Tenant, owner: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(backend, tenant)
    headers = {"Accept": "application/json"}
    for fields, reason in (
        ({"total": "54"}, "meanwhile 55 findings match, not 54"),
        ({"total": "x"}, "meanwhile 55 findings match, not 0"),
        ({"total": "55", "view": "?q=bulky&severity=x"}, "is invalid"),
        ({"total": "55", "action": "delete"}, "no such action"),
    ):
        refused = owner.post("/findings/bulk", SENT | fields, headers=headers)
        assert (refused.status_code, reason in refused.json()["message"]) == (400, True), fields
    monkeypatch.setattr(bulk_triage, "BULK_FINDINGS", 50)
    monkeypatch.setattr(bulk_page, "BULK_FINDINGS", 50)
    for form, fields in (("/findings/bulk", {"total": "55"}), ("/findings/triage", {"all": "55"})):
        refused = owner.post(form, SENT | fields, headers=headers)
        assert (refused.status_code, "at most 50 " in refused.json()["message"]) == (400, True)
    assert count(tenant, status="active") == 56


def test_a_stopped_job_changes_nothing_more_and_others_cannot_see_it(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    fill(backend, tenant)
    page = start(owner)
    stranger = sign_in(backend, backend.tenant())
    assert stranger.get(page).status_code == 404
    assert stranger.post(f"{page}/stop").status_code == 404
    member = sign_in(backend, tenant, Role.MEMBER)
    assert member.post(f"{page}/stop").status_code == 303
    assert "Stopped" in owner.page(page)
    work(backend, tenant, page)
    assert count(tenant, status="active") == 56
    assert start(owner) != page
