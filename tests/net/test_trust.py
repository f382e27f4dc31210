"""Whom we trust: read once, and again when the operator changes it."""

import asyncio
import os
from pathlib import Path

import pytest

from outcrop.net.guard import Egress
from outcrop.net.http import HttpError, open_http, tls_context
from tests.issuer import Play, issuer
from tests.tls import certificate


def changed_later(path: Path) -> None:
    """Move the date of a file on: two changes may fall into one tick of the clock."""
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now, now + 1_000_000_000))


def test_it_is_read_once(tmp_path: Path) -> None:
    cert, _ = certificate(tmp_path, "a.example")
    assert tls_context(Egress(ca_file=cert)) is tls_context(Egress(ca_file=cert))
    assert tls_context(Egress()) is not tls_context(Egress(ca_file=cert))


def test_an_authority_that_is_replaced_is_no_longer_trusted_and_its_successor_is(tmp_path: Path) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
    other, _ = certificate(tmp_path / "other", "a.example")
    with issuer(tmp_path / "own", ("a.example",), lambda _: Play(200)) as one:
        trusted = tmp_path / "ca.pem"
        egress = Egress.parse(["127.0.0.0/8"], [f"a.example:443=127.0.0.1:{one.port}"], trusted)

        async def ask() -> int:
            async with open_http(egress) as http:
                return (await http.get("https://a.example/", seconds=10)).status

        trusted.write_bytes(other.read_bytes())
        with pytest.raises(HttpError):
            asyncio.run(ask())
        trusted.write_bytes(one.ca.read_bytes())
        changed_later(trusted)
        assert asyncio.run(ask()) == 200
        trusted.write_bytes(other.read_bytes())
        changed_later(trusted)
        changed_later(trusted)
        with pytest.raises(HttpError):
            asyncio.run(ask())
