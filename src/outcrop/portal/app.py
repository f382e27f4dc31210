"""Puts the pages together, and gives every answer the headers that keep a browser from running what it should not."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outcrop.domain.errors import BadInputError, BusyError, OutcropError, PlanError, TransitionError
from outcrop.notes import NoteCleaner
from outcrop.portal import finding, findings, overview, reference, scans, sign_in, targets
from outcrop.portal.cookies import Cookies
from outcrop.portal.labels import sentence
from outcrop.portal.profile import ROUTES as PROFILE
from outcrop.portal.render import Renderer
from outcrop.portal.request import STATE, House, Visit, headers_of, recognise, status_of

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
    (b"referrer-policy", b"same-origin"),  # a stricter one would hide the origin of our own forms
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]
# What is told on the page that a form was sent from; all else has a page of its own.
_REFUSALS = (BadInputError, BusyError, PlanError, TransitionError)
_NOT_KEPT = (b"cache-control", b"no-store")
_TITLES = {
    400: "That did not work",
    403: "Not allowed",
    404: "Nothing here",
    405: "That cannot be done here",
    500: "Something went wrong",
    503: "Not now",
}


class Portal(NamedTuple):
    """All pages, and what is answered in place of one that is not there in time."""

    app: ASGIApp
    timeout_page: Callable[[Scope], Response]


def create_portal(
    *,
    base_url: str,
    github_host: str,
    own_rules: Sequence[Path],
    document: dict[str, Any],
    notes: NoteCleaner,
    notice: str | None = None,
) -> Portal:
    """Make the portal; it is handed the runtime by whoever serves it."""
    renderer = Renderer(notice)

    async def static(request: Request) -> Response:
        return renderer.static(request)

    routes = [
        Route("/static/{address:path}", static, methods=["GET"]),
        *sign_in.ROUTES,
        *overview.ROUTES,
        *findings.ROUTES,
        *finding.ROUTES,
        *scans.ROUTES,
        *targets.ROUTES,
        *PROFILE,
        *reference.ROUTES,
    ]
    handlers: dict[Any, Any] = {OutcropError: _expected, HTTPException: _routing, Exception: _fault}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    secure = urlsplit(base_url).scheme == "https"
    setattr(
        app.state,
        STATE,
        House(base_url, Cookies(secure=secure), renderer, github_host, tuple(own_rules), document, notes),
    )

    def timeout_page(scope: Scope) -> Response:
        request = Request({**scope, "app": app, "state": {}})
        said = "this took too long and was stopped; it was logged under this answer's X-Request-Id"
        response = _failure(request, 500, "internal_error", said)
        response.raw_headers += [*_HEADERS, _NOT_KEPT]
        return response

    return Portal(_with_headers(app), timeout_page)


def _with_headers(app: ASGIApp) -> ASGIApp:
    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                kept = any(name == b"cache-control" for name, _ in headers)
                message = {**message, "headers": [*headers, *_HEADERS, *([] if kept else [_NOT_KEPT])]}
            await send(message)

        await app(scope, receive, add)

    return wrapped


async def _expected(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, OutcropError)  # noqa: S101
    visit: Visit | None = getattr(request.state, "visit", None)
    if (
        visit is not None
        and isinstance(exc, _REFUSALS)
        and _is_for_a_person(request)
        and (page := _sent_from(request)) is not None
    ):
        return visit.go(page, sentence(exc.message), refused=True)
    return _failure(request, status_of(exc), exc.code, exc.message, headers_of(exc))


async def _routing(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)  # noqa: S101
    await recognise(request)
    if exc.status_code == 405:
        allow = (exc.headers or {}).get("Allow", "")
        return _failure(request, 405, "method_not_allowed", f"this address takes {allow}", {"Allow": allow})
    return _failure(request, 404, "not_found", "there is nothing at this address")


async def _fault(request: Request, _: Exception) -> Response:
    """Anything nobody expected; the gate logs it under the request's id, which the answer's headers name."""
    return _failure(
        request,
        500,
        "internal_error",
        "something went wrong here; it was logged under this answer's X-Request-Id",
    )


def _is_for_a_person(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _sent_from(request: Request) -> str | None:
    """Give the page that a form was sent from, where that is one of ours and can be asked for again."""
    page = urlsplit(request.headers.get("referer", ""))
    if request.method != "POST" or page.netloc != request.headers.get("host"):
        return None
    asked = {"type": "http", "method": "GET", "path": page.path, "root_path": ""}
    is_page = any(route.matches(asked)[0] is Match.FULL for route in request.app.routes)
    return page._replace(scheme="", netloc="", fragment="").geturl() if is_page else None


def _failure(
    request: Request, status: int, code: str, message: str, headers: dict[str, str] | None = None
) -> Response:
    """Tell a person on a page, and a program in JSON."""
    if not _is_for_a_person(request):
        return JSONResponse({"error": code, "message": message}, status, headers)
    house: House = getattr(request.app.state, STATE)
    visit = getattr(request.state, "visit", None)
    title = _TITLES.get(status, _TITLES[400])
    page = house.renderer.page("failure.html", status, visit=visit, title=title, message=sentence(message))
    page.headers.update(headers or {})
    return page
