"""What a trusted proxy says of a request: whose it is, and whether it came over https."""

from collections.abc import Sequence
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

_SCHEME = b"x-forwarded-proto"


def behind_proxies(app: ASGIApp, trusted: Sequence[str]) -> ASGIApp:
    """Believe what these proxies forward. A scheme is the same in capitals (RFC 3986, 3.1); uvicorn knows it in small letters only."""
    believing = cast("ASGIApp", ProxyHeadersMiddleware(app, trusted_hosts=list(trusted)))  # type: ignore[arg-type]  # the same by other names

    async def lowered(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [
                (name, value.lower() if name == _SCHEME else value) for name, value in scope["headers"]
            ]
        await believing(scope, receive, send)

    return lowered
