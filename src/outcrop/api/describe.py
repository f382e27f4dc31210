"""What `/openapi.json` says of every route alike: security, failures, headers."""

from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from outcrop.api import shapes

SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, created in the portal (Profile, API keys).",
}

_WHOLE = {"type": "integer", "minimum": 0}
# Answers to a request that was counted; absent where the operator set no limit.
_LIMITED = {
    "RateLimit-Limit": {"schema": _WHOLE, "description": "Requests a minute."},
    "RateLimit-Remaining": {"schema": _WHOLE, "description": "Requests left in this window."},
    "RateLimit-Reset": {"schema": _WHOLE, "description": "Seconds until the window ends."},
}
_REQUEST_ID = {
    "X-Request-Id": {
        "required": True,
        "schema": {"type": "string"},
        "description": "Names this request in the logs.",
    }
}
_COUNTED = _REQUEST_ID | _LIMITED
_CHALLENGE = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}
_ALLOW = {
    "Allow": {
        "required": True,
        "schema": {"type": "string"},
        "description": "The methods this address takes.",
    }
}
_RETRY = {
    "Retry-After": {
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
        "description": "Seconds to wait.",
    }
}


def responses(
    success: type[BaseModel],
    *,
    parameters: bool = True,
    lookup: bool = False,
    mutation: bool = False,
    transition: bool = False,
) -> dict[int | str, dict[str, Any]]:
    """Give every response a route can send, with its body and headers."""
    described = {
        200: _response(success, "Success", _COUNTED),
        400: _response(shapes.BadRequestShape, "A request that cannot be parsed"),
        401: _response(shapes.AuthErrorShape, "Missing or invalid authentication", _REQUEST_ID | _CHALLENGE),
        403: _response(shapes.PlanErrorShape, "The plan lacks API access", _REQUEST_ID),
        405: _response(shapes.MethodErrorShape, "The address does not take this method", _COUNTED | _ALLOW),
        429: _response(shapes.RateErrorShape, "Over the per-minute limit", _COUNTED | _RETRY),
        500: _response(shapes.InternalErrorShape, "A fault on the server's side", _COUNTED),
    }
    if mutation:
        described[503] = _response(
            shapes.BusyErrorShape,
            "Somebody else is changing the finding; nothing was changed",
            _COUNTED | _RETRY,
        )
    if transition:
        told = "The finding's state does not allow this, or the request cannot be parsed"
        # A request that cannot be parsed is answered before it has an id.
        described[400] = _response(
            shapes.TransitionErrorShape,
            told,
            {"X-Request-Id": _REQUEST_ID["X-Request-Id"] | {"required": False}} | _LIMITED,
        )
    if parameters:
        described[422] = _response(
            shapes.ParameterErrorShape, "A parameter does not hold to its description", _COUNTED
        )
    if lookup:
        described[404] = _response(shapes.NotFoundShape, "Nothing of that id in this account", _COUNTED)
    return dict(sorted(described.items()))


def _response(
    model: type[BaseModel], description: str, headers: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"model": model, "description": description} | ({} if headers is None else {"headers": headers})


def describe(router: APIRouter, base_url: str) -> dict[str, Any]:
    """Write the OpenAPI document of the routes. FastAPI describes them; requests go to the same functions by a shorter way (asgi.py)."""
    app = FastAPI(
        title="Outcrop",
        version="v1",
        description="Exposed-credential findings: read them, filter them, triage them.",
        generate_unique_id_function=lambda route: route.name,
    )
    app.include_router(router)
    schema = app.openapi()
    schema["servers"] = [{"url": base_url}]
    schema.setdefault("components", {})["securitySchemes"] = {"bearer": SECURITY_SCHEME}
    schema["security"] = [{"bearer": []}]
    return schema
