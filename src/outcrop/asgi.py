"""Build the ASGI application from the API and the portal."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from outcrop.api import findings, hooks, incidents, scans
from outcrop.api.describe import describe
from outcrop.api.errors import HANDLERS
from outcrop.api.middleware import RequestMiddleware
from outcrop.api.request_spans import TraceMiddleware
from outcrop.api.route_names import RouteNames
from outcrop.api.shapes import json_response
from outcrop.api.v2 import bulk as v2_bulk
from outcrop.api.v2 import imports as v2_imports
from outcrop.api.v2.errors import V2_HANDLERS
from outcrop.domain.errors import OutcropError
from outcrop.lazy_logger import get_logger
from outcrop.limits import MEGA, REQUEST_SECONDS, UPLOAD_LATE_SECONDS, UPLOADS
from outcrop.notes import NoteCleaner
from outcrop.portal.app import create_portal
from outcrop.runtime import Runtime
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services.access import AccessCheck
from outcrop.services.exchange.upload import UploadLanes
from outcrop.services.readiness import MIN_FREE_BYTES, Readiness, ReadinessCheck
from outcrop.services.shares import AccountShares
from outcrop.sources.workspace import cache_folder
from outcrop.tracing import is_tracing

PREFIX, PREFIX_V2 = "/api/v1", "/api/v2"
_V1 = (findings.router, incidents.router, scans.router)
_V2 = (v2_imports.router, v2_bulk.router)

log = get_logger()


class Uploads(NamedTuple):
    """The lanes of uploads, and the limits of each."""

    lanes: UploadLanes
    max_bytes: int
    max_late: float  # seconds


class AppState(TypedDict):
    """State of the Starlette application."""

    runtime: Runtime
    readiness: ReadinessCheck
    shares: AccountShares
    uploads: Uploads
    held_bodies: hooks.HeldBodies


def create_app(
    runtime: AbstractAsyncContextManager[Runtime],
    *,
    base_url: str,
    rate_limit: int | None = None,
    cors_origins: Sequence[str] = (),
    github_host: str = "github.com",
    own_rules: Sequence[Path] = (),
    notice: str | None = None,
    min_free_bytes: int = MIN_FREE_BYTES,
    deadline: float = REQUEST_SECONDS,
    webhook_ports: frozenset[int] = frozenset(),
    import_max_bytes: int = 256 * MEGA,
    upload_late_seconds: float = UPLOAD_LATE_SECONDS,
    access: AccessCheck | None = None,
) -> ASGIApp:
    """Return the application. The runtime is opened when the server starts and closed when it stops.

    A request without a response after `deadline` seconds is answered with 500.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[AppState]:
        async with AsyncExitStack() as stack:
            try:
                opened = await stack.enter_async_context(runtime)
            except OutcropError as error:
                log.error("not_started", reason=error.message)  # noqa: TRY400 - an expected failure
                raise
            lanes = UploadLanes(UPLOADS)
            stack.callback(lanes.close)
            yield {
                "runtime": opened,
                "readiness": ReadinessCheck(opened.pool, min_free_bytes),
                "shares": AccountShares(),
                "uploads": Uploads(lanes, import_max_bytes, upload_late_seconds),
                "held_bodies": hooks.HeldBodies(),
            }

    notes = NoteCleaner(partial(load_ruleset, own_rules, cache=cache_folder()))
    routes = [
        Route("/openapi.json", _respond_with(partial(_describe, "v1", base_url))),
        Route("/api/v2/openapi.json", _respond_with(partial(_describe, "v2", base_url))),
        Route("/healthz", _healthz),
        Route("/readyz", _readyz),
        *_routes(PREFIX, _V1),
        *_routes(PREFIX_V2, _V2),
        hooks.ROUTE,
    ]
    handlers = HANDLERS | V2_HANDLERS | hooks.HANDLERS
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    portal = create_portal(
        base_url=base_url,
        github_host=github_host,
        own_rules=own_rules,
        document=partial(_describe, "v1", base_url),
        notes=notes,
        notice=notice,
        webhook_ports=webhook_ports,
        access=access,
    )

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        await (portal.app if scope["type"] == "http" and not _is_api_path(scope["path"]) else app)(
            scope, receive, send
        )

    def overdue_page(scope: Scope) -> Response | None:
        return None if _is_api_path(scope["path"]) else portal.overdue_page(scope)

    name_route = RouteNames([*routes, *portal.routes]).find
    handled = RequestMiddleware(
        dispatch,
        notes=notes,
        base_url=base_url,
        rate_limit=rate_limit,
        cors_origins=cors_origins,
        overdue_page=overdue_page,
        name_route=name_route,
        deadline=deadline,
    )
    return TraceMiddleware(handled, name_route) if is_tracing() else handled


def _is_api_path(path: str) -> bool:
    """Whether the API or a push hook serves this path; the portal serves all others."""
    return path in {"/openapi.json", "/healthz", "/readyz", "/api"} or path.startswith(("/api/", "/hooks/"))


def api_router() -> APIRouter:
    """Return all routes of version 1, for the description in `/openapi.json`."""
    return _join(PREFIX, _V1)


def api_v2_router() -> APIRouter:
    """Return all routes of version 2, for the description in `/api/v2/openapi.json`."""
    return _join(PREFIX_V2, _V2)


def _join(prefix: str, routers: Sequence[APIRouter]) -> APIRouter:
    """Return one router with the routes of all."""
    joined = APIRouter(prefix=prefix)
    for router in routers:
        joined.include_router(router)
    return joined


def _routes(prefix: str, routers: Sequence[APIRouter]) -> list[Route]:
    """Return the API routes as plain Starlette routes.

    The functions parse their parameters themselves, and FastAPI's dispatch takes a sixth of a request's
    time.
    """
    described = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return [
        Route(prefix + route.path, route.endpoint, methods=list(route.methods or ())) for route in described
    ]


@cache
def _describe(version: str, base_url: str) -> dict[str, Any]:
    """Return the description of a version of the API.

    The first time takes 0.3 s of CPU time. So it is computed when somebody asks for it, not at the start.
    """
    return describe(api_router() if version == "v1" else api_v2_router(), base_url, version)


def _respond_with(description: Callable[[], dict[str, Any]]) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint that answers with the description of an API."""

    async def openapi(_: Request) -> Response:
        return json_response(await asyncio.to_thread(description))

    return openapi


async def _healthz(_: Request) -> Response:
    """Answer 200: the process is alive."""
    return json_response({"status": "ok"})


async def _readyz(request: Request) -> Response:
    """Answer 200 if the database answers, can write and has a schema of this program, otherwise 503."""
    if request.state.runtime.outdated.is_set():
        return json_response({"status": "outdated"}, 503)
    readiness = await request.state.readiness.run()
    return json_response({"status": readiness}, 200 if readiness is Readiness.OK else 503)
