"""Assignment rules: the list, and a form that shows first what a rule matches today."""

from starlette.responses import Response

from outcrop.domain.account import Permission
from outcrop.domain.errors import BadInputError
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import accounts
from outcrop.services.findings import assignment_rules
from outcrop.services.findings.assignment_rules import AssignmentPreview, AssignmentScope, checked_scope

_FIELDS = ("repo", "path", "author", "assignee")


async def show_rules(request: PortalRequest) -> Response:
    return await _page(request, typed=dict.fromkeys(_FIELDS, ""))


async def add_rule(request: PortalRequest) -> Response:
    """Show the incidents that the rule matches today, or add it."""
    form, account = request.form, request.signed.account
    typed = {name: form.get(name) for name in _FIELDS}
    try:
        scope = await _read_scope(request)
        assignee = await assignment_rules.find_assignee(request.db, account, form.get("assignee"))
        if "add" not in form:
            preview = await assignment_rules.preview_rule(request.db, account, scope)
            return await _page(request, typed=typed, preview=preview)
        rule = await assignment_rules.add_rule(
            request.db, account, scope, assignee=assignee, by=request.email, now=request.now
        )
    except BadInputError as error:
        return await _page(request, typed=typed, message=error.message)
    return request.redirect(f"/assignment-rules#{rule.id}", "The rule is added. It assigns new incidents.")


async def remove_rule(request: PortalRequest) -> Response:
    await assignment_rules.remove_rule(
        request.db, request.signed.account, request.id("id"), by=request.email, now=request.now
    )
    return request.redirect("/assignment-rules", "The rule is removed. What it has assigned stays assigned.")


async def _read_scope(request: PortalRequest) -> AssignmentScope:
    """Return the scope of the form; raise BadInputError if it cannot be used or contains a credential."""
    form = request.form
    scope = checked_scope(form.get("repo"), form.get("path"), form.get("author"))
    patterns = " ".join(filter(None, (scope.repo, scope.path, scope.author)))
    if await request.clean(patterns) != patterns:
        raise BadInputError("a pattern contains a credential, which is not stored in the clear")
    return scope


async def _page(
    request: PortalRequest,
    *,
    typed: dict[str, str],
    preview: AssignmentPreview | None = None,
    message: str | None = None,
) -> Response:
    account = request.signed.account
    return request.render(
        "assignment_rules.html",
        400 if message else 200,
        rules=await assignment_rules.list_rules(request.db, account),
        members=[member.email for member in await accounts.list_members(request.db, account)],
        typed=typed,
        preview=preview,
        message=message,
    )


ROUTES = [
    get("/assignment-rules", show_rules),
    post("/assignment-rules", add_rule, Permission.TARGETS),
    post("/assignment-rules/{id}/remove", remove_rule, Permission.TARGETS),
]
