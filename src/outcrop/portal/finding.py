"""One finding: where it stands, whether it is alive, why it scores what it does, what happened to it, and what to do now."""

from typing import Any

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError, NotFoundError, OutcropError
from outcrop.domain.finding import (
    NOTE_LENGTH,
    Action,
    Status,
    TransitionOutcome,
    TriageAction,
    TriageResult,
    transition_outcome,
)
from outcrop.portal.findings import DONE, read_note
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import findings
from outcrop.services.pipeline.enqueue import request_validation


async def show_finding(visit: Visit) -> Response:
    return await _page(visit)


async def _page(visit: Visit, refusal: OutcropError | None = None) -> Response:
    """Draw the finding; after a refusal with why, and with the note that was typed."""
    db, account_id, id_ = visit.db, visit.account_id, visit.id("id")
    finding, reasons = await findings.explain_finding(db, account_id, id_)
    values: dict[str, Any] = {
        "finding": finding,
        "reasons": reasons,
        "advice": await findings.get_advice(db, account_id, finding, visit.house.own_rules),
        "excerpt": await findings.get_excerpt(db, visit.keys, account_id, id_),
        "history": await findings.list_history(db, account_id, id_),
        "others": await findings.list_other_places(db, account_id, id_),
        "possible": _possible(finding.status),
        "note_length": NOTE_LENGTH,
    }
    if refusal is None:
        return visit.render("finding.html", message=None, typed="", **values)
    return visit.refuse("finding.html", refusal, typed=visit.form.get("note"), **values)


def _possible(status: Status) -> list[Action]:
    """Give what a person can do to a finding in this status."""
    return [action for action in Action if transition_outcome(action, status) is TransitionOutcome.MOVES]


async def act(visit: Visit) -> Response:
    id_ = visit.id("id")
    move = next((move for move in TriageAction if move == visit.path("action")), None)
    if move is None:
        raise NotFoundError("there is nothing at this address")
    try:
        note = await read_note(visit)
        async with visit.db.transaction():
            outcomes = await findings.triage(
                visit.db, visit.keys, visit.account_id, [id_], move, note=note, by=visit.email, now=now()
            )
    except (BadInputError, BusyError) as refusal:
        return await _page(visit, refusal)
    told = {
        TriageResult.CHANGED: f"The finding is {DONE[move]}.",
        TriageResult.UNCHANGED: "Nothing changed: it already was.",
        TriageResult.REFUSED: f"A finding in this state cannot be {DONE[move]}.",
    }.get(outcomes[0][1])
    if told is None:
        raise NotFoundError("no such finding")
    return visit.go(f"/findings/{id_}", told, refused=outcomes[0][1] is TriageResult.REFUSED)


async def validate(visit: Visit) -> Response:
    id_ = visit.id("id")
    try:
        note = await read_note(visit)
        await request_validation(
            visit.db, visit.keys, visit.account_id, id_, note=note, by=visit.email, moment=now()
        )
    except BadInputError as refusal:  # raised before anything is written
        return await _page(visit, refusal)
    return visit.go(f"/findings/{id_}", "Its issuer is being asked again. Load this page anew in a moment.")


ROUTES = [
    get("/findings/{id}", show_finding),
    post("/findings/{id}/validate", validate, Permission.TRIAGE),
    post("/findings/{id}/{action}", act, Permission.TRIAGE, long=True),
]
