"""The page of one finding: place, verdict, score with reasons, history, advice and triage actions."""

from typing import Any
from uuid import uuid4

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError, NotFoundError, OutcropError
from outcrop.domain.finding import (
    Action,
    Status,
    TransitionOutcome,
    TriageAction,
    TriageResult,
    transition_outcome,
)
from outcrop.domain.triage.undo import UNDOABLE
from outcrop.limits import NOTE_LENGTH
from outcrop.portal.check_state import describe_check
from outcrop.portal.labels import DONE
from outcrop.portal.request import PortalRequest, get, post
from outcrop.portal.triage.closing import ask_before_closing, read_closing_action
from outcrop.portal.triage.form import read_note
from outcrop.services import findings
from outcrop.services.pipeline.enqueue import request_validation


async def show_finding(request: PortalRequest) -> Response:
    return await _page(request)


async def _page(request: PortalRequest, error: OutcropError | None = None) -> Response:
    """Render the finding; after a rejected form with the error and the typed note."""
    db, account_id, id_ = request.db, request.account_id, request.id("id")
    explained = await findings.explain_finding(db, account_id, id_)
    finding = explained.finding
    history = await findings.list_history(db, account_id, id_)
    check = describe_check(finding, history, request.now)
    if request.http.headers.get("x-part") == "list":  # the script waits for the end of a check
        return request.render("check.html", subject=finding, check=check, here=f"/findings/{id_}")
    values: dict[str, Any] = {
        "finding": finding,
        "subject": finding,
        "here": f"/findings/{id_}",
        "reasons": explained.score,
        "detection": explained.detection,
        "advice": await findings.get_advice(db, account_id, finding, request.context.own_rules),
        "excerpt": await findings.get_excerpt(db, request.keys, account_id, id_),
        "history": history,
        "check": check,
        "others": await findings.list_other_places(db, account_id, id_),
        "possible": _allowed_actions(finding.status),
        "note_length": NOTE_LENGTH,
    }
    if error is None:
        return request.render("finding.html", message=None, typed="", **values)
    return request.reject("finding.html", error, typed=request.form.get("note"), **values)


def _allowed_actions(status: Status) -> list[Action]:
    """Return the closing actions that a finding in this status allows."""
    return [action for action in Action if transition_outcome(action, status) is TransitionOutcome.MOVES]


async def act(request: PortalRequest) -> Response:
    """Apply a triage action to the finding."""
    id_ = request.id("id")
    action = next((action for action in TriageAction if action == request.path("action")), None)
    if action is None:
        raise NotFoundError("there is no such action")
    triage_id = uuid4()
    try:
        note = await read_note(request)
        async with request.db.transaction():
            outcomes = await findings.triage(
                request.db,
                request.keys,
                request.account_id,
                [id_],
                action,
                note=note,
                by=request.email,
                now=request.now,
                triage_id=triage_id,
            )
    except (BadInputError, BusyError) as error:
        return await _page(request, error)
    message = {
        TriageResult.CHANGED: f"The finding is {DONE[action]}.",
        TriageResult.UNCHANGED: "Nothing changed: the finding is in this state already.",
        TriageResult.REFUSED: f"A finding in this state cannot be {DONE[action]}.",
    }.get(outcomes[0][1])
    if message is None:
        raise NotFoundError("no such finding")
    result = outcomes[0][1]
    undo = triage_id if action in UNDOABLE and result is TriageResult.CHANGED else None
    return request.redirect(f"/findings/{id_}", message, refused=result is TriageResult.REFUSED, undo=undo)


async def ask(request: PortalRequest) -> Response:
    """Show the step between the page and the closing of a finding whose credential is valid."""
    id_ = request.id("id")
    finding = (await findings.explain_finding(request.db, request.account_id, id_)).finding
    action = read_closing_action(request)
    try:
        note = await read_note(request)
    except BadInputError as error:
        return await _page(request, error)
    history = await findings.list_history(request.db, request.account_id, id_)
    check = describe_check(finding, history, request.now)
    return ask_before_closing(
        request, action, page=f"/findings/{id_}", subject=finding, note=note, check=check
    )


async def validate(request: PortalRequest) -> Response:
    """Queue a validation of the finding's credential."""
    id_ = request.id("id")
    try:
        note = await read_note(request)
        await request_validation(
            request.db, request.keys, request.account_id, id_, note=note, by=request.email, moment=request.now
        )
    except BadInputError as error:  # raised before anything is written
        return await _page(request, error)
    return request.redirect(f"/findings/{id_}", "The check has started.")


ROUTES = [
    get("/findings/{id}", show_finding),
    post("/findings/{id}/close", ask, Permission.TRIAGE, long=True),
    post("/findings/{id}/validate", validate, Permission.TRIAGE),
    post("/findings/{id}/{action}", act, Permission.TRIAGE, long=True),
]
