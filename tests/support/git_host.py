"""A git server on loopback: git's http-backend behind TLS."""

import os
import ssl
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from outcrop.net.guard import Egress
from tests.support.tls import make_certificate

# Each commit would start a process that looks whether there is anything to tidy up.
NO_MAINTENANCE = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "maintenance.auto",
    "GIT_CONFIG_VALUE_0": "false",
}
ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **NO_MAINTENANCE,
    "HOME": "/nonexistent",
}


@dataclass
class GitHost:
    """A running git server and the requests that it received."""

    port: int
    ca: Path
    delay: float = 0.0  # seconds before every response
    page: bytes | None = None  # the body of every response, in place of git's: a proxy's sign-in page
    refs: Iterable[bytes] = ()  # pieces of a hostile host's list of refs, in place of git's
    pack: Iterable[bytes] = ()  # pieces of its answer to a fetch
    # The same by repository, such as `/shop.git`
    streams: dict[str, tuple[Iterable[bytes], Iterable[bytes]]] = field(default_factory=dict)
    # path, Host and Authorization of each request
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)

    @property
    def egress(self) -> Egress:
        return Egress.parse(["127.0.0.0/8"], [f"git.example:443=127.0.0.1:{self.port}"], self.ca)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect: a traceback would appear in the output of another test."""


@contextmanager
def git_host(root: Path, folder: Path, *, hours: tuple[int, int] = (-1, 1)) -> Iterator[GitHost]:
    """Serve every repository under a folder as `https://git.example/NAME.git`.

    `hours` are the start and the end of its certificate, counted from now.
    """
    cert, key = make_certificate(folder, "git.example", hours=hours)
    host = GitHost(0, cert)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            host.requests.append((self.path, self.headers["Host"], self.headers["Authorization"]))
            time.sleep(host.delay)
            if host.page is not None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(host.page)))
                self.end_headers()
                self.wfile.write(host.page)
                return
            refs, pack = host.streams.get(self.path.partition(".git")[0] + ".git", (host.refs, host.pack))
            if refs:
                self._stream(refs if self.command == "GET" else pack)
                return
            if self.path.startswith("/moved"):
                self.send_response(302)
                self.send_header("Location", self.path.replace("/moved", "/repo", 1))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            environment = ENV | {
                "GIT_PROJECT_ROOT": str(root),
                "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers["Content-Type"] or "",
                "CONTENT_LENGTH": str(len(body)),
                "GIT_PROTOCOL": self.headers["Git-Protocol"] or "",
                "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
            }
            output = subprocess.run(
                ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
            ).stdout
            head, _, content = output.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def _stream(self, pieces: Iterable[bytes]) -> None:
            """Send the pieces until they or the client end."""
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            kind = "advertisement" if self.command == "GET" else "result"
            self.send_response(200)
            self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(OSError):
                for piece in filter(None, pieces):
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    host.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield host
    finally:
        server.shutdown()
        server.server_close()
