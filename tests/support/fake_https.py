"""Run an HTTPS server on loopback that answers for any host name, as an issuer or a webhook receiver."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from outcrop.net.guard import Egress
from tests.support.tls import make_certificate

Respond = Callable[["ReceivedRequest"], "FakeResponse"]


@dataclass
class ReceivedRequest:
    """A request that the server received."""

    host: str
    method: str
    path: str  # without the query
    query: str
    headers: Mapping[str, str]
    body: bytes
    raw_path: str = ""  # without the query, as it was sent: with percent-encoding


@dataclass
class FakeResponse:
    """The response to one request."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0  # seconds before it is sent
    drop: bool = False  # close the connection instead of responding


@dataclass
class FakeServer:
    """A running server. Tests may replace `respond` at any time."""

    respond: Respond
    hosts: tuple[str, ...]
    ca: Path  # the certificate that clients must trust
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)

    @property
    def egress(self) -> Egress:
        """Settings that send requests for `hosts` to this server and trust its certificate."""
        return Egress.parse(
            ["127.0.0.0/8"], [f"{host}:443=127.0.0.1:{self.port}" for host in self.hosts], self.ca
        )


@contextmanager
def serve_https(folder: Path, hosts: tuple[str, ...], respond: Respond) -> Iterator[FakeServer]:
    """Run a server for these host names until the block ends; its certificate is written to `folder`."""
    cert, key = make_certificate(folder, *hosts)
    server = FakeServer(respond, hosts, cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        received = ReceivedRequest(
            request.host,
            request.method,
            request.path,
            request.query_string,
            dict(request.headers),
            await request.read(),
            request.raw_path.partition("?")[0],
        )
        server.requests.append(received)
        response = server.respond(received)
        await asyncio.sleep(response.delay)
        if response.drop:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(status=response.status, headers=response.headers, body=response.body)

    async def stop(runner: web.ServerRunner) -> None:
        await runner.cleanup()
        unfinished = asyncio.all_tasks() - {asyncio.current_task()}
        for task in unfinished:  # responses whose delay is not over
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        return runner

    try:
        runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(stop(runner), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
