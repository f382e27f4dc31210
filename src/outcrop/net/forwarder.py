"""A proxy on loopback that takes git through the operator's proxy, to one checked address.

git can only ask a proxy for a name. So it asks this forwarder, which accepts one name and port, and asks the
operator's proxy for the address that the guard has checked. Other programs of the machine cannot use it: the
password is random and made for one command.
"""

import asyncio
import base64
import hmac
import secrets
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from outcrop.limits import CONNECT_SECONDS
from outcrop.net.guard import Egress
from outcrop.net.proxy import ProxyError, connect_through_proxy, copy_both

_REQUEST_BYTES = 1 << 16
_USER = "git"


@dataclass(slots=True)
class Forwarder:
    """A running forwarder."""

    port: int = 0
    password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    failure: str | None = None  # why the operator's proxy has last refused

    @property
    def url(self) -> str:
        """Return its address for git, with its password."""
        return f"http://{_USER}:{self.password}@127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class _Route:
    """The only connection that a forwarder makes."""

    authority: str  # what git asks for
    egress: Egress
    address: str  # what the operator's proxy is asked for
    port: int


@contextmanager
def forward(egress: Egress, authority: str, address: str, port: int) -> Iterator[Forwarder]:
    """Run a forwarder that leads `authority` (`host:port`) to a checked address; stop it after the block."""
    forwarder = Forwarder()
    route = _Route(authority.lower(), egress, address, port)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()
    errors: list[BaseException] = []

    async def serve() -> None:
        async def accept(reader: StreamReader, writer: StreamWriter) -> None:
            try:
                await _serve_client(reader, writer, route, forwarder)
            finally:
                writer.transport.abort()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_REQUEST_BYTES)
        forwarder.port = server.sockets[0].getsockname()[1]
        ready.set()
        try:
            await stop.wait()
        finally:
            server.close()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    if errors:
        raise errors[0]
    try:
        yield forwarder
    finally:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _serve_client(
    reader: StreamReader, writer: StreamWriter, route: _Route, forwarder: Forwarder
) -> None:
    """Answer one CONNECT request, and copy bytes until the client ends."""
    with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        status = _check_request(head, route.authority, forwarder.password)
        if status != "200":
            await _refuse(writer, status)
            return
        try:
            far_reader, far_writer = await connect_through_proxy(route.egress, route.address, route.port)
        except ProxyError as error:
            forwarder.failure = error.message
            await _refuse(writer, "502")
            return
        forwarder.failure = None
        writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
        await copy_both(reader, writer, far_reader, far_writer)


async def _refuse(writer: StreamWriter, status: str) -> None:
    """Answer with a status and close the connection."""
    writer.write(f"HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    writer.close()
    await writer.wait_closed()


def _check_request(head: bytes, authority: str, password: str) -> str:
    """Return the status of the response: 200 for a CONNECT to `authority` with the password."""
    request, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    expected = "Basic " + base64.b64encode(f"{_USER}:{password}".encode()).decode()
    given = headers.get("proxy-authorization", "")
    if not hmac.compare_digest(given.encode("latin-1"), expected.encode()):
        return "407"
    method, _, rest = request.partition(" ")
    return "200" if method == "CONNECT" and rest.partition(" ")[0].lower() == authority else "403"
