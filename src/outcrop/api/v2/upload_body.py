"""Receive the body of an upload, and give up a client that sends it too slowly."""

import asyncio

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from outcrop.services.exchange.upload_file import SlowBodyError

_TOO_SLOW = "the body arrives too slowly; nothing was done"


class UploadBody:
    """Receives the body of a request. A client that sends too slowly is given up.

    The client is late by the time in which it has sent less than `bytes_per_second`; sending faster makes up
    for it. It may be late by `max_late` seconds, and all may take `max_seconds`.
    """

    def __init__(
        self, receive: Receive, *, bytes_per_second: float, max_late: float, max_seconds: float
    ) -> None:
        self._receive = receive
        self._rate = bytes_per_second
        self._max_late, self._late = max_late, 0.0
        self._clock = asyncio.get_running_loop().time
        self._end = self._clock() + max_seconds
        self._is_complete = self._is_closed = False
        self._timer: asyncio.Timeout | None = None

    async def read(self) -> bytes:
        """Return the next bytes, b"" at the end; raise ClientDisconnect, or SlowBodyError."""
        while not self._is_complete:
            if self._is_closed:
                raise ClientDisconnect
            message = await self._wait()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._is_complete = not message.get("more_body", False)
            if body := message.get("body", b""):
                return bytes(body)
        return b""

    def close(self) -> None:
        """Make every further read fail."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.reschedule(self._clock())

    async def _wait(self) -> Message:
        """Return the next message of the client; raise SlowBodyError if it takes too long."""
        began = self._clock()
        allowed = min(self._max_late - self._late, self._end - began)
        try:
            async with asyncio.timeout(max(allowed, 0.0)) as self._timer:
                message = await self._receive()
        except TimeoutError:
            raise SlowBodyError(_TOO_SLOW) from None
        finally:
            self._timer = None
        waited = self._clock() - began
        self._late = max(0.0, self._late + waited - len(message.get("body", b"")) / self._rate)
        if self._late > self._max_late:
            raise SlowBodyError(_TOO_SLOW)
        return message
