"""A child process of `outcrop serve`: an API process or the worker. It exits when its parent exits or dies.

It is a program of its own (`python -m outcrop.cli.process`), so that no other command imports FastAPI.
"""

import asyncio
import os
import socket
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outcrop.api.proxies import behind_proxies
from outcrop.asgi import create_app
from outcrop.cli.serve import SHUTDOWN_SECONDS, ChildRole, work_until_signal
from outcrop.cli.session import run, start
from outcrop.processes import watch_parent
from outcrop.runtime import open_runtime
from outcrop.settings import Settings

POOL_SIZE = 16  # connections of one API process; more would only queue inside the database
MAX_HEAD_BYTES, MAX_HEAD_SECONDS = 64 << 10, 30.0  # request line and headers, before authentication
STATEMENT_TIMEOUT = 4.0  # seconds; a response must be sent within 5, even if the database hangs


def process(
    role: ChildRole,
    fd: Annotated[int, typer.Option()] = -1,
    tls_cert: Annotated[Path | None, typer.Option()] = None,
    tls_key: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Run an API process or the worker. Started by `outcrop serve`."""
    settings = start()
    watch_parent(_wait_for_end_of_input, stop_within=SHUTDOWN_SECONDS)
    if role is ChildRole.API:
        _serve_api(settings, fd, tls_cert, tls_key)
    else:
        run(lambda: work_until_signal(settings))


def _wait_for_end_of_input() -> None:
    """Wait until standard input is closed. It is a pipe to the parent that nobody writes to."""
    while os.read(0, 1024):  # not sys.stdin: a thread that blocks in it breaks the interpreter's shutdown
        pass


class ApiProtocol(HttpToolsProtocol):
    """HTTP protocol that answers malformed, too long and too slow request heads with 400 and a JSON body."""

    _head = 0  # bytes of the incomplete head so far
    _in_head = True
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_ended()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._head_ended()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD_BYTES:
                self._refuse()

    def _wait_for_head(self) -> None:
        """Start the timer for the head of the next request."""
        self._head_ended()
        self._in_head = True
        self._head_timer = self.loop.call_later(MAX_HEAD_SECONDS, self._refuse)

    def _head_ended(self) -> None:
        """Reset the counter and the timer: the head is complete or the connection closed."""
        self._head, self._in_head = 0, False
        if self._head_timer is not None:
            self._head_timer.cancel()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message is not JSON
        if self.cycle is not None and not self.cycle.response_complete:
            # The head was well formed and is being answered; only the body, which nobody reads, is malformed.
            self.cycle.keep_alive = False
            return
        body = b'{"error":"bad_request","message":"the request cannot be parsed"}'
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()


def _serve_api(settings: Settings, fd: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    """Serve the API and the portal on the inherited socket."""
    if settings.base_url is None:
        raise RuntimeError("the parent must set the base address")
    app = create_app(
        open_runtime(settings, pool_size=POOL_SIZE, statement_timeout=STATEMENT_TIMEOUT),
        base_url=settings.base_url,
        rate_limit=settings.rate_limit_per_minute,
        cors_origins=settings.cors_origins,
        github_host=settings.github_host,
        own_rules=[settings.rules] if settings.rules else [],
        notice=settings.notice,
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
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])


if __name__ == "__main__":
    typer.run(process)
