"""The way into every page: who is here, whether they may, and that a form was sent from one of our own pages."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outcrop.domain.account import PERMISSIONS, Permission
from outcrop.domain.errors import BusyError, ForbiddenError, NotFoundError, OutcropError, PlanError
from outcrop.domain.ids import parse_id
from outcrop.domain.secret import MaskedText
from outcrop.notes import NoteCleaner
from outcrop.portal.cookies import REFUSED, Cookies, csrf_of
from outcrop.portal.forms import Form, read_form
from outcrop.portal.render import Renderer
from outcrop.runtime import Runtime
from outcrop.services import sessions
from outcrop.services.sessions import SignedInMember
from outcrop.store.db import UNAVAILABLE, Connection, Pool, acquire_connection
from outcrop.store.keyring import Keyring

STATE = "portal"
_STATUS: dict[type[OutcropError], int] = {
    NotFoundError: 404,
    ForbiddenError: 403,
    PlanError: 403,
    BusyError: 503,
}


@dataclass(frozen=True, slots=True)
class House:
    """What every page needs that is the same for all of them."""

    base_url: str
    cookies: Cookies
    renderer: Renderer
    github_host: str
    own_rules: tuple[Path, ...]  # the operator's
    document: dict[str, Any]  # the API's description
    notes: NoteCleaner


@dataclass(frozen=True, slots=True)
class Visit:
    """One person asking for one page."""

    request: Request
    house: House
    db: Connection
    pool: Pool
    keys: Keyring
    signed: SignedInMember
    form: Form
    csrf: str = field(repr=False)
    flash: str | None = None

    @property
    def account_id(self) -> int:
        return self.signed.account.id

    @property
    def email(self) -> str:
        return self.signed.member.email

    @property
    def has_keys(self) -> bool:
        return self.house.cookies.has_keys(self.request)

    async def clean(self, text: str) -> MaskedText:
        """Give what was typed as it may be stored: without credentials."""
        return await self.house.notes.clean(self.db, self.keys, self.account_id, text)

    def may(self, permission: Permission) -> bool:
        return permission in PERMISSIONS[self.signed.member.role]

    def path(self, name: str) -> str:
        return str(self.request.path_params[name])

    def id(self, name: str) -> UUID:
        """Give an id from the address; what is no id names nothing."""
        if (found := parse_id(self.path(name))) is None:
            raise NotFoundError("there is no such thing here")
        return found

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Draw a page; what was to be told once is told with it."""
        response = self.house.renderer.page(template, status, visit=self, **values)
        if self.flash is not None:
            self.house.cookies.forget_flash(response)
        return response

    def refuse(self, template: str, refusal: OutcropError, **values: Any) -> Response:
        """Draw the page that a form was sent from, with why it was not done."""
        response = self.render(template, status_of(refusal), message=refusal.message, **values)
        response.headers.update(headers_of(refusal))
        return response

    def go(self, to: str, flash: str | None = None, *, refused: bool = False) -> Response:
        """Send the browser to another of our pages, with something to tell there."""
        response = RedirectResponse(relative(to), status_code=303)
        if flash is not None:
            self.house.cookies.set_flash(response, f"{REFUSED}{flash}" if refused else flash)
        return response


def status_of(error: OutcropError) -> int:
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)


def headers_of(error: OutcropError) -> dict[str, str]:
    return {"Retry-After": str(error.retry_after)} if isinstance(error, BusyError) else {}


Handler: TypeAlias = Callable[[Visit], Awaitable[Response]]


def get(path: str, handler: Handler, needs: Permission | None = Permission.READ) -> Route:
    return Route(path, _endpoint(handler, needs), methods=["GET"])


def post(
    path: str, handler: Handler, needs: Permission | None = Permission.READ, *, long: bool = False
) -> Route:
    """A form. It is one transaction, unless the page or the service it calls makes its own (`long`)."""
    return Route(path, _endpoint(handler, needs, own_transaction=long), methods=["POST"])


def _endpoint(
    handler: Handler, needs: Permission | None, *, own_transaction: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        house: House = getattr(request.app.state, STATE)
        runtime: Runtime = request.state.runtime
        token = house.cookies.session(request)
        form = await read_form(request) if request.method == "POST" else Form()
        async with acquire_connection(runtime.pool, lambda db: _resume(db, token)) as (db, signed):
            if signed is None or token is None:
                return to_sign_in(request, house)
            csrf = csrf_of(token)
            flash = house.cookies.flash(request)
            visit = Visit(request, house, db, runtime.pool, runtime.keys, signed, form, csrf, flash)
            request.state.visit = replace(visit, flash=None)  # an error page has the person's frame too
            if request.method == "POST":
                check_form(request, house, form, csrf)
            if needs is not None and not visit.may(needs):
                raise ForbiddenError("your role in this account does not allow this")
            if request.method == "POST" and not own_transaction:
                async with db.transaction():
                    return await handler(visit)
            return await handler(visit)

    return endpoint


async def recognise(request: Request) -> None:
    """Find out who asks for what has no page, so that they see it in their own frame; whoever it is, it is told to them."""
    house: House = getattr(request.app.state, STATE)
    if (token := house.cookies.session(request)) is None or "text/html" not in request.headers.get(
        "accept", ""
    ):
        return
    runtime: Runtime = request.state.runtime
    with suppress(*UNAVAILABLE):
        async with acquire_connection(runtime.pool, lambda db: _resume(db, token)) as (db, signed):
            if signed is not None:
                request.state.visit = Visit(
                    request, house, db, runtime.pool, runtime.keys, signed, Form(), csrf_of(token)
                )


async def _resume(db: Connection, token: str | None) -> SignedInMember | None:
    return None if token is None else await sessions.resume_session(db, token, now=now())


def to_sign_in(request: Request, house: House) -> Response:
    """Send to the sign-in page, and back after it to what can be asked for again: of a form, the page that it was sent from."""
    is_form = request.method == "POST"
    page = urlsplit(request.headers.get("referer", "") if is_form else str(request.url))
    is_ours = not is_form or page.netloc == request.headers.get("host")
    back = relative(page.path + (f"?{page.query}" if page.query else "")) if is_ours else "/"
    response = RedirectResponse(
        f"/sign-in?next={quote(back, safe='/')}" if back != "/" else "/sign-in", status_code=303
    )
    if is_form and house.cookies.session(request) is not None:
        house.cookies.set_flash(
            response, "Your session has ended, and nothing was changed. Sign in and do it once more."
        )
    return response


def check_form(request: Request, house: House, form: Form, csrf: str) -> None:
    """Refuse a form that another site made the browser send."""
    origin = request.headers.get("origin")
    if origin is None or not _own_origin(origin, request.headers.get("host", ""), house.base_url):
        raise ForbiddenError("this form was sent from another site; open the page here and try again")
    given = form.get("csrf") or request.headers.get("x-csrf", "")
    if not house.cookies.same(given, csrf):
        raise ForbiddenError("this page was open for too long, or in another session: load it again")


def _own_origin(origin: str, host: str, base_url: str) -> bool:
    """Tell whether an origin is ours. On this machine alone the service has several names; the one asked for must be the one that asks."""
    base = urlsplit(base_url)
    if origin == f"{base.scheme}://{base.netloc}":
        return True
    loopback = {"127.0.0.1", "localhost", "[::1]"}
    return base.scheme == "http" and host.rpartition(":")[0] in loopback and origin == f"http://{host}"


def relative(to: str) -> str:
    """Give an address of our own; anything that could lead elsewhere becomes the first page."""
    return (
        to
        if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() and "\\" not in to
        else "/"
    )


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
