"""The step before credentials that are still valid are closed: closing revokes nothing."""

from collections.abc import Sequence
from uuid import UUID

from starlette.responses import Response

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Finding, TriageAction
from outcrop.domain.incident import Incident
from outcrop.domain.secret import MaskedText
from outcrop.portal.check_state import CheckState
from outcrop.portal.request import PortalRequest

_SHOWN = 10  # of the valid credentials
CLOSING = (TriageAction.RESOLVE, TriageAction.RESTRICT, TriageAction.FALSE_POSITIVE)


def read_closing_action(request: PortalRequest) -> TriageAction:
    """Return the closing action of the form; raise BadInputError for any other."""
    chosen = next((action for action in CLOSING if action == request.form.get("action")), None)
    if chosen is None:
        raise BadInputError("no such action")
    return chosen


def ask_before_closing(
    request: PortalRequest,
    action: TriageAction,
    *,
    page: str,
    subject: Finding | Incident,
    note: MaskedText | None,
    check: CheckState,
) -> Response:
    """Return the page that asks. Its form leads to the action; `page` is the address of the subject."""
    return request.render(
        "closing.html",
        action=action,
        page=page,
        subject=subject,
        places=subject.open_places if isinstance(subject, Incident) else 1,
        note=note or "",
        check=check,
    )


def ask_before_closing_several(
    request: PortalRequest,
    action: TriageAction,
    *,
    ids: Sequence[UUID],
    valid: Sequence[Finding],
    view: str,
    note: MaskedText | None,
) -> Response:
    """Return the page that asks before findings of a list are closed, some of them with a valid credential.

    `view` is the query string of the list.
    """
    return request.render(
        "closing_several.html",
        action=action,
        ids=ids,
        valid=valid,
        shown=valid[:_SHOWN],
        view=view,
        note=note or "",
    )
