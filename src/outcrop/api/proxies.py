"""Take the client address and scheme of a request from the headers of trusted proxies."""

from collections.abc import Sequence
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_SCHEME = b"x-forwarded-proto"


def behind_proxies(app: ASGIApp, trusted: Sequence[str]) -> ASGIApp:
    """Wrap the application so that it trusts the forwarded headers of these proxies.

    Schemes are case-insensitive (RFC 3986, 3.1), but uvicorn compares them in lower case.
    """
    trusting = cast("ASGIApp", ProxyHeadersMiddleware(app, trusted_hosts=list(trusted)))  # type: ignore[arg-type]  # uvicorn has its own names for the ASGI types

    async def with_lower_case_scheme(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [
                (name, value.lower() if name == _SCHEME else value) for name, value in scope["headers"]
            ]
        await trusting(scope, receive, send)

    return with_lower_case_scheme
