"""Record a span for each request, if traces are sent."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outcrop.metrics import METHODS, UNMATCHED
from outcrop.tracing import TraceSpan, record_span

PROBES = frozenset({"/healthz", "/readyz"})  # load balancers ask every few seconds
_OTHER_METHOD = "_OTHER"  # OpenTelemetry's name for it


class TraceMiddleware:
    """ASGI middleware around the API and the portal.

    `name_route` returns the template of the route of a path.
    """

    def __init__(self, app: ASGIApp, name_route: Callable[[str], str]) -> None:
        self.app = app
        self.name_route = name_route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self.app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else _OTHER_METHOD
        fields: dict[str, str | int] = {"http.request.method": method}
        if (route := self.name_route(scope["path"])) == UNMATCHED:
            name = method
        else:
            name, fields["http.route"] = f"{method} {route}", route
        with record_span(name, fields, is_request=True, traceparent=_find_parent(scope)) as span:

            async def watch(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _describe_response(span, message)
                await send(message)

            await self.app(scope, receive, watch)


def _find_parent(scope: Scope) -> str | None:
    """Return the header `traceparent`; None without one, or if there are several."""
    values = [value for name, value in scope["headers"] if name == b"traceparent"]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _describe_response(span: TraceSpan, message: Message) -> None:
    """Add the status and the request id to a span. The log has the same id."""
    span.fields["http.response.status_code"] = message["status"]
    span.has_failed = message["status"] >= 500
    for name, value in message.get("headers", ()):
        if name == b"x-request-id":
            span.fields["outcrop.request_id"] = value.decode("latin-1")
