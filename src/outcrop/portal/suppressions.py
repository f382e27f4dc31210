"""Suppression rules: the list, and a form that shows first what a rule would hide."""

from datetime import UTC, datetime

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.portal.queries import read_day
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import suppressions
from outcrop.services.suppressions import (
    SuppressionPreview,
    SuppressionScope,
    check_reason,
    checked_scope,
)

_FIELDS = ("path", "repo", "type", "reason", "expires")


async def show_rules(request: PortalRequest) -> Response:
    """Show the rules; the form is filled in from the address, as links of a finding do."""
    typed = {name: request.http.query_params.get(name, "")[:300] for name in _FIELDS}
    return await _page(request, typed=typed)


async def add_rule(request: PortalRequest) -> Response:
    """Show what the rule would hide, or add it."""
    form = request.form
    typed = {name: form.get(name) for name in _FIELDS}
    try:
        scope = await _read_scope(request)
        check_reason(form.get("reason"))
        expires_at = _read_expiry(request)
        if "add" not in form:
            preview = await suppressions.preview_rule(request.db, request.signed.account, scope)
            return await _page(request, typed=typed, preview=preview)
        rule = await suppressions.add_rule(
            request.db,
            request.signed.account,
            scope,
            reason=await request.clean(form.get("reason")),
            expires_at=expires_at,
            by=request.email,
            now=request.now,
        )
    except BadInputError as error:
        return await _page(request, typed=typed, message=error.message)
    return request.redirect(f"/suppressions#{rule.id}", "The rule is added. It also hides new findings.")


async def remove_rule(request: PortalRequest) -> Response:
    await suppressions.end_rule(
        request.db, request.signed.account, request.id("id"), by=request.email, now=request.now
    )
    return request.redirect("/suppressions", "The rule has ended. Findings that only it hid are shown again.")


async def _read_scope(request: PortalRequest) -> SuppressionScope:
    """Return the scope of the form; raise BadInputError if it cannot be used or contains a credential."""
    form = request.form
    scope = checked_scope(form.get("path"), form.get("repo"), form.get("type"))
    patterns = " ".join(filter(None, (scope.path, scope.repo)))
    if await request.clean(patterns) != patterns:
        raise BadInputError("a pattern contains a credential, which is not stored in the clear")
    return scope


def _read_expiry(request: PortalRequest) -> datetime | None:
    """Return the end of the last day of the rule; None if it has none; raise BadInputError for a bad date."""
    if not (text := request.form.get("expires")):
        return None
    problems: list[str] = []
    expires_at = read_day({"expires": text}, "expires", problems, request.zone, following=True)
    if problems or expires_at is None:
        raise BadInputError("the day on which the rule ends must be a date")
    return expires_at.astimezone(UTC)


async def _page(
    request: PortalRequest,
    *,
    typed: dict[str, str],
    preview: SuppressionPreview | None = None,
    message: str | None = None,
) -> Response:
    return request.render(
        "suppressions.html",
        400 if message else 200,
        rules=await suppressions.list_rules(request.db, request.signed.account),
        typed=typed,
        preview=preview,
        message=message,
    )


ROUTES = [
    get("/suppressions", show_rules),
    post("/suppressions", add_rule, Permission.TARGETS),
    post("/suppressions/{id}/remove", remove_rule, Permission.TARGETS),
]
