"""One child of `outcrop serve`: an API process or the worker. It ends with its parent, however that ends.

A program of its own (`python -m outcrop.cli.process`), so that no other command waits for the web framework to be loaded.
"""

import asyncio
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Annotated

import typer
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outcrop.api.proxies import behind_proxies
from outcrop.asgi import create_app
from outcrop.cli.serve import PATIENCE, Part, work_until_told
from outcrop.cli.session import run, start
from outcrop.runtime import open_runtime
from outcrop.settings import Settings

POOL_SIZE = 16  # connections of one API process: more would only queue inside the database
HEAD_BYTES, HEAD_SECONDS = 64 << 10, 30.0  # of a request, before anybody knows who asks
STATEMENT_TIMEOUT = 4.0  # seconds; an answer must be out within 5, the database there or not


def process(
    part: Part,
    fd: Annotated[int, typer.Option()] = -1,
    tls_cert: Annotated[Path | None, typer.Option()] = None,
    tls_key: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Run one part of the service (started by `outcrop serve`)."""
    settings = start()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if part is Part.API:
        _api(settings, fd, tls_cert, tls_key)
    else:
        run(lambda: work_until_told(settings))


def _end_with_parent() -> None:
    """Standard input is a pipe that nobody writes to: it ends when the parent is gone. From then on no more time is given than it gives."""
    while os.read(0, 1024):  # not sys.stdin: a thread blocked in it spoils the interpreter's own end
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os.kill(os.getpid(), signal.SIGKILL)


class ApiProtocol(HttpToolsProtocol):
    """A request that cannot be parsed gets JSON like every other failure, and so does one whose head is too long or does not end."""

    _head = 0  # bytes of a head that has not ended
    _in_head = True
    _too_slow: asyncio.TimerHandle | None = None

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
        went_on = self._in_head
        super().data_received(data)
        if went_on and self._in_head:
            self._head += len(data)
            if self._head > HEAD_BYTES:
                self._refuse()

    def _wait_for_head(self) -> None:
        self._head_ended()
        self._in_head = True
        self._too_slow = self.loop.call_later(HEAD_SECONDS, self._refuse)

    def _head_ended(self) -> None:
        self._head, self._in_head = 0, False
        if self._too_slow is not None:
            self._too_slow.cancel()

    def _refuse(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words, which are not JSON
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # the head was well-formed and is being answered: only its body, which nobody reads, is not
            return
        body = b'{"error":"bad_request","message":"the request cannot be parsed"}'
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            % len(body)
        )
        self.transport.write(head + body)
        self.transport.close()


def _api(settings: Settings, fd: int, tls_cert: Path | None, tls_key: Path | None) -> None:
    if settings.base_url is None:
        raise RuntimeError("the parent gives the base address")
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
