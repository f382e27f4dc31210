"""One action on all findings of a view: the question before it, its progress, and stopping it."""

from urllib.parse import parse_qsl

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import TriageAction
from outcrop.domain.secret import MaskedText
from outcrop.limits import BULK_FINDINGS, FORM_FINDINGS
from outcrop.portal.list_filters import load_view, name_targets
from outcrop.portal.queries import ListView, same_view, whole_number
from outcrop.portal.request import PortalRequest, get, post
from outcrop.portal.triage.form import read_action, read_note
from outcrop.services.findings import bulk_triage

_SHOWN = 5  # of the valid findings


async def _read_view(request: PortalRequest) -> tuple[str, ListView]:
    """Return the query string of the form's view, and the view."""
    address = same_view(request.form.get("view"))
    view = await load_view(request, dict(parse_qsl(address)))
    if view.problems:
        raise BadInputError("a filter of this view is invalid; remove it first")
    return address, view


async def ask_before_all(request: PortalRequest, action: TriageAction, note: MaskedText | None) -> Response:
    """Return the page that asks before all findings of a view are changed."""
    address, view = await _read_view(request)
    total, valid = await bulk_triage.count_matching(request.db, request.account_id, view.query)
    if not total:
        raise BadInputError("no finding matches any more")
    if total > BULK_FINDINGS:
        raise BadInputError(
            f"{total:,} findings match; at most {BULK_FINDINGS:,} can be changed at once: use more filters"
        )
    closes = action.closing is not None
    listed = []  # so many that one form can ask for a fresh check
    if closes and valid:
        listed = await bulk_triage.list_matching_valid(
            request.db, request.account_id, view.query, FORM_FINDINGS
        )
    return request.render(
        "bulk_question.html",
        action=action,
        total=total,
        valid=valid if closes else 0,
        listed=listed,
        shown=listed[:_SHOWN],
        address=address,
        view=view,
        targets=await name_targets(request.db, request.account_id),
        note=note or "",
    )


async def start(request: PortalRequest) -> Response:
    """Start the job, and lead to its progress."""
    action, note = read_action(request), await read_note(request)
    _, view = await _read_view(request)
    ids = await bulk_triage.select_matching(
        request.db, request.account_id, view.query, expected=whole_number(request.form.get("total")) or 0
    )
    async with request.db.transaction():
        bulk = await bulk_triage.start_bulk(
            request.db, request.account_id, ids, action, note=note, by=request.email, now=request.now
        )
    return request.redirect(f"/findings/bulk/{bulk.id}")


async def show_progress(request: PortalRequest) -> Response:
    bulk = await bulk_triage.get_bulk(request.db, request.account_id, request.id("id"))
    is_part = request.http.headers.get("x-part") == "list"
    return request.render("bulk_progress.html" if is_part else "bulk.html", bulk=bulk)


async def stop(request: PortalRequest) -> Response:
    """Stop the job."""
    id_ = request.id("id")
    await bulk_triage.stop_bulk(request.db, request.account_id, id_, by=request.email, now=request.now)
    return request.redirect(f"/findings/bulk/{id_}", "Stopped. What was changed before stays changed.")


ROUTES = [
    post("/findings/bulk", start, Permission.TRIAGE, long=True),
    get("/findings/bulk/{id}", show_progress),
    post("/findings/bulk/{id}/stop", stop, Permission.TRIAGE),
]
