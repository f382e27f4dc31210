"""One finding: where it stands, whether it is alive, why it scores what it does, what happened to it, and what to do now."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import NotFoundError
from outcrop.domain.finding import NOTE_LENGTH, Action, Move, Outcome, Status, Triaged, outcome
from outcrop.portal.door import Visit, get, now, post
from outcrop.portal.findings import DONE, read_note
from outcrop.services import findings
from outcrop.services.pipeline.start import request_validation


async def show_finding(visit: Visit) -> Response:
    db, account_id, id_ = visit.db, visit.account_id, visit.id("id")
    finding, reasons = await findings.explain_finding(db, account_id, id_)
    return visit.render(
        "finding.html",
        finding=finding,
        reasons=reasons,
        advice=await findings.advice(db, account_id, finding, visit.house.own_rules),
        excerpt=await findings.excerpt(db, visit.keys, account_id, id_),
        history=await findings.history(db, account_id, id_),
        others=await findings.other_places(db, account_id, id_),
        possible=_possible(finding.status),
        note_length=NOTE_LENGTH,
    )


def _possible(status: Status) -> list[Action]:
    """Give what a person can do to a finding in this status."""
    return [action for action in Action if outcome(action, status) is Outcome.MOVES]


async def act(visit: Visit) -> Response:
    id_ = visit.id("id")
    move = next((move for move in Move if move == visit.path("action")), None)
    if move is None:
        raise NotFoundError("there is nothing at this address")
    outcomes = await findings.triage(visit.db, visit.keys, visit.account_id, [id_], move, note=read_note(visit), by=visit.email, now=now())
    told = {
        Triaged.CHANGED: f"The finding is {DONE[move]}.",
        Triaged.UNCHANGED: "Nothing changed: it already was.",
        Triaged.REFUSED: f"A finding in this state cannot be {DONE[move]}.",
    }.get(outcomes[0][1])
    if told is None:
        raise NotFoundError("no such finding")
    return visit.go(f"/findings/{id_}", told, refused=outcomes[0][1] is Triaged.REFUSED)


async def validate(visit: Visit) -> Response:
    id_ = visit.id("id")
    await request_validation(visit.db, visit.keys, visit.account_id, id_, note=read_note(visit), by=visit.email, moment=now())
    return visit.go(f"/findings/{id_}", "Its issuer is being asked again. Load this page anew in a moment.")


ROUTES = [
    get("/findings/{id}", show_finding),
    post("/findings/{id}/validate", validate, Permission.TRIAGE),
    post("/findings/{id}/{action}", act, Permission.TRIAGE),
]
