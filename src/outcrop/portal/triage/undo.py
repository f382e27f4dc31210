"""Undo the last triage of the signed-in member."""

from starlette.responses import JSONResponse, Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError, BusyError
from outcrop.domain.ids import parse_id
from outcrop.limits import INCIDENT_SECONDS
from outcrop.portal.labels import sentence
from outcrop.portal.request import PortalRequest, post
from outcrop.services.findings.undo import UndoResult, undo_triage


async def undo(request: PortalRequest) -> Response:
    """Undo a triage, and return to the page that the button was on."""
    is_script = request.http.headers.get("x-part") is not None
    back = request.form.get("back") or "/findings"
    request.http.state.deadline.extend(INCIDENT_SECONDS)
    if (triage_id := parse_id(request.form.get("id"))) is None:
        raise BadInputError("there is nothing to undo")
    try:
        async with request.db.transaction():
            result = await undo_triage(
                request.db, request.account_id, triage_id, by=request.email, now=request.now
            )
    except (BadInputError, BusyError) as error:
        if is_script:
            raise
        return request.redirect(back, sentence(error.message), refused=True)
    message = _describe(result)
    if is_script:
        return JSONResponse({"message": message})
    return request.redirect(back, message, refused=not result.restored)


def _describe(result: UndoResult) -> str:
    """Return the message after an undo."""
    restored, changed = result.restored, result.changed_since
    message = f"Undone: {restored:,} finding{' is' if restored == 1 else 's are'} as before."
    return f"{message} {changed:,} changed since and stayed." if changed else message


ROUTES = [post("/undo", undo, Permission.TRIAGE, long=True)]
