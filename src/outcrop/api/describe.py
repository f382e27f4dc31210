"""Describe for `/openapi.json` what all routes share: security, error responses, headers."""

from typing import Any

from fastapi import APIRouter, FastAPI
from pydantic import BaseModel

from outcrop import __version__
from outcrop.api import shapes
from outcrop.domain.events import FIELDS, EventType

SECURITY_SCHEME = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, created in the portal (Profile, API keys).",
}

CONTACT = {"name": "Outcrop", "url": "https://github.com/outcrop/outcrop/issues"}
LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
_TAGS = {  # by version of the API
    "v1": [
        {"name": "findings", "description": "Exposed credentials: list, read and triage them."},
        {
            "name": "incidents",
            "description": "Credentials with all their places: list, read, triage and assign them.",
        },
        {"name": "scans", "description": "Scan runs: list and read them."},
    ],
    "v2": [
        {"name": "findings", "description": "Triage many findings at once."},
        {
            "name": "imports",
            "description": "Reports of other scanners: send them, and read what became of them.",
        },
    ],
}
_ABOUT = {
    "v1": "Read, filter and triage findings of exposed credentials.",
    "v2": "Import reports of other scanners, and triage many findings at once. An addition to version 1.",
}

_NOT_NEGATIVE = {"type": "integer", "minimum": 0}
# Headers of every rate-limited response; absent if the operator set no limit.
_LIMITED = {
    "RateLimit-Limit": {"schema": _NOT_NEGATIVE, "description": "Requests per minute."},
    "RateLimit-Remaining": {"schema": _NOT_NEGATIVE, "description": "Requests left in this window."},
    "RateLimit-Reset": {"schema": _NOT_NEGATIVE, "description": "Seconds until the window ends."},
}
_REQUEST_ID = {
    "X-Request-Id": {
        "required": True,
        "schema": {"type": "string"},
        "description": "Id of this request in the logs.",
    }
}
_COUNTED = _REQUEST_ID | _LIMITED
_CHALLENGE = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}
_ALLOW = {
    "Allow": {
        "required": True,
        "schema": {"type": "string"},
        "description": "The methods that this path accepts.",
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
    """Return the description of every response of a route, with body and headers.

    `parameters`: the route validates parameters (422). `lookup`: it looks up an id (404). `mutation`: it
    locks a finding (a 503 too). `transition`: a finding's status may not allow the action (400).
    """
    described = {
        200: response(success, "Success", _COUNTED),
        400: response(shapes.BadRequestShape, "The request cannot be parsed"),
        401: response(shapes.AuthErrorShape, "Missing or invalid authentication", _REQUEST_ID | _CHALLENGE),
        403: response(shapes.PlanErrorShape, "The plan lacks API access", _REQUEST_ID),
        405: response(shapes.MethodErrorShape, "The path does not accept this method", _COUNTED | _ALLOW),
        429: response(shapes.RateErrorShape, "Over the per-minute limit", _COUNTED | _RETRY),
        500: response(shapes.InternalErrorShape, "Internal error", _COUNTED),
        503: response(
            shapes.BusyErrorShape, "The database is not available at the moment", _COUNTED | _RETRY
        ),
    }
    if mutation:
        described[503]["description"] += ", or another request is changing the finding"
    if transition:
        # A request that cannot be parsed is answered before it has a request id.
        described[400] = response(
            shapes.TransitionErrorShape,
            "The finding's status does not allow the action, or the request cannot be parsed",
            {"X-Request-Id": _REQUEST_ID["X-Request-Id"] | {"required": False}} | _LIMITED,
        )
    if parameters:
        described[422] = response(shapes.ParameterErrorShape, "A parameter is not valid", _COUNTED)
    if lookup:
        described[404] = response(shapes.NotFoundShape, "The account has no record with this id", _COUNTED)
    return dict(sorted(described.items()))


def response(
    model: type[BaseModel], description: str, headers: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the description of one response."""
    return {"model": model, "description": description} | ({} if headers is None else {"headers": headers})


_ABOUT_EVENTS = {
    EventType.NEW: "A finding is new, or open again after a scan had resolved it.",
    EventType.RESOLVED: "A finding was resolved, by a user or by a scan.",
    EventType.FALSE_POSITIVE: "A finding was marked as a false positive.",
}
_SIGNATURE = {
    "name": "X-Service-Signature",
    "in": "header",
    "required": True,
    "description": "HMAC-SHA256 of the raw body, keyed with the webhook's secret.",
    "schema": {"type": "string", "pattern": "^sha256=[0-9a-f]{64}$"},
}


def _describe_webhooks(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the webhooks of a document; `properties` are the described fields of a finding."""
    return {
        event.value: {
            "post": {
                "operationId": f"on_{event.value.replace('.', '_')}",
                "summary": event.value,
                "description": about,
                "tags": ["findings"],
                "security": [],
                "parameters": [_SIGNATURE],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": _describe_event(event, properties)}},
                },
                "responses": {"2XX": {"description": "Received. Any other answer is a failure."}},
            }
        }
        for event, about in _ABOUT_EVENTS.items()
    }


def _describe_event(event: EventType, properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an event's body."""
    fields = {name: properties[name] for name in FIELDS[event]}
    finding = {"type": "object", "properties": fields, "required": list(fields)}
    body = {
        "event": {"type": "string", "const": event.value},
        "delivered_at": {"type": "string", "format": "date-time"},
        "client_slug": {"type": "string", "description": "Slug of the account."},
        "finding": finding,
    }
    return {"type": "object", "properties": body, "required": list(body)}


def describe(router: APIRouter, base_url: str, version: str = "v1") -> dict[str, Any]:
    """Return the OpenAPI document of the routes of a version.

    FastAPI only describes the routes; Starlette routes serve the same functions, which is faster (asgi.py).
    """
    app = FastAPI(
        title="Outcrop",
        version=version,
        description=_ABOUT[version],
        contact=CONTACT,
        license_info=LICENSE,
        openapi_tags=_TAGS[version],
        generate_unique_id_function=lambda route: route.name,
    )
    app.include_router(router)
    schema = app.openapi()
    schema["info"]["x-release"] = __version__
    if version == "v1":
        schema["webhooks"] = _describe_webhooks(schema["components"]["schemas"]["FindingShape"]["properties"])
    schema["servers"] = [{"url": base_url}]
    schema.setdefault("components", {})["securitySchemes"] = {"bearer": SECURITY_SCHEME}
    schema["security"] = [{"bearer": []}]
    return schema
