"""One POST on a connection of its own: a checked address, one deadline over everything, and no more of an answer than is wanted.

Written on asyncio's own connections: a receiver may send heads, interim answers or bodies without end, and every byte of them counts
against one limit here. Nothing is followed, reused, unpacked or tried again.
"""

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

import httptools
from yarl import URL

from outcrop.net.guard import Egress, EgressError, NoAddressError, resolve
from outcrop.net.http import tls_context

_CLOSING = 1.0  # seconds that the other side gets to say goodbye
_NO_BODY = {204, 304}
_MARK = (b"\r\n", b"\n", b"\0")  # what must not be in a line of the head


@dataclass(frozen=True, slots=True)
class PostResponse:
    """The final answer, and the beginning of its body."""

    status: int
    body: bytes


class PostError(Exception):
    """No whole answer: the reason, in words that name nothing of ours or theirs, and what there was of an answer."""

    def __init__(self, reason: str, *, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.body = body


class PostClient:
    """Sends to wherever the guard allows."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        self._tls = tls_context(egress)
        self._lookups = _Lookups(egress)

    async def post(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        seconds: float,
        max_bytes: int,
        max_body: int,
    ) -> PostResponse:
        """Send once. At most `max_bytes` bytes of the answer are read, head and all; `max_body` of its body are given back."""
        address = URL(url)
        exchange = _PostProtocol(_request(address, headers, body), max_bytes, max_body)
        local = (self._egress.source_address, 0) if self._egress.source_address else None
        try:
            async with asyncio.timeout(seconds):
                host, port = address.raw_host or "", address.port or 443
                checked, at_port = await self._lookups.find(host, port)
                await asyncio.get_running_loop().create_connection(
                    lambda: exchange,
                    *(checked, at_port),
                    ssl=self._tls,
                    server_hostname=host,
                    local_addr=local,
                    ssl_shutdown_timeout=_CLOSING,
                )
                return await exchange.reply
        except TimeoutError:
            raise exchange.failed(f"no whole answer within {seconds:g} seconds") from None
        except NoAddressError:
            raise PostError("the name has no address") from None
        except EgressError:
            raise PostError("the name leads to an address that is not public") from None
        except ssl.SSLCertVerificationError:
            raise PostError("its certificate is not trusted") from None
        except ssl.SSLError:
            raise exchange.failed("TLS failed") from None
        except OSError:
            reason = "cannot be connected to" if exchange.transport is None else "the connection broke"
            raise exchange.failed(reason) from None
        except ValueError:
            raise PostError("cannot be connected to") from None
        finally:
            exchange.end()


class _PostProtocol(asyncio.Protocol):
    """Sends the request as soon as there is a connection, and reads the answer as far as it counts."""

    def __init__(self, request: bytes, max_bytes: int, max_body: int) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self.reply: asyncio.Future[PostResponse] = asyncio.get_running_loop().create_future()
        self._request = request
        self._left = max_bytes
        self._max_body = max_body
        self._parser = httptools.HttpResponseParser(self)
        self._status: int | None = None
        self._body = bytearray()
        self._framed = False  # the head says where the body ends

    def failed(self, reason: str) -> PostError:
        return PostError(reason, status=self._status, body=bytes(self._body))

    def end(self) -> None:
        """Close in order after a whole answer, at once otherwise."""
        if self.transport is None:
            return
        if (
            self.reply.done()
            and not self.reply.cancelled()
            and self.reply.exception() is None
            and self._left > 0
        ):
            self.transport.close()
        else:
            self.transport.abort()
            self.reply.cancel()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.WriteTransport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.reply.done():
            return
        counted = data[: self._left]
        self._left -= len(counted)
        try:
            self._parser.feed_data(counted)
        except httptools.HttpParserError:
            self._fail("the answer is no HTTP")
        except httptools.HttpParserUpgrade:
            self._fail("the answer wants another protocol")
        if self._left == 0:
            if self._status is None:
                self._fail("the head of the answer does not end")
            else:
                self._succeed()

    def eof_received(self) -> None:
        if self._status is None:
            self._fail("the connection was closed without an answer")
        elif self._framed:
            self._fail("the answer ended early")
        else:
            self._succeed()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.reply.done():
            self.reply.set_exception(exc if isinstance(exc, OSError) else ConnectionError())
        self.eof_received()

    # --- called by the parser

    def on_message_begin(self) -> None:
        self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002
        self._framed = self._framed or name.lower() in {b"content-length", b"transfer-encoding"}

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 and self._status is None:
            self._status = status
            if status in _NO_BODY:
                self._succeed()

    def on_body(self, body: bytes) -> None:
        if len(self._body) < self._max_body:
            self._body += body[: self._max_body - len(self._body)]

    def on_message_complete(self) -> None:
        if self._status is not None:
            self._succeed()

    def _succeed(self) -> None:
        if not self.reply.done():
            assert self._status is not None  # noqa: S101
            self.reply.set_result(PostResponse(self._status, bytes(self._body)))

    def _fail(self, reason: str) -> None:
        if not self.reply.done():
            self.reply.set_exception(self.failed(reason))


@dataclass(slots=True)
class _Lookups:
    """Finds addresses without a queue: each name has a thread of its own for as long as the resolver takes, and never two.

    A pool of threads would let a few names whose servers never answer keep all the others waiting.
    """

    egress: Egress
    running: dict[tuple[str, int], asyncio.Future[tuple[str, int]]] = field(default_factory=dict)

    async def find(self, host: str, port: int) -> tuple[str, int]:
        if _needs_no_resolver(host, port, self.egress):
            return resolve(host, port, self.egress)
        key = (host, port)
        if (found := self.running.get(key)) is None:
            found = self.running[key] = asyncio.get_running_loop().create_future()
            found.add_done_callback(lambda done: (self.running.pop(key), done.exception()))
            threading.Thread(target=self._resolve, args=(host, port, found), daemon=True).start()
        return await asyncio.shield(found)

    def _resolve(self, host: str, port: int, found: asyncio.Future[tuple[str, int]]) -> None:
        loop = found.get_loop()
        try:
            address = resolve(host, port, self.egress)
            tell = lambda: found.set_result(address)  # noqa: E731
        except Exception as error:  # noqa: BLE001 - told to whoever waits for it
            kept = error
            tell = lambda: found.set_exception(kept)  # noqa: E731
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(tell)


def _needs_no_resolver(host: str, port: int, egress: Egress) -> bool:
    if any(name == host.lower() and at == port for name, at, _, _ in egress.connect_to):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _request(url: URL, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {url.raw_path_qs} HTTP/1.1", f"Host: {_host(url)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Accept-Encoding: identity", "Connection: close"]
    encoded = [line.encode("latin-1") for line in lines]
    if any(mark in line for line in encoded for mark in _MARK):
        raise PostError("the request cannot be written")
    return b"\r\n".join([*encoded, b"", body])


def _host(url: URL) -> str:
    host = f"[{url.raw_host}]" if ":" in (url.raw_host or "") else url.raw_host
    return f"{host}" if url.is_default_port() else f"{host}:{url.port}"
