"""What a person does to findings in the portal: reopen, show again, several at once, and what is told of one."""

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from outcrop.domain.errors import NotFoundError, TransitionError
from outcrop.domain.finding import Action, Finding, Status, TriageAction, TriageResult
from outcrop.services import findings
from tests.support.backend import Backend, Tenant, now
from tests.support.factories import make_line

JO = "jo@example.com"
SECRET = "made-up-" + "Qw7" * 8


def _finding(backend: Backend, tenant: Tenant, **given: object) -> UUID:
    line = make_line(**given)
    backend.import_(tenant.account, line)
    return UUID(line["id"])


def _reopen(backend: Backend, tenant: Tenant, id_: UUID, note: str | None = None) -> Finding:
    return backend.run(
        lambda db: findings.reopen_finding(
            db, backend.keys, tenant.account.id, id_, note=note, by=JO, now=now()
        )
    )


def _triage(
    backend: Backend, tenant: Tenant, ids: list[UUID], move: TriageAction, note: str | None = None
) -> list[tuple[UUID, TriageResult]]:
    return backend.run(
        lambda db: findings.triage(
            db, backend.keys, tenant.account.id, ids, move, note=note, by=JO, now=now()
        )
    )


def _events(backend: Backend, tenant: Tenant) -> list[tuple[str, UUID]]:
    return backend.sql("SELECT event, finding_id FROM outbox WHERE account_id = %s", tenant.account.id)


@pytest.mark.parametrize("action", Action)
def test_what_is_closed_is_reopened_without_an_event_and_the_history_tells_it(
    backend: Backend, action: Action
) -> None:
    tenant = backend.tenant()
    id_ = _finding(backend, tenant, secret=SECRET)
    tenant.post(f"/findings/{id_}/{action}", note="done").raise_for_status()
    events = _events(backend, tenant)
    again = _reopen(backend, tenant, id_, note=f"still there: {SECRET}")
    shown = tenant.finding(str(id_))
    assert again.status is Status.ACTIVE
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


def test_reopening_what_is_active_writes_nothing_and_what_is_stale_is_refused(backend: Backend) -> None:
    tenant = backend.tenant()
    active, stale = _finding(backend, tenant), _finding(backend, tenant, status="stale")
    assert _reopen(backend, tenant, active).status is Status.ACTIVE
    with pytest.raises(TransitionError, match="a scan sees it"):
        _reopen(backend, tenant, stale)
    assert [
        backend.run(lambda db, i=i: findings.list_history(db, tenant.account.id, i)) for i in (active, stale)
    ] == [[], []]


def test_what_was_hidden_is_shown_again_and_its_history_tells_both(backend: Backend) -> None:
    tenant = backend.tenant()
    id_ = _finding(backend, tenant)
    tenant.post(f"/findings/{id_}/suppress").raise_for_status()
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 0
    for _ in range(2):
        back = backend.run(
            lambda db: findings.unsuppress_finding(db, tenant.account.id, id_, by=JO, now=now())
        )
        assert back.suppressed_at is None
    assert tenant.get("/findings", status="active").json()["meta"]["total"] == 1
    told = backend.run(lambda db: findings.list_history(db, tenant.account.id, id_))
    assert [line.action for line in told] == ["finding.unsuppress", "finding.suppress"]


def test_a_refused_one_of_several_does_not_undo_the_others(backend: Backend) -> None:
    tenant, neighbour = backend.tenant(), backend.tenant()
    open_, closed = (
        [_finding(backend, tenant) for _ in range(3)],
        _finding(backend, tenant, status="false_positive"),
    )
    there, foreign = _finding(backend, tenant, status="resolved"), _finding(backend, neighbour)
    asked = [open_[0], closed, foreign, open_[1], there, open_[0], open_[2]]
    done = _triage(backend, tenant, asked, TriageAction.RESOLVE, note="rotated")
    assert done == [
        (open_[0], TriageResult.CHANGED),
        (closed, TriageResult.REFUSED),
        (foreign, TriageResult.MISSING),
        (open_[1], TriageResult.CHANGED),
        (there, TriageResult.UNCHANGED),
        (open_[2], TriageResult.CHANGED),
    ]
    assert sorted(_events(backend, tenant)) == sorted(("finding.resolved", id_) for id_ in open_)
    assert [tenant.finding(str(id_))["resolution_note"] for id_ in open_] == ["rotated"] * 3
    assert neighbour.finding(str(foreign))["status"] == "active"


@pytest.mark.parametrize("move", TriageAction)
def test_every_move_can_be_made_to_several_with_a_note_that_is_masked(
    backend: Backend, move: TriageAction
) -> None:
    tenant = backend.tenant()
    status = "customer_restricted" if move is TriageAction.REOPEN else "active"
    hidden = "2026-01-01T00:00:00Z" if move is TriageAction.UNSUPPRESS else None
    ids = [
        _finding(backend, tenant, status=status, suppressed_at=hidden, secret=SECRET, file_path=f"{n}.py")
        for n in range(2)
    ]
    assert _triage(backend, tenant, ids, move, note=f"see {SECRET}") == [
        (id_, TriageResult.CHANGED) for id_ in ids
    ]
    for id_ in ids:
        (line,) = backend.run(lambda db, id_=id_: findings.list_history(db, tenant.account.id, id_))
        assert line.action == f"finding.{move}"
        assert line.detail["note"].startswith("see ")
        assert SECRET not in line.detail["note"]
    assert _triage(backend, tenant, ids, move) == [(id_, TriageResult.UNCHANGED) for id_ in ids]


def test_history_is_of_one_finding_of_one_account(backend: Backend) -> None:
    tenant, neighbour = backend.tenant(), backend.tenant()
    id_, other = _finding(backend, tenant), _finding(backend, tenant)
    _finding(backend, neighbour, id=str(id_))
    for one in (id_, other):
        tenant.post(f"/findings/{one}/restrict").raise_for_status()
    assert len(backend.run(lambda db: findings.list_history(db, tenant.account.id, id_))) == 1
    assert backend.run(lambda db: findings.list_history(db, neighbour.account.id, id_)) == []


def test_the_same_credential_elsewhere_is_told_highest_score_first(backend: Backend) -> None:
    tenant, neighbour = backend.tenant(), backend.tenant()
    ids = [
        _finding(backend, tenant, secret=SECRET, file_path=f"{n}.py", composite_score=float(n))
        for n in range(4)
    ]
    _finding(backend, tenant, secret=SECRET + "x")
    unknown = [
        _finding(backend, tenant),
        _finding(backend, tenant),
    ]  # without a fingerprint: nothing is the same
    _finding(backend, neighbour, secret=SECRET)

    def places(id_: UUID, limit: int = 20) -> list[UUID]:
        return [
            f.id
            for f in backend.run(lambda db: findings.list_other_places(db, tenant.account.id, id_, limit))
        ]

    assert places(ids[1]) == [ids[3], ids[2], ids[0]]
    assert places(ids[1], limit=2) == [ids[3], ids[2]]
    assert places(unknown[0]) == []
    assert backend.run(lambda db: findings.list_other_places(db, neighbour.account.id, ids[0])) == []


def test_what_is_not_there_is_not_found(backend: Backend) -> None:
    tenant = backend.tenant()
    with pytest.raises(NotFoundError):
        _reopen(backend, tenant, uuid4())
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: findings.unsuppress_finding(
                db, tenant.account.id, uuid4(), by=JO, now=now() + timedelta(1)
            )
        )
