"""The list of findings: filters, order, saved views, and triage of several findings at once."""

from collections import Counter
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID, uuid4

from starlette.responses import JSONResponse, Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError, NotFoundError, OutcropError
from outcrop.domain.finding import Status, TriageAction, TriageResult
from outcrop.domain.ids import parse_id
from outcrop.domain.triage.undo import UNDOABLE
from outcrop.limits import FORM_FINDINGS, VIEW_NAME_LENGTH
from outcrop.portal.labels import DONE, closing_title, sentence
from outcrop.portal.labels import action as describe_action
from outcrop.portal.list_filters import load_view, suggest_values
from outcrop.portal.queries import ALL, SUPPRESSED, ListView, same_view
from outcrop.portal.request import PortalRequest, get, post
from outcrop.portal.triage import bulk
from outcrop.portal.triage.closing import ask_before_closing_several
from outcrop.portal.triage.form import describe_outcomes, read_action, read_note
from outcrop.services import accounts, findings, views
from outcrop.services.findings import bulk_triage
from outcrop.services.pipeline.enqueue import request_validation

TABS = [
    (Status.ACTIVE, "Active"),
    (Status.STALE, "Stale"),
    (Status.RESOLVED, "Resolved"),
    (Status.CUSTOMER_RESTRICTED, "Restricted"),
    (Status.FALSE_POSITIVE, "False positives"),
    (SUPPRESSED, "Suppressed"),
    (ALL, "All"),
]


async def show_findings(request: PortalRequest) -> Response:
    view = await load_view(request, request.http.query_params)
    # While the user types, the script of the page requests the list alone.
    if request.http.headers.get("x-part") == "list":
        page = await findings.list_findings(request.db, request.account_id, view.query)
        return request.render("findings_list.html", view=view, page=page)
    return await _page(request, view)


async def _page(
    request: PortalRequest, view: ListView, error: OutcropError | None = None, typed: str = ""
) -> Response:
    """Render the list; after a rejected form with the error and the name that was typed."""
    db, account = request.db, request.signed.account
    values: dict[str, Any] = {
        "view": view,
        "page": await findings.list_findings(db, account.id, view.query),
        "tabs": TABS,
        "saved": await views.list_views(db, account),
        "known": await suggest_values(db, account.id, request.context.own_rules),
        "members": [member.email for member in await accounts.list_members(db, account)],
        "running": await bulk_triage.find_running(db, account.id),
        "typed": typed,
    }
    if error is None:
        return request.render("findings.html", message=None, **values)
    return request.reject("findings.html", error, **values)


async def triage(request: PortalRequest) -> Response:
    """Apply one action to all selected findings. A finding that refuses it does not stop the others.

    If it would close valid credentials, ask first.
    """
    action = read_action(request)
    if "all" in request.form:
        return await bulk.ask_before_all(request, action, await read_note(request))
    ids = _read_ids(request)
    note = await read_note(request)
    is_script = request.http.headers.get("x-part") is not None
    view = same_view(request.form.get("view"))
    if action.closing is not None and "confirmed" not in request.form:
        valid = await findings.list_closing_valid(request.db, request.account_id, ids, action.closing)
        if valid:
            if is_script:
                return JSONResponse({"asks": _describe_question(action, len(ids), len(valid))})
            return ask_before_closing_several(request, action, ids=ids, valid=valid, view=view, note=note)
    triage_id = uuid4()
    try:
        async with request.db.transaction():
            outcomes = await findings.triage(
                request.db,
                request.keys,
                request.account_id,
                ids,
                action,
                note=note,
                by=request.email,
                now=request.now,
                triage_id=triage_id,
            )
    except BusyError as error:
        if is_script:
            raise
        return request.redirect(f"/findings?{view}", sentence(error.message), refused=True)
    counted = Counter(outcome for _, outcome in outcomes)
    message = describe_outcomes(DONE[action], counted)
    undo = triage_id if action in UNDOABLE and counted[TriageResult.CHANGED] else None
    if is_script:
        return JSONResponse(
            {
                "message": message,
                "undo": None if undo is None else str(undo),
                "done": [str(id_) for id_, outcome in outcomes if outcome is TriageResult.CHANGED],
            }
        )
    return request.redirect(
        f"/findings?{view}", message, refused=not counted[TriageResult.CHANGED], undo=undo
    )


def _read_ids(request: PortalRequest) -> list[UUID]:
    """Return the ids of the selected findings; raise BadInputError for none or too many."""
    ids = [id_ for text in request.form.all("id") if (id_ := parse_id(text)) is not None]
    if not ids or len(ids) > FORM_FINDINGS:
        raise BadInputError(f"select 1 to {FORM_FINDINGS} findings first")
    return ids


def _describe_question(action: TriageAction, total: int, valid: int) -> dict[str, str]:
    """Return the texts of the question that the script of the list asks."""
    return {
        "title": closing_title(action, total, valid),
        "text": "Closing a finding does not revoke its credential: anybody who has a copy can go on using it."
        " Revoke it at its issuer first.",
        "proceed": f"{describe_action(action)} anyway",
    }


async def validate_selected(request: PortalRequest) -> Response:
    """Queue a check of each valid credential of the selected findings, at one place of each."""
    ids, note = _read_ids(request), await read_note(request)
    valid = await findings.list_valid(request.db, request.account_id, ids)
    places = {finding.incident_id: finding for finding in valid}
    started = 0
    async with request.db.transaction():
        for finding in places.values():
            with suppress(BadInputError, NotFoundError):  # raised before anything is written
                await request_validation(
                    *(request.db, request.keys, request.account_id, finding.id),
                    note=note,
                    by=request.email,
                    moment=request.now,
                )
                started += 1
    message = f"{started} check{'' if started == 1 else 's'} started."
    if missing := len(places) - started:
        message += f" {missing} cannot be checked: the credential is not stored."
    if request.http.headers.get("x-part") is not None:
        return JSONResponse({"message": message})
    return request.redirect("/findings?" + same_view(request.form.get("view")), message, refused=not started)


async def save_view(request: PortalRequest) -> Response:
    """Save the current view; if that fails, show the list again with the typed name and the error."""
    name, typed_view = request.form.get("name"), request.form.get("view")
    address = same_view(typed_view)
    try:
        views.check_texts(name, typed_view)
        name = (await request.clean(name))[:VIEW_NAME_LENGTH]
        await _check_view(request, address)
        async with request.db.transaction():
            await views.save_view(
                request.db,
                request.signed.account,
                name=name,
                query=address,
                by=request.email,
                now=request.now,
            )
    except BadInputError as error:
        return await _page(request, await load_view(request, dict(parse_qsl(address))), error, name)
    return request.redirect(f"/findings?{address}", "View saved.")


async def _check_view(request: PortalRequest, address: str) -> None:
    """Raise BadInputError if the filters of a view contain a credential: views are stored unencrypted."""
    typed = " ".join(value for _, value in parse_qsl(address))
    if await request.clean(typed) != typed:
        raise BadInputError(
            "the filters of this view contain a credential, which is not stored in the clear; remove it first"
        )


async def remove_view(request: PortalRequest) -> Response:
    await views.remove_view(
        request.db, request.signed.account, request.id("id"), by=request.email, now=request.now
    )
    return request.redirect("/findings", "View removed.")


ROUTES = [
    get("/findings", show_findings),
    post("/findings/triage", triage, Permission.TRIAGE, long=True),
    post("/findings/validate", validate_selected, Permission.TRIAGE, long=True),
    post("/views", save_view, long=True),
    post("/views/{id}/remove", remove_view),
]
