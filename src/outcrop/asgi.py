"""Puts the application together."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypedDict

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.types import ASGIApp

from outcrop.api import errors, findings, scans
from outcrop.api.describe import describe
from outcrop.api.gate import Gate
from outcrop.api.shapes import json_response
from outcrop.runtime import Runtime
from outcrop.store.db import UNAVAILABLE


class State(TypedDict):
    runtime: Runtime


def create_app(
    runtime: AbstractAsyncContextManager[Runtime], *, base_url: str, rate_limit: int | None = None, cors_origins: list[str] | None = None
) -> ASGIApp:
    """Make the application; the runtime is opened when the server starts and closed when it stops."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[State]:
        async with runtime as opened:
            yield {"runtime": opened}

    app = FastAPI(
        title="Outcrop",
        version="v1",
        description="Exposed-credential findings: read them, filter them, triage them.",
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name,
    )
    api = APIRouter(prefix="/api/v1")
    api.include_router(findings.router)
    api.include_router(scans.router)
    app.include_router(api)
    app.add_api_route("/healthz", _healthz, include_in_schema=False)
    app.add_api_route("/readyz", _readyz, include_in_schema=False)
    errors.add_error_handlers(app)
    describe(app, base_url)
    return Gate(app, base_url=base_url, rate_limit=rate_limit, cors_origins=cors_origins or [])


async def _healthz() -> Response:
    """The process answers."""
    return json_response({"status": "ok"})


async def _readyz(request: Request) -> Response:
    """The database answers too."""
    try:
        async with request.state.runtime.pool.connection(timeout=2) as db:
            await db.execute("SELECT 1")
    except UNAVAILABLE:
        return json_response({"status": "unavailable"}, 503)
    return json_response({"status": "ok"})
