"""The specification's part "States and transitions", and the events that its transitions write."""

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from outcrop.domain.account import Role
from outcrop.domain.clock import now
from outcrop.services import accounts
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

STATUSES = ["active", "resolved", "false_positive", "customer_restricted", "stale"]
ACTIONS = ["resolve", "restrict", "false_positive", "suppress"]
TARGET = {"resolve": "resolved", "restrict": "customer_restricted", "false_positive": "false_positive"}

# What is not named here moves the finding.
STAYS = {("resolved", "resolve"), ("customer_restricted", "restrict"), ("false_positive", "false_positive")}
REFUSED = {("false_positive", "resolve"), ("resolved", "restrict"), ("false_positive", "restrict")}

RESOLVED_FIELDS = {
    *(
        "id",
        "status",
        "resolved_at",
        "resolution_note",
        "resolution_evidence",
        "validation_status",
        "composite_score",
        "source_url",
    ),
    *("matched_text", "pattern"),
}
FALSE_POSITIVE_FIELDS = {"id", "status", "source_url", "pattern"}


def line_in(status: str, **given: Any) -> dict[str, Any]:
    """Make a finding with everything that its status can have."""
    closed = (
        {"resolution_note": "the note before"}
        if status in {"resolved", "false_positive", "customer_restricted"}
        else {}
    )
    resolved = {
        "resolved_at": "2026-03-04T05:06:07+00:00",
        "resolution_evidence": {"auto_resolved": True, "resolved_by": None},
    }
    return make_line(status=status) | closed | (resolved if status == "resolved" else {}) | given


def ready(stage: Backend, tenant: Tenant, status: str = "active", **given: Any) -> dict[str, Any]:
    line = line_in(status, **given)
    stage.import_(tenant.account, line)
    return tenant.finding(line["id"])


def events(stage: Backend, id_: str) -> list[tuple[str, dict[str, Any]]]:
    return stage.sql("SELECT event, finding FROM outbox WHERE finding_id = %s ORDER BY created_at, id", id_)


def trail(stage: Backend, id_: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    return stage.sql("SELECT actor, action, outcome, detail FROM audit WHERE target = %s ORDER BY id", id_)


@pytest.fixture(scope="module")
def every_case(stage: Backend, tenant: Tenant) -> dict[tuple[str, str], str]:
    """One finding for each status and action."""
    lines = {(status, action): line_in(status) for status in STATUSES for action in ACTIONS}
    stage.import_(tenant.account, *lines.values())
    return {case: line["id"] for case, line in lines.items()}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", STATUSES)
def test_every_action_in_every_state(
    stage: Backend, tenant: Tenant, every_case: dict[tuple[str, str], str], status: str, action: str
) -> None:
    id_ = every_case[status, action]
    before = tenant.finding(id_)
    assert before["status"] == status
    began = now().isoformat()
    answer = tenant.post(f"/findings/{id_}/{action}", note="the new note")
    after = tenant.finding(id_)
    email = tenant.account.email

    if (status, action) in REFUSED:
        assert answer.status_code == 400
        assert answer.json().keys() == {"error", "message"}
        assert answer.json()["error"] == "invalid_transition"
    else:
        assert answer.status_code == 200
        assert answer.json() == {"data": {"id": id_, "status": after["status"]}}

    if (status, action) in STAYS | REFUSED:
        expected, lines, sent = before, [], []
    elif action == "suppress":
        # "finding is hidden from the active view; status is not changed"
        assert began <= after["suppressed_at"] <= now().isoformat()
        expected, lines, sent = (
            before | {"suppressed_at": after["suppressed_at"]},
            [(email, "finding.suppress", "ok", {})],
            [],
        )
    else:
        expected = before | {
            "status": TARGET[action],
            "resolution_note": "the new note",
            "resolved_at": None,
            "resolution_evidence": None,
        }
        if action == "resolve":
            assert began <= after["resolved_at"] <= now().isoformat()
            evidence = {"auto_resolved": False, "resolved_by": email}
            expected |= {"resolved_at": after["resolved_at"], "resolution_evidence": evidence}
        lines = [
            (email, f"finding.{action}", "ok", {"from": status, "to": TARGET[action], "note": "the new note"})
        ]
        kinds = {
            "resolve": ("finding.resolved", RESOLVED_FIELDS),
            "false_positive": ("finding.false_positive", FALSE_POSITIVE_FIELDS),
        }
        sent = []
        if action in kinds:
            event, fields = kinds[action]
            sent = [(event, {name: value for name, value in after.items() if name in fields})]
    if lines:
        assert began <= after["updated_at"] <= now().isoformat()
        expected |= {"updated_at": after["updated_at"]}
    assert after == expected
    assert trail(stage, id_) == lines
    assert events(stage, id_) == sent


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("status", STATUSES)
def test_the_same_action_again_gives_the_same_answer_and_changes_nothing(
    stage: Backend, tenant: Tenant, status: str, action: str
) -> None:
    # "idempotent: current state returned, not rewritten"
    id_ = ready(stage, tenant, status)["id"]
    first = tenant.post(f"/findings/{id_}/{action}", note="first")
    state = tenant.finding(id_), trail(stage, id_), events(stage, id_)
    second = tenant.post(f"/findings/{id_}/{action}", note="second")
    assert (second.status_code, second.content) == (first.status_code, first.content)
    assert (tenant.finding(id_), trail(stage, id_), events(stage, id_)) == state


# --- resolve


def test_the_resolved_event_carries_exactly_what_the_specification_lists(
    stage: Backend, tenant: Tenant
) -> None:
    # `finding.resolved`: id, status, resolved_at, resolution_note, resolution_evidence, validation_status,
    # composite_score, source_url, matched_text, pattern
    finding = ready(
        stage,
        tenant,
        secret="a-credential-of-32-characters-00",
        source_url="https://x.example/?t=a-credential-of-32-characters-00",
    )
    tenant.post(f"/findings/{finding['id']}/resolve", note="rotated: a-credential-of-32-characters-00")
    after = tenant.finding(finding["id"])
    assert events(stage, finding["id"]) == [
        (
            "finding.resolved",
            {
                "id": finding["id"],
                "status": "resolved",
                "resolved_at": after["resolved_at"],
                "resolution_note": "rotated: a-cr********s-00",
                "resolution_evidence": {"auto_resolved": False, "resolved_by": tenant.account.email},
                "validation_status": "valid",
                "composite_score": 72.5,
                "source_url": "https://x.example/?t=a-cr********s-00",
                "matched_text": "a-cr********s-00",
                "pattern": {"name": "AWS access key pair", "secret_type": "aws"},
            },
        )
    ]


def test_the_false_positive_event_carries_exactly_what_the_specification_lists(
    stage: Backend, tenant: Tenant
) -> None:
    # `finding.false_positive`: id, status, source_url, pattern (subset)
    finding = ready(stage, tenant)
    tenant.post(f"/findings/{finding['id']}/false_positive", note="an example from the docs")
    fields = {
        "id": finding["id"],
        "status": "false_positive",
        "source_url": finding["source_url"],
        "pattern": finding["pattern"],
    }
    assert events(stage, finding["id"]) == [("finding.false_positive", fields)]


def test_an_event_keeps_its_null_values(stage: Backend, tenant: Tenant) -> None:
    id_ = str(uuid4())
    stage.import_(tenant.account, {"id": id_, "matched_text": "*" * 8})
    tenant.post(f"/findings/{id_}/resolve")
    ((_, finding),) = events(stage, id_)
    assert finding.keys() == RESOLVED_FIELDS
    assert finding["source_url"] is finding["resolution_note"] is None


def test_an_event_belongs_to_the_account_and_has_an_id_and_a_time_of_its_own(
    stage: Backend, tenant: Tenant
) -> None:
    finding = ready(stage, tenant)
    began = now()
    tenant.post(f"/findings/{finding['id']}/resolve")
    tenant.post(f"/findings/{finding['id']}/false_positive")
    rows = stage.sql("SELECT id, account_id, created_at FROM outbox WHERE finding_id = %s", finding["id"])
    assert len({id_ for id_, _, _ in rows}) == 2
    assert {account for _, account, _ in rows} == {tenant.account.id}
    assert all(began <= at <= now() for _, _, at in rows)


def test_resolved_by_is_the_member_who_made_the_key(stage: Backend, tenant: Tenant) -> None:
    # "Keys belong to the account, not a user"; `resolution_evidence.resolved_by` is an e-mail address
    _, token = stage.key(tenant.account, member="maria@example.com")
    finding = ready(stage, tenant)
    stage.client(token).post(f"/api/v1/findings/{finding['id']}/resolve").raise_for_status()
    assert tenant.finding(finding["id"])["resolution_evidence"] == {
        "auto_resolved": False,
        "resolved_by": "maria@example.com",
    }
    assert [actor for actor, *_ in trail(stage, finding["id"])] == ["maria@example.com"]


def test_resolved_by_stays_when_the_member_is_removed(stage: Backend, tenant: Tenant) -> None:
    # "Removing a team member does not revoke keys; keys are revoked separately."
    email = f"leaver-{tenant.account.slug}@example.com"
    stage.run(
        lambda db: accounts.create_member(
            db,
            tenant.account,
            email=email,
            role=Role.MEMBER,
            password="quiet staples 42",
            by="test",
            now=now(),
        )
    )
    _, token = stage.key(tenant.account, member=email)
    stage.run(lambda db: accounts.remove_member(db, email, by="test", now=now()))
    finding = ready(stage, tenant)
    assert stage.client(token).post(f"/api/v1/findings/{finding['id']}/resolve").status_code == 200
    assert tenant.finding(finding["id"])["resolution_evidence"]["resolved_by"] == email


def test_many_at_once_resolve_a_finding_once(stage: Backend, tenant: Tenant) -> None:
    id_ = ready(stage, tenant)["id"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: tenant.post(f"/findings/{id_}/resolve", note=str(n)), range(16)))
    assert {answer.status_code for answer in answers} == {200}
    assert len(events(stage, id_)) == len(trail(stage, id_)) == 1
    ((_, event),) = events(stage, id_)
    assert event["resolution_note"] == tenant.finding(id_)["resolution_note"]


def test_resolve_and_false_positive_at_once_leave_a_trail_that_fits_the_end(
    stage: Backend, tenant: Tenant
) -> None:
    for _ in range(5):
        id_ = ready(stage, tenant)["id"]
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda action: tenant.post(f"/findings/{id_}/{action}"),  # noqa: B023
                    ["resolve", "false_positive"] * 2,
                )
            )
        moves = [(detail["from"], detail["to"]) for *_, detail in trail(stage, id_)]
        assert moves in (
            [("active", "resolved"), ("resolved", "false_positive")],
            [("active", "false_positive")],
        )
        assert len(events(stage, id_)) == len(moves)
        assert tenant.finding(id_)["status"] == "false_positive"


# --- the note


def test_the_note_is_that_of_the_last_closing_action(stage: Backend, tenant: Tenant) -> None:
    id_ = ready(stage, tenant)["id"]
    notes = []
    for action, note in [("restrict", "one"), ("resolve", "two"), ("false_positive", "three")]:
        tenant.post(f"/findings/{id_}/{action}", note=note)
        notes.append(tenant.finding(id_)["resolution_note"])
    assert notes == ["one", "two", "three"]


def test_closing_without_a_note_leaves_no_older_note(stage: Backend, tenant: Tenant) -> None:
    id_ = ready(stage, tenant)["id"]
    tenant.post(f"/findings/{id_}/restrict", note="kept on purpose")
    tenant.post(f"/findings/{id_}/resolve")
    assert tenant.finding(id_)["resolution_note"] is None
    assert [detail for *_, detail in trail(stage, id_)] == [
        {"from": "active", "to": "customer_restricted", "note": "kept on purpose"},
        {"from": "customer_restricted", "to": "resolved"},
    ]


def test_a_move_out_of_resolved_clears_time_note_and_evidence(stage: Backend, tenant: Tenant) -> None:
    id_ = ready(stage, tenant, "resolved")["id"]
    tenant.post(f"/findings/{id_}/false_positive")
    after = tenant.finding(id_)
    assert [after[name] for name in ("resolved_at", "resolution_note", "resolution_evidence")] == [
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive"])
@pytest.mark.parametrize(
    ("note", "kept"),
    [
        ("", None),
        (" ", " "),
        ("x" * 500, "x" * 500),
        ("😀" * 500, "😀" * 500),  # a note counts code points
        (
            "line\none\ttab 'quoted' \"twice\" \\ % _ é\u0301",
            "line\none\ttab 'quoted' \"twice\" \\ % _ é\u0301",
        ),
    ],
    ids=["empty", "blank", "500", "500 astral", "signs"],
)
def test_a_note_is_kept_as_it_was_given(
    stage: Backend, tenant: Tenant, action: str, note: str, kept: str | None
) -> None:
    # "optional note stored"
    id_ = ready(stage, tenant)["id"]
    assert tenant.post(f"/findings/{id_}/{action}", note=note).status_code == 200
    assert tenant.finding(id_)["resolution_note"] == kept


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive"])
@pytest.mark.parametrize("note", ["x" * 501, "😀" * 501])
def test_a_note_of_more_than_500_characters_is_refused_and_changes_nothing(
    stage: Backend, tenant: Tenant, action: str, note: str
) -> None:
    # "`note` (string, optional, max 500 characters)"
    before = ready(stage, tenant)
    answer = tenant.post(f"/findings/{before['id']}/{action}", note=note)
    assert answer.status_code == 422
    assert [entry["loc"] for entry in answer.json()["detail"]] == [["query", "note"]]
    assert tenant.finding(before["id"]) == before
    assert trail(stage, before["id"]) == events(stage, before["id"]) == []


# --- suppress


def in_lists(tenant: Tenant, id_: str, **params: Any) -> bool:
    listed = [
        finding["id"]
        for finding in tenant.get("/findings", per_page=200, **params).raise_for_status().json()["data"]
    ]
    return id_ in listed


def test_a_suppressed_finding_is_hidden_from_the_active_view_only(stage: Backend) -> None:
    # "Hides the finding from the active view without changing its status."
    tenant = stage.tenant()
    finding, other = ready(stage, tenant), ready(stage, tenant)
    assert in_lists(tenant, finding["id"], status="active")
    tenant.post(f"/findings/{finding['id']}/suppress")
    assert tenant.finding(finding["id"])["status"] == "active"
    assert not in_lists(tenant, finding["id"], status="active")
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 1
    assert tenant.get("/findings", status="active", q="settings").json()["meta"]["total"] == 1
    for view in (
        {},
        {"suppressed": "true"},
        {"status": "active", "suppressed": "true"},
        {"validation": "valid"},
        {"q": "settings"},
    ):
        assert in_lists(tenant, finding["id"], **view), view
    for view in (
        {"suppressed": "false"},
        {"status": "active", "suppressed": "false"},
        {"status": "resolved"},
    ):
        assert not in_lists(tenant, finding["id"], **view), view
    assert in_lists(tenant, other["id"], suppressed="false")
    assert not in_lists(tenant, other["id"], suppressed="true")


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "active"])
def test_a_suppressed_finding_stays_in_the_lists_of_every_other_status(stage: Backend, status: str) -> None:
    tenant = stage.tenant()
    id_ = ready(stage, tenant, status, suppressed_at="2026-03-05T00:00:00+00:00")["id"]
    assert in_lists(tenant, id_, status=status)
    assert tenant.get("/findings", status=status).json()["meta"]["total"] == 1


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive"])
def test_suppression_survives_a_change_of_status_and_events_are_still_sent(
    stage: Backend, tenant: Tenant, action: str
) -> None:
    id_ = ready(stage, tenant, suppressed_at="2026-03-05T00:00:00+00:00")["id"]
    tenant.post(f"/findings/{id_}/{action}")
    after = tenant.finding(id_)
    assert (after["status"], after["suppressed_at"]) == (TARGET[action], "2026-03-05T00:00:00+00:00")
    assert len(events(stage, id_)) == (0 if action == "restrict" else 1)


def test_suppress_takes_no_note(stage: Backend, tenant: Tenant) -> None:
    # "No other parameters."
    id_ = ready(stage, tenant)["id"]
    assert tenant.post(f"/findings/{id_}/suppress", note="x" * 501).status_code == 200
    assert tenant.finding(id_)["resolution_note"] is None


# --- all or nothing


@pytest.mark.parametrize("table", ["outbox", "audit"])
def test_a_change_its_audit_line_and_its_event_are_written_together_or_not_at_all(
    stage: Backend, table: str
) -> None:
    tenant = stage.tenant()
    before = ready(stage, tenant)
    name = f"broken_{tenant.account.id}"
    assert re.fullmatch(r"broken_\d+", name)
    stage.sql(f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql \
AS $$ BEGIN RAISE EXCEPTION 'broken'; END $$;
                  CREATE TRIGGER {name} BEFORE INSERT ON {table} \
FOR EACH ROW WHEN (NEW.account_id = {tenant.account.id})
                  EXECUTE FUNCTION {name}()""")
    try:
        with capture_logs():  # the fault's traceback is not what is tested here
            answer = tenant.post(f"/findings/{before['id']}/resolve")
    finally:
        stage.sql(f"DROP FUNCTION {name} CASCADE")
    assert answer.status_code == 500
    assert tenant.finding(before["id"]) == before
    assert trail(stage, before["id"]) == events(stage, before["id"]) == []
    assert tenant.post(f"/findings/{before['id']}/resolve").status_code == 200
    assert len(trail(stage, before["id"])) == len(events(stage, before["id"])) == 1
