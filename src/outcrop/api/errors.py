"""Error responses: the table of HTTP statuses for the domain's errors, and the bodies of all errors."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from outcrop.api.shapes import json_response
from outcrop.domain.account import API_MINIMUM
from outcrop.domain.errors import (
    BadInputError,
    BusyError,
    ConflictError,
    NotFoundError,
    OutcropError,
    TransitionError,
)
from outcrop.store.people.keys import KeyRefusal, RateWindow

STATUS = {NotFoundError: 404, TransitionError: 400, BadInputError: 400, ConflictError: 409}

REQUEST_ID = "outcrop.request_id"  # key in the ASGI scope, set by the middleware
MISSING_AUTHORIZATION = "missing_authorization"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class ParameterError(Exception):
    """Invalid parameters; `detail` is the list in the body of the 422 response."""

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__("parameters")
        self.detail = detail


def error(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **fields: str
) -> Response:
    """Return an error response; `fields` are added to the body."""
    return json_response({"error": code, "message": message} | fields, status, headers)


def unauthorized(code: str) -> Response:
    """Return a 401 response with the body of the specification: the code alone."""
    return json_response({"error": code}, 401, _CHALLENGE)


def refused(refusal: KeyRefusal, window: RateWindow | None) -> Response:
    """Return the response for a refused key, exactly as in the specification's Authentication table."""
    match refusal:
        case KeyRefusal.INVALID | KeyRefusal.REVOKED:
            return unauthorized(refusal)
        case KeyRefusal.PLAN:
            return json_response({"error": refusal, "minimum": API_MINIMUM}, 403)
        case KeyRefusal.RATE:
            return json_response(
                {"error": refusal}, 429, {"Retry-After": str(window.reset if window else 60)}
            )


def internal_error(request_id: str) -> Response:
    """Return a 500 response that names the request id and no detail."""
    return error(
        500,
        "internal_error",
        "an internal error occurred; it is logged under this request id",
        request_id=request_id,
    )


def busy(reason: BusyError) -> Response:
    """Return a 503 response that says when to try again."""
    return error(503, reason.code, reason.message, {"Retry-After": str(reason.retry_after)})


async def _handle_domain_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, OutcropError)  # noqa: S101
    if isinstance(exc, BusyError):
        return busy(exc)
    return error(STATUS[type(exc)], exc.code, exc.message)


async def _handle_parameter_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ParameterError)  # noqa: S101
    return json_response({"detail": exc.detail}, 422)


async def _handle_unexpected_error(request: Request, _: Exception) -> Response:
    """Return a 500 response; the middleware logs the exception."""
    return internal_error(request.scope[REQUEST_ID])


def _methods_of_path(request: Request) -> set[str]:
    """Return the methods of all routes with the path of a request: each route has one."""
    return {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }


async def _handle_routing_error(request: Request, exc: Exception) -> Response:
    """Return the response for an unknown path (404) or method (405)."""
    assert isinstance(exc, HTTPException)  # noqa: S101
    if exc.status_code == 405:
        methods = _methods_of_path(request)
        allow = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return error(405, "method_not_allowed", f"this path accepts {allow}", {"Allow": allow})
    return error(404, "not_found", "there is no such path")


HANDLERS: dict[Any, Any] = {
    OutcropError: _handle_domain_error,
    ParameterError: _handle_parameter_error,
    HTTPException: _handle_routing_error,
    Exception: _handle_unexpected_error,
}
