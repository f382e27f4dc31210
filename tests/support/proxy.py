"""A proxy on loopback that connects to addresses (CONNECT), and proxies that misbehave."""

import asyncio
import base64
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

PAGE = b"<html><body>Please sign in</body></html>"
REPLIES = {
    "refuses": b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
    "has no route": b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\n\r\n" + PAGE,
    "wants a password": b'HTTP/1.1 407 Login\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n',
    "answers with a page": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 40\r\n\r\n" + PAGE,
    "answers with bare HTML": PAGE,
    "closes": b"",
    "sends headers without end": b"HTTP/1.1 200 OK\r\n" + b"X-More: and more\r\n" * 10_000,
    "sends rubbish": b"\x00\xff\xfe" * 100,
}


@dataclass
class Proxy:
    """A running proxy, and the addresses that it was asked for."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    connected: list[str] = field(default_factory=list)


@contextmanager
def run_proxy(
    *, login: str | None = None, kind: str = "connects", tls: ssl.SSLContext | None = None
) -> Iterator[Proxy]:
    """Run a proxy. It asks for `login` (`user:password`) if there is one. `kind` is one of REPLIES or "hangs"."""
    proxy = Proxy()
    loop = asyncio.new_event_loop()
    ready, stop = threading.Event(), asyncio.Event()

    async def accept(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await _serve(reader, writer, proxy, login, kind)
        finally:
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
        proxy.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            loop.set_exception_handler(lambda *_: None)
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _serve(
    reader: StreamReader, writer: StreamWriter, proxy: Proxy, login: str | None, kind: str
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    method, authority, _ = head.split(" ", 2)
    assert method == "CONNECT"
    proxy.asked.append(authority)
    if kind == "hangs":
        await asyncio.sleep(3600)
    if kind in REPLIES:
        writer.write(REPLIES[kind])
        await writer.drain()
        return
    expected = f"Proxy-Authorization: Basic {base64.b64encode((login or '').encode()).decode()}\r\n"
    if login and expected not in head:
        writer.write(REPLIES["wants a password"])
        return
    host, _, port = authority.rpartition(":")
    far_reader, far_writer = await asyncio.open_connection(host.strip("[]"), int(port))
    proxy.connected.append(authority)
    # A greeting of the server may be in the same packet as the head.
    writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
    up = asyncio.ensure_future(_copy(reader, far_writer))
    down = asyncio.ensure_future(_copy(far_reader, writer))
    await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
    for task, end in ((up, writer), (down, far_writer)):
        task.cancel()
        end.close()


async def _copy(reader: StreamReader, writer: StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
