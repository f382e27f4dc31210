"""Signing in and out, and the one-time links by which a person joins or sets a new password."""

import secrets

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
)
from outcrop.portal.cookies import csrf_of
from outcrop.portal.forms import Form, read_form
from outcrop.portal.request import STATE, House, Visit, check_form, now, post, relative
from outcrop.runtime import Runtime
from outcrop.services import sessions, team
from outcrop.services.sessions import SignedInMember


async def sign_in_page(request: Request) -> Response:
    house, _ = _here(request)
    if await _signed(request) is not None:
        return RedirectResponse(relative(request.query_params.get("next", "/")), status_code=303)
    return _ask(
        request,
        house,
        "sign_in.html",
        next=relative(request.query_params.get("next", "/")),
        email="",
        code=False,
    )


async def sign_in(request: Request) -> Response:
    house, runtime = _here(request)
    form = await read_form(request)
    back = relative(form.get("next") or "/")
    try:
        _check(request, house, form)
    except ForbiddenError:
        check_form(
            request, house, form, form.get("csrf")
        )  # what another site sent is refused as ever; this is our own form
        return await _ask_again(request, house, form.get("email"), back)
    try:
        token = await sessions.sign_in(
            runtime.pool,
            runtime.keys,
            email=form.get("email"),
            password=form.raw("password"),
            code=form.get("code") or None,
            address=request.client.host if request.client else "",
            agent=request.headers.get("user-agent", "")[:300],
            now=now(),
            replaces=house.cookies.session(request),
        )
    except SignInError as error:
        wants_code = isinstance(error, CodeNeededError) or "code" in form
        limited = isinstance(error, SignInLimitedError)
        page = _ask(
            request,
            house,
            "sign_in.html",
            429 if limited else 401,
            message=error.message,
            next=back,
            email=form.get("email"),
            code=wants_code,
        )
        if limited:
            page.headers["Retry-After"] = str(error.retry_after)
        return page
    response = RedirectResponse(back, status_code=303)
    house.cookies.set_session(response, token)
    return response


async def _ask_again(request: Request, house: House, email: str, back: str) -> Response:
    """Answer a sign-in form that has lost its token: another tab has signed in since, or it was open for too long."""
    signed = await _signed(request)
    if signed is not None and signed.member.email.lower() == email.lower():
        return RedirectResponse(back, status_code=303)
    message = "this page was open for too long, or another tab has signed in: sign in once more"
    return _ask(request, house, "sign_in.html", 403, message=message, next=back, email=email, code=False)


async def sign_out(visit: Visit) -> Response:
    token = visit.house.cookies.session(visit.request)
    if token is not None:
        await sessions.sign_out(visit.db, token, now=now())
    response = RedirectResponse("/sign-in", status_code=303)
    visit.house.cookies.forget_session(response)
    return response


async def join_page(request: Request) -> Response:
    house, runtime = _here(request)
    async with runtime.pool.connection() as db:
        link = await team.find_link(db, request.path_params["token"], now=now())
    if link is None:
        raise NotFoundError("this link was used already, or is too old; ask for a new one")
    return _ask(request, house, "join.html", link=link)


async def join(request: Request) -> Response:
    house, runtime = _here(request)
    form = await read_form(request)
    token = request.path_params["token"]
    _check(request, house, form)
    async with runtime.pool.connection() as db:
        link = await team.find_link(db, token, now=now())
    if link is None:
        raise NotFoundError("this link was used already, or is too old; ask for a new one")
    if form.raw("password") != form.raw("again"):
        return _ask(request, house, "join.html", 400, link=link, message="the two passwords differ")
    try:
        await team.accept_link(runtime.pool, runtime.keys, token, password=form.raw("password"), now=now())
    except BadInputError as error:
        return _ask(request, house, "join.html", 400, link=link, message=error.message)
    told = "Your password is set. Sign in with it."
    if (other := await _signed(request)) is not None:
        told = f"{other.member.email} is signed out here. {told}"
        async with runtime.pool.connection() as db, db.transaction():
            await sessions.sign_out(db, house.cookies.session(request) or "", now=now())
    response = RedirectResponse("/sign-in", status_code=303)
    house.cookies.forget_session(response)
    house.cookies.set_flash(response, told)
    return response


def _here(request: Request) -> tuple[House, Runtime]:
    return getattr(request.app.state, STATE), request.state.runtime


async def _signed(request: Request) -> SignedInMember | None:
    """Tell who is signed in at this browser."""
    house, runtime = _here(request)
    if (token := house.cookies.session(request)) is None:
        return None
    async with runtime.pool.connection() as db:
        return await sessions.resume_session(db, token, now=now())


def _check(request: Request, house: House, form: Form) -> None:
    before = house.cookies.before(request)
    check_form(request, house, form, csrf_of(before) if before else secrets.token_hex())


def _ask(
    request: Request,
    house: House,
    template: str,
    status: int = 200,
    *,
    message: str | None = None,
    **values: object,
) -> Response:
    """Show a form to a person who is not signed in, protected by a token of its own."""
    before = house.cookies.before(request) or secrets.token_urlsafe(32)
    flash = house.cookies.flash(request)
    page = house.renderer.page(template, status, csrf=csrf_of(before), message=message, flash=flash, **values)
    house.cookies.set_before(page, before)
    if flash is not None:
        house.cookies.forget_flash(page)
    return page


ROUTES = [
    Route("/sign-in", sign_in_page, methods=["GET"]),
    Route("/sign-in", sign_in, methods=["POST"]),
    post("/sign-out", sign_out, None),
    Route("/join/{token}", join_page, methods=["GET"]),
    Route("/join/{token}", join, methods=["POST"]),
]
