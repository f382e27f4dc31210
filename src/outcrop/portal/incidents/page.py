"""The page of one incident: its places, owner, comments, activity, and triage of all places at once."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError, NotFoundError, OutcropError
from outcrop.domain.finding import Finding, TriageAction, TriageResult
from outcrop.domain.incident import Incident, IncidentStatus
from outcrop.domain.triage.undo import UNDOABLE
from outcrop.limits import COMMENT_LENGTH, INCIDENT_SECONDS, NOTE_LENGTH
from outcrop.portal.check_state import describe_check
from outcrop.portal.labels import DONE
from outcrop.portal.queries import whole_number
from outcrop.portal.request import PortalRequest, get, post
from outcrop.portal.triage.closing import ask_before_closing, read_closing_action
from outcrop.portal.triage.form import describe_outcomes, read_note
from outcrop.services import accounts
from outcrop.services.findings import incidents
from outcrop.services.findings.mentions import see_comments
from outcrop.services.pipeline.enqueue import request_validation

COMMENTS = 50  # on one page


async def show_incident(request: PortalRequest) -> Response:
    return await _page(request)


async def _page(
    request: PortalRequest, error: OutcropError | None = None, *, note: str = "", comment: str = ""
) -> Response:
    """Render the incident; after a rejected form with the error and what was typed."""
    db, account_id, id_ = request.db, request.account_id, request.id("id")
    incident = await incidents.get_incident(db, account_id, id_)
    activity = await incidents.list_activity(db, account_id, id_)
    here, check = f"/incidents/{id_}", describe_check(incident, activity, request.now)
    if request.http.headers.get("x-part") == "list":  # the script waits for the end of a check
        return request.render("check.html", subject=incident, check=check, here=here)
    page, comments_page = (_number(request, name) for name in ("page", "comments"))
    places = await incidents.get_places(db, account_id, id_, page=page)
    comments = await incidents.list_comments(db, account_id, id_, page=comments_page, per_page=COMMENTS)
    member_id = request.signed.member.id
    values: dict[str, Any] = {
        "mentioning": await see_comments(db, account_id, member_id, comments.items, now=request.now),
        "incident": incident,
        "subject": incident,
        "here": here,
        "overdue": incident.is_overdue(request.now),
        "places": places,
        "number": page,
        "pages": -(-incident.places // incidents.PLACES),
        "check": check,
        "comments": comments,
        "activity": activity,
        "members": [member.email for member in await accounts.list_members(db, request.signed.account)],
        "possible": _possible_actions(incident, places.places),
        "note_length": NOTE_LENGTH,
        "comment_length": COMMENT_LENGTH,
        "typed": {"note": note, "comment": comment},
    }
    if error is None:
        return request.render("incident.html", message=None, **values)
    return request.reject("incident.html", error, **values)


def _number(request: PortalRequest, name: str) -> int:
    """Return the number of a page in the address; 1 if it is none."""
    return whole_number(request.http.query_params.get(name, "")) or 1


def _possible_actions(incident: Incident, places: Sequence[Finding]) -> list[TriageAction]:
    """Return the actions that the page offers for all places; `places` are those that it lists."""
    if incident.status is IncidentStatus.CLOSED:
        possible = [TriageAction.REOPEN]
    else:
        possible = [TriageAction.RESOLVE, TriageAction.RESTRICT, TriageAction.FALSE_POSITIVE]
    suppressed = sum(place.suppressed_at is not None for place in places)
    is_open, has_more = incident.status is IncidentStatus.OPEN, len(places) < incident.places
    if is_open and (suppressed < len(places) or has_more):
        possible.append(TriageAction.SUPPRESS)
    if suppressed or has_more:
        possible.append(TriageAction.UNSUPPRESS)
    return possible


async def _checked_place(request: PortalRequest, id_: Any) -> Finding:
    """Return the first place, whose credential a fresh check uses."""
    places = (await incidents.get_places(request.db, request.account_id, id_, page=1)).places
    if not places:
        raise NotFoundError("no such incident")
    return places[0]


async def ask(request: PortalRequest) -> Response:
    """Show the step between the page and the closing of an incident whose credential is valid."""
    id_ = request.id("id")
    incident = await incidents.get_incident(request.db, request.account_id, id_)
    action = read_closing_action(request)
    try:
        note = await read_note(request)
    except BadInputError as error:
        return await _page(request, error, note=request.form.get("note"))
    check = describe_check(incident, [], request.now)
    return ask_before_closing(
        request, action, page=f"/incidents/{id_}", subject=incident, note=note, check=check
    )


async def act(request: PortalRequest) -> Response:
    """Apply a triage action to all places. A place that refuses it does not stop the others."""
    id_ = request.id("id")
    action = next((action for action in TriageAction if action == request.path("action")), None)
    if action is None:
        raise NotFoundError("there is no such action")
    request.http.state.deadline.extend(INCIDENT_SECONDS)
    triage_id = uuid4()
    try:
        note = await read_note(request)
        async with request.db.transaction():
            done = await incidents.triage_incident(
                request.db,
                request.keys,
                request.account_id,
                id_,
                action,
                note=note,
                by=request.email,
                now=request.now,
                triage_id=triage_id,
            )
    except (BadInputError, BusyError) as error:
        return await _page(request, error, note=request.form.get("note"))
    message = "Places: " + describe_outcomes(DONE[action], done.results)
    changed = done.results[TriageResult.CHANGED]
    undo = triage_id if action in UNDOABLE and changed else None
    return request.redirect(f"/incidents/{id_}", message, refused=not changed, undo=undo)


async def validate(request: PortalRequest) -> Response:
    """Queue a validation of the credential, at one of its places."""
    id_ = request.id("id")
    try:
        note = await read_note(request)
        place = await _checked_place(request, id_)
        async with request.db.transaction():
            await request_validation(
                request.db,
                request.keys,
                request.account_id,
                place.id,
                note=note,
                by=request.email,
                moment=request.now,
            )
    except BadInputError as error:
        return await _page(request, error, note=request.form.get("note"))
    return request.redirect(f"/incidents/{id_}", "The check has started.")


async def assign(request: PortalRequest) -> Response:
    """Assign the incident to the chosen member, or to nobody."""
    id_, address = request.id("id"), request.form.get("assignee")
    await incidents.get_incident(request.db, request.account_id, id_)
    assignee = await incidents.find_assignee(request.db, request.account_id, address) if address else None
    if address and assignee is None:
        return await _page(request, BadInputError("the assignee must be a member of the account"))
    try:
        async with request.db.transaction():
            await incidents.assign_incident(
                request.db, request.account_id, id_, assignee, by=request.email, now=request.now
            )
    except BusyError as error:
        return await _page(request, error)
    return request.redirect(
        f"/incidents/{id_}", f"Assigned to {assignee}." if assignee else "Assigned to nobody."
    )


async def comment(request: PortalRequest) -> Response:
    """Append a comment, in which credentials are masked."""
    id_, text = request.id("id"), request.form.get("text").replace("\r\n", "\n")
    await incidents.get_incident(request.db, request.account_id, id_)
    if not 1 <= len(text) <= COMMENT_LENGTH:
        error = BadInputError(f"a comment must have 1 to {COMMENT_LENGTH:,} characters")
        return await _page(request, error, comment=text[:COMMENT_LENGTH])
    try:
        cleaned = await request.clean(text)
        async with request.db.transaction():
            added = await incidents.add_comment(
                request.db,
                request.keys,
                request.account_id,
                id_,
                cleaned,
                comment_id=uuid4(),
                by=request.email,
                now=request.now,
            )
    except (BadInputError, BusyError) as error:
        return await _page(request, error, comment=text[:COMMENT_LENGTH])
    message = "The comment is added."
    if added.mentions:
        message += f" It mentions {', '.join(added.mentions)}."
    return request.redirect(f"/incidents/{id_}", message)


ROUTES = [
    get("/incidents/{id}", show_incident),
    post("/incidents/{id}/close", ask, Permission.TRIAGE, long=True),
    post("/incidents/{id}/validate", validate, Permission.TRIAGE, long=True),
    post("/incidents/{id}/assign", assign, Permission.TRIAGE, long=True),
    post("/incidents/{id}/comments", comment, Permission.TRIAGE, long=True),
    post("/incidents/{id}/{action}", act, Permission.TRIAGE, long=True),
]
