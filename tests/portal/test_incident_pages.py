"""The pages of incidents: list, filters, places, owner, comments, triage, and the step before closing."""

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.domain.finding import Severity
from outcrop.domain.incident import IncidentOrder, IncidentStatus
from outcrop.portal.incidents.queries import read_incident_view
from outcrop.services import accounts
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line
from tests.support.portal_client import Person, csrf_in, make_person, sign_in

SECRET = "made-up-" + "Qw7" * 8


def fill(backend: Backend, tenant: Tenant, count: int = 3, **fields: Any) -> str:
    """Import places of one credential and return the incident's id."""
    lines = [make_line(secret=SECRET, file_path=f"config/{n}.py", **fields) for n in range(count)]
    for line in lines:
        del line["matched_text"]
    backend.import_(tenant.account, *lines)
    found: str = tenant.finding(lines[0]["id"])["incident_id"]
    return found


def statuses(tenant: Tenant, id_: str) -> list[str]:
    listed = tenant.get("/findings", incident_id=id_).raise_for_status().json()["data"]
    return sorted(finding["status"] for finding in listed)


def total(page: str) -> int:
    found = re.search(r"<strong>([\d,]+)</strong> incident", page)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_a_view_is_read_and_what_is_invalid_is_ignored() -> None:
    view = read_incident_view(
        {"assignee": "me", "overdue": "true", "order_by": "due_at", "min_score": "12.5", "q": "a  b"},
        "ada@example.com",
    )
    assert (view.tab, view.query.status) == ("open", IncidentStatus.OPEN)
    assert (view.query.assignee, view.query.overdue) == ("ada@example.com", True)
    assert (view.query.order_by, view.query.min_score) == (IncidentOrder.DUE_AT, 12.5)
    assert view.query.terms == ("a", "b")
    assert read_incident_view({"assignee": "none"}, "ada@example.com").query.assignee == ""
    assert read_incident_view({"status": "closed_valid"}, "a@b").query.closed_valid is True
    wrong = dict.fromkeys(
        ("status", "validation", "severity", "overdue", "min_score", "date_from", "order_by"), "nonsense"
    )
    view = read_incident_view(wrong | {"page": "-1"}, "ada@example.com")
    assert len(view.problems) == 8
    assert (view.values, view.query.page, view.tab) == ({}, 1, "open")


def test_the_list_has_tabs_filters_and_exact_totals(backend: Backend, tenant: Tenant, owner: Person) -> None:
    assigned = fill(backend, tenant)
    closed = make_line(status="resolved", validation_status="valid", composite_score=50)
    other = make_line(validation_status="invalid", composite_score=10, repo_full_name="acme/elsewhere")
    backend.import_(tenant.account, closed, other)
    assert owner.post(f"/incidents/{assigned}/assign", assignee=owner.email).status_code == 303
    for query, expected in {
        "": 2,
        "?status=closed": 1,
        "?status=closed_valid": 1,
        "?status=all": 3,
        "?validation=invalid": 1,
        "?severity=low": 1,
        "?min_score=40": 1,
        "?assignee=me": 1,
        f"?assignee={owner.email.upper()}": 1,
        "?assignee=none": 1,
        "?overdue=true": 0,
        "?overdue=false": 2,
        "?q=elsewhere": 1,
        "?secret_type=nothing": 0,
        "?date_from=2999-01-01": 0,
        "?page=9": 2,
    }.items():
        assert total(owner.page(f"/incidents{query}")) == expected, query
    page = owner.page("/incidents")
    assert f'href="/incidents/{assigned}"' in page
    assert "3 places, 3 open" in page
    assert owner.email in page
    part = owner.client.get("/incidents", headers={"X-Part": "list"}).text
    assert "</html>" not in part
    assert total(part) == 2
    assert "Ignored, because it is invalid" in owner.page("/incidents?severity=x")


def test_due_dates_make_a_filter_and_a_tile(backend: Backend, tenant: Tenant, owner: Person) -> None:
    id_ = fill(backend, tenant, first_seen_at=(now() - timedelta(days=30)).isoformat())
    assert "overdue=true" not in owner.page("/")
    days = dict.fromkeys(Severity, 1)
    backend.run(lambda db: accounts.set_due_days(db, tenant.account.slug, days, by="test", now=now()))
    assert re.search(r'href="/incidents\?overdue=true"><strong>1</strong>', owner.page("/"))
    assert total(owner.page("/incidents?overdue=true&order_by=due_at")) == 1
    assert "Overdue" in owner.page(f"/incidents/{id_}")


def test_the_page_shows_places_commits_and_access(backend: Backend, tenant: Tenant, owner: Person) -> None:
    id_ = fill(backend, tenant, validation_detail={"enabled_services": ["aws_s3"]})
    backend.sql(
        "UPDATE findings SET commit_id = repeat('ab', 20), author = 'Jo <jo@example.com>', "
        "committed_at = '2024-03-04T05:06:07Z' WHERE incident_id = %s AND file_path = 'config/1.py'",
        UUID(id_),
    )
    page = owner.page(f"/incidents/{id_}")
    for number in range(3):
        assert f"config/{number}.py" in page
    assert "abababababab" in page
    assert "Jo &lt;jo@example.com&gt;" in page
    assert "aws_s3" in page
    assert SECRET not in page
    finding = tenant.get("/findings", incident_id=id_).json()["data"][0]["id"]
    assert f'href="/findings/{finding}"' in page
    assert f'href="/incidents/{id_}"' in owner.page(f"/findings/{finding}")
    assert "no page 9" in owner.page(f"/incidents/{id_}?page=9").replace("There is ", "")
    assert owner.get(f"/incidents/{id_}?page=x&comments=99").status_code == 200


@pytest.mark.parametrize(
    ("action", "status"),
    [("resolve", "resolved"), ("restrict", "customer_restricted"), ("false_positive", "false_positive")],
)
def test_all_places_are_closed_at_once(
    backend: Backend, tenant: Tenant, owner: Person, action: str, status: str
) -> None:
    id_ = fill(backend, tenant)
    first = tenant.get("/findings", incident_id=id_).json()["data"][0]["id"]
    tenant.post(f"/findings/{first}/false_positive").raise_for_status()
    answer = owner.post(f"/incidents/{id_}/{action}", note="rotated on Monday")
    assert (answer.status_code, answer.headers["Location"]) == (303, f"/incidents/{id_}")
    assert statuses(tenant, id_) == sorted([status, status, "false_positive"])
    page = owner.page(f"/incidents/{id_}")
    assert page.count("rotated on Monday") >= 2
    counted = "1 unchanged" if action == "false_positive" else "1 cannot be"
    assert counted in page
    assert "still valid" in page
    assert owner.post(f"/incidents/{id_}/reopen").status_code == 303
    assert set(statuses(tenant, id_)) == {"active"}


def test_suppressing_hides_all_places(backend: Backend, tenant: Tenant, owner: Person) -> None:
    id_ = fill(backend, tenant)
    assert owner.post(f"/incidents/{id_}/suppress").status_code == 303
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 0
    assert owner.post(f"/incidents/{id_}/nothing").status_code == 404
    assert owner.post(f"/incidents/{id_}/resolve", note="x" * 501).status_code == 400


@pytest.mark.parametrize("kind", ["incidents", "findings"])
def test_closing_a_valid_credential_asks_first_and_offers_a_check(
    backend: Backend, tenant: Tenant, owner: Person, kind: str
) -> None:
    incident = fill(backend, tenant, 2)
    finding = tenant.get("/findings", incident_id=incident).json()["data"][0]["id"]
    here = f"/incidents/{incident}" if kind == "incidents" else f"/findings/{finding}"
    page = owner.page(here)
    assert f'name="action" value="resolve" formaction="{here}/close"' in page
    assert f'formaction="{here}/resolve"' not in page
    asked = owner.post(f"{here}/close", action="resolve", note="it was " + SECRET)
    assert asked.status_code == 200
    assert "does not revoke it" in asked.text
    assert f'formaction="{here}/validate"' in asked.text
    assert f'formaction="{here}/resolve"' in asked.text
    assert SECRET not in asked.text
    assert set(statuses(tenant, incident)) == {"active"}
    assert owner.post(f"{here}/close", action="reopen").status_code in {303, 400}
    assert owner.post(f"{here}/close", action="resolve", note="x" * 501).status_code == 400
    assert owner.post(f"{here}/validate").status_code == 303
    assert "Check requested" in owner.page(here)
    assert owner.post(f"{here}/resolve", note="rotated").status_code == 303
    assert "resolved" in statuses(tenant, incident)


def test_what_is_not_valid_is_closed_without_a_question(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    id_ = fill(backend, tenant, validation_status="invalid")
    page = owner.page(f"/incidents/{id_}")
    assert f'formaction="/incidents/{id_}/resolve"' in page
    assert f"/incidents/{id_}/close" not in page


def test_an_incident_is_assigned_to_a_member_or_to_nobody(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    id_ = fill(backend, tenant)
    member = make_person(backend, tenant, Role.MEMBER)
    assert f'<option value="{member}">' in owner.page(f"/incidents/{id_}")
    assert owner.post(f"/incidents/{id_}/assign", assignee=member.upper()).status_code == 303
    assert tenant.get(f"/incidents/{id_}").json()["data"]["assignee"] == member
    assert f"nobody</bdi> → <bdi>{member}" in owner.page(f"/incidents/{id_}")
    refused = owner.post(f"/incidents/{id_}/assign", assignee="stranger@example.com")
    assert (refused.status_code, "must be a member" in refused.text) == (400, True)
    assert owner.post(f"/incidents/{id_}/assign", assignee="").status_code == 303
    assert tenant.get(f"/incidents/{id_}").json()["data"]["assignee"] is None


def test_comments_are_masked_escaped_and_limited(backend: Backend, tenant: Tenant, owner: Person) -> None:
    id_ = fill(backend, tenant)
    here = f"/incidents/{id_}/comments"
    text = f"pw={SECRET}\r\n<script>alert(1)</script> \u202e"
    assert owner.post(here, text=text).status_code == 303
    page = owner.page(f"/incidents/{id_}")
    assert SECRET not in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\u202e" not in page
    (stored,) = tenant.get(here).json()["data"]
    assert (stored["by"], SECRET in stored["text"], "\r" in stored["text"]) == (owner.email, False, False)
    for wrong in ("", " ", "x" * 2001):
        refused = owner.post(here, text=wrong)
        assert (refused.status_code, "1 to 2,000" in refused.text) == (400, True)
    kept = owner.post(here, text="y" * 2500)
    assert "y" * 2000 in kept.text
    assert len(tenant.get(here).json()["data"]) == 1


def test_a_member_triages_and_another_account_finds_nothing(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    id_ = fill(backend, tenant)
    member = sign_in(backend, tenant, Role.MEMBER)
    assert member.post(f"/incidents/{id_}/assign", assignee=member.email).status_code == 303
    stranger = sign_in(backend, backend.tenant())
    paths = ["resolve", "restrict", "false_positive", "suppress", "assign", "comments", "validate", "close"]
    for wanted in (id_, str(uuid4()), "x"):
        assert stranger.get(f"/incidents/{wanted}").status_code == 404
        for path in paths:
            answer = stranger.post(f"/incidents/{wanted}/{path}", action="resolve", text="a", assignee="")
            assert answer.status_code == 404, path
    without_token = owner.client.post(f"/incidents/{id_}/resolve", data={"csrf": csrf_in(stranger.page("/"))})
    assert without_token.status_code == 403
    assert set(statuses(tenant, id_)) == {"active"}
    assert tenant.get(f"/incidents/{id_}").json()["data"]["assignee"] == member.email


def test_the_overview_counts_what_is_closed_but_valid(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    id_ = fill(backend, tenant)
    tile = r'href="/incidents\?status=closed_valid"><strong>(\d+)</strong>'
    assert re.findall(tile, owner.page("/")) == ["0"]
    owner.post(f"/incidents/{id_}/resolve")
    assert re.findall(tile, owner.page("/")) == ["1"]
    assert total(owner.page("/incidents?status=closed_valid")) == 1


def test_what_is_suppressed_can_be_shown_again(backend: Backend, tenant: Tenant, owner: Person) -> None:
    here = f"/incidents/{fill(backend, tenant, 2)}"

    def offered() -> tuple[bool, bool]:
        page = owner.page(here)
        return f'formaction="{here}/suppress"' in page, f'formaction="{here}/unsuppress"' in page

    assert offered() == (True, False)
    place = tenant.get("/findings").json()["data"][0]["id"]
    tenant.post(f"/findings/{place}/suppress").raise_for_status()
    assert offered() == (True, True)
    assert owner.post(f"{here}/suppress").status_code == 303
    assert offered() == (False, True)
    assert owner.post(f"{here}/unsuppress").status_code == 303
    assert offered() == (True, False)


def test_actions_that_newcomers_confuse_have_a_hint(backend: Backend, tenant: Tenant, owner: Person) -> None:
    page = owner.page(f"/incidents/{fill(backend, tenant)}")
    for action in ("restrict", "suppress"):
        assert f'aria-describedby="{action}-hint"' in page
        assert f'id="{action}-hint"' in page
    assert owner.page("/findings").count('title="Close: the exposure is known') == 1


def test_the_verdict_and_the_time_of_its_check_are_of_one_place(
    backend: Backend, tenant: Tenant, owner: Person
) -> None:
    """The first place is the one with the highest score; here it was checked before the other one."""
    id_ = fill(backend, tenant, 2, validation_status="invalid")
    for path, score, at in (
        ("config/0.py", 90, "2026-01-02T03:04:05Z"),
        ("config/1.py", 10, "2026-03-04T05:06:07Z"),
    ):
        backend.sql(
            """UPDATE findings SET composite_score = %s, validation_detail = jsonb_build_object(
                   'enabled_services', '[]'::jsonb, 'checked_at', %s::text, 'reason', %s::text)
               WHERE incident_id = %s AND file_path = %s""",
            *(score, at, f"answer for {path}", UUID(id_), path),
        )
    page = owner.page(f"/incidents/{id_}")
    assert "Answer for config/1.py" in page
    assert 'Last checked <time datetime="2026-03-04T05:06:07+00:00"' in page


def test_the_page_says_what_became_of_a_check(backend: Backend, tenant: Tenant, owner: Person) -> None:
    id_ = fill(backend, tenant)
    here = f"/incidents/{id_}"
    assert owner.post(f"{here}/validate").status_code == 303
    assert "is waiting or running" in owner.page(here)
    part = owner.client.get(here, headers={"X-Part": "list"}).text
    assert ("</html>" in part, "data-poll" in part, "is waiting or running" in part) == (False, True, True)
    ((place,),) = backend.sql(
        "SELECT target FROM audit WHERE account_id = %s AND action = 'finding.revalidate'", tenant.account.id
    )
    backend.sql(
        """INSERT INTO audit (account_id, at, actor, action, target, outcome, detail)
           VALUES (%s, now(), 'ada', 'finding.validate', %s, 'ok', '{"from": "valid", "to": "valid"}')""",
        *(tenant.account.id, place),
    )
    page = owner.page(here)
    assert f"Checked at the request of <bdi>{owner.email}" in page
    assert "data-poll" not in page
