"""Asking other people's servers: every address checked before it is connected to, every answer bounded in time and size."""

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from outcrop.net.guard import Egress, EgressError, is_allowed, resolve

_REDIRECTS = {301, 302, 303, 307, 308}
_MOST_REDIRECTS = 10
_PROOFS = {"authorization", "cookie"}
_CHUNK = 1 << 16
_BROKEN = "the answer ended early, or its encoding is broken"


class HttpError(Exception):
    """No answer: the reason, in words that name no more than the host."""


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer, whole or as far as it was read."""

    url: str  # where it came from, after redirects
    status: int
    headers: Mapping[str, str]  # names in any case
    body: bytes
    truncated: bool = False  # there was more than was read

    @property
    def media_type(self) -> str:
        named = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return named.encode("ascii", "replace").decode()  # a header may hold any bytes

    @property
    def ok(self) -> bool:
        return self.status == HTTPStatus.OK


class HttpClient:
    """A client for one piece of work. Nothing is followed, kept or sent that the caller has not asked for."""

    def __init__(self, session: aiohttp.ClientSession, egress: Egress) -> None:
        self._session = session
        self._egress = egress

    @property
    def egress(self) -> Egress:
        return self._egress

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 32 << 20,
        seconds: float = 60.0,
        may_follow: Callable[[str], bool] | None = None,
    ) -> HttpResponse:
        """Get an address; a redirect is followed where `may_follow` says so of its target, and is the answer elsewhere.

        What proves who we are goes to the first origin only.
        """
        sent = dict(headers or {})
        origin = _origin(url)
        with _told_apart(seconds):
            async with asyncio.timeout(seconds):
                for _ in range(_MOST_REDIRECTS):
                    answer = await self._once("GET", url, sent, max_bytes)
                    target = answer.headers.get("Location")
                    if answer.status not in _REDIRECTS or not target:
                        return answer
                    url = urljoin(url, target)
                    if may_follow is None or not may_follow(url):
                        return answer
                    if _origin(url) != origin:
                        sent = {name: value for name, value in sent.items() if name.lower() not in _PROOFS}
        raise HttpError(f"more than {_MOST_REDIRECTS} redirects")

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
        """Send one request; a redirect is the answer."""
        with _told_apart(seconds):
            async with asyncio.timeout(seconds):
                return await self._once(method, url, headers, max_bytes, body)

    async def _once(
        self, method: str, url: str, headers: Mapping[str, str], max_bytes: int, data: bytes | None = None
    ) -> HttpResponse:
        parsed = URL(url)
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise HttpError("is not an http address")
        _check_literal(parsed.host, self._egress)
        async with self._session.request(
            method, parsed, headers=dict(headers), data=data, allow_redirects=False
        ) as response:
            body, unpacking = bytearray(), _unpacking(response.headers.get("Content-Encoding", ""))
            async for chunk in response.content.iter_chunked(_CHUNK):
                body += unpacking.take(chunk, max_bytes + 1 - len(body)) if unpacking else chunk
                if len(body) > max_bytes:
                    break
            if unpacking and len(body) <= max_bytes and not unpacking.whole:
                raise HttpError(_BROKEN)
            return HttpResponse(
                url,
                response.status,
                response.headers,
                bytes(body[:max_bytes]),
                truncated=len(body) > max_bytes,
            )


@contextmanager
def _told_apart(seconds: float) -> Iterator[None]:
    """Turn whatever goes wrong into the one error, with a reason."""
    try:
        yield
    except TimeoutError:
        raise HttpError(f"no whole answer within {seconds:g} seconds") from None
    except EgressError as error:
        raise HttpError(error.message) from None
    except (aiohttp.ClientError, ValueError, OSError) as error:
        raise HttpError(_reason(error)) from None


@asynccontextmanager
async def open_http(
    egress: Egress, *, user_agent: str = "outcrop", connections: int = 32, per_host: int = 8
) -> AsyncIterator[HttpClient]:
    """Open a client. Cookies are forgotten, the machine's proxies and .netrc are not looked at."""
    connector = aiohttp.TCPConnector(
        resolver=_Guarded(egress),
        ssl=tls_context(egress),
        limit=connections,
        limit_per_host=per_host,
        use_dns_cache=False,
        local_addr=(egress.source_address, 0) if egress.source_address else None,
    )
    # The time limit is the caller's, over redirects and all; connecting has one of its own.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=20)
    async with (
        aiohttp.ClientSession(
            connector=connector,
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent, "Accept-Encoding": "gzip"},
            trust_env=False,
            auto_decompress=False,  # aiohttp does not tell when a packed answer ends early, and can wait for ever on a broken one
        ) as session
    ):
        yield HttpClient(session, egress)


def tls_context(egress: Egress) -> ssl.SSLContext:
    """Trust what the machine trusts, and the operator's own authority."""
    paths = ssl.get_default_verify_paths()
    return _trusting(egress.ca_file, *map(_changed, (paths.cafile, paths.capath, egress.ca_file)))


@lru_cache(maxsize=4)
def _trusting(own: Path | None, *_: int) -> ssl.SSLContext:
    """Read whom to trust, which takes 40 ms: once, until the files change."""
    context = ssl.create_default_context()
    if own:
        context.load_verify_locations(own)
    return context


def _changed(path: str | Path | None) -> int:
    try:
        return Path(path).stat().st_mtime_ns if path else 0
    except OSError:
        return 0


class _Guarded(AbstractResolver):
    """Gives aiohttp the one address that was checked."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002
    ) -> list[ResolveResult]:
        address, at_port = await asyncio.to_thread(resolve, host, port, self._egress)
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=at_port,
                family=kind,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
        ]

    async def close(self) -> None:
        """Keep nothing, close nothing."""


class _Unpacking:
    """Unpacks an answer as it comes, never more than there is room for."""

    def __init__(self) -> None:
        self._inflater = zlib.decompressobj(wbits=47)  # gzip or zlib, whichever it begins as
        self._begun = False

    @property
    def whole(self) -> bool:
        return self._inflater.eof or not self._begun

    def take(self, data: bytes, room: int) -> bytes:
        out = bytearray()
        self._begun = True
        while data and len(out) < room:
            if self._inflater.eof:
                if not data.startswith(b"\x1f\x8b"):  # browsers let it be
                    break
                self._inflater = zlib.decompressobj(wbits=47)
            try:
                out += self._inflater.decompress(data, room - len(out))
            except zlib.error:
                raise HttpError(_BROKEN) from None
            data = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        return bytes(out)


def _unpacking(encoding: str) -> _Unpacking | None:
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return _Unpacking()
        case _:
            raise HttpError("the answer is packed in a way that was not asked for")


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _check_literal(host: str, egress: Egress) -> None:
    """Check an address that stands in the URL itself: the resolver is not asked about those."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return
    if not is_allowed(address, egress):
        raise EgressError(f"{host}: is not a public address")


def _reason(error: Exception) -> str:
    """Say what went wrong, in words that hold nothing of the address but its host."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate is not trusted, or TLS failed"
        case aiohttp.ClientConnectorError():
            return "cannot be connected to"
        case aiohttp.ClientPayloadError():
            return _BROKEN
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed without an answer"
        case aiohttp.InvalidURL():
            return "is not an http address"
        case _:
            return f"the answer cannot be read ({type(error).__name__})"
