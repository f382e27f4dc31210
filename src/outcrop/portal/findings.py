"""The list of findings: every filter and order, a shareable address for each view, and several triaged at once."""

from collections import Counter
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from starlette.responses import JSONResponse, Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError
from outcrop.domain.finding import NOTE_LENGTH, Status, TriageAction, TriageResult, cut_note
from outcrop.domain.ids import parse_id
from outcrop.domain.secret import MaskedText
from outcrop.portal.labels import sentence
from outcrop.portal.queries import ALL, NAMES, SUPPRESSED, read_view
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import findings, views

TABS = [
    (Status.ACTIVE, "Active"),
    (Status.STALE, "Stale"),
    (Status.RESOLVED, "Resolved"),
    (Status.CUSTOMER_RESTRICTED, "Restricted"),
    (Status.FALSE_POSITIVE, "False positives"),
    (SUPPRESSED, "Suppressed"),
    (ALL, "All"),
]
_MOST = 200  # findings that one form triages
# What is told after a move.
DONE = {
    TriageAction.RESOLVE: "resolved",
    TriageAction.RESTRICT: "restricted",
    TriageAction.FALSE_POSITIVE: "marked as false positive",
    TriageAction.REOPEN: "reopened",
    TriageAction.SUPPRESS: "suppressed",
    TriageAction.UNSUPPRESS: "shown again",
}


async def show_findings(visit: Visit) -> Response:
    view = read_view(visit.request.query_params)
    page = await findings.list_findings(visit.db, visit.account_id, view.query)
    if (
        visit.request.headers.get("x-part") == "list"
    ):  # the page's script asks for the list alone while somebody types
        return visit.render("findings_list.html", view=view, page=page)
    saved = await views.list_views(visit.db, visit.signed.account)
    return visit.render("findings.html", view=view, page=page, tabs=TABS, saved=saved, message=None, typed="")


async def triage(visit: Visit) -> Response:
    """Do one thing to every finding that is marked; one that does not allow it keeps none of the others."""
    try:
        done, outcomes = await _triaged(visit)
    except BusyError as refusal:
        if visit.request.headers.get("x-part") is not None:
            raise
        return visit.go(
            "/findings?" + _same_view(visit.form.get("view")), sentence(refusal.message), refused=True
        )
    counted = Counter(outcome for _, outcome in outcomes)
    told = _told(done, counted)
    if visit.request.headers.get("x-part") is not None:
        return JSONResponse(
            {
                "message": told,
                "done": [str(id_) for id_, outcome in outcomes if outcome is TriageResult.CHANGED],
            }
        )
    return visit.go(
        "/findings?" + _same_view(visit.form.get("view")), told, refused=not counted[TriageResult.CHANGED]
    )


async def _triaged(visit: Visit) -> tuple[str, list[tuple[UUID, TriageResult]]]:
    """Give what was to be done, and what became of each."""
    move = next((move for move in TriageAction if move == visit.form.get("action")), None)
    ids = [id_ for text in visit.form.all("id") if (id_ := parse_id(text)) is not None]
    if move is None:
        raise BadInputError("no such action")
    if not ids or len(ids) > _MOST:
        raise BadInputError(f"mark 1 to {_MOST} findings first")
    note = await read_note(visit)
    async with visit.db.transaction():
        outcomes = await findings.triage(
            visit.db, visit.keys, visit.account_id, ids, move, note=note, by=visit.email, now=now()
        )
    return DONE[move], outcomes


async def read_note(visit: Visit) -> MaskedText | None:
    note = visit.form.get("note")
    if len(note) > NOTE_LENGTH:
        raise BadInputError(f"a note has at most {NOTE_LENGTH} characters")
    return cut_note(await visit.clean(note)) if note else None


def _told(what: str, outcomes: "Counter[TriageResult]") -> str:
    """Say what became of them."""
    sentences = {
        TriageResult.CHANGED: "{} " + what + ".",
        TriageResult.UNCHANGED: "{} already so.",
        TriageResult.REFUSED: "{} cannot be " + what + " from the state they are in.",
        TriageResult.MISSING: "{} no longer there.",
    }
    return " ".join(
        sentence.format(outcomes[outcome]) for outcome, sentence in sentences.items() if outcomes[outcome]
    )


def _same_view(address: str) -> str:
    return urlencode([(name, value) for name, value in parse_qsl(address.lstrip("?")) if name in NAMES])


async def save_view(visit: Visit) -> Response:
    """Save the list that is looked at; where that cannot be, show it again with the name that was typed."""
    address, name = (
        _same_view(visit.form.get("view")),
        (await visit.clean(visit.form.get("name")))[: views.NAME_LENGTH],
    )
    try:
        await _check_view(visit, address)
        async with visit.db.transaction():
            await views.save_view(
                visit.db, visit.signed.account, name=name, query=address, by=visit.email, now=now()
            )
    except BadInputError as refusal:
        view = read_view(dict(parse_qsl(address)))
        page = await findings.list_findings(visit.db, visit.account_id, view.query)
        saved = await views.list_views(visit.db, visit.signed.account)
        return visit.refuse(
            "findings.html", refusal, view=view, page=page, tabs=TABS, saved=saved, typed=name
        )
    return visit.go(f"/findings?{address}", "View saved.")


async def _check_view(visit: Visit, address: str) -> None:
    typed = " ".join(value for _, value in parse_qsl(address))
    if await visit.clean(typed) != typed:
        raise BadInputError(
            "what this view looks for holds a credential, which is kept nowhere in the open: take it out first"
        )


async def remove_view(visit: Visit) -> Response:
    await views.remove_view(visit.db, visit.signed.account, visit.id("id"), by=visit.email, now=now())
    return visit.go("/findings", "View removed.")


ROUTES = [
    get("/findings", show_findings),
    post("/findings/triage", triage, Permission.TRIAGE, long=True),
    post("/views", save_view, long=True),
    post("/views/{id}/remove", remove_view),
]
