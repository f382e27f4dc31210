"""Test triage in the portal: reopen, unsuppress, several findings at once, and the history of a finding."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.errors import NotFoundError, TransitionError
from outcrop.domain.finding import Action, Finding, Status, TriageAction, TriageResult
from outcrop.services import findings
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line

JO = "jo@example.com"
SECRET = "made-up-" + "Qw7" * 8


def _finding(backend: Backend, tenant: Tenant, **fields: object) -> UUID:
    line = make_line(**fields)
    backend.import_(tenant.account, line)
    return UUID(line["id"])


def _reopen(backend: Backend, tenant: Tenant, id_: UUID, note: str | None = None) -> Finding:
    return backend.run(
        lambda db: findings.reopen_finding(
            db, backend.keys, tenant.account.id, id_, note=note, by=JO, now=now()
        )
    )


def _triage(
    backend: Backend, tenant: Tenant, ids: list[UUID], action: TriageAction, note: str | None = None
) -> list[tuple[UUID, TriageResult]]:
    return backend.run(
        lambda db: findings.triage(
            db, backend.keys, tenant.account.id, ids, action, note=note, by=JO, now=now()
        )
    )


def _events(backend: Backend, tenant: Tenant) -> list[tuple[str, UUID]]:
    return backend.sql("SELECT event, finding_id FROM outbox WHERE account_id = %s", tenant.account.id)


@pytest.mark.parametrize("action", Action)
def test_reopening_a_closed_finding_sends_no_event_and_is_in_the_history(
    backend: Backend, action: Action
) -> None:
    tenant = backend.tenant()
    id_ = _finding(backend, tenant, secret=SECRET)
    tenant.post(f"/findings/{id_}/{action}", note="done").raise_for_status()
    events = _events(backend, tenant)
    reopened = _reopen(backend, tenant, id_, note=f"still there: {SECRET}")
    shown = tenant.finding(str(id_))
    assert reopened.status is Status.ACTIVE
    assert [shown[name] for name in ("status", "resolved_at", "resolution_note", "resolution_evidence")] == [
        "active",
        None,
        None,
        None,
    ]
    assert _events(backend, tenant) == events
    latest, before = backend.run(lambda db: findings.list_history(db, tenant.account.id, id_))
    assert (latest.action, latest.actor, latest.detail["to"]) == ("finding.reopen", JO, "active")
    assert "still there" in latest.detail["note"]
    assert SECRET not in latest.detail["note"]
    assert before.action == f"finding.{action}"


def test_reopening_an_active_finding_changes_nothing_and_a_stale_one_is_refused(backend: Backend) -> None:
    tenant = backend.tenant()
    active, stale = _finding(backend, tenant), _finding(backend, tenant, status="stale")
    assert _reopen(backend, tenant, active).status is Status.ACTIVE
    with pytest.raises(TransitionError, match="a scan sees it"):
        _reopen(backend, tenant, stale)
    assert [
        backend.run(lambda db, i=i: findings.list_history(db, tenant.account.id, i)) for i in (active, stale)
    ] == [[], []]


def test_unsuppressing_a_finding_shows_it_and_is_in_the_history(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _finding(backend, tenant)
    tenant.post(f"/findings/{id_}/suppress").raise_for_status()
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 0
    for _ in range(2):
        unsuppressed = backend.run(
            lambda db: findings.unsuppress_finding(db, tenant.account.id, id_, by=JO, now=now())
        )
        assert unsuppressed.suppressed_at is None
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 1
    history = backend.run(lambda db: findings.list_history(db, tenant.account.id, id_))
    assert [line.action for line in history] == ["finding.unsuppress", "finding.suppress"]


def test_one_refused_finding_of_several_does_not_undo_the_others(backend: Backend) -> None:
    tenant, other_tenant = backend.tenant(), backend.tenant()
    open_, closed = (
        [_finding(backend, tenant) for _ in range(3)],
        _finding(backend, tenant, status="false_positive"),
    )
    resolved, of_other_account = _finding(backend, tenant, status="resolved"), _finding(backend, other_tenant)
    ids = [open_[0], closed, of_other_account, open_[1], resolved, open_[0], open_[2]]
    results = _triage(backend, tenant, ids, TriageAction.RESOLVE, note="rotated")
    assert results == [
        (open_[0], TriageResult.CHANGED),
        (closed, TriageResult.REFUSED),
        (of_other_account, TriageResult.MISSING),
        (open_[1], TriageResult.CHANGED),
        (resolved, TriageResult.UNCHANGED),
        (open_[2], TriageResult.CHANGED),
    ]
    assert sorted(_events(backend, tenant)) == sorted(("finding.resolved", id_) for id_ in open_)
    assert [tenant.finding(str(id_))["resolution_note"] for id_ in open_] == ["rotated"] * 3
    assert other_tenant.finding(str(of_other_account))["status"] == "active"


@pytest.mark.parametrize("action", TriageAction)
def test_every_action_works_on_several_findings_with_a_masked_note(
    backend: Backend, action: TriageAction
) -> None:
    tenant = backend.tenant()
    status = "customer_restricted" if action is TriageAction.REOPEN else "active"
    hidden = "2026-01-01T00:00:00Z" if action is TriageAction.UNSUPPRESS else None
    ids = [
        _finding(backend, tenant, status=status, suppressed_at=hidden, secret=SECRET, file_path=f"{n}.py")
        for n in range(2)
    ]
    assert _triage(backend, tenant, ids, action, note=f"see {SECRET}") == [
        (id_, TriageResult.CHANGED) for id_ in ids
    ]
    for id_ in ids:
        (line,) = backend.run(lambda db, id_=id_: findings.list_history(db, tenant.account.id, id_))
        assert line.action == f"finding.{action}"
        assert line.detail["note"].startswith("see ")
        assert SECRET not in line.detail["note"]
    assert _triage(backend, tenant, ids, action) == [(id_, TriageResult.UNCHANGED) for id_ in ids]


def test_the_history_has_lines_of_one_finding_only(backend: Backend) -> None:
    tenant, other_tenant = backend.tenant(), backend.tenant()
    id_, other = _finding(backend, tenant), _finding(backend, tenant)
    _finding(backend, other_tenant, id=str(id_))
    for finding_id in (id_, other):
        tenant.post(f"/findings/{finding_id}/restrict").raise_for_status()
    assert len(backend.run(lambda db: findings.list_history(db, tenant.account.id, id_))) == 1
    assert backend.run(lambda db: findings.list_history(db, other_tenant.account.id, id_)) == []


def test_other_places_of_a_credential_are_listed_by_score(backend: Backend) -> None:
    tenant, other_tenant = backend.tenant(), backend.tenant()
    ids = [
        _finding(backend, tenant, secret=SECRET, file_path=f"{n}.py", composite_score=float(n))
        for n in range(4)
    ]
    _finding(backend, tenant, secret=SECRET + "x")
    unknown = [_finding(backend, tenant), _finding(backend, tenant)]  # without a fingerprint
    _finding(backend, other_tenant, secret=SECRET)

    def places(id_: UUID, limit: int = 20) -> list[UUID]:
        return [
            f.id
            for f in backend.run(lambda db: findings.list_other_places(db, tenant.account.id, id_, limit))
        ]

    assert places(ids[1]) == [ids[3], ids[2], ids[0]]
    assert places(ids[1], limit=2) == [ids[3], ids[2]]
    assert places(unknown[0]) == []
    assert backend.run(lambda db: findings.list_other_places(db, other_tenant.account.id, ids[0])) == []


def test_an_unknown_finding_is_not_found(backend: Backend) -> None:
    tenant = backend.tenant()
    with pytest.raises(NotFoundError):
        _reopen(backend, tenant, uuid4())
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: findings.unsuppress_finding(
                db, tenant.account.id, uuid4(), by=JO, now=now() + timedelta(1)
            )
        )
