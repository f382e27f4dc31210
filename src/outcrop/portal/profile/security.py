"""One person's own: password, second factor, sessions, keys on the keyboard."""

import segno
from markupsafe import Markup
from starlette.responses import Response

from outcrop.domain.errors import OutcropError
from outcrop.portal.request import Visit, get, now, post
from outcrop.services import sessions, team


async def show_security(visit: Visit) -> Response:
    return await _page(visit)


async def change_password(visit: Visit) -> Response:
    form = visit.form
    if form.raw("new") != form.raw("again"):
        return await _page(visit, message="the two new passwords differ")
    try:
        await team.change_password(
            visit.pool,
            visit.keys,
            visit.signed.member,
            old=form.raw("old"),
            new=form.raw("new"),
            keep=visit.signed.session_id,
            now=now(),
        )
    except OutcropError as error:
        return await _page(visit, message=error.message)
    return visit.go("/profile/security", "The password is changed. Your other sessions are signed out.")


async def begin_totp(visit: Visit) -> Response:
    new = await team.begin_totp(visit.db, visit.keys, visit.signed.account, visit.signed.member, now=now())
    return await _page(visit, new=new)


async def confirm_totp(visit: Visit) -> Response:
    try:
        recovery = await team.confirm_totp(
            visit.db, visit.keys, visit.signed.member, visit.form.get("code"), now=now()
        )
    except OutcropError as error:
        pending = await team.find_pending_totp(
            visit.db, visit.keys, visit.signed.account, visit.signed.member
        )
        return await _page(visit, message=error.message, new=pending)
    return await _page(visit, recovery=recovery)


async def remove_totp(visit: Visit) -> Response:
    try:
        await team.disable_totp(
            visit.pool, visit.signed.member, password=visit.form.raw("password"), now=now()
        )
    except OutcropError as error:
        return await _page(visit, message=error.message)
    return visit.go("/profile/security", "The second factor is switched off.")


async def end_session(visit: Visit) -> Response:
    await sessions.end_session(
        visit.db, visit.account_id, visit.signed.member.id, visit.id("id"), by=visit.email, now=now()
    )
    return visit.go("/profile/security", "The session is signed out.")


async def sign_out_everywhere(visit: Visit) -> Response:
    member = visit.signed.member
    ended = await sessions.sign_out_everywhere(
        visit.db, member.id, visit.account_id, keep=visit.signed.session_id, by=visit.email, now=now()
    )
    return visit.go("/profile/security", f"{ended} other session{'' if ended == 1 else 's'} signed out.")


async def switch_keys(visit: Visit) -> Response:
    """Let single keys act on findings, or not, in this browser (WCAG 2.1.4)."""
    on = visit.form.get("keys") == "on"
    response = visit.go(
        "/profile/security", f"Single keys are switched {'on' if on else 'off'} in this browser."
    )
    visit.house.cookies.set_keys(response, on=on)
    return response


def _picture(uri: str) -> Markup:
    """Draw the code that an authenticator app reads."""
    return Markup(segno.make(uri, error="m").svg_inline(scale=4, border=2, dark="#000", light="#fff"))  # noqa: S704 - segno's own drawing


async def _page(
    visit: Visit,
    *,
    message: str | None = None,
    new: team.TotpSetup | None = None,
    recovery: list[str] | None = None,
) -> Response:
    return visit.render(
        "security.html",
        400 if message else 200,
        sessions=await sessions.list_sessions(visit.db, visit.account_id, visit.signed.member.id),
        totp=await team.count_recovery_codes(visit.db, visit.signed.account, visit.signed.member),
        message=message,
        secret=new and new.secret,
        code=new and _picture(new.uri),
        recovery=recovery,
    )


ROUTES = [
    get("/profile/security", show_security, None),
    post("/profile/security/password", change_password, None, long=True),
    post("/profile/security/totp", begin_totp, None),
    post("/profile/security/totp/confirm", confirm_totp, None),
    post("/profile/security/totp/remove", remove_totp, None, long=True),
    post("/profile/security/keys", switch_keys, None),
    post("/profile/security/sessions/{id}/end", end_session, None),
    post("/profile/security/sessions/end", sign_out_everywhere, None),
]
