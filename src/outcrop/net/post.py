"""Send one POST request on a connection of its own, for webhook deliveries.

Customers choose the receiver, so it may be hostile. It may name an internal address, or send headers, interim
responses or a body without end. Here the address is checked, one deadline covers everything, and every byte
of the response counts against one limit. That is why this uses asyncio's protocols instead of an HTTP client.
There are no redirects, no reused connections, no decompression and no retries.
"""

import asyncio
import ipaddress
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import httptools
from yarl import URL

from outcrop.net.guard import Egress, EgressError, NoAddressError, resolve
from outcrop.net.proxy import ProxyError, open_tunnel
from outcrop.net.tls import tls_context

_TLS_SHUTDOWN_SECONDS = 1.0  # wait this long for the receiver's TLS close message
_STATUS_WITHOUT_BODY = {204, 304}
_FIRST_FINAL_STATUS = 200  # 1xx responses are interim
_NOT_IN_HEADER = (b"\r\n", b"\n", b"\0")  # would end a header line and start one of the value's own


@dataclass(frozen=True, slots=True)
class PostResponse:
    """The final response, with the beginning of its body."""

    status: int
    body: bytes


class PostError(Exception):
    """There is no complete response.

    `reason` contains nothing of the request or the response. `status` and `body` are those that were received
    before the failure.
    """

    def __init__(self, reason: str, *, status: int | None = None, body: bytes = b"") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.body = body


class PostClient:
    """Sends POST requests to the addresses that `egress` allows, and only to `ports` if there are any."""

    def __init__(self, egress: Egress, ports: frozenset[int] = frozenset()) -> None:
        self._egress = egress
        self._ports = ports
        self._tls = tls_context(egress)
        self._lookups = _DnsLookups(egress)

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
        """Send the request once and return the response; raise PostError if there is none within `seconds`.

        At most `max_bytes` of the response are read, including its headers. At most `max_body` of its body
        are kept.
        """
        address = URL(url)
        host, port = address.raw_host or "", address.port or 443
        if self._ports and port not in self._ports:
            raise PostError(f"port {port} is not in OUTCROP_WEBHOOK_PORTS")
        protocol = _PostProtocol(_request_bytes(address, headers, body), max_bytes, max_body)
        try:
            async with asyncio.timeout(seconds):
                await self._connect(protocol, host, *await self._lookups.resolve(host, port))
                return await protocol.response
        except TimeoutError:
            raise protocol.error(f"no complete response within {seconds:g} seconds") from None
        except NoAddressError:
            raise PostError("the name has no address") from None
        except ProxyError as error:
            raise PostError(error.message) from None
        except EgressError:
            raise PostError("the name resolves to an address that is not public") from None
        except ssl.SSLCertVerificationError:
            raise PostError("the certificate is not trusted") from None
        except ssl.SSLError:
            raise protocol.error("TLS failed") from None
        except OSError:
            reason = "connection failed" if protocol.transport is None else "the connection was lost"
            raise protocol.error(reason) from None
        except ValueError:
            raise PostError("connection failed") from None
        finally:
            protocol.close()

    async def _connect(self, protocol: "_PostProtocol", host: str, address: str, port: int) -> None:
        """Connect the protocol to the checked address, over TLS with `host` as the expected name."""
        egress, loop = self._egress, asyncio.get_running_loop()
        local_address = (egress.source_address, 0) if egress.source_address else None
        tls: dict[str, Any] = {
            "ssl": self._tls,
            "server_hostname": host,
            "ssl_shutdown_timeout": _TLS_SHUTDOWN_SECONDS,
        }
        if egress.proxy is not None:
            tunnel = await open_tunnel(egress, address, port)
            await loop.create_connection(lambda: protocol, sock=tunnel, **tls)
        else:
            await loop.create_connection(lambda: protocol, address, port, local_addr=local_address, **tls)


class _PostProtocol(asyncio.Protocol):
    """Sends the request when the connection is made, then parses the response up to the byte limit."""

    def __init__(self, request: bytes, max_bytes: int, max_body: int) -> None:
        self.transport: asyncio.WriteTransport | None = None
        self.response: asyncio.Future[PostResponse] = asyncio.get_running_loop().create_future()
        self._request = request
        self._bytes_left = max_bytes
        self._max_body = max_body
        self._parser = httptools.HttpResponseParser(self)
        self._status: int | None = None  # of the final response; None while only interim ones have arrived
        self._body = bytearray()
        self._has_body_length = False  # the headers say where the body ends; else the connection's end does

    def error(self, reason: str) -> PostError:
        """Return a PostError with the part of the response that was received."""
        return PostError(reason, status=self._status, body=bytes(self._body))

    def close(self) -> None:
        """Close the connection with a TLS shutdown after a complete response, else abort it."""
        if self.transport is None:
            return
        if (
            self.response.done()
            and not self.response.cancelled()
            and self.response.exception() is None
            and self._bytes_left > 0
        ):
            self.transport.close()
        else:
            self.transport.abort()
            self.response.cancel()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        self.transport = cast("asyncio.WriteTransport", transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Parse the next bytes of the response; at the byte limit, end the response as it is."""
        if self.response.done():
            return
        counted = data[: self._bytes_left]
        self._bytes_left -= len(counted)
        try:
            self._parser.feed_data(counted)
        except httptools.HttpParserError:
            self._fail("the response is not HTTP")
        except httptools.HttpParserUpgrade:
            self._fail("the response asks for another protocol")
        if self._bytes_left == 0:
            if self._status is None:
                self._fail("no final response within the size limit")
            else:
                self._succeed()

    def eof_received(self) -> None:
        """End the response, which is complete unless its headers announced a longer body."""
        if self._status is None:
            self._fail("the connection was closed without a response")
        elif self._has_body_length:
            self._fail("the response ended early")
        else:
            self._succeed()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail with `exc`, or end the response if the connection was closed in order."""
        if exc is not None and not self.response.done():
            self.response.set_exception(exc if isinstance(exc, OSError) else ConnectionError())
        self.eof_received()

    # --- called by the parser, for interim responses too

    def on_message_begin(self) -> None:
        """Start a response."""
        self._has_body_length = False

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002
        """Note whether a header says where the body ends."""
        self._has_body_length = self._has_body_length or name.lower() in {
            b"content-length",
            b"transfer-encoding",
        }

    def on_headers_complete(self) -> None:
        """Store the status of a final response, which is complete now if its status has no body."""
        status = self._parser.get_status_code()
        if status >= _FIRST_FINAL_STATUS and self._status is None:
            self._status = status
            if status in _STATUS_WITHOUT_BODY:
                self._succeed()

    def on_body(self, body: bytes) -> None:
        """Keep the beginning of the body."""
        if len(self._body) < self._max_body:
            self._body += body[: self._max_body - len(self._body)]

    def on_message_complete(self) -> None:
        """End a final response."""
        if self._status is not None:
            self._succeed()

    def _succeed(self) -> None:
        """Set the response as the result, unless there is a result already."""
        if not self.response.done():
            assert self._status is not None  # noqa: S101
            self.response.set_result(PostResponse(self._status, bytes(self._body)))

    def _fail(self, reason: str) -> None:
        """Set a PostError as the result, unless there is a result already."""
        if not self.response.done():
            self.response.set_exception(self.error(reason))


@dataclass(slots=True)
class _DnsLookups:
    """Resolves names, each in a thread of its own; a second request for a name joins the running lookup.

    In a thread pool, a few names whose name servers never answer would block the lookups of all other
    receivers.
    """

    egress: Egress
    running: dict[tuple[str, int], asyncio.Future[tuple[str, int]]] = field(default_factory=dict)

    async def resolve(self, host: str, port: int) -> tuple[str, int]:
        """Return the checked address and port to connect to; raise EgressError if they are not allowed."""
        if _needs_no_lookup(host, port, self.egress):
            return resolve(host, port, self.egress)
        key = (host, port)
        if (lookup := self.running.get(key)) is None:
            lookup = self.running[key] = asyncio.get_running_loop().create_future()
            # Reading the exception marks it as handled, also when all waiting requests have timed out.
            lookup.add_done_callback(lambda done: (self.running.pop(key), done.exception()))
            threading.Thread(target=self._resolve_in_thread, args=(host, port, lookup), daemon=True).start()
        return await asyncio.shield(lookup)

    def _resolve_in_thread(self, host: str, port: int, lookup: asyncio.Future[tuple[str, int]]) -> None:
        """Resolve the name and set the result of `lookup` in its event loop."""
        loop = lookup.get_loop()
        try:
            address = resolve(host, port, self.egress)
            set_outcome = lambda: lookup.set_result(address)  # noqa: E731
        except Exception as error:  # noqa: BLE001 - raised again in the requests that wait for the lookup
            failure = error
            set_outcome = lambda: lookup.set_exception(failure)  # noqa: E731
        with suppress(RuntimeError):  # the loop is closed, so no request waits for the lookup
            loop.call_soon_threadsafe(set_outcome)


def _needs_no_lookup(host: str, port: int, egress: Egress) -> bool:
    """Whether `host` is an IP address or has a fixed address in the operator's settings."""
    if any(name == host.lower() and name_port == port for name, name_port, _, _ in egress.connect_to):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _request_bytes(url: URL, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the request as it is sent; raise PostError if a line break in a value would add a header."""
    lines = [f"POST {url.raw_path_qs} HTTP/1.1", f"Host: {_host_header(url)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Accept-Encoding: identity", "Connection: close"]
    encoded = [line.encode("latin-1") for line in lines]
    if any(mark in line for line in encoded for mark in _NOT_IN_HEADER):
        raise PostError("the request headers contain a line break or a NUL")
    return b"\r\n".join([*encoded, b"", body])


def _host_header(url: URL) -> str:
    """Return the host for the Host header, with brackets around IPv6 and a non-default port."""
    host = f"[{url.raw_host}]" if ":" in (url.raw_host or "") else url.raw_host
    return f"{host}" if url.is_default_port() else f"{host}:{url.port}"
