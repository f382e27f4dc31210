"""The people of an account: invited, given a role, removed."""

from starlette.responses import Response

from outcrop.domain.account import Permission, Role, manages
from outcrop.domain.errors import BadInputError
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import accounts, team


async def show_team(visit: Visit) -> Response:
    return await _page(visit)


async def invite(visit: Visit) -> Response:
    """Invite somebody; the one-time link is shown in this very answer, to be sent by whatever way people trust."""
    email = visit.form.get("email")
    try:
        token = await team.invite_member(
            visit.db, visit.signed.account, visit.signed.member, email=email, role=_role(visit), now=now()
        )
    except BadInputError as error:
        return await _page(visit, message=error.message, typed=email)
    return await _page(visit, link=f"{visit.house.base_url}/join/{token}", typed=email)


async def withdraw(visit: Visit) -> Response:
    await team.withdraw_invitation(
        visit.db, visit.signed.account, visit.signed.member, visit.id("id"), now=now()
    )
    return visit.go("/profile/team", "The invitation is withdrawn; its link no longer works.")


async def change_role(visit: Visit) -> Response:
    await team.change_role(
        visit.db, visit.signed.account, visit.signed.member, visit.id("id"), _role(visit), now=now()
    )
    return visit.go("/profile/team", "The role is changed.")


async def remove(visit: Visit) -> Response:
    await team.remove_member(visit.db, visit.signed.account, visit.signed.member, visit.id("id"), now=now())
    return visit.go("/profile/team", "The member is removed. API keys belong to the account and stay.")


async def _page(
    visit: Visit, *, link: str | None = None, message: str | None = None, typed: str = ""
) -> Response:
    return visit.render(
        "team.html",
        400 if message else 200,
        members=await accounts.list_members(visit.db, visit.signed.account),
        invitations=await team.list_invitations(visit.db, visit.account_id),
        roles=[role for role in Role if manages(visit.signed.member.role, role)],
        link=link,
        message=message,
        typed=typed,
    )


def _role(visit: Visit) -> Role:
    try:
        return Role(visit.form.get("role"))
    except ValueError:
        raise BadInputError("choose a role from the list") from None


ROUTES = [
    get("/profile/team", show_team),
    post("/profile/team/invite", invite, Permission.MEMBERS),
    post("/profile/team/invitations/{id}/withdraw", withdraw, Permission.MEMBERS),
    post("/profile/team/{id}/role", change_role, Permission.MEMBERS),
    post("/profile/team/{id}/remove", remove, Permission.MEMBERS),
]
