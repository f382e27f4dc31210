"""Members of an account: invite, change role, remove."""

from starlette.responses import Response

from outcrop.domain.account import Permission, Role, manages
from outcrop.domain.errors import BadInputError
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import accounts, team


async def show_team(request: PortalRequest) -> Response:
    return await _page(request)


async def invite(request: PortalRequest) -> Response:
    """Create an invitation and show its one-time link in this response."""
    email = request.form.get("email")
    try:
        token = await team.invite_member(
            request.db,
            request.signed.account,
            request.signed.member,
            email=email,
            role=_role(request),
            now=request.now,
        )
    except BadInputError as error:
        return await _page(request, message=error.message, typed=email)
    return await _page(request, link=f"{request.context.base_url}/join/{token}", typed=email)


async def withdraw(request: PortalRequest) -> Response:
    await team.withdraw_invitation(
        request.db, request.signed.account, request.signed.member, request.id("id"), now=request.now
    )
    return request.redirect("/profile/team", "The invitation is withdrawn; its link no longer works.")


async def change_role(request: PortalRequest) -> Response:
    await team.change_role(
        request.db,
        request.signed.account,
        request.signed.member,
        request.id("id"),
        _role(request),
        now=request.now,
    )
    return request.redirect("/profile/team", "The role is changed.")


async def require_second_factor(request: PortalRequest) -> Response:
    """Require a second factor of every member, or no longer."""
    chosen = request.form.get("required")
    if chosen not in {"yes", "no"}:
        raise BadInputError("choose whether every member needs a second factor")
    required = chosen == "yes"
    await team.require_second_factor(
        request.db, request.signed.account, request.signed.member, required=required, now=request.now
    )
    message = "Every member needs a second factor now." if required else "A second factor is optional now."
    return request.redirect("/profile/team", message)


async def remove(request: PortalRequest) -> Response:
    await team.remove_member(
        request.db, request.signed.account, request.signed.member, request.id("id"), now=request.now
    )
    return request.redirect(
        "/profile/team", "The member is removed. API keys belong to the account and stay."
    )


async def _page(
    request: PortalRequest, *, link: str | None = None, message: str | None = None, typed: str = ""
) -> Response:
    return request.render(
        "team.html",
        400 if message else 200,
        members=await accounts.list_members(request.db, request.signed.account),
        invitations=await team.list_invitations(request.db, request.account_id),
        has_factor=await team.list_second_factors(request.db, request.signed.account),
        required=await team.is_second_factor_required(request.db, request.signed.account),
        roles=[role for role in Role if manages(request.signed.member.role, role)],
        link=link,
        message=message,
        typed=typed,
    )


def _role(request: PortalRequest) -> Role:
    try:
        return Role(request.form.get("role"))
    except ValueError:
        raise BadInputError("choose a role from the list") from None


ROUTES = [
    get("/profile/team", show_team),
    post("/profile/team/invite", invite, Permission.MEMBERS),
    post("/profile/team/invitations/{id}/withdraw", withdraw, Permission.MEMBERS),
    post("/profile/team/second-factor", require_second_factor, Permission.OWNERS),
    post("/profile/team/{id}/role", change_role, Permission.MEMBERS),
    post("/profile/team/{id}/remove", remove, Permission.MEMBERS),
]
