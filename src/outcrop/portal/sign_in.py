"""Sign in, sign out, and one-time links for joining an account or setting a new password."""

import secrets
from datetime import datetime
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outcrop.domain.errors import (
    BadInputError,
    CodeNeededError,
    ForbiddenError,
    NotFoundError,
    SignInError,
    SignInLimitedError,
    TicketExpiredError,
)
from outcrop.portal.connected import run_while_connected
from outcrop.portal.cookies import csrf_of
from outcrop.portal.forms import Form, read_form
from outcrop.portal.request import STATE, PortalContext, PortalRequest, check_form, post, relative
from outcrop.runtime import Runtime
from outcrop.services import sessions, team
from outcrop.services.sessions import SignedInMember
from outcrop.store.db import current_time


async def sign_in_page(request: Request) -> Response:
    context, _ = _context(request)
    if await _signed_in_member(request) is not None:
        return RedirectResponse(relative(request.query_params.get("next", "/")), status_code=303)
    return _render_form(
        request,
        context,
        "sign_in.html",
        next=relative(request.query_params.get("next", "/")),
        email="",
    )


async def sign_in(request: Request) -> Response:
    context, runtime = _context(request)
    form = await read_form(request)
    back = relative(form.get("next") or "/")
    try:
        _check(request, context, form)
    except ForbiddenError:
        check_form(request, context, form, form.get("csrf"))  # a form of another site is still rejected
        return await _render_again(request, context, form.get("email"), back)
    try:
        token = await run_while_connected(
            request,
            sessions.sign_in(
                runtime.pool,
                runtime.keys,
                email=form.get("email"),
                password=form.raw("password"),
                code=form.get("code") or None,
                address=request.client.host if request.client else "",
                agent=request.headers.get("user-agent", "")[:300],
                now=await _database_time(runtime),
                replaces=context.cookies.session(request),
                browser=context.cookies.browser(request),
            ),
        )
    except CodeNeededError as error:
        response = RedirectResponse(_code_page(back), status_code=303)
        context.cookies.set_ticket(response, error.ticket)
        return response
    except SignInError as error:
        return _refuse(request, "sign_in.html", error, next=back, email=form.get("email"))
    return _start(request, token, form.get("email"), back)


async def code_page(request: Request) -> Response:
    """Show the form for the code, the second step of signing in."""
    context, _ = _context(request)
    back = relative(request.query_params.get("next", "/"))
    if not context.cookies.ticket(request):
        return RedirectResponse("/sign-in", status_code=303)
    return _render_form(request, context, "code.html", next=back, recovery="recovery" in request.query_params)


async def enter_code(request: Request) -> Response:
    """Check the code, and sign the member in: the password was right a moment ago."""
    context, runtime = _context(request)
    form = await read_form(request)
    _check(request, context, form)
    back = relative(form.get("next") or "/")
    try:
        token, email = await run_while_connected(
            request,
            sessions.sign_in_with_code(
                runtime.pool,
                runtime.keys,
                context.cookies.ticket(request),
                code=form.get("code"),
                address=request.client.host if request.client else "",
                agent=request.headers.get("user-agent", "")[:300],
                now=await _database_time(runtime),
                replaces=context.cookies.session(request),
                browser=context.cookies.browser(request),
            ),
        )
    except TicketExpiredError as error:
        page = _refuse(request, "sign_in.html", error, next=back, email="")
        context.cookies.delete_ticket(page)
        return page
    except SignInError as error:
        if error.code == SignInError.code:
            error = SignInError("the code is wrong: enter the one that is shown now")
        return _refuse(request, "code.html", error, next=back, recovery="recovery" in form)
    response = _start(request, token, email, back)
    context.cookies.delete_ticket(response)
    return response


def _code_page(back: str) -> str:
    """Return the address of the form for the code, which leads to the page `back`."""
    return f"/sign-in/code?next={quote(back, safe='/')}" if back != "/" else "/sign-in/code"


def _refuse(request: Request, template: str, error: SignInError, **values: object) -> Response:
    """Render a form of signing in again, with the error."""
    limited = isinstance(error, SignInLimitedError)
    context, _ = _context(request)
    page = _render_form(request, context, template, 429 if limited else 401, message=error.message, **values)
    if isinstance(error, SignInLimitedError):
        page.headers["Retry-After"] = str(error.retry_after)
    return page


def _start(request: Request, token: str, email: str, back: str) -> Response:
    """Return the redirect of a member who has just signed in, with the cookies of session and browser."""
    context, runtime = _context(request)
    response = RedirectResponse(back, status_code=303)
    context.cookies.set_session(response, token)
    browser = sessions.remember_browser(runtime.keys, context.cookies.browser(request), email)
    context.cookies.set_browser(response, browser)
    return response


async def _render_again(request: Request, context: PortalContext, email: str, back: str) -> Response:
    """Answer a sign-in form whose token expired: another tab signed in, or the page was open too long."""
    signed = await _signed_in_member(request)
    if signed is not None and signed.member.email.lower() == email.lower():
        return RedirectResponse(back, status_code=303)
    message = "this page was open for too long, or another tab has signed in; sign in again"
    return _render_form(request, context, "sign_in.html", 403, message=message, next=back, email=email)


async def sign_out(portal_request: PortalRequest) -> Response:
    token = portal_request.context.cookies.session(portal_request.http)
    if token is not None:
        await sessions.sign_out(portal_request.db, token, now=portal_request.now)
    response = RedirectResponse("/sign-in", status_code=303)
    portal_request.context.cookies.delete_session(response)
    return response


async def join_page(request: Request) -> Response:
    context, runtime = _context(request)
    async with runtime.pool.connection() as db:
        link = await team.find_link(db, request.path_params["token"], now=await current_time(db))
    if link is None:
        raise NotFoundError("this link was already used or has expired; ask for a new one")
    return _render_form(request, context, "join.html", link=link)


async def join(request: Request) -> Response:
    context, runtime = _context(request)
    form = await read_form(request)
    token = request.path_params["token"]
    _check(request, context, form)
    async with runtime.pool.connection() as db:
        link = await team.find_link(db, token, now=await current_time(db))
    if link is None:
        raise NotFoundError("this link was already used or has expired; ask for a new one")
    if form.raw("password") != form.raw("again"):
        return _render_form(request, context, "join.html", 400, link=link, message="the two passwords differ")
    try:
        now = await _database_time(runtime)
        await run_while_connected(
            request, team.accept_link(runtime.pool, token, password=form.raw("password"), now=now)
        )
    except BadInputError as error:
        return _render_form(request, context, "join.html", 400, link=link, message=error.message)
    message = "Your password is set. Sign in with it."
    if (other := await _signed_in_member(request)) is not None:
        message = f"{other.member.email} is signed out here. {message}"
        async with runtime.pool.connection() as db, db.transaction():
            await sessions.sign_out(db, context.cookies.session(request) or "", now=await current_time(db))
    response = RedirectResponse("/sign-in", status_code=303)
    context.cookies.delete_session(response)
    context.cookies.set_flash(response, message)
    return response


def _context(request: Request) -> tuple[PortalContext, Runtime]:
    """Return the portal's context and the runtime."""
    return getattr(request.app.state, STATE), request.state.runtime


async def _database_time(runtime: Runtime) -> datetime:
    """Return the time of the database's clock."""
    async with runtime.pool.connection() as db:
        return await current_time(db)


async def _signed_in_member(request: Request) -> SignedInMember | None:
    """Return the member who is signed in with this browser, or None."""
    context, runtime = _context(request)
    if (token := context.cookies.session(request)) is None:
        return None
    async with runtime.pool.connection() as db:
        return await sessions.resume_session(db, token, now=await current_time(db))


def _check(request: Request, context: PortalContext, form: Form) -> None:
    """Check the token of a form of a visitor who is not signed in."""
    before = context.cookies.before(request)
    check_form(request, context, form, csrf_of(before) if before else secrets.token_hex())


def _render_form(
    request: Request,
    context: PortalContext,
    template: str,
    status: int = 200,
    *,
    message: str | None = None,
    **values: object,
) -> Response:
    """Render a form for a visitor who is not signed in, with a form token and the flash message."""
    before = context.cookies.before(request) or secrets.token_urlsafe(32)
    flash = context.cookies.flash(request)
    page = context.renderer.page(
        template, status, csrf=csrf_of(before), message=message, flash=flash, **values
    )
    context.cookies.set_before(page, before)
    if flash is not None:
        context.cookies.delete_flash(page)
    return page


ROUTES = [
    Route("/sign-in", sign_in_page, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    Route("/sign-in/code", code_page, methods=["GET"]),
    Route("/sign-in/code", enter_code, methods=["POST"]),
    post("/sign-out", sign_out, None),
    Route("/join/{token}", join_page, methods=["GET"]),
    Route("/join/{token}", join, methods=["POST"]),
]
