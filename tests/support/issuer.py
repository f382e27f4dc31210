"""A stand-in for every issuer at once: one server on loopback behind real TLS that answers in the name of any host."""

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from outcrop.net.guard import Egress
from tests.support.tls import certificate

Respond = Callable[["Asked"], "Play"]


@dataclass
class Asked:
    host: str
    method: str
    path: str  # without the query
    query: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Play:
    """One answer, after a while; `cut` closes the connection instead."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    after: float = 0.0
    cut: bool = False


@dataclass
class Issuer:
    respond: Respond
    hosts: tuple[str, ...]
    ca: Path
    port: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def egress(self) -> Egress:
        return Egress.parse(
            ["127.0.0.0/8"], [f"{host}:443=127.0.0.1:{self.port}" for host in self.hosts], self.ca
        )


@contextmanager
def issuer(folder: Path, hosts: tuple[str, ...], respond: Respond) -> Iterator[Issuer]:
    """Serve under these names until the block ends; `respond` may be changed while it runs."""
    cert, key = certificate(folder, *hosts)
    made = Issuer(respond, hosts, cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked = Asked(
            request.host,
            request.method,
            request.path,
            request.query_string,
            dict(request.headers),
            await request.read(),
        )
        made.asked.append(asked)
        play = made.respond(asked)
        await asyncio.sleep(play.after)
        if play.cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(status=play.status, headers=play.headers, body=play.body)

    async def start() -> web.ServerRunner:
        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        made.port = runner.addresses[0][1]
        return runner

    try:
        runner = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield made
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
