"""Connections that are not HTTP: the address is checked first, and only the checked one is connected to."""

import asyncio
import socket
import time

import pytest

from outcrop.net.guard import Egress
from outcrop.net.tcp import TcpError, connect


def attempt(host: str, port: int, egress: Egress, seconds: float = 2.0) -> str:
    """Give what a server on the other side says first, or why there is none."""

    async def main() -> str:
        try:
            reader, writer = await connect(host, port, egress, seconds=seconds)
        except TcpError as failure:
            return str(failure)
        said = await asyncio.wait_for(reader.read(10), seconds)
        writer.close()
        await writer.wait_closed()
        return said.decode()

    return asyncio.run(main())


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        yield server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_what_is_not_public_is_refused_without_being_contacted(listening, host):
    """Only addresses of this machine stand here, so that a broken guard reaches nobody; tests/net/test_guard.py has the others."""
    assert "not a public address" in attempt(host, listening.getsockname()[1], Egress())
    with pytest.raises(TimeoutError):
        listening.accept()


@pytest.mark.parametrize("egress", [Egress.parse(["127.0.0.0/8"], [], None), None])
def test_what_the_operator_allows_is_connected_to(listening, egress):
    port = listening.getsockname()[1]
    mapped = Egress.parse([], [f"db.example:5432=127.0.0.1:{port}"], None)

    async def main() -> str:
        host, at = ("127.0.0.1", port) if egress else ("db.example", 5432)
        reader, writer = await connect(host, at, egress or mapped, seconds=2)
        there, _ = await asyncio.to_thread(listening.accept)
        there.sendall(b"hello")
        there.close()
        said = await reader.read()
        writer.close()
        await writer.wait_closed()
        return said.decode()

    assert asyncio.run(main()) == "hello"


def test_nobody_there_is_told_and_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    began = time.monotonic()
    assert attempt("127.0.0.1", port, Egress.parse(["127.0.0.0/8"], [], None)) == "connection failed"
    assert time.monotonic() - began < 1


def test_a_name_that_no_resolver_takes_is_told():
    assert attempt(f"{'a' * 70}.example", 5432, Egress()).endswith(": the name has no address")
