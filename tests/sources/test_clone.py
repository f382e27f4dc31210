"""A repository over https: a real git server behind real TLS on loopback."""

import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress
from outcrop.sources.clone import clone

ENV = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}


@dataclass
class Server:
    port: int
    ca: Path
    requests: list[tuple[str, str | None, str | None]] = field(default_factory=list)  # path, Host, Authorization

    @property
    def egress(self) -> Egress:
        return Egress.parse(["127.0.0.0/8"], [f"git.example:443=127.0.0.1:{self.port}"], self.ca)


def git(*arguments: str, cwd: Path) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=cwd, env=ENV, check=True, capture_output=True)


def certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "git.example")])
    now = datetime.now(UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("git.example"), x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return cert_file, key_file


@contextmanager
def git_server(root: Path, folder: Path) -> Iterator[Server]:
    cert, key = certificate(folder)
    told = Server(0, cert)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            told.requests.append((self.path, self.headers["Host"], self.headers["Authorization"]))
            if self.path.startswith("/moved"):
                self.send_response(302)
                self.send_header("Location", self.path.replace("/moved", "/repo", 1))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            path, _, query = self.path.partition("?")
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            environment = ENV | {
                "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
                "REQUEST_METHOD": self.command, "CONTENT_TYPE": self.headers["Content-Type"] or "", "CONTENT_LENGTH": str(len(body)),
                "GIT_PROTOCOL": self.headers["Git-Protocol"] or "", "HTTP_CONTENT_ENCODING": self.headers["Content-Encoding"] or "",
            }  # fmt: skip
            answer = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False).stdout
            head, _, content = answer.partition(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
            self.send_response(int(fields.pop("Status", "200").split()[0]))
            for name, value in fields.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    told.port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    work = tmp_path / "work-tree"
    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "a.txt").write_text("first\n")
    git("add", ".", cwd=work)
    git("commit", "-qm", "one", cwd=work)
    git("branch", "other", cwd=work)
    git("tag", "v1", cwd=work)
    git("update-ref", "refs/pull/1/head", "HEAD", cwd=work)
    git("clone", "-q", "--mirror", str(work), str(tmp_path / "served" / "repo.git"), cwd=tmp_path)
    with git_server(tmp_path / "served", tmp_path) as running:
        yield running


def folder(tmp_path: Path) -> Path:
    made = tmp_path / "clone"
    made.mkdir()
    return made


def test_every_ref_is_cloned_from_the_checked_address(server, tmp_path):
    found = clone("https://git.example/repo.git", folder(tmp_path), server.egress)
    assert set(found.refs) == {b"refs/heads/main", b"refs/heads/other", b"refs/tags/v1", b"refs/pull/1/head"}
    assert found.head == found.refs[b"refs/heads/main"]
    assert {host for _, host, _ in server.requests} == {f"git.example:{server.port}"}


def test_name_and_password_travel_as_a_header(server, tmp_path):
    clone("https://me:p%40ss@git.example/repo.git", folder(tmp_path), server.egress)
    assert {auth for _, _, auth in server.requests} == {"Basic bWU6cEBzcw=="}


def test_redirect_is_not_followed(server, tmp_path):
    with pytest.raises(OperatorError, match="cannot be cloned"):
        clone("https://git.example/moved.git", folder(tmp_path), server.egress)
    assert all(path.startswith("/moved") for path, _, _ in server.requests)


def test_certificate_of_another_authority_is_refused(server, tmp_path):
    with pytest.raises(OperatorError, match="cannot be cloned"):
        clone("https://git.example/repo.git", folder(tmp_path), Egress(server.egress.allow, server.egress.connect_to))
    assert server.requests == []


def test_private_address_is_refused_before_anything_is_sent(server, tmp_path):
    with pytest.raises(OperatorError, match="not a public address"):
        clone(f"https://127.0.0.1:{server.port}/repo.git", folder(tmp_path), Egress(ca_file=server.ca))
    assert server.requests == []


def test_repository_that_is_not_there_is_one_line_without_the_password(server, tmp_path):
    with pytest.raises(OperatorError) as error:
        clone("https://me:hunter2hunter2@git.example/none.git", folder(tmp_path), server.egress)
    assert "hunter2" not in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "address",
    [
        "http://git.example/r",
        "ssh://git@git.example/r",
        "file:///etc",
        "ext::sh -c id",
        "https:///r",
        "https://h:99999/r",
        "https://h/r?x=1",
    ],
)
def test_other_addresses_are_refused(address, tmp_path):
    with pytest.raises(OperatorError):
        clone(address, folder(tmp_path), Egress())


def test_credentials_do_not_stay_in_the_mirror(server, tmp_path):
    made = folder(tmp_path)
    clone("https://me:hunter2hunter2@git.example/repo.git", made, server.egress)
    assert all(b"hunter2" not in file.read_bytes() for file in made.rglob("*") if file.is_file())
