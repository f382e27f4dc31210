"""Error responses of `/api/v2`, beside those of `api/errors.py`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from outcrop.api.errors import error
from outcrop.api.shapes import json_response
from outcrop.domain.errors import OutcropError
from outcrop.services.exchange.upload import BadReportError, IdempotencyConflictError
from outcrop.services.exchange.upload_file import SlowBodyError, TooLargeError

_STATUS = {IdempotencyConflictError: 409, TooLargeError: 413, SlowBodyError: 408}
_CLOSE = {"Connection": "close"}  # the rest of the body is not read


async def _handle_upload_error(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, OutcropError)  # noqa: S101
    status = _STATUS[type(exc)]
    return error(status, exc.code, exc.message, _CLOSE if status == 408 else None)


async def _handle_bad_report(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, BadReportError)  # noqa: S101
    return json_response({"error": exc.code, "message": exc.message, "record": exc.record}, 400)


V2_HANDLERS: dict[Any, Any] = dict.fromkeys(_STATUS, _handle_upload_error) | {
    BadReportError: _handle_bad_report
}
