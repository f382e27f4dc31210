"""What goes wrong, as HTTP: one table from the domain's errors to a status, and the bodies of every failure."""

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from outcrop.api.shapes import json_response
from outcrop.domain.account import API_MINIMUM
from outcrop.domain.errors import BadInputError, BusyError, NotFoundError, OutcropError, TransitionError
from outcrop.store.people.keys import KeyRefusal, RateWindow

STATUS = {NotFoundError: 404, TransitionError: 400, BadInputError: 400, BusyError: 503}

REQUEST_ID = "outcrop.request_id"  # where the gate puts it in the scope
MISSING_AUTHORIZATION = "missing_authorization"
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class ParameterError(Exception):
    """Parameters that do not hold to their description; `detail` is the body of the 422."""

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__("parameters")
        self.detail = detail


def error(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **more: str
) -> Response:
    return json_response({"error": code, "message": message} | more, status, headers)


def unauthorized(code: str) -> Response:
    return json_response({"error": code}, 401, _CHALLENGE)


def refused(refusal: KeyRefusal, window: RateWindow | None) -> Response:
    """The bodies of the specification's Authentication table, exactly."""
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
    return error(
        500,
        "internal_error",
        "something went wrong here; it was logged under this request id",
        request_id=request_id,
    )


async def _domain(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, OutcropError)  # noqa: S101
    headers = {"Retry-After": str(exc.retry_after)} if isinstance(exc, BusyError) else None
    return error(STATUS[type(exc)], exc.code, exc.message, headers)


async def _parameters(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, ParameterError)  # noqa: S101
    return json_response({"detail": exc.detail}, 422)


async def _fault(request: Request, _: Exception) -> Response:
    """Anything nobody expected; the gate logs it."""
    return internal_error(request.scope[REQUEST_ID])


async def _http(_: Request, exc: Exception) -> Response:
    """What routing says: no such path, or a path without this method."""
    assert isinstance(exc, HTTPException)  # noqa: S101
    if exc.status_code == 405:
        methods = {part.strip() for part in (exc.headers or {}).get("Allow", "").split(",")} - {""}
        allow = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return error(405, "method_not_allowed", f"this address takes {allow}", {"Allow": allow})
    return error(404, "not_found", "there is nothing at this address")


HANDLERS = {OutcropError: _domain, ParameterError: _parameters, HTTPException: _http, Exception: _fault}
