"""Servers of any kind that mean harm, and addresses that must not be connected to."""

import asyncio
import contextlib
import time

import pytest

from outcrop.net.guard import Egress
from tests.support.checks import check_against, load_check, run_check

PASSWORD = "S3cr3t!pw"


async def closes(_reader, writer):
    writer.close()


async def hangs(_reader, _writer):
    await asyncio.sleep(60)


async def floods(_reader, writer):
    with contextlib.suppress(OSError):
        while True:
            writer.write(b"\0" * 65536)
            await writer.drain()


async def talks_nonsense(reader, writer):
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await reader.read(100)


async def claims_to_be_huge(reader, writer):
    writer.write(b"\xff" * 64)
    await reader.read(100)


async def drips(_reader, writer):
    while True:
        writer.write(b"S")
        await asyncio.sleep(0.05)


SCHEMES = {
    "postgres": "postgresql",
    "mysql": "mysql",
    "redis": "redis",
    "amqp": "amqp",
    "mongodb": "mongodb",
    "mssql": "mssql",
}


@pytest.mark.parametrize("play", [closes, hangs, floods, talks_nonsense, claims_to_be_huge, drips])
@pytest.mark.parametrize("named", SCHEMES)
def test_a_server_that_means_harm_gets_no_verdict_and_little_time(named, play, caplog):
    began = time.monotonic()
    verdict = check_against(play, named, PASSWORD, login=f"{SCHEMES[named]}://app", seconds=0.5)
    assert verdict.status in {"unreachable", "error"}, verdict.reason
    assert time.monotonic() - began < 2.5
    assert PASSWORD not in verdict.reason + caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
@pytest.mark.parametrize("named", SCHEMES)
def test_a_private_address_is_refused_before_it_is_connected_to(named, host):
    files = {"amqp": ("rabbitmq", "amqp_uri"), "mssql": ("sqlserver", "sqlserver_conn")}
    check = load_check(*files.get(named, (named, f"{named}_uri")))
    verdict = run_check(Egress(), check, PASSWORD, login=f"{SCHEMES[named]}://app", server=f"{host}/x")
    assert verdict.status == "unreachable"
    assert "not a public address" in verdict.reason
