"""Security of a member: password, second factor, sessions, keyboard shortcuts."""

import asyncio

import segno
from markupsafe import Markup
from starlette.responses import Response

from outcrop.domain.errors import OutcropError
from outcrop.portal.request import PortalRequest, get, post
from outcrop.services import sessions, team
from outcrop.services.team import passwords, second_factor


async def show_security(request: PortalRequest) -> Response:
    return await _page(request)


async def change_password(request: PortalRequest) -> Response:
    form = request.form
    if form.raw("new") != form.raw("again"):
        return await _page(request, message="the two new passwords differ")
    try:
        await passwords.change_password(
            request.pool,
            request.signed.member,
            old=form.raw("old"),
            new=form.raw("new"),
            keep=request.signed.session_id,
            now=request.now,
        )
    except OutcropError as error:
        return await _page(request, message=error.message)
    return request.redirect(
        "/profile/security", "The password is changed. Your other sessions are signed out."
    )


async def begin_totp(request: PortalRequest) -> Response:
    try:
        new = await second_factor.begin_totp(
            request.pool,
            request.keys,
            request.signed.member,
            password=request.form.raw("password"),
            now=request.now,
        )
    except OutcropError as error:
        return await _page(request, message=error.message)
    return await _page(request, new=new)


async def confirm_totp(request: PortalRequest) -> Response:
    try:
        recovery = await second_factor.confirm_totp(
            request.db, request.keys, request.signed.member, request.form.get("code"), now=request.now
        )
    except OutcropError as error:
        pending = await second_factor.find_pending_totp(
            request.db, request.keys, request.signed.account, request.signed.member
        )
        return await _page(request, message=error.message, new=pending)
    return await _page(request, recovery=recovery)


async def renew_recovery_codes(request: PortalRequest) -> Response:
    """Replace the recovery codes and show the new ones once, in this response."""
    try:
        recovery = await second_factor.renew_recovery_codes(
            request.pool, request.signed.member, password=request.form.raw("password"), now=request.now
        )
    except OutcropError as error:
        return await _page(request, message=error.message)
    return await _page(request, recovery=recovery, renewed=True)


async def remove_totp(request: PortalRequest) -> Response:
    try:
        await second_factor.disable_totp(
            request.pool, request.signed.member, password=request.form.raw("password"), now=request.now
        )
    except OutcropError as error:
        return await _page(request, message=error.message)
    return request.redirect("/profile/security", "The second factor is off.")


async def end_session(request: PortalRequest) -> Response:
    await sessions.end_session(
        request.db,
        request.account_id,
        request.signed.member.id,
        request.id("id"),
        by=request.email,
        now=request.now,
    )
    return request.redirect("/profile/security", "The session is signed out.")


async def sign_out_everywhere(request: PortalRequest) -> Response:
    member = request.signed.member
    ended = await sessions.sign_out_everywhere(
        request.db,
        member.id,
        request.account_id,
        keep=request.signed.session_id,
        by=request.email,
        now=request.now,
    )
    return request.redirect(
        "/profile/security", f"{ended} other session{'' if ended == 1 else 's'} signed out."
    )


async def switch_keys(request: PortalRequest) -> Response:
    """Turn keyboard shortcuts of a single key on or off in this browser (WCAG 2.1.4)."""
    on = request.form.get("keys") == "on"
    response = request.redirect(
        "/profile/security", f"Keyboard shortcuts are {'on' if on else 'off'} in this browser."
    )
    request.context.cookies.set_keys(response, on=on)
    return response


def _qr_code(uri: str) -> Markup:
    """Return the QR code for an authenticator app as SVG."""
    return Markup(segno.make(uri, error="m").svg_inline(scale=4, border=2, dark="#000", light="#fff"))  # noqa: S704 - SVG made by segno


async def _page(
    request: PortalRequest,
    *,
    message: str | None = None,
    new: second_factor.TotpSetup | None = None,
    recovery: list[str] | None = None,
    renewed: bool = False,
) -> Response:
    account = request.signed.account
    return request.render(
        "security.html",
        400 if message else 200,
        sessions=await sessions.list_sessions(request.db, request.account_id, request.signed.member.id),
        totp=await second_factor.count_recovery_codes(
            request.db, request.signed.account, request.signed.member
        ),
        message=message,
        secret=new and new.secret,
        code=new and await asyncio.to_thread(_qr_code, new.uri),
        recovery=recovery,
        renewed=renewed,
        required=await team.is_second_factor_required(request.db, account),
        must_have=request.signed.lacks_second_factor and recovery is None,
    )


ROUTES = [
    get("/profile/security", show_security, None),
    post("/profile/security/password", change_password, None, long=True),
    post("/profile/security/totp", begin_totp, None, long=True),
    post("/profile/security/totp/confirm", confirm_totp, None),
    post("/profile/security/totp/recovery", renew_recovery_codes, None, long=True),
    post("/profile/security/totp/remove", remove_totp, None, long=True),
    post("/profile/security/keys", switch_keys, None),
    post("/profile/security/sessions/{id}/end", end_session, None),
    post("/profile/security/sessions/end", sign_out_everywhere, None),
]
