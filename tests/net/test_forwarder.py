"""The forwarder for git: for one command, one name and its own password."""

import base64
import socket

import pytest

from outcrop.net.forwarder import Forwarder, forward
from outcrop.net.guard import Egress
from tests.support.proxy import run_proxy


def ask(forwarder: Forwarder, request: str, *, password: str | None = None) -> bytes:
    """Send a request to the forwarder and return the first line of its response."""
    login = base64.b64encode(f"git:{password or forwarder.password}".encode()).decode()
    with socket.create_connection(("127.0.0.1", forwarder.port), 60) as client:
        client.sendall(f"{request} HTTP/1.1\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
        return client.makefile("rb").readline()


@pytest.mark.parametrize(
    ("request_line", "password", "status"),
    [
        ("CONNECT git.example:443", None, b"200"),
        ("CONNECT GIT.example:443", None, b"200"),
        ("CONNECT git.example:443", "wrong", b"407"),
        ("CONNECT git.example:22", None, b"403"),
        ("CONNECT other.example:443", None, b"403"),
        ("CONNECT 127.0.0.1:443", None, b"403"),
        ("GET http://git.example:443/", None, b"403"),
    ],
)
def test_only_the_one_connection_is_made(request_line, password, status):
    with run_proxy() as proxy, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        egress = Egress.parse([], [], None, proxy=f"http://127.0.0.1:{proxy.port}")
        with forward(egress, "git.example:443", "127.0.0.1", port) as forwarder:
            assert ask(forwarder, request_line, password=password).split()[1] == status
            assert forwarder.password not in repr(forwarder)
        assert proxy.asked == ([f"127.0.0.1:{port}"] if status == b"200" else [])


def test_it_ends_with_its_block():
    with run_proxy() as proxy:
        egress = Egress.parse([], [], None, proxy=f"http://127.0.0.1:{proxy.port}")
        with forward(egress, "git.example:443", "127.0.0.1", 1) as forwarder:
            pass
        with pytest.raises(ConnectionRefusedError):
            ask(forwarder, "CONNECT git.example:443")
