"""What `/openapi.json` says of every route alike: security, failures, headers."""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from outcrop.api import shapes

SECURITY_SCHEME = {"type": "http", "scheme": "bearer", "description": "An API key, created in the portal (Profile, API keys)."}

_INTEGER = {"schema": {"type": "integer"}}
_LIMITED = {
    "RateLimit-Limit": _INTEGER | {"description": "Requests a minute."},
    "RateLimit-Remaining": _INTEGER | {"description": "Requests left in this window."},
    "RateLimit-Reset": _INTEGER | {"description": "Seconds until the window ends."},
}
_REQUEST_ID = {"X-Request-Id": {"schema": {"type": "string"}, "description": "Names this request in the logs."}}


def responses(
    success: type[BaseModel], *, parameters: bool = True, lookup: bool = False, transition: bool = False
) -> dict[int | str, dict[str, Any]]:
    """Give every response a route can send, with its body."""
    described: dict[int | str, dict[str, Any]] = {
        200: {"model": success, "description": "Success", "headers": _LIMITED},
        401: {"model": shapes.AuthErrorShape, "description": "Missing or invalid authentication"},
        403: {"model": shapes.PlanErrorShape, "description": "The plan lacks API access"},
        405: {"model": shapes.ErrorShape, "description": "The address does not take this method"},
        429: {"model": shapes.RateErrorShape, "description": "Over the per-minute limit", "headers": {"Retry-After": _INTEGER} | _LIMITED},
        500: {"model": shapes.InternalErrorShape, "description": "A fault on the server's side", "headers": _REQUEST_ID},
        400: {"model": shapes.ErrorShape, "description": "A request that cannot be used"},
    }
    if transition:
        described[400]["description"] = "The finding's state does not allow this"
    if parameters:
        described[422] = {"model": shapes.ParameterErrorShape, "description": "A parameter does not hold to its description"}
    if lookup:
        described[404] = {"model": shapes.ErrorShape, "description": "Nothing of that id in this account"}
    return dict(sorted(described.items(), key=lambda item: int(item[0])))


def describe(app: FastAPI, base_url: str) -> None:
    """Add what FastAPI does not know: the bearer scheme and the base address."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = generate()
            schema["servers"] = [{"url": base_url}]
            schema.setdefault("components", {})["securitySchemes"] = {"bearer": SECURITY_SCHEME}
            schema["security"] = [{"bearer": []}]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
