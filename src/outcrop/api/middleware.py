"""Handle every request before its route: request id, https redirect, key, plan, rate limit, deadline, log.

The order is fixed: redirect, 401, 403, 429. Paths, methods and parameters are checked only after that.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outcrop import metrics
from outcrop.api import errors
from outcrop.api.context import SCOPE_KEY, ApiContext
from outcrop.api.v2.context import SCOPE_KEY as V2_SCOPE_KEY
from outcrop.api.v2.context import ApiV2Context
from outcrop.domain.account import token_digest
from outcrop.domain.errors import OverdueError, UnavailableError
from outcrop.domain.secret import MASK
from outcrop.lazy_logger import get_logger
from outcrop.limits import REQUEST_SECONDS
from outcrop.notes import NoteCleaner
from outcrop.runtime import Runtime
from outcrop.services.shares import AccountBusyError, Deadline, admit
from outcrop.store.db import Connection, acquire_connection, describe_unavailability, find_unavailability
from outcrop.store.people import keys
from outcrop.store.people.keys import RateWindow

_PROBES = {"/healthz", "/readyz"}  # answered over http too
_V2_DESCRIPTION = "/api/v2/openapi.json"  # needs no key
_HOOKS = "/hooks/"  # needs no key either: the token in the path is a secret
_HSTS = (b"strict-transport-security", b"max-age=31536000")

log = get_logger()


class RequestMiddleware:
    """ASGI middleware around the API and the portal.

    `overdue_page` returns the portal's response to a request that took too long, or None for the API's error.
    It took too long after `deadline` seconds. `name_route` returns the template of the route of a path.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        notes: NoteCleaner,
        base_url: str,
        rate_limit: int | None,
        cors_origins: Sequence[str],
        overdue_page: Callable[[Scope], Response | None],
        name_route: Callable[[str], str],
        deadline: float = REQUEST_SECONDS,
    ) -> None:
        self.app = app
        self.notes = notes
        self.overdue_page = overdue_page
        self.name_route = name_route
        self.deadline = deadline
        self.base_url = base_url
        self.https = urlsplit(base_url).scheme == "https"
        self.rate_limit = rate_limit
        self.cors_origins = {origin.encode("latin-1") for origin in cors_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer, path, method = ResponseWriter(scope, send), scope["path"], scope["method"]
        scope = {**scope, errors.REQUEST_ID: answer.request_id}
        if self.https and scope["scheme"] == "https":
            answer.headers.append(_HSTS)
        deadline = Deadline(self.deadline, lambda: answer.time_out(self._overdue(scope)))
        scope["state"] = {**scope["state"], "deadline": deadline}
        try:
            await self._route(scope, receive, answer)
        except asyncio.CancelledError:
            if not answer.timed_out:
                raise
        except Exception as error:
            unavailable = find_unavailability(error)
            log.error(  # noqa: TRY400
                "request_failed",
                request_id=answer.request_id,
                error=type(error).__name__,
                reason=None if unavailable is None else describe_unavailability(unavailable),
                exc_info=unavailable is None,
            )
            if not answer.started:
                failure = (
                    errors.busy(UnavailableError())
                    if unavailable is not None
                    else errors.internal_error(answer.request_id)
                )
                await answer.respond(failure, scope, receive)
        finally:
            deadline.stop()
            await answer.finish()
            answer.write_log()
            if metrics.is_recording():
                seconds = time.perf_counter() - answer.began
                metrics.count_request(self.name_route(path), method, answer.status, seconds)

    def _overdue(self, scope: Scope) -> Response:
        """Return the response to a request that takes too long."""
        return self.overdue_page(scope) or errors.busy(OverdueError())

    async def _route(self, scope: Scope, receive: Receive, answer: "ResponseWriter") -> None:
        """Redirect to https, or pass the request to the API or the portal."""
        path: str = scope["path"]
        if self.https and scope["scheme"] != "https" and path not in _PROBES:
            await answer.respond(self._redirect(scope), scope, receive)
        elif scope["state"]["runtime"].outdated.is_set() and path not in _PROBES:
            await answer.respond(_outdated(path), scope, receive)
        elif _without_slash(path) == _V2_DESCRIPTION:
            await self.app(_as_get(scope) | {"path": _V2_DESCRIPTION}, receive, answer.send)
        elif path == "/api" or path.startswith("/api/"):
            try:
                await self._api(scope, receive, answer)
            except AccountBusyError as error:
                await answer.respond(errors.busy(error), scope, receive)
        elif path.startswith(_HOOKS):
            await self.app(_as_get(scope) | {"path": _without_slash(path)}, receive, answer.send)
        else:
            await self.app(_as_get(scope), receive, answer.send)

    def _redirect(self, scope: Scope) -> Response:
        """Return a redirect to the same path and query at the base URL."""
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        return Response(status_code=308, headers={"Location": self.base_url + _raw_path(scope) + query})

    async def _api(self, scope: Scope, receive: Receive, answer: "ResponseWriter") -> None:
        """Answer CORS preflights, authenticate the key, then call the route with its context."""
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
        if scope["path"].startswith("/api/v2/"):
            await self._answer_v2(scope, receive, answer, digest)
        else:
            await self._answer_v1(scope, receive, answer, digest)

    async def _answer_v1(
        self, scope: Scope, receive: Receive, answer: "ResponseWriter", digest: bytes
    ) -> None:
        """Admit the request and call its route on the same database connection."""
        runtime: Runtime = scope["state"]["runtime"]
        messages: list[Message] = []

        async def buffer(message: Message) -> None:
            messages.append(message)

        check_key = partial(self._check_key, answer, digest)
        shares, deadline = scope["state"]["shares"], scope["state"]["deadline"]
        async with admit(runtime.pool, shares, deadline, check_key, _account_of) as (db, entry):
            if entry.caller is None:
                assert entry.refusal is not None  # noqa: S101 - an entry has a caller or a refusal
                await errors.refused(entry.refusal, entry.window)(scope, receive, buffer)
            else:
                context = ApiContext(entry.caller, entry.moment, db, runtime.keys, self.notes)
                await self.app(
                    _as_get(scope) | {SCOPE_KEY: context, "path": _without_slash(scope["path"])},
                    receive,
                    buffer,
                )
        # The connection is back in the pool here, so a client that reads slowly does not hold one.
        for message in messages:
            await answer.send(message)

    async def _answer_v2(
        self, scope: Scope, receive: Receive, answer: "ResponseWriter", digest: bytes
    ) -> None:
        """Admit the request and call its route, which holds no database connection until it asks for one."""
        runtime: Runtime = scope["state"]["runtime"]
        async with acquire_connection(runtime.pool, partial(self._check_key, answer, digest)) as (_, entry):
            pass
        if entry.caller is None:
            assert entry.refusal is not None  # noqa: S101 - an entry has a caller or a refusal
            await answer.respond(errors.refused(entry.refusal, entry.window), scope, receive)
            return
        context = ApiV2Context(
            caller=entry.caller,
            now=entry.moment,
            pool=runtime.pool,
            shares=scope["state"]["shares"],
            deadline=scope["state"]["deadline"],
            keys=runtime.keys,
            notes=self.notes,
        )
        path = _without_slash(scope["path"])
        await self.app(_as_get(scope) | {V2_SCOPE_KEY: context, "path": path}, receive, answer.send)

    async def _check_key(self, answer: "ResponseWriter", digest: bytes, db: Connection) -> keys.Admission:
        """Return the caller or the refusal of a key, and note them for the response's headers and the log."""
        entry = await keys.admit_request(db, digest, limit=self.rate_limit)
        answer.headers += _window_headers(entry.window)
        answer.key_id = None if entry.caller is None else str(entry.caller.key_id)
        return entry


class ResponseWriter:
    """Send the response of one request: add the common headers, enforce the deadline, write the log line."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.request_id = str(uuid4())
        self.headers: list[tuple[bytes, bytes]] = [(b"x-request-id", self.request_id.encode())]
        self.key_id: str | None = None
        self.status = 0
        self.started = False
        self.timed_out = False
        self._method, self._path = scope["method"], _printable(_without_token(scope["path"]))
        self._send = send
        self.began = time.perf_counter()
        self._task = asyncio.current_task()
        self._timeout_response: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Send an ASGI message, unless the request has timed out."""
        if self.timed_out:
            return
        await self._forward(message)

    async def _forward(self, message: Message) -> None:
        """Send an ASGI message with the common headers; drop the body of a HEAD request."""
        if message["type"] == "http.response.start":
            self.started = True
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.headers]}
        elif message["type"] == "http.response.body" and self._method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    async def respond(self, response: Response, scope: Scope, receive: Receive) -> None:
        """Send a complete response."""
        await response(scope, receive, self.send)

    def time_out(self, response: Response) -> None:
        """Send a response and cancel the request; do nothing if another response has started."""
        if self.started:
            return
        self.timed_out = True
        log.error("request_timed_out", request_id=self.request_id)
        self._timeout_response = asyncio.ensure_future(
            response({"type": "http"}, _disconnected, self._forward)
        )
        if self._task is not None:
            self._task.cancel()

    async def finish(self) -> None:
        """Wait until the response of a request that took too long is sent."""
        if self._timeout_response is not None:
            await asyncio.wait({self._timeout_response})

    def write_log(self) -> None:
        """Log the request: method, path, status, duration; never the query string."""
        milliseconds = round((time.perf_counter() - self.began) * 1000, 1)
        write = log.debug if self._path in _PROBES else log.info  # load balancers probe every few seconds
        write(
            "request",
            method=self._method,
            path=self._path,
            status=self.status,
            ms=milliseconds,
            request_id=self.request_id,
            key_id=self.key_id,
        )


def _account_of(entry: keys.Admission) -> int | None:
    """Return the account of an admitted request; None if it is refused."""
    return None if entry.caller is None else entry.caller.account_id


def _outdated(path: str) -> Response:
    """Return the response of a process that no longer works on the database's schema; it does no new work."""
    message, headers = "a newer version has changed the database: this process ends", {"Retry-After": "5"}
    if path.startswith(("/api/", _HOOKS)):
        return errors.error(503, "busy", message, headers)
    return PlainTextResponse(message, 503, headers)


def _printable(path: str) -> str:
    """Return the path with control characters escaped, so that a log line cannot move a terminal's cursor."""
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")


def _without_token(path: str) -> str:
    """Return the path for the log; the token of a push hook is masked."""
    if not path.startswith(_HOOKS):
        return path
    host, slash, _ = path.removeprefix(_HOOKS).partition("/")
    return f"{_HOOKS}{host}{slash}{MASK if slash else ''}"


async def _disconnected() -> Message:
    """Return the ASGI message of a client without a request body."""
    return {"type": "http.disconnect"}


def _digest(authorizations: list[bytes]) -> bytes | None:
    """Return the digest of the bearer token; None for several headers, another scheme or no valid key."""
    if len(authorizations) != 1:
        return None
    scheme, _, token = authorizations[0].decode("latin-1").partition(" ")
    return token_digest(token.strip(" ")) if scheme.lower() == "bearer" else None


def _window_headers(window: RateWindow | None) -> list[tuple[bytes, bytes]]:
    """Return the `RateLimit-*` headers; none if there is no limit."""
    if window is None:
        return []
    return [
        (b"ratelimit-limit", b"%d" % window.limit),
        (b"ratelimit-remaining", b"%d" % window.remaining),
        (b"ratelimit-reset", b"%d" % window.reset),
    ]


def _preflight() -> Response:
    """Return the response to a CORS preflight request."""
    allowed: Mapping[str, str] = {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Allow-Headers": "Authorization",
        "Access-Control-Max-Age": "600",
    }
    return Response(status_code=204, headers=allowed)


def _as_get(scope: Scope) -> dict[str, object]:
    """Return the scope with HEAD replaced by GET; the response writer drops the body."""
    return {**scope, "method": "GET"} if scope["method"] == "HEAD" else dict(scope)


def _without_slash(path: str) -> str:
    return path.removesuffix("/")


def _raw_path(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return (raw if raw is not None else scope["path"].encode()).decode("latin-1")
