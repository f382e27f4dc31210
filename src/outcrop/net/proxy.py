"""Open connections through the operator's proxy.

The proxy is asked to connect to an address that the guard has checked, never to a name: the proxy would look
a name up once more, and could be led to another address. Its own address may be private, because the
operator has named it. If the proxy refuses, there is no connection: a direct one is never tried instead.
"""

import asyncio
import base64
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from http import HTTPStatus

from outcrop.domain.proxy_address import ProxyAddress
from outcrop.limits import CONNECT_SECONDS, PROXY_RESPONSE_BYTES
from outcrop.net.guard import Egress, EgressError, look_up
from outcrop.net.tls import tls_context

_COPIED_BYTES = 1 << 16  # at once
_FLUSH_SECONDS = 20.0  # for what our side has sent last
_END_OF_HEAD = b"\r\n\r\n"
_NOT_A_PROXY = "the proxy does not answer like a proxy"
_NO_CONNECTION = "the proxy cannot be connected to"
_running: set[asyncio.Task[None]] = set()  # keeps running tasks from being collected


class ProxyError(EgressError):
    """The proxy has not made the connection. The message names neither the proxy nor the host."""


async def open_tunnel(egress: Egress, address: str, port: int) -> socket.socket:
    """Return a socket that the proxy of `egress` has connected to this checked address.

    Raise ProxyError if there is none within CONNECT_SECONDS. The socket is an end of a pair: its other end is
    copied to and from the proxy's connection, which may be encrypted.
    """
    reader, writer = await connect_through_proxy(egress, address, port)
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    near_reader, near_writer = await asyncio.open_connection(sock=near, limit=_COPIED_BYTES)
    task = asyncio.get_running_loop().create_task(copy_both(near_reader, near_writer, reader, writer))
    _running.add(task)
    task.add_done_callback(_running.discard)
    return far


async def connect_through_proxy(egress: Egress, address: str, port: int) -> tuple[StreamReader, StreamWriter]:
    """Return the streams of a connection to this checked address; raise ProxyError as `open_tunnel` does."""
    assert egress.proxy is not None  # noqa: S101
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await _connect_to_proxy(egress.proxy, egress)
            try:
                writer.write(_connect_request(egress.proxy, address, port))
                _check_response(await _read_head(reader), has_login=egress.proxy.login is not None)
            except BaseException:
                writer.transport.abort()
                raise
            return reader, writer
    except TimeoutError:
        raise ProxyError("the proxy does not answer in time") from None
    except ssl.SSLError:
        raise ProxyError("TLS with the proxy failed or its certificate is not trusted") from None
    except OSError:
        raise ProxyError(_NO_CONNECTION) from None


async def copy_both(
    near_reader: StreamReader, near_writer: StreamWriter, reader: StreamReader, writer: StreamWriter
) -> None:
    """Copy between our side (`near_…`) and the proxy's connection until our side has ended; close both.

    Our clients close their side as a whole, so a host that keeps its side open holds nothing here.
    """
    answers = asyncio.get_running_loop().create_task(_copy_answers(reader, near_writer))
    try:
        with suppress(OSError):
            while data := await near_reader.read(_COPIED_BYTES):
                writer.write(data)
                await writer.drain()
            writer.close()
            async with asyncio.timeout(_FLUSH_SECONDS):
                await writer.wait_closed()
    finally:
        answers.cancel()
        writer.transport.abort()
        near_writer.transport.abort()


async def _copy_answers(reader: StreamReader, near_writer: StreamWriter) -> None:
    """Copy what arrives to our side, and then its end; a lost connection ends our side too."""
    try:
        while data := await reader.read(_COPIED_BYTES):
            near_writer.write(data)
            await near_writer.drain()
        near_writer.write_eof()
    except OSError:
        near_writer.transport.abort()


async def _connect_to_proxy(proxy: ProxyAddress, egress: Egress) -> tuple[StreamReader, StreamWriter]:
    """Connect to the proxy, with TLS if its address is https."""
    host, port = next(
        (
            (address, address_port)
            for name, name_port, address, address_port in egress.connect_to
            if (name, name_port) == (proxy.host.lower(), proxy.port)
        ),
        (proxy.host, proxy.port),
    )
    try:
        addresses = await asyncio.to_thread(look_up, host, port)
    except UnicodeError:
        raise ProxyError(_NO_CONNECTION) from None
    failure: OSError = OSError()
    for address in addresses:
        try:
            return await asyncio.open_connection(
                address,
                port,
                limit=PROXY_RESPONSE_BYTES,
                local_addr=(egress.source_address, 0) if egress.source_address else None,
                ssl=tls_context(egress) if proxy.tls else None,
                server_hostname=proxy.host if proxy.tls else None,
            )
        except OSError as error:
            failure = error
    raise failure


def _connect_request(proxy: ProxyAddress, address: str, port: int) -> bytes:
    """Return the CONNECT request for an address, with the login of the proxy."""
    authority = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    if proxy.login is not None:
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(proxy.login.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode()


async def _read_head(reader: StreamReader) -> bytes:
    """Return the head of the proxy's response; what follows it stays in the reader."""
    try:
        return await reader.readuntil(_END_OF_HEAD)
    except asyncio.IncompleteReadError as error:
        if error.partial and not error.partial.startswith(b"HTTP/"):
            raise ProxyError(_NOT_A_PROXY) from None
        raise ProxyError("the proxy closed the connection without an answer") from None
    except asyncio.LimitOverrunError:
        raise ProxyError(_NOT_A_PROXY) from None


def _check_response(head: bytes, *, has_login: bool) -> None:
    """Raise ProxyError unless the head says that the connection is made."""
    status_line, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = status_line.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
        raise ProxyError(_NOT_A_PROXY)
    status = int(code)
    if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise ProxyError(
            "the proxy refuses the user name and password in OUTCROP_EGRESS_PROXY"
            if has_login
            else "the proxy requires a user name and password in OUTCROP_EGRESS_PROXY"
        )
    if not HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        raise ProxyError(f"the proxy refuses the connection (HTTP {status})")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    # A connection has no length and no media type. A sign-in page or a plain web server's page has.
    if headers.get("content-length", "0") != "0" or headers.get("content-type", "").startswith("text/html"):
        raise ProxyError("the proxy answers with a page and not with a connection")


def read_headers(lines: list[str]) -> dict[str, str]:
    """Return the values of these header lines by name in lower case."""
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
