"""Login connections: hostile servers, private addresses and TLS, for every protocol."""

import asyncio
import contextlib
import time

import pytest

from outcrop.net.guard import Egress
from tests.support.checks import check_against, load_check, run_check
from tests.support.tls import make_certificate
from tests.validation.logins.test_amqp import fake_rabbitmq
from tests.validation.logins.test_redis import fake_redis

PASSWORD = "S3cr3t!pw"


async def closes(_reader, writer):
    writer.close()


async def hangs(_reader, _writer):
    await asyncio.sleep(3_600)


async def floods(_reader, writer):
    with contextlib.suppress(OSError):
        while True:
            writer.write(b"\0" * 65536)
            await writer.drain()


async def speaks_another_protocol(reader, writer):
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    await reader.read(100)


async def announces_a_huge_message(reader, writer):
    writer.write(b"\xff" * 64)
    await reader.read(100)


async def sends_slowly(_reader, writer):
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


@pytest.mark.parametrize(
    "script", [closes, hangs, floods, speaks_another_protocol, announces_a_huge_message, sends_slowly]
)
@pytest.mark.parametrize("named", SCHEMES)
def test_a_hostile_server_gets_no_verdict_and_little_time(named, script, caplog):
    start = time.monotonic()
    verdict = check_against(script, named, PASSWORD, login=f"{SCHEMES[named]}://app", seconds=0.5)
    assert verdict.status in {"unreachable", "error"}, verdict.reason
    assert time.monotonic() - start < 60
    assert PASSWORD not in verdict.reason + caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
@pytest.mark.parametrize("named", SCHEMES)
def test_a_private_address_is_refused_without_connecting(named, host):
    files = {"amqp": ("rabbitmq", "amqp_uri"), "mssql": ("sqlserver", "sqlserver_conn")}
    check = load_check(*files.get(named, (named, f"{named}_uri")))
    verdict = run_check(Egress(), check, PASSWORD, login=f"{SCHEMES[named]}://app", server=f"{host}/x")
    assert verdict.status == "unreachable"
    assert "address that is not public" in verdict.reason


@pytest.mark.parametrize(
    ("named", "login", "script"),
    [
        ("redis", "rediss://", fake_redis()),
        ("amqp", "amqps://orders", fake_rabbitmq()),
        ("amqp", "amqp+ssl://orders", fake_rabbitmq()),
    ],
)
def test_a_tls_scheme_requires_a_trusted_certificate_for_the_host(tmp_path, named, login, script):
    cert = make_certificate(tmp_path, "db.example")
    assert check_against(script, named, PASSWORD, login=login, tls=cert, ca=cert[0]).status == "valid"
    verdict = check_against(script, named, PASSWORD, login=login, tls=cert)
    assert (verdict.status, "certificate" in verdict.reason) == ("unreachable", True)
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", "another.example")
    assert check_against(script, named, PASSWORD, login=login, tls=other, ca=other[0]).status == "unreachable"
    assert check_against(script, named, PASSWORD, login=login, ca=cert[0], seconds=1).status == "unreachable"
