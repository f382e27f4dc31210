"""A web site on loopback, over TLS or plain http, and crawls of it.

The site serves a table of paths and records the requests that it receives.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.sources.web.crawl import CrawlOptions, crawl
from outcrop.sources.web.response_reader import Resource
from tests.support.tls import make_certificate

Reply = tuple[int, Mapping[str, str], bytes]
Route = Reply | Callable[[BaseHTTPRequestHandler], Reply | None]  # None: the callable has sent the response


def page(body: str = "", **headers: str) -> Reply:
    return 200, {"Content-Type": "text/html; charset=utf-8"} | headers, body.encode()


def script(body: str = "", **headers: str) -> Reply:
    return 200, {"Content-Type": "application/javascript"} | headers, body.encode()


def text(body: str | bytes, kind: str = "text/plain", status: int = 200, **headers: str) -> Reply:
    return status, {"Content-Type": kind} | headers, body if isinstance(body, bytes) else body.encode()


def redirect(to: str, status: int = 302) -> Reply:
    return status, {"Location": to}, b""


@dataclass
class RecordedRequest:
    """A request that the host received."""

    host: str
    path: str  # with its query
    headers: Mapping[str, str]
    at: float


@dataclass
class WebHost:
    """A running web host, whose table may be changed while it runs."""

    routes: dict[str, Route]  # `path` or `host/path` -> response
    port: int = 0
    ca: Path | None = None
    names: tuple[str, ...] = ()
    fallback: Route | None = None  # for paths that are not in the table; 404 if there is none
    requests: list[RecordedRequest] = field(default_factory=list)
    max_concurrent: int = 0
    running: int = 0

    @property
    def scheme(self) -> str:
        return "https" if self.ca else "http"

    @property
    def egress(self) -> Egress:
        """Network rules that lead every name of the site to this host, and allow no other address."""
        ports = (443,) if self.ca else (80,)
        return Egress.parse(
            [], [f"{name}:{port}=127.0.0.1:{self.port}" for name in self.names for port in ports], self.ca
        )

    def paths(self, host: str | None = None) -> list[str]:
        """Return the requested paths, without robots.txt; with `host` only those of that name."""
        return [
            request.path
            for request in self.requests
            if request.path != "/robots.txt" and host in {None, request.host}
        ]


@contextmanager
def web_host(
    routes: dict[str, Route], *names: str, tls: Path | None = None, fallback: Route | None = None
) -> Iterator[WebHost]:
    """Serve the routes under these host names; over https if `tls` is a folder for the certificate."""
    host = WebHost(routes, names=names or ("site.example",), fallback=fallback)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.headers["Host"].partition(":")[0]
            with lock:
                host.requests.append(
                    RecordedRequest(name, self.path, dict(self.headers.items()), time.monotonic())
                )
                host.running += 1
                host.max_concurrent = max(host.max_concurrent, host.running)
            try:
                self._answer(name)
            finally:
                with lock:
                    host.running -= 1

        def _answer(self, name: str) -> None:
            route = host.routes.get(f"{name}{self.path}") or host.routes.get(self.path)
            if route is None:
                route = (host.fallback if self.path != "/robots.txt" else None) or (
                    404,
                    {"Content-Type": "text/html"},
                    b"not here",
                )
            reply = route(self) if callable(route) else route
            if reply is None:
                return
            status, headers, body = reply
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Ignore clients that disconnect."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        cert, key = make_certificate(tls, *host.names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        host.ca = cert
    host.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()


START = "http://site.example/"


@dataclass
class CrawlResult:
    """The resources and gaps of a crawl."""

    resources: list[Resource] = field(default_factory=list)
    gaps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return sorted(resource.file_path for resource in self.resources)

    def resource(self, path: str) -> Resource:
        """Return the only resource with this file path."""
        (found,) = [resource for resource in self.resources if resource.file_path == path]
        return found

    def gap_reason(self, path: str) -> str | None:
        """Return the reason of the first gap at a path, or None."""
        found = [
            why
            for what, why in self.gaps
            if what.partition("://")[2].partition("/")[2] == path.removeprefix("/")
        ]
        return found[0] if found else None


def crawl_site(host: WebHost, start: str = START, **options: Any) -> CrawlResult:
    """Crawl a host with these `CrawlOptions`."""

    async def run() -> CrawlResult:
        found = CrawlResult()
        async with open_http(host.egress) as http:
            async for resource in crawl(
                http, CrawlOptions(start, **options), lambda *gap: found.gaps.append(gap)
            ):
                found.resources.append(resource)
        return found

    return asyncio.run(asyncio.wait_for(run(), 60))
