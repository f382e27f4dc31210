"""The route of push hooks. It needs no API key: the code host authenticates itself.

It is not part of the API's description. docs/hooks.md describes it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from uuid import UUID

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from outcrop.api import errors
from outcrop.api.shapes import json_response
from outcrop.api.v2.upload_body import UploadBody
from outcrop.domain.errors import BusyError
from outcrop.domain.push import HookHost
from outcrop.limits import (
    HOOK_BODY_BYTES,
    HOOK_BODY_SECONDS,
    HOOK_HELD_BYTES,
    HOOKS_HELD_BYTES,
    UPLOAD_BYTES_PER_SECOND,
)
from outcrop.services.hooks.payload import HookTooLargeError
from outcrop.services.hooks.receive import KnownHook, accept_delivery, find_hook, open_check, read_delivery
from outcrop.sources.hooks.delivery import BodyCheck
from outcrop.store.db import acquire_connection

_CLOSE = {"Connection": "close"}  # the rest of the body is not read
_SMALL_BODY = 64 << 10  # bytes that are parsed without a thread


class HeldBodies:
    """The bytes of bodies that one process holds, by hook. They are parsed one at a time."""

    def __init__(self, per_hook: int = HOOK_HELD_BYTES, total: int = HOOKS_HELD_BYTES) -> None:
        self._per_hook, self._total = per_hook, total
        self._held: Counter[UUID] = Counter()
        self.parsing = asyncio.Semaphore(1)

    @contextmanager
    def hold(self, hook_id: UUID) -> Iterator["HeldBody"]:
        """Yield a body that counts until the end of the block."""
        body = HeldBody(self, hook_id)
        try:
            yield body
        finally:
            self._held[hook_id] -= len(body.data)
            if not self._held[hook_id]:
                del self._held[hook_id]

    def add(self, hook_id: UUID, size: int) -> None:
        """Count bytes of a hook; raise BusyError if there are too many."""
        if self._held[hook_id] + size > self._per_hook or self._held.total() + size > self._total:
            raise BusyError("too many deliveries are being received; nothing was started, try again")
        self._held[hook_id] += size


class HeldBody:
    """A body of at most HOOK_BODY_BYTES that is being received."""

    def __init__(self, bodies: HeldBodies, hook_id: UUID) -> None:
        self._bodies, self._hook_id = bodies, hook_id
        self.data = bytearray()

    async def receive(self, source: UploadBody, check: BodyCheck) -> None:
        """Receive the body, and pass it to its check.

        Raise HookTooLargeError, BusyError and what the source raises.
        """
        while piece := await source.read():
            if len(self.data) + len(piece) > HOOK_BODY_BYTES:
                raise HookTooLargeError
            self._bodies.add(self._hook_id, len(piece))
            self.data += piece
            check.update(piece)


async def receive_hook(request: Request) -> Response:
    """Receive one delivery of a code host: 202 as soon as it is stored; its work is done by jobs."""
    try:
        host = HookHost(request.path_params["host"])
    except ValueError:
        return errors.error(404, "not_found", "there is no such path")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > HOOK_BODY_BYTES:
        raise HookTooLargeError
    state = request.state
    look_up = partial(find_hook, keys=state.runtime.keys, host=host, token=request.path_params["token"])
    async with acquire_connection(state.runtime.pool, look_up) as (_, hook):
        pass
    headers = _read_headers(request)
    check = None if hook is None else open_check(hook, headers)
    if hook is None or check is None:
        return _refuse(host)
    state.deadline.stop()  # a body has limits of its own
    source = UploadBody(
        request.receive,
        bytes_per_second=UPLOAD_BYTES_PER_SECOND,
        max_late=state.uploads.max_late,
        max_seconds=HOOK_BODY_SECONDS,
    )
    try:
        return await _receive_body(request, hook, headers, source, check)
    except ClientDisconnect:
        return errors.error(400, "bad_request", "the client has disconnected")  # nobody reads it


async def _receive_body(
    request: Request, hook: KnownHook, headers: Mapping[str, str], source: UploadBody, check: BodyCheck
) -> Response:
    """Receive and authenticate the body, and accept what it says."""
    state = request.state
    with state.held_bodies.hold(hook.id) as held:
        await held.receive(source, check)
        if not check.is_authentic():
            return _refuse(hook.host)
        async with state.held_bodies.parsing:
            if len(held.data) <= _SMALL_BODY:
                delivery = read_delivery(hook, headers, held.data)
            else:
                delivery = await asyncio.to_thread(read_delivery, hook, headers, held.data)
    pool = state.runtime.pool
    async with state.shares.connect(pool, hook.account_id, HOOK_BODY_SECONDS) as db, db.transaction():
        seconds = await accept_delivery(db, state.runtime.keys, hook, delivery)
    if seconds:
        message = "too many deliveries in this minute: the repositories are compared when it is over"
        return errors.error(429, "rate_limited", message, {"Retry-After": str(seconds)})
    return json_response({"data": {"status": "accepted"}}, 202)


def _refuse(host: HookHost) -> Response:
    """Return the response to a sender that is not authentic; an unknown token has the same."""
    scheme = 'Basic realm="outcrop"' if host is HookHost.AZUREDEVOPS else "Bearer"
    message = "the address, the signature or the token is wrong"
    return errors.error(401, "unauthorized", message, {"WWW-Authenticate": scheme, **_CLOSE})


def _read_headers(request: Request) -> dict[str, str]:
    """Return the headers by name in lower case; the values of a repeated one are joined, as HTTP says."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _handle_too_large(_: Request, exc: Exception) -> Response:
    assert isinstance(exc, HookTooLargeError)  # noqa: S101
    return errors.error(413, exc.code, exc.message, _CLOSE)


HANDLERS = {HookTooLargeError: _handle_too_large}
ROUTE = Route("/hooks/{host}/{token}", receive_hook, methods=["POST"])
