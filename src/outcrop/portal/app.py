"""Build the portal application: its routes, security headers and error pages."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outcrop.domain.errors import (
    BadInputError,
    BusyError,
    OutcropError,
    OverdueError,
    PlanTooLowError,
    TransitionError,
    UnavailableError,
)
from outcrop.notes import NoteCleaner
from outcrop.portal import (
    finding,
    findings,
    incidents,
    numbers,
    overview,
    reference,
    scans,
    sign_in,
    suppressions,
    targets,
)
from outcrop.portal.cookies import Cookies
from outcrop.portal.labels import sentence
from outcrop.portal.profile import ROUTES as PROFILE
from outcrop.portal.render import Renderer
from outcrop.portal.request import STATE, PortalContext, PortalRequest, attach_member, headers_of, status_of
from outcrop.portal.triage import bulk, undo
from outcrop.services.access import AccessCheck
from outcrop.store.db import find_unavailability

_POLICY = "; ".join(
    [
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # a stricter policy would hide the origin of our own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
# These errors are shown on the page that sent the form; other errors have their own page.
_FORM_ERRORS = (BadInputError, BusyError, PlanTooLowError, TransitionError)
_NO_STORE = (b"cache-control", b"no-store")
_TITLES = {
    400: "Request failed",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    500: "Something went wrong",
    503: "Busy",
}


class Portal(NamedTuple):
    """The application, its routes, and the page that is sent when a request takes too long."""

    app: ASGIApp
    routes: Sequence[Route]
    overdue_page: Callable[[Scope], Response]


def create_portal(
    *,
    base_url: str,
    github_host: str,
    own_rules: Sequence[Path],
    document: Callable[[], dict[str, Any]],
    notes: NoteCleaner,
    notice: str | None = None,
    webhook_ports: frozenset[int] = frozenset(),
    access: AccessCheck | None = None,
) -> Portal:
    """Return the portal. The server puts the runtime into the request's state."""
    renderer = Renderer(notice)

    async def static(request: Request) -> Response:
        return renderer.static(request)

    routes = [
        Route("/static/{address:path}", static, methods=["GET"]),
        *sign_in.ROUTES,
        *overview.ROUTES,
        *bulk.ROUTES,
        *findings.ROUTES,
        *finding.ROUTES,
        *incidents.ROUTES,
        *undo.ROUTES,
        *suppressions.ROUTES,
        *numbers.ROUTES,
        *scans.ROUTES,
        *targets.ROUTES,
        *PROFILE,
        *reference.ROUTES,
    ]
    handlers: dict[Any, Any] = {
        OutcropError: _handle_expected_error,
        HTTPException: _handle_routing_error,
        ClientDisconnect: _handle_disconnect,
        Exception: _handle_unexpected_error,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    secure = urlsplit(base_url).scheme == "https"
    setattr(
        app.state,
        STATE,
        PortalContext(
            base_url,
            Cookies(secure=secure),
            renderer,
            github_host,
            tuple(own_rules),
            document,
            notes,
            webhook_ports,
            access,
        ),
    )

    def overdue_page(scope: Scope) -> Response:
        response = _busy_page(Request({**scope, "app": app, "state": {}}), OverdueError())
        response.raw_headers += [*_HEADERS, _NO_STORE]
        return response

    return Portal(_with_headers(app), routes, overdue_page)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Wrap the application so that every response has the security headers."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                is_cached = any(name == b"cache-control" for name, _ in headers)
                message = {**message, "headers": [*headers, *_HEADERS, *([] if is_cached else [_NO_STORE])]}
            await send(message)

        await app(scope, receive, add)

    return wrapped


async def _handle_expected_error(request: Request, exc: Exception) -> Response:
    """Show an error of the domain: on the page that sent the form, or on its own page."""
    assert isinstance(exc, OutcropError)  # noqa: S101
    portal_request: PortalRequest | None = getattr(request.state, "portal_request", None)
    if (
        portal_request is not None
        and isinstance(exc, _FORM_ERRORS)
        and _wants_html(request)
        and (page := _sent_from(request)) is not None
    ):
        return portal_request.redirect(page, sentence(exc.message), refused=True)
    return _failure(request, status_of(exc), exc.code, exc.message, headers_of(exc))


async def _handle_routing_error(request: Request, exc: Exception) -> Response:
    """Show that a path or method does not exist."""
    assert isinstance(exc, HTTPException)  # noqa: S101
    await attach_member(request)
    if exc.status_code == 405:
        allow = (exc.headers or {}).get("Allow", "")
        return _failure(request, 405, "method_not_allowed", f"this path accepts {allow}", {"Allow": allow})
    return _failure(request, 404, "not_found", "there is no such page")


async def _handle_disconnect(_request: Request, _exc: Exception) -> Response:
    """Answer a client that has gone: nobody reads it, and the log has its status."""
    return Response(status_code=499)


async def _handle_unexpected_error(request: Request, exc: Exception) -> Response:
    """Show an internal error. The middleware logs it under the request id in the response headers."""
    if find_unavailability(exc) is not None:
        return _busy_page(request, UnavailableError())
    return _failure(
        request,
        500,
        "internal_error",
        "an internal error occurred; it is logged under the X-Request-Id of this response",
    )


def _busy_page(request: Request, busy: BusyError) -> Response:
    """Return a page that says when to try again."""
    return _failure(request, status_of(busy), busy.code, busy.message, headers_of(busy))


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _sent_from(request: Request) -> str | None:
    """Return the path of the page that sent a form; None if it is not a page of the portal."""
    page = urlsplit(request.headers.get("referer", ""))
    if request.method != "POST" or page.netloc != request.headers.get("host"):
        return None
    scope = {"type": "http", "method": "GET", "path": page.path, "root_path": ""}
    is_page = any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)
    return page._replace(scheme="", netloc="", fragment="").geturl() if is_page else None


def _failure(
    request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    """Return an error as a page for browsers, or as JSON for programs."""
    if not _wants_html(request):
        return JSONResponse({"error": code, "message": message}, status, headers)
    context: PortalContext = getattr(request.app.state, STATE)
    portal_request = getattr(request.state, "portal_request", None)
    title = _TITLES.get(status, _TITLES[400])
    page = context.renderer.page(
        "failure.html", status, request=portal_request, title=title, message=sentence(message)
    )
    page.headers.update(headers or {})
    return page
