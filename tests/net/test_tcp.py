"""TCP connections: the address is checked before it is connected to."""

import asyncio
import socket

import pytest

from outcrop.net.guard import Egress
from outcrop.net.tcp import TcpError, connect


def attempt(host: str, port: int, egress: Egress, seconds: float = 2.0) -> str:
    """Return the first bytes that the server sends, or the reason why there is no connection."""

    async def main() -> str:
        try:
            reader, writer = await connect(host, port, egress, seconds=seconds)
        except TcpError as failure:
            return str(failure)
        data = await asyncio.wait_for(reader.read(10), seconds)
        writer.close()
        await writer.wait_closed()
        return data.decode()

    return asyncio.run(main())


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        yield server


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "::1", "::ffff:127.0.0.1"])
def test_a_non_public_address_is_refused_without_connecting(listening, host):
    """Use addresses of this machine only, so that a broken guard does no harm; test_guard.py has more."""
    assert "address that is not public" in attempt(host, listening.getsockname()[1], Egress())
    with pytest.raises(TimeoutError):
        listening.accept()


@pytest.mark.parametrize("egress", [Egress.parse(["127.0.0.0/8"], [], None), None])
def test_an_allowed_address_is_connected_to(listening, egress):
    port = listening.getsockname()[1]
    mapped = Egress.parse([], [f"db.example:5432=127.0.0.1:{port}"], None)

    async def main() -> str:
        host, host_port = ("127.0.0.1", port) if egress else ("db.example", 5432)
        reader, writer = await connect(host, host_port, egress or mapped, seconds=60)
        connection, _ = await asyncio.to_thread(listening.accept)
        connection.sendall(b"hello")
        connection.close()
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        return data.decode()

    assert asyncio.run(main()) == "hello"


def test_a_closed_port_fails_at_once():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    egress = Egress.parse(["127.0.0.0/8"], [], None)
    assert attempt("127.0.0.1", port, egress, seconds=60) == "connection failed"


def test_an_impossible_host_name_is_reported():
    assert attempt(f"{'a' * 70}.example", 5432, Egress()).endswith(": the name has no address")
