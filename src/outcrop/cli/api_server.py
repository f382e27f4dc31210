"""Serve the API and the portal in a child process of `outcrop serve`, with limits for request heads."""

import asyncio
import socket
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outcrop import metrics
from outcrop.api.proxies import behind_proxies
from outcrop.asgi import create_app
from outcrop.cli.accept import Acceptor, Connection, ConnectionLimits, count_descriptors
from outcrop.cli.slow_readers import ReadWatch
from outcrop.limits import CLIENT_SECONDS, MEGA, REQUEST_HEAD_SECONDS
from outcrop.net.guard import Egress
from outcrop.runtime import open_runtime
from outcrop.services.access import AccessCheck
from outcrop.settings import Settings

POOL_SIZE = 16  # connections of one API process; more would only queue inside the database
IDLE_TIMEOUT = 15.0  # seconds that a session may be idle in a transaction
STATEMENT_TIMEOUT = 4.0  # seconds; a response must be sent within 5, even if the database hangs

MAX_DATABASE_RETRY_DELAY = 2.0  # seconds; a process that starts while the database recovers waits for it


class ApiProtocol(HttpToolsProtocol):
    """HTTP protocol that answers malformed, too long and too slow request heads with 400 and a JSON body.

    It disconnects clients that read their responses too slowly.
    """

    max_head_bytes, max_head_seconds = 64 << 10, REQUEST_HEAD_SECONDS  # request line and headers
    max_late_seconds = CLIENT_SECONDS

    connection: Connection | None = None  # set before `connection_made`
    _head = 0  # bytes of the incomplete head so far
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self.connection is not None:
            self.connection.transport = transport
        self._read_watch = ReadWatch(transport, self.max_late_seconds)
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_ended()
        self._read_watch.end()
        if self.connection is not None:
            self.connection.closed()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head, self._in_head = 0, True
        self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_watch.begin()

    def on_response_complete(self) -> None:
        self._read_watch.begin()
        has_next = bool(self.pipeline)
        super().on_response_complete()
        if not has_next:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_ended()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head += len(data)
            if self._head > self.max_head_bytes:
                self._refuse()

    def _wait_for_head(self) -> None:
        """Start the timer for the head of the next request, unless it runs."""
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.max_head_seconds, self._refuse)
        if self.connection is not None and (self.cycle is None or self.cycle.response_complete):
            self.connection.set_waiting(waiting=True)

    def _head_ended(self) -> None:
        """Reset the counter and the timer: the head is complete or the connection closed."""
        self._head, self._in_head = 0, False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if self.connection is not None:
            self.connection.set_waiting(waiting=False)

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        if self._in_head and self._head:
            self.send_400_response("")
        else:
            # Nothing of a request has come. A browser opens connections before it needs them, and would take
            # a response for that to its next request.
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message is not JSON
        if self.cycle is not None and not self.cycle.response_complete:
            # The head was well formed and is being answered; only the body, which nobody reads, is malformed.
            self.cycle.keep_alive = False
            return
        metrics.count_request(metrics.UNMATCHED, metrics.OTHER_METHOD, 400, 0.0)
        body = b'{"error":"bad_request","message":"the request cannot be parsed"}'
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()


class ApiServer(uvicorn.Server):
    """Server that accepts the connections of one listening socket within limits for each address."""

    def __init__(self, config: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(config)
        self._limits = limits
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for sock in sockets or []:
            acceptor = Acceptor(sock, self._limits, self._create_protocol, self.config.ssl)
            self._accepting = asyncio.create_task(acceptor.run())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        await super().shutdown(sockets)

    def _create_protocol(self, connection: Connection) -> asyncio.Protocol:
        """Return the protocol of an accepted connection."""
        protocol = ApiProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        protocol.connection = connection
        return protocol


def serve_api(settings: Settings, fd: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    """Serve the API and the portal on the inherited socket."""
    if settings.base_url is None:
        raise RuntimeError("the parent must set the base address")
    app = create_app(
        open_runtime(
            settings,
            pool_size=POOL_SIZE,
            statement_timeout=STATEMENT_TIMEOUT,
            idle_timeout=IDLE_TIMEOUT,
            max_retry_delay=MAX_DATABASE_RETRY_DELAY,
        ),
        base_url=settings.base_url,
        rate_limit=settings.rate_limit_per_minute,
        cors_origins=settings.cors_origins,
        github_host=settings.github_host,
        own_rules=[settings.rules] if settings.rules else [],
        notice=settings.notice,
        webhook_ports=settings.allowed_webhook_ports,
        import_max_bytes=settings.import_max_mb * MEGA,
        access=AccessCheck(Egress.from_settings(settings), settings.github_api_url, settings.github_host),
    )
    config = uvicorn.Config(
        behind_proxies(app, settings.trusted_proxies) if settings.trusted_proxies else app,
        http=ApiProtocol,
        loop="uvloop",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    limits = ConnectionLimits(count_descriptors(), settings.trusted_proxies)
    ApiServer(config, limits).run(sockets=[socket.socket(fileno=fd)])
