"""Undo of a triage: what it restores, who can do it, for how long, and that it sends nothing."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Resolution, Status, TriageAction
from outcrop.domain.secret import MaskedText
from outcrop.domain.triage.undo import TriageState
from outcrop.services import findings
from outcrop.services.findings import incidents
from outcrop.services.findings.undo import UndoResult, undo_triage
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

ADA, BOB = "ada@example.com", "bob@example.com"
KEPT = ("status", "resolution_note", "resolved_at", "resolution_evidence", "suppressed_at")


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def triage(backend: Backend, tenant: Tenant, ids: list[str], action: str, at: datetime | None = None) -> UUID:
    triage_id = uuid4()
    backend.run(
        lambda db: findings.triage(
            db, backend.keys, tenant.account.id, [UUID(id_) for id_ in ids], TriageAction(action),
            note=MaskedText("a second note"), by=ADA, now=at or now(), triage_id=triage_id,
        )
    )  # fmt: skip
    return triage_id


def undo(backend: Backend, tenant: Tenant, triage_id: UUID, by: str = ADA, at: datetime | None = None) -> Any:
    return backend.run(lambda db: undo_triage(db, tenant.account.id, triage_id, by=by, now=at or now()))


def kept(tenant: Tenant, id_: str) -> dict[str, Any]:
    return {name: tenant.finding(id_)[name] for name in KEPT}


def events(backend: Backend, tenant: Tenant) -> int:
    ((number,),) = backend.sql("SELECT count(*) FROM outbox WHERE account_id = %s", tenant.account.id)
    return int(number)


def test_a_state_is_the_same_after_json() -> None:
    moment = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
    for state in (
        TriageState(Status.RESOLVED, "a note", moment, Resolution(False, ADA), moment),
        TriageState(Status.ACTIVE, None, None, None, None),
    ):
        assert TriageState.from_json(state.to_json()) == state


@pytest.mark.parametrize("action", ["resolve", "restrict", "false_positive", "suppress"])
@pytest.mark.parametrize("start", ["active", "stale", "resolved", "customer_restricted"])
def test_an_undo_restores_note_evidence_and_suppression_and_sends_nothing(
    backend: Backend, tenant: Tenant, action: str, start: str
) -> None:
    closed: dict[str, Any] = (
        {"resolution_note": "the first note"} if start in {"resolved", "customer_restricted"} else {}
    )
    if start == "resolved":
        closed |= {
            "resolved_at": "2026-02-03T04:05:06+00:00",
            "resolution_evidence": {"auto_resolved": False, "resolved_by": BOB},
        }
    backend.import_(tenant.account, line := make_line(status=start, **closed))
    id_ = str(line["id"])
    before = kept(tenant, id_)
    triage_id = triage(backend, tenant, [id_], action)
    if kept(tenant, id_) == before:  # the action is refused or changes nothing
        with pytest.raises(BadInputError):
            undo(backend, tenant, triage_id)
        return
    sent = events(backend, tenant)
    assert undo(backend, tenant, triage_id) == UndoResult(1, 0)
    assert kept(tenant, id_) == before
    assert events(backend, tenant) == sent
    lines = backend.sql(
        "SELECT actor, detail ->> 'undone' FROM audit WHERE target = %s AND action = 'finding.undo'", id_
    )
    assert lines == [(ADA, action)]
    with pytest.raises(BadInputError):
        undo(backend, tenant, triage_id)


def test_another_person_another_account_and_a_late_one_undo_nothing(backend: Backend, tenant: Tenant) -> None:
    backend.import_(tenant.account, line := make_line())
    id_ = str(line["id"])
    moment = now()
    triage_id = triage(backend, tenant, [id_], "resolve", moment)
    for by, of, at in (
        (BOB, tenant, moment),
        (ADA, backend.tenant(), moment),
        (ADA, tenant, moment + timedelta(seconds=31)),
    ):
        with pytest.raises(BadInputError):
            undo(backend, of, triage_id, by, at)
    assert tenant.finding(id_)["status"] == "resolved"
    assert undo(backend, tenant, triage_id, ADA, moment + timedelta(seconds=30)) == UndoResult(1, 0)
    assert tenant.finding(id_)["status"] == "active"


def test_what_changed_since_stays_and_reopen_is_not_undone(backend: Backend, tenant: Tenant) -> None:
    backend.import_(tenant.account, *(lines := [make_line(), make_line(), make_line(status="stale")]))
    ids = [str(line["id"]) for line in lines]
    triage_id = triage(backend, tenant, ids, "resolve")
    reopening = triage(backend, tenant, ids[:1], "reopen")
    with pytest.raises(BadInputError):
        undo(backend, tenant, reopening)
    assert undo(backend, tenant, triage_id) == UndoResult(2, 1)
    assert [tenant.finding(id_)["status"] for id_ in ids] == ["active", "active", "stale"]


def test_the_triage_of_an_incident_is_undone_at_all_places(backend: Backend, tenant: Tenant) -> None:
    secret = "made-up-" + "Zt5" * 8
    lines = [make_line(secret=secret, file_path=f"{n}.py") for n in range(3)]
    for line in lines:
        del line["matched_text"]
    backend.import_(tenant.account, *lines)
    incident = UUID(tenant.finding(str(lines[0]["id"]))["incident_id"])
    triage_id = uuid4()
    backend.run(
        lambda db: incidents.triage_incident(
            db, backend.keys, tenant.account.id, incident, TriageAction.RESTRICT,
            note=None, by=ADA, now=now(), triage_id=triage_id,
        )
    )  # fmt: skip
    assert undo(backend, tenant, triage_id) == UndoResult(3, 0)
    assert {tenant.finding(str(line["id"]))["status"] for line in lines} == {"active"}
