"""Whom we trust: read once, and again when the operator changes it."""

import asyncio
import os
from pathlib import Path

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import HttpError, open_http, tls_context
from tests.support.fake_https import FakeResponse, serve_https
from tests.support.tls import make_certificate


def put(content: bytes, into: Path, *, day: int) -> None:
    """Write a file of some day: two changes may fall into one tick of the clock."""
    into.write_bytes(content)
    os.utime(into, (day * 86_400, day * 86_400))


def test_it_is_read_once(tmp_path: Path) -> None:
    cert, _ = make_certificate(tmp_path, "a.example")
    assert tls_context(Egress(ca_file=cert)) is tls_context(Egress(ca_file=cert))
    assert tls_context(Egress()) is not tls_context(Egress(ca_file=cert))


def test_an_authority_that_is_replaced_is_no_longer_trusted_and_its_successor_is(tmp_path: Path) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
    other, _ = make_certificate(tmp_path / "other", "a.example")
    with serve_https(tmp_path / "own", ("a.example",), lambda _: FakeResponse(200)) as one:
        trusted = tmp_path / "ca.pem"
        egress = Egress.parse(["127.0.0.0/8"], [f"a.example:443=127.0.0.1:{one.port}"], trusted)

        async def ask() -> int:
            async with open_http(egress) as http:
                return (await http.get("https://a.example/", seconds=10)).status

        put(other.read_bytes(), trusted, day=1)
        with pytest.raises(HttpError):
            asyncio.run(ask())
        put(one.ca.read_bytes(), trusted, day=2)
        assert asyncio.run(ask()) == 200
        put(other.read_bytes(), trusted, day=3)
        with pytest.raises(HttpError):
            asyncio.run(ask())
