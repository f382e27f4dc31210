"""Before findings with a valid credential are closed, the list asks; a run says that it resolved some."""

import json
import re
from html import escape
from typing import Any

from outcrop.domain.clock import now
from outcrop.domain.scan import ScanStatus
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan
from tests.support.portal_client import Person

SECRET = "made-up-" + "Kd4" * 8


def fill(backend: Backend, tenant: Tenant) -> list[str]:
    """Import two places of a valid credential, a valid one that is not stored, and an invalid one."""
    lines: list[dict[str, Any]] = [make_line(secret=SECRET, file_path=f"{n}.py") for n in range(2)]
    for line in lines:
        del line["matched_text"]
    lines += [make_line(), make_line(validation_status="invalid")]
    backend.import_(tenant.account, *lines)
    return [str(line["id"]) for line in lines]


def statuses(tenant: Tenant, ids: list[str]) -> list[str]:
    return [tenant.finding(id_)["status"] for id_ in ids]


def test_the_list_asks_before_it_closes_valid_credentials(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ids = fill(backend, tenant)
    sent = {"id": ids, "action": "restrict", "note": "it was " + SECRET, "view": "?q=py&page=2"}
    asked = owner.post("/findings/triage", sent)
    assert asked.status_code == 200
    assert "Restrict 4 findings, 3 of them valid?" in asked.text
    assert "3 of the 4 selected findings have" in asked.text
    assert asked.text.count('type="hidden" name="id"') == 4
    assert 'href="/findings?q=py&amp;page=2"' in asked.text
    assert SECRET not in asked.text
    assert set(statuses(tenant, ids)) == {"active"}
    assert owner.post("/findings/triage", sent, confirmed="yes").status_code == 303
    assert set(statuses(tenant, ids)) == {"customer_restricted"}
    assert owner.post("/findings/triage", sent).status_code == 303  # none of them would be closed


def test_what_is_invalid_or_only_hidden_is_not_asked_about(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ids = fill(backend, tenant)
    assert owner.post("/findings/triage", {"id": ids, "action": "suppress"}).status_code == 303
    assert owner.post("/findings/triage", {"id": ids[3:], "action": "resolve"}).status_code == 303
    assert statuses(tenant, ids) == ["active"] * 3 + ["resolved"]


def test_the_valid_ones_of_a_selection_are_checked_again_once_for_each_credential(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ids = fill(backend, tenant)
    assert owner.post("/findings/validate", {"id": ids, "view": "?q=py"}).headers["Location"].endswith("q=py")
    page = owner.page("/findings")
    assert "1 check started. 1 cannot be checked: the credential is not stored." in page
    requested = backend.sql(
        "SELECT count(*) FROM audit WHERE account_id = %s AND action = 'finding.revalidate'",
        tenant.account.id,
    )
    assert requested == [(1,)]
    assert owner.post("/findings/validate", {"id": ids[3]}).status_code == 303
    assert "0 checks started." in owner.page("/findings")


def test_the_script_of_the_list_gets_the_question_as_text(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ids = fill(backend, tenant)
    headers = {"X-Part": "triage", "Accept": "application/json"}
    sent = {"id": ids, "action": "false_positive"}
    asks = owner.post("/findings/triage", sent, headers=headers).json()["asks"]
    assert asks["title"] == "Mark 4 findings as false positive, 3 of them valid?"
    assert "does not revoke" in asks["text"]
    single = owner.post("/findings/triage", sent | {"id": ids[0]}, headers=headers).json()["asks"]
    assert single["title"] == "Mark a credential that is valid as false positive?"
    assert "started" in owner.post("/findings/validate", sent, headers=headers).json()["message"]
    done = owner.post("/findings/triage", sent, headers=headers, confirmed="yes").json()
    assert sorted(done["done"]) == sorted(ids)


def test_a_run_says_that_it_resolved_valid_credentials(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ended = {"started_at": now(), "finished_at": now(), "status": ScanStatus.COMPLETED}
    backend.scan(tenant.account, run := make_scan(findings_resolved=3, resolved_valid=2, **ended))
    page = owner.page(f"/scans/{run.id}")
    assert "2 of the findings proved gone have a credential that was still valid" in page
    assert 'href="/incidents?status=closed_valid"' in page
    backend.import_(tenant.account, line := make_line())
    backend.sql(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           VALUES (%s, now(), 'scan', 'finding.resolved', %s, 'ok', %s)""",
        *(tenant.account.id, line["id"], json.dumps({"to": "resolved", "validation": "valid"})),
    )
    assert "still valid when it was last checked" in owner.page(f"/findings/{line['id']}")


def test_an_action_is_undone_from_its_message_and_leads_back(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    ids = fill(backend, tenant)
    incident = tenant.finding(ids[0])["incident_id"]
    for form, fields, number in (
        ("/findings/triage", {"id": ids, "action": "resolve", "confirmed": "yes", "view": "?q=py"}, 4),
        (f"/findings/{ids[0]}/suppress", {}, 1),
        (f"/incidents/{incident}/restrict", {}, 2),
    ):
        led = owner.post(form, fields).headers["Location"]
        page = owner.page(led)
        (id_,) = re.findall(r'action="/undo".*?name="id" value="([0-9a-f-]{36})"', page)
        assert f'name="back" value="{escape(led)}"' in page
        assert 'action="/undo"' not in owner.page(led)  # a message is shown once
        undone = owner.post("/undo", id=id_, back=led)
        assert (undone.status_code, undone.headers["Location"]) == (303, led)
        assert f"Undone: {number} finding" in owner.page(led)
        assert set(statuses(tenant, ids)) == {"active"}
        assert owner.post("/undo", id=id_, back="//evil.example").headers["Location"] == "/"
        assert "can no longer be undone" in owner.page("/")
    assert "Undone" in owner.page(f"/findings/{ids[0]}")
    headers = {"X-Part": "triage", "Accept": "application/json"}
    done = owner.post("/findings/triage", {"id": ids, "action": "suppress"}, headers=headers).json()
    said = owner.post("/undo", {"id": done["undo"]}, headers=headers).json()
    assert said["message"] == "Undone: 4 findings are as before."
    refused = owner.post("/undo", {"id": done["undo"]}, headers=headers)
    assert (refused.status_code, "no longer" in refused.json()["message"]) == (400, True)
    assert owner.post("/findings/triage", {"id": ids, "action": "reopen"}).status_code == 303
    assert 'action="/undo"' not in owner.page("/findings")
