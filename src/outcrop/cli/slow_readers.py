"""Disconnect clients that read their responses too slowly.

Such a client keeps a connection, a file descriptor and the unsent part of its response.
"""

import asyncio

from outcrop.lazy_logger import get_logger
from outcrop.limits import CLIENT_BYTES_PER_SECOND, CLIENT_SECONDS

_TICK = 1.0  # seconds

log = get_logger()


class ReadWatch:
    """Watches how fast a client reads, while bytes of a response wait to be sent on its connection.

    The client is late by the time in which it has read less than CLIENT_BYTES_PER_SECOND. Reading faster
    makes up for it. A client that is late by more than `seconds` is disconnected.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float = CLIENT_SECONDS) -> None:
        self._transport = transport
        self._max_late = seconds
        self._late = 0.0
        self._waiting = 0  # bytes at the last tick
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Watch the connection until nothing waits to be sent."""
        if self._timer is None and (waiting := self._transport.get_write_buffer_size()) > 0:
            self._waiting = waiting
            self._timer = asyncio.get_running_loop().call_later(_TICK, self._tick)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Compare with the last tick. More bytes than then are a client's progress: it made room for them."""
        self._timer = None
        waiting = self._transport.get_write_buffer_size()
        if waiting == 0:
            self._late = 0.0
        elif waiting <= self._waiting:
            read = self._waiting - waiting
            self._late = max(0.0, self._late + _TICK - read / CLIENT_BYTES_PER_SECOND)
        if self._late > self._max_late:
            log.info("slow_reader_disconnected", waiting_bytes=waiting)
            self._transport.abort()
        else:
            self.begin()
