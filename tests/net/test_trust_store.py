"""The TLS trust store is loaded once, and again when a file changes."""

import asyncio
import os
from pathlib import Path

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import HttpError, open_http
from outcrop.net.tls import tls_context
from tests.support.fake_https import FakeResponse, serve_https
from tests.support.tls import make_certificate


def write_file(content: bytes, path: Path, *, day: int) -> None:
    """Write a file with the modification time of a day: two writes may fall into one tick of the clock."""
    path.write_bytes(content)
    os.utime(path, (day * 86_400, day * 86_400))


def test_the_trust_store_is_loaded_once(tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path, "a.example")
    assert tls_context(Egress(ca_file=cert)) is tls_context(Egress(ca_file=cert))
    assert tls_context(Egress()) is not tls_context(Egress(ca_file=cert))


def test_a_replaced_authority_is_no_longer_trusted_but_the_new_one_is(tmp_path: Path) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
    other, _ = make_certificate(tmp_path / "other", "a.example")
    with serve_https(tmp_path / "own", ("a.example",), lambda _: FakeResponse(200)) as server:
        trusted = tmp_path / "ca.pem"
        egress = Egress.parse(["127.0.0.0/8"], [f"a.example:443=127.0.0.1:{server.port}"], trusted)

        async def request() -> int:
            async with open_http(egress) as http:
                return (await http.get("https://a.example/", seconds=10)).status

        write_file(other.read_bytes(), trusted, day=1)
        with pytest.raises(HttpError):
            asyncio.run(request())
        write_file(server.ca.read_bytes(), trusted, day=2)
        assert asyncio.run(request()) == 200
        write_file(other.read_bytes(), trusted, day=3)
        with pytest.raises(HttpError):
            asyncio.run(request())
