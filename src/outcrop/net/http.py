"""Send HTTP requests to servers that we do not control.

Each request is limited so that a hostile server gains nothing:

- Every address is checked before it is connected to, those of redirects too, so that no server leads us into
  the internal network (`_GuardedResolver` for names, `_check_address_literal` for addresses).
- Time and size of a response are limited, the size after decompression: a compression bomb ends at
  `max_bytes`.
- Redirects are followed only where the caller allows it, and credentials are not sent to a second origin.
- Cookies, the proxies in the environment and .netrc are not used.
"""

import asyncio
import ipaddress
import socket
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from outcrop.limits import CONNECT_SECONDS, HTTP_REDIRECTS
from outcrop.net.guard import Egress, EgressError, LookUp, is_allowed, look_up, resolve
from outcrop.net.tls import tls_context
from outcrop.net.tunnel_connector import TunnelConnector

_REDIRECTS = {301, 302, 303, 307, 308}
_CREDENTIAL_HEADERS = {"authorization", "cookie"}
_CHUNK_BYTES = 1 << 16
_GZIP_OR_ZLIB = 47  # zlib's `wbits`: recognize the gzip or zlib header, with the largest window
_BROKEN_BODY = "the response ended early or its compressed body is damaged"


class HttpError(Exception):
    """There is no complete response. The message is the reason and names at most the host."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, with at most `max_bytes` of its decompressed body."""

    url: str  # the address that sent it, after redirects
    status: int
    headers: Mapping[str, str]  # names are case-insensitive
    body: bytes
    truncated: bool = False  # the body was longer than `max_bytes`

    @property
    def media_type(self) -> str:
        """The media type of Content-Type in lower case, without parameters; "" if there is none."""
        media_type = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return media_type.encode("ascii", "replace").decode()  # a header may contain any bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 200."""
        return self.status == HTTPStatus.OK


class HttpClient:
    """Sends requests over one aiohttp session; `open_http` makes it."""

    def __init__(self, session: aiohttp.ClientSession, egress: Egress) -> None:
        self._session = session
        self.egress = egress

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 32 << 20,
        seconds: float = 60.0,
        may_follow: Callable[[str], bool] | None = None,
    ) -> HttpResponse:
        """Send a GET request and return the response.

        A redirect is followed if `may_follow` returns true for its target, else the redirect itself is
        returned. Authorization and Cookie are sent to the origin of `url` only. `seconds` limits all
        redirects together.
        """
        sent_headers = dict(headers or {})
        origin = _origin(url)
        with _failures_as_http_error(seconds):
            async with asyncio.timeout(seconds):
                for _ in range(HTTP_REDIRECTS):
                    response = await self._send("GET", url, sent_headers, max_bytes)
                    target = response.headers.get("Location")
                    if response.status not in _REDIRECTS or not target:
                        return response
                    url = urljoin(url, target)
                    if may_follow is None or not may_follow(url):
                        return response
                    if _origin(url) != origin:
                        sent_headers = {
                            name: value
                            for name, value in sent_headers.items()
                            if name.lower() not in _CREDENTIAL_HEADERS
                        }
        raise HttpError(f"more than {HTTP_REDIRECTS} redirects")

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        max_bytes: int,
        seconds: float,
    ) -> HttpResponse:
        """Send one request and return the response, a redirect too: none is followed."""
        with _failures_as_http_error(seconds):
            async with asyncio.timeout(seconds):
                return await self._send(method, url, headers, max_bytes, body)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], max_bytes: int, data: bytes | None = None
    ) -> HttpResponse:
        """Send one request and read at most `max_bytes` of the decompressed body."""
        parsed = URL(url)
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise HttpError("not an http or https URL")
        _check_address_literal(parsed.host, self.egress)
        async with self._session.request(
            method, parsed, headers=dict(headers), data=data, allow_redirects=False
        ) as response:
            body, decompressor = bytearray(), _decompressor_for(response.headers.get("Content-Encoding", ""))
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                body += decompressor.decompress(chunk, max_bytes + 1 - len(body)) if decompressor else chunk
                if len(body) > max_bytes:
                    break
            if decompressor and len(body) <= max_bytes and not decompressor.is_complete:
                raise HttpError(_BROKEN_BODY)
            return HttpResponse(
                url,
                response.status,
                response.headers,
                bytes(body[:max_bytes]),
                truncated=len(body) > max_bytes,
            )


@contextmanager
def _failures_as_http_error(seconds: float) -> Iterator[None]:
    """Raise every failure of the block as an HttpError with a reason; `seconds` is the limit to report."""
    try:
        yield
    except TimeoutError:
        raise HttpError(f"no complete response within {seconds:g} seconds") from None
    except EgressError as error:
        raise HttpError(error.message) from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise HttpError(_describe(error)) from None


@asynccontextmanager
async def open_http(
    egress: Egress,
    *,
    user_agent: str = "outcrop",
    connections: int = 32,
    per_host: int = 8,
    look_up: LookUp = look_up,
) -> AsyncIterator[HttpClient]:
    """Open a client that connects only where `egress` allows it.

    `connections` and `per_host` limit the open connections. `look_up` returns the addresses of a name, which
    are then checked. Cookies, the proxies of the environment and .netrc are not used.
    """
    resolver = _GuardedResolver(egress, look_up)
    if egress.proxy is not None:
        connector: aiohttp.TCPConnector = TunnelConnector(egress, resolver, connections, per_host)
    else:
        connector = aiohttp.TCPConnector(
            resolver=resolver,
            ssl=tls_context(egress),
            limit=connections,
            limit_per_host=per_host,
            use_dns_cache=False,
            local_addr=(egress.source_address, 0) if egress.source_address else None,
        )
    # The caller limits the whole request, redirects included. Only connecting has a limit of its own.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=timeout,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": user_agent, "Accept-Encoding": "gzip"},
        trust_env=False,
        # aiohttp does not report a compressed body that ends early, and can wait forever on a damaged one.
        auto_decompress=False,
    ) as session:
        yield HttpClient(session, egress)


class _GuardedResolver(AbstractResolver):
    """Resolves names for aiohttp, to addresses that the guard has checked.

    aiohttp connects to the returned address without a second lookup, so DNS rebinding cannot replace it.
    """

    def __init__(self, egress: Egress, look_up: LookUp) -> None:
        self._egress = egress
        self._look_up = look_up

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[ResolveResult]:
        """Return the single checked address of a host; raise EgressError if it is not allowed."""
        address, address_port = await asyncio.to_thread(resolve, host, port, self._egress, self._look_up)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=address_port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        ]

    async def close(self) -> None:
        """Do nothing: there is no state to close."""


class _Decompressor:
    """Decompresses a gzip or deflate body chunk by chunk, with a limit on the output of each chunk."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
        self._started = False

    @property
    def is_complete(self) -> bool:
        """Whether the compressed data has reached its end, or there was none."""
        return self._zlib.eof or not self._started

    def decompress(self, data: bytes, max_output: int) -> bytes:
        """Return the decompressed bytes of the next chunk, at most `max_output`; the rest is dropped."""
        out = bytearray()
        self._started = True
        while data and len(out) < max_output:
            if self._zlib.eof:
                if not data.startswith(b"\x1f\x8b"):  # bytes after the end: browsers ignore them too
                    break
                self._zlib = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)  # the next member of a gzip file
            try:
                out += self._zlib.decompress(data, max_output - len(out))
            except zlib.error:
                raise HttpError(_BROKEN_BODY) from None
            data = self._zlib.unused_data if self._zlib.eof else self._zlib.unconsumed_tail
        return bytes(out)


def _decompressor_for(content_encoding: str) -> _Decompressor | None:
    """Return a decompressor for a Content-Encoding header, None if the body is not compressed."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Decompressor()
        case _:
            raise HttpError("the response has a content encoding that was not requested")


def _origin(url: str) -> tuple[str, str]:
    """Return scheme and authority (host and port) of a URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _check_address_literal(host: str, egress: Egress) -> None:
    """Raise EgressError if `host` is an IP address that is not allowed (aiohttp does not resolve those).

    Other spellings of addresses, such as `127.1` and `2130706433`, are refused too. Older versions of aiohttp
    pass them to the system, which connects to them.
    """
    bare = host.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        if ":" in bare or bare.replace(".", "").isdigit():
            raise EgressError(f"{host}: is not an address in its usual form") from None
        return
    if not is_allowed(address, egress):
        raise EgressError(f"{host}: is an address that is not public")


def _describe(error: Exception) -> str:
    """Describe a failure in words that contain nothing of the URL, which may hold a credential."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "TLS failed or the certificate is not trusted"
        case aiohttp.ClientConnectorError():
            return "connection failed"
        case aiohttp.ClientPayloadError():
            return _BROKEN_BODY
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed without a response"
        case aiohttp.InvalidURL():
            return "not an http or https URL"
        case _:
            return f"the response cannot be read ({type(error).__name__})"
