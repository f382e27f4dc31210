"""Authenticate and authorise every page request, and protect forms against other sites."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from outcrop.domain.account import PERMISSIONS, Permission
from outcrop.domain.errors import BusyError, ForbiddenError, NotFoundError, OutcropError, PlanTooLowError
from outcrop.domain.ids import parse_id
from outcrop.domain.secret import MaskedText
from outcrop.notes import NoteCleaner
from outcrop.portal.cookies import REFUSED, Cookies, csrf_of
from outcrop.portal.forms import Form, read_form
from outcrop.portal.render import Renderer
from outcrop.runtime import Runtime
from outcrop.services import sessions
from outcrop.services.access import AccessCheck
from outcrop.services.sessions import SignedInMember
from outcrop.services.shares import admit
from outcrop.store.db import UNAVAILABLE, Connection, Pool, acquire_connection, current_time
from outcrop.store.keyring import Keyring

STATE = "portal"
# What a member can do whose account requires a second factor, before it is set up.
_WITHOUT_SECOND_FACTOR = ("/profile/security", "/profile/display", "/sign-out")
_STATUS: dict[type[OutcropError], int] = {
    NotFoundError: 404,
    ForbiddenError: 403,
    PlanTooLowError: 403,
    BusyError: 503,
}


@dataclass(frozen=True, slots=True)
class PortalContext:
    """Shared by all requests of the portal."""

    base_url: str
    cookies: Cookies
    renderer: Renderer
    github_host: str
    own_rules: tuple[Path, ...]  # rule files of the operator
    document: Callable[[], dict[str, Any]]  # returns the OpenAPI document; slow the first time
    notes: NoteCleaner
    webhook_ports: frozenset[int]  # that the operator allows; empty means all
    access: AccessCheck | None = None  # None: credentials cannot be tested here


@dataclass(frozen=True, slots=True)
class PortalRequest:
    """A request of a signed-in member, with a database connection. Templates know it as `request`."""

    http: Request
    context: PortalContext
    db: Connection
    pool: Pool
    keys: Keyring
    signed: SignedInMember
    now: datetime  # by the database's clock
    form: Form
    csrf: str = field(repr=False)
    flash: str | None = None

    @property
    def account_id(self) -> int:
        """Return the id of the member's account."""
        return self.signed.account.id

    @property
    def email(self) -> str:
        """Return the member's e-mail address."""
        return self.signed.member.email

    @property
    def undo(self) -> UUID | None:
        """Return the triage that the flash message offers to undo."""
        return self.context.cookies.undo(self.http)

    @property
    def here(self) -> str:
        """Return the address of this page."""
        url = self.http.url
        return f"{url.path}?{url.query}" if url.query else url.path

    @property
    def has_keys(self) -> bool:
        """Whether keyboard shortcuts of a single key are on in this browser."""
        return self.context.cookies.has_keys(self.http)

    @property
    def theme(self) -> str | None:
        """Return the theme that was chosen in this browser; None for that of the system."""
        return self.context.cookies.theme(self.http)

    @property
    def zone(self) -> tzinfo:
        """Return the time zone of this browser, in which times are shown and day filters count."""
        return self.context.cookies.zone(self.http)

    @property
    def chosen_zone(self) -> str | None:
        """Return the time zone that was chosen in this browser; None for the browser's own."""
        return self.context.cookies.chosen_zone(self.http)

    async def clean(self, text: str) -> MaskedText:
        """Return text typed by the user with the credentials in it masked, as it may be stored."""
        return await self.context.notes.clean(self.db, self.keys, self.account_id, text)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Connection]:
        """Yield a connection for one batch of a download, in the share of the account."""
        async with self.http.state.shares.connect(self.pool, self.account_id) as db:
            yield db

    def may(self, permission: Permission) -> bool:
        """Whether the member's role has this permission."""
        return permission in PERMISSIONS[self.signed.member.role]

    def path(self, name: str) -> str:
        """Return a path parameter."""
        return str(self.http.path_params[name])

    def id(self, name: str) -> UUID:
        """Return a path parameter as a UUID; raise NotFoundError if it is not one."""
        if (id_ := parse_id(self.path(name))) is None:
            raise NotFoundError("there is no record with this id")
        return id_

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page. It shows the pending flash message, which is then deleted."""
        response = self.context.renderer.page(template, status, request=self, **values)
        if self.flash is not None:
            self.context.cookies.delete_flash(response)
        return response

    def reject(self, template: str, error: OutcropError, **values: Any) -> Response:
        """Render the page of a rejected form with the error message."""
        response = self.render(template, status_of(error), message=error.message, **values)
        response.headers.update(headers_of(error))
        return response

    def redirect(
        self, to: str, flash: str | None = None, *, refused: bool = False, undo: UUID | None = None
    ) -> Response:
        """Redirect to another page of the portal, which shows the flash message.

        Beside the message is a button that undoes the triage with the id `undo`.
        """
        response = RedirectResponse(relative(to), status_code=303)
        if flash is not None:
            self.context.cookies.set_flash(response, f"{REFUSED}{flash}" if refused else flash, undo)
        return response


def status_of(error: OutcropError) -> int:
    """Return the HTTP status of an error."""
    return next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)


def headers_of(error: OutcropError) -> dict[str, str]:
    """Return additional headers for the response to an error."""
    return {"Retry-After": str(error.retry_after)} if isinstance(error, BusyError) else {}


Handler: TypeAlias = Callable[[PortalRequest], Awaitable[Response]]


def get(path: str, handler: Handler, needs: Permission | None = Permission.READ) -> Route:
    """Return the route of a page; `needs` is the required permission, None if any member may see it."""
    return Route(path, _endpoint(handler, needs), methods=["GET"])


def post(
    path: str, handler: Handler, needs: Permission | None = Permission.READ, *, long: bool = False
) -> Route:
    """Return the route of a form. It runs in one transaction, unless the handler opens its own (`long`)."""
    return Route(path, _endpoint(handler, needs, own_transaction=long), methods=["POST"])


def _endpoint(
    handler: Handler, needs: Permission | None, *, own_transaction: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Wrap a handler: resume the session, check the form token and the permission, open the transaction."""

    async def endpoint(request: Request) -> Response:
        context: PortalContext = getattr(request.app.state, STATE)
        runtime: Runtime = request.state.runtime
        token = context.cookies.session(request)
        form = await read_form(request) if request.method == "POST" else Form()
        async with admit(
            *(runtime.pool, request.state.shares, request.state.deadline),
            lambda db: _resume(db, token),
            lambda found: None if found[0] is None else found[0].account.id,
        ) as (db, (signed, moment)):
            if signed is None or token is None:
                return to_sign_in(request, context)
            if signed.lacks_second_factor and not request.url.path.startswith(_WITHOUT_SECOND_FACTOR):
                return RedirectResponse("/profile/security", status_code=303)
            csrf = csrf_of(token)
            flash = context.cookies.flash(request)
            portal_request = PortalRequest(
                request, context, db, runtime.pool, runtime.keys, signed, moment, form, csrf, flash
            )
            request.state.portal_request = replace(
                portal_request, flash=None
            )  # for error pages, which show the menu too
            if request.method == "POST":
                check_form(request, context, form, csrf)
            if needs is not None and not portal_request.may(needs):
                raise ForbiddenError("your role in this account does not allow this")
            if request.method == "POST" and not own_transaction:
                async with db.transaction():
                    return await handler(portal_request)
            return await handler(portal_request)

    return endpoint


async def attach_member(request: Request) -> None:
    """Store the signed-in member in the request, so that the 404 and 405 pages can show the menu."""
    context: PortalContext = getattr(request.app.state, STATE)
    if (token := context.cookies.session(request)) is None or "text/html" not in request.headers.get(
        "accept", ""
    ):
        return
    runtime: Runtime = request.state.runtime
    with suppress(*UNAVAILABLE):
        async with acquire_connection(runtime.pool, lambda db: _resume(db, token)) as (db, (signed, moment)):
            if signed is not None:
                request.state.portal_request = PortalRequest(
                    request, context, db, runtime.pool, runtime.keys, signed, moment, Form(), csrf_of(token)
                )


async def _resume(db: Connection, token: str | None) -> tuple[SignedInMember | None, datetime]:
    """Return the member of a session token, None without a valid session; and the database's time."""
    moment = await current_time(db)
    return None if token is None else await sessions.resume_session(db, token, now=moment), moment


def to_sign_in(request: Request, context: PortalContext) -> Response:
    """Redirect to the sign-in page, and from there back to this page.

    A form cannot be repeated: the way back is then the page that sent it.
    """
    is_form = request.method == "POST"
    page = urlsplit(request.headers.get("referer", "") if is_form else str(request.url))
    is_ours = not is_form or page.netloc == request.headers.get("host")
    back = relative(page.path + (f"?{page.query}" if page.query else "")) if is_ours else "/"
    response = RedirectResponse(
        f"/sign-in?next={quote(back, safe='/')}" if back != "/" else "/sign-in", status_code=303
    )
    if is_form and context.cookies.session(request) is not None:
        context.cookies.set_flash(
            response, "Your session has ended, and nothing was changed. Sign in and try again."
        )
    return response


def check_form(request: Request, context: PortalContext, form: Form, csrf: str) -> None:
    """Raise ForbiddenError if a form was sent by another site or has a wrong token."""
    origin = request.headers.get("origin")
    if origin is None or not _is_own_origin(origin, request.headers.get("host", ""), context.base_url):
        raise ForbiddenError("this form was sent from another site; open the page here and try again")
    token = form.get("csrf") or request.headers.get("x-csrf", "")
    if not context.cookies.same(token, csrf):
        raise ForbiddenError("this page was open for too long or in another session; reload it")


def _is_own_origin(origin: str, host: str, base_url: str) -> bool:
    """Whether an origin is the portal's own.

    On loopback the service has several names; there the origin must equal the requested host.
    """
    base = urlsplit(base_url)
    if origin == f"{base.scheme}://{base.netloc}":
        return True
    loopback = {"127.0.0.1", "localhost", "[::1]"}
    return base.scheme == "http" and host.rpartition(":")[0] in loopback and origin == f"http://{host}"


def relative(to: str) -> str:
    """Return a path of the portal; any address that could lead to another site becomes `/`."""
    return (
        to
        if to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable() and "\\" not in to
        else "/"
    )
