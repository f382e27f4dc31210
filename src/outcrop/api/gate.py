"""What every request passes before it reaches a route: request id, redirect to https, key, plan, rate limit, deadline, log.

The order is fixed: redirect, 401, 403, 429, and only then anything about paths, methods and parameters.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outcrop.api import errors
from outcrop.api.deps import SCOPE, Visit
from outcrop.domain.account import token_digest
from outcrop.notes import NoteCleaner
from outcrop.runtime import Runtime
from outcrop.store.db import UNAVAILABLE, acquire_connection
from outcrop.store.people import keys
from outcrop.store.people.keys import RateWindow

DEADLINE = 4.5  # seconds until an answer that is not there yet becomes a 500
_OPEN = {"/healthz", "/readyz"}
_HSTS = (b"strict-transport-security", b"max-age=31536000")

log = structlog.get_logger()


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        *,
        notes: NoteCleaner,
        base_url: str,
        rate_limit: int | None,
        cors_origins: list[str],
        too_late: Callable[[Scope], Response | None],
    ) -> None:
        self.app = app
        self.notes = notes
        self.too_late = too_late  # what is answered then, where that is not the API's own error
        self.base_url = base_url
        self.https = urlsplit(base_url).scheme == "https"
        self.rate_limit = rate_limit
        self.cors_origins = {origin.encode("latin-1") for origin in cors_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = Answer(scope, send)
        scope = {**scope, errors.REQUEST_ID: answer.request_id}
        if self.https and scope["scheme"] == "https":
            answer.headers.append(_HSTS)
        timer = asyncio.get_running_loop().call_later(DEADLINE, answer.give_up, partial(self.too_late, scope))
        try:
            await self._pass(scope, receive, answer)
        except asyncio.CancelledError:
            if not answer.given_up:
                raise
        except Exception as error:
            unavailable = isinstance(error, UNAVAILABLE)
            log.error(  # noqa: TRY400
                "request_failed",
                request_id=answer.request_id,
                error=type(error).__name__,
                exc_info=not unavailable,
            )
            if not answer.started:
                await answer.respond(errors.internal_error(answer.request_id), scope, receive)
        finally:
            timer.cancel()
            answer.write_log()

    async def _pass(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        path: str = scope["path"]
        if self.https and scope["scheme"] != "https" and path not in _OPEN:
            await answer.respond(self._redirect(scope), scope, receive)
        elif path == "/api" or path.startswith("/api/"):
            await self._api(scope, receive, answer)
        else:
            await self.app(_as_get(scope), receive, answer.send)

    def _redirect(self, scope: Scope) -> Response:
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        return Response(status_code=308, headers={"Location": self.base_url + _raw_path(scope) + query})

    async def _api(self, scope: Scope, receive: Receive, answer: "Answer") -> None:
        headers = dict(reversed(scope["headers"]))
        if self.cors_origins:
            answer.headers.append((b"vary", b"Origin"))
        if (origin := headers.get(b"origin")) in self.cors_origins:
            answer.headers.append((b"access-control-allow-origin", origin))
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in headers:
                await answer.respond(_preflight(), scope, receive)
                return
        authorizations = [value for name, value in scope["headers"] if name == b"authorization"]
        if not authorizations:
            await answer.respond(errors.unauthorized(errors.MISSING_AUTHORIZATION), scope, receive)
            return
        digest = _digest(authorizations)
        if digest is None:
            await answer.respond(errors.unauthorized(keys.KeyRefusal.INVALID), scope, receive)
            return
        runtime: Runtime = scope["state"]["runtime"]
        told: list[Message] = []

        async def tell(message: Message) -> None:
            told.append(message)

        async with acquire_connection(
            runtime.pool, lambda db: keys.admit_request(db, digest, limit=self.rate_limit)
        ) as (
            db,
            entry,
        ):
            answer.headers += _window_headers(entry.window)
            if entry.caller is None:
                assert entry.refusal is not None  # noqa: S101 - either the one or the other
                await errors.refused(entry.refusal, entry.window)(scope, receive, tell)
            else:
                answer.key_id = str(entry.caller.key_id)
                visit = Visit(entry.caller, db, runtime.keys, self.notes)
                await self.app(
                    _as_get(scope) | {SCOPE: visit, "path": _without_slash(scope["path"])}, receive, tell
                )
        for message in (
            told
        ):  # the connection is given back by now: whoever does not read an answer keeps none from the others
            await answer.send(message)


class Answer:
    """What is sent back: it adds the headers every answer has, and knows what the log needs."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.request_id = str(uuid4())
        self.headers: list[tuple[bytes, bytes]] = [(b"x-request-id", self.request_id.encode())]
        self.key_id: str | None = None
        self.status = 0
        self.started = False
        self.given_up = False
        self._method, self._path = scope["method"], _printable(scope["path"])
        self._send = send
        self._began = time.perf_counter()
        self._task = asyncio.current_task()
        self._last_words: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        if self.given_up:
            return
        await self._forward(message)

    async def _forward(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        elif message["type"] == "http.response.body" and self._method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def respond(self, response: Response, scope: Scope, receive: Receive) -> None:
        await response(scope, receive, self.send)

    def give_up(self, page: Callable[[], Response | None]) -> None:
        """Answer now, whatever the request is still waiting for, and stop it."""
        if self.started:
            return
        self.given_up = True
        response = page() or errors.internal_error(self.request_id)
        log.error("request_timed_out", request_id=self.request_id)
        self._last_words = asyncio.ensure_future(response({"type": "http"}, _nothing, self._forward))
        if self._task is not None:
            self._task.cancel()

    def write_log(self) -> None:
        milliseconds = round((time.perf_counter() - self._began) * 1000, 1)
        write = log.debug if self._path in _OPEN else log.info  # probes come every few seconds
        write(
            "request",
            method=self._method,
            path=self._path,
            status=self.status,
            ms=milliseconds,
            request_id=self.request_id,
            key_id=self.key_id,
        )


def _printable(path: str) -> str:
    """A path in the log must not be able to move a terminal's cursor."""
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


async def _nothing() -> Message:
    return {"type": "http.disconnect"}


def _digest(authorizations: list[bytes]) -> bytes | None:
    """Give the digest of the one bearer token there is; anything else is no token."""
    if len(authorizations) != 1:
        return None
    scheme, _, token = authorizations[0].decode("latin-1").partition(" ")
    return token_digest(token.strip(" ")) if scheme.lower() == "bearer" else None


def _window_headers(window: RateWindow | None) -> list[tuple[bytes, bytes]]:
    if window is None:
        return []
    return [
        (b"ratelimit-limit", b"%d" % window.limit),
        (b"ratelimit-remaining", b"%d" % window.remaining),
        (b"ratelimit-reset", b"%d" % window.reset),
    ]


def _preflight() -> Response:
    allowed: Mapping[str, str] = {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Authorization",
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=allowed)


def _as_get(scope: Scope) -> dict[str, object]:
    """HEAD is answered like GET; the answer leaves the body out."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else dict(scope)


def _without_slash(path: str) -> str:
    return path.removesuffix("/")


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return (raw if raw is not None else scope["path"].encode()).decode("latin-1")
