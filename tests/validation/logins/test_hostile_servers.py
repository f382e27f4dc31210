"""Servers that attack a login check: they end TLS in the middle, ask for proofs again and again, or downgrade."""

import asyncio
import base64
import contextlib
import random
import ssl
import struct

import pytest
from cryptography.hazmat.primitives import serialization

from tests.support.checks import check_against
from tests.support.tls import make_certificate
from tests.validation.logins.test_amqp import fake_rabbitmq
from tests.validation.logins.test_mongodb import FakeMongo
from tests.validation.logins.test_mssql import fake_sqlserver
from tests.validation.logins.test_mssql import packet as tds_packet
from tests.validation.logins.test_mssql import read_packet as read_tds_packet
from tests.validation.logins.test_mysql import KEY, fake_mysql, handshake_packet
from tests.validation.logins.test_mysql import packet as mysql_packet
from tests.validation.logins.test_redis import fake_redis

PASSWORD = "S3cr3t!pw"


@pytest.fixture(scope="module")
def cert(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"), "db.example")


def server_tls(cert) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cert)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    return context.wrap_bio(incoming, outgoing, server_side=True), incoming, outgoing


def test_a_sql_server_that_ends_tls_before_its_answer_does_not_stop_the_worker(cert):
    async def script(reader, writer):
        await read_tds_packet(reader)
        writer.write(tds_packet(4, struct.pack("!BHHBHHB", 0, 11, 6, 1, 17, 1, 0xFF) + bytes(6) + b"\1"))
        tls, incoming, outgoing = server_tls(cert)
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
            if outgoing.pending:
                writer.write(tds_packet(0x12, outgoing.read()))
            incoming.write((await read_tds_packet(reader))[1])
        if outgoing.pending:
            writer.write(tds_packet(0x12, outgoing.read()))
        with contextlib.suppress(ssl.SSLWantReadError):
            tls.unwrap()  # sends that the server closes its side
        writer.write(outgoing.read())
        await reader.read(1000)
        await asyncio.sleep(60)

    verdict = check_against(script, "mssql", PASSWORD, login="mssql://crm", seconds=2)
    assert verdict.status == "unreachable"


@pytest.mark.parametrize("nonce", [b"", b"\0", b"short\0"])
def test_a_mysql_server_with_a_short_nonce_breaks_the_protocol(nonce):
    async def script(reader, writer):
        writer.write(mysql_packet(0, handshake_packet("mysql_native_password")))
        await reader.read(1000)
        writer.write(mysql_packet(2, b"\xfecaching_sha2_password\0" + nonce))
        await reader.read(1000)
        writer.write(mysql_packet(4, b"\1\4"))
        await reader.read(1000)
        pem = KEY.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        writer.write(mysql_packet(6, b"\1" + pem))
        await reader.read(1000)

    verdict = check_against(script, "mysql", PASSWORD, login="mysql://shop")
    assert (verdict.status, "protocol" in verdict.reason) == ("error", True)


def postgres_message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def authentication(code: int, data: bytes = b"") -> bytes:
    return postgres_message(b"R", struct.pack("!I", code) + data)


async def read_postgres_message(reader) -> bytes:
    header = await reader.readexactly(5)
    return await reader.readexactly(int.from_bytes(header[1:], "big") - 4)


def postgres_server(*requests: bytes, proofs: list[bytes]):
    """Return a server without TLS that sends these requests, one after each proof of the client."""

    async def script(reader, writer):
        await reader.readexactly(8)
        writer.write(b"N")
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
        for request in requests:
            if request is SCRAM_CHALLENGE:
                nonce = proofs[-1].rpartition(b"r=")[2]
                request = authentication(  # noqa: PLW2901
                    11, b"r=" + nonce + b"x,s=" + base64.b64encode(b"salt") + b",i=300000"
                )
            writer.write(request)
            proofs.append(await read_postgres_message(reader))
        writer.write(authentication(0) + postgres_message(b"Z", b"I"))
        await reader.read(100)

    return script


SCRAM_START = authentication(10, b"SCRAM-SHA-256\0\0")
SCRAM_CHALLENGE = b"the challenge"


@pytest.mark.parametrize(
    ("requests", "expected_proofs"),
    [
        pytest.param(
            [SCRAM_START, SCRAM_CHALLENGE], 2, id="accepts without proving that it knows the password"
        ),
        pytest.param([SCRAM_START], 1, id="accepts after the first message"),
        pytest.param([SCRAM_START, SCRAM_CHALLENGE] * 30, 2, id="asks for many proofs, which cost CPU time"),
        pytest.param([SCRAM_START, authentication(5, b"salt")], 1, id="asks for an older proof after SCRAM"),
        pytest.param([authentication(5, b"salt")] * 50, 1, id="collects digests with salts of its choice"),
    ],
)
def test_a_postgres_server_cannot_leave_scram_or_ask_twice(requests, expected_proofs):
    proofs: list[bytes] = []
    verdict = check_against(
        postgres_server(*requests, proofs=proofs), "postgres", PASSWORD, login="postgresql://app"
    )
    assert (verdict.status, "protocol" in verdict.reason) == ("error", True)
    assert len(proofs) == expected_proofs


@pytest.mark.parametrize(
    "option", ["sslmode=require", "a=b&sslmode=verify-full", "ssl=true", "SSLMODE=Verify-CA"]
)
def test_a_password_whose_connection_string_requires_tls_is_not_sent_without(option):
    proofs: list[bytes] = []
    script = postgres_server(authentication(5, b"salt"), proofs=proofs)
    verdict = check_against(script, "postgres", PASSWORD, login="postgresql://app", database=f"/app?{option}")
    assert (verdict.status, proofs) == ("unvalidated", [])
    assert "TLS" in verdict.reason
    dsn = {
        "dsn": f"host=db.example port=7 {option.replace('&', ' ').lower()} user=app ",
        "rival": " password=",
    }
    if option.startswith("sslmode"):
        assert check_against(script, "postgres", PASSWORD, login="", **dsn).status == "unvalidated"
    assert proofs == []


@pytest.mark.parametrize(
    "option",
    [
        *("ssl-mode=REQUIRED", "sslMode=VERIFY_IDENTITY", "tls=skip-verify", "ssl=true"),
        "verifyServerCertificate=true",
    ],
)
def test_a_mysql_server_without_tls_gets_no_proof_if_tls_is_required(option):
    sent = []

    async def script(reader, writer):
        writer.write(mysql_packet(0, handshake_packet("mysql_native_password")))
        sent.append(await reader.read(1000))

    verdict = check_against(script, "mysql", PASSWORD, login="mysql://shop", database=f"/shop?{option}")
    assert verdict.status == "unvalidated"
    assert b"".join(sent) == b""


def test_a_password_is_not_sent_to_a_false_certificate_if_the_string_requires_a_true_one(cert):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cert)
    received: list[bytes] = []

    async def asks_for_clear_text(reader, writer):
        await reader.readexactly(8)
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(context)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
        writer.write(authentication(3))
        received.append(await reader.read(1000))

    mysql = fake_mysql("caching_sha2_password", tls=context, known=False)
    for option, expected in (("sslmode=require", [PASSWORD.encode()]), ("sslmode=verify-full", [])):
        received.clear()
        verdict = check_against(
            asks_for_clear_text, "postgres", PASSWORD, login="postgresql://app", database=f"/app?{option}"
        )
        assert [PASSWORD.encode() for data in received if PASSWORD.encode() in data] == expected
    assert (verdict.status, "certificate" in verdict.reason) == ("unvalidated", True)
    for option in ("sslMode=VERIFY_IDENTITY", "useSSL=true&verifyServerCertificate=true"):
        verdict = check_against(mysql, "mysql", PASSWORD, login="mysql://shop", database=f"/shop?{option}")
        assert (verdict.status, "certificate" in verdict.reason) == ("unvalidated", True)


def test_messages_before_tls_do_not_count_as_messages_of_the_server(cert):
    """Somebody in between can add them, and the server behind TLS has never sent them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cert)

    async def script(reader, writer):
        await reader.readexactly(8)
        writer.write(b"S" + postgres_message(b"E", b"C28P01\0\0"))
        await writer.drain()
        await writer.start_tls(context)
        await reader.read(1000)

    verdict = check_against(script, "postgres", PASSWORD, login="postgresql://app")
    assert (verdict.status, "protocol" in verdict.reason) == ("error", True)


@pytest.mark.parametrize("option", ["tls=true", "ssl=true"])
def test_a_mongodb_login_with_tls_begins_with_tls(cert, option):
    database = f"/admin?{option}"
    plain = FakeMongo()
    verdict = check_against(plain, "mongodb", PASSWORD, login="mongodb://app", database=database, seconds=1)
    assert verdict.status != "valid"
    assert plain.commands == []
    verdict = check_against(
        FakeMongo(), "mongodb", PASSWORD, login="mongodb://app", database=database, tls=cert
    )
    assert verdict.status == "valid"


@pytest.mark.parametrize(
    ("named", "login", "option"), [("redis", "redis://", "ssl=true"), ("amqp", "amqp://orders", "ssl=true")]
)
def test_a_clear_text_protocol_begins_with_tls_if_an_option_requires_it(named, login, option):
    received = bytearray()

    async def script(reader, _writer):
        received.extend(await reader.read(1000))

    verdict = check_against(script, named, PASSWORD, login=login, database=f"/0?{option}")
    assert (verdict.status, received[:1]) == ("unreachable", b"\x16")


class DamagingWriter:
    """Changes some of what a server sends: bytes are flipped, left out or repeated, lengths become huge."""

    def __init__(self, writer, chance: random.Random) -> None:
        self.writer, self.chance = writer, chance

    def write(self, data: bytes) -> None:
        raw = bytearray(data)
        for _ in range(self.chance.choice((0, 1, 1, 3))):
            at = self.chance.randrange(len(raw)) if raw else 0
            match self.chance.randrange(5):
                case 0 if raw:
                    raw[at] ^= 1 << self.chance.randrange(8)
                case 1:
                    del raw[at:]
                case 2:
                    raw[at:at] = bytes(raw[:16])
                case 3:
                    raw[at : at + 4] = b"\xff\xff\xff\xff"
                case 4:
                    raw[at:at] = self.chance.randbytes(self.chance.randrange(200))
        self.writer.write(bytes(raw))

    def __getattr__(self, name: str):
        return getattr(self.writer, name)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_answers_get_a_verdict_of_a_failure_or_the_true_one(cert, seed):
    scripts = {
        "postgres": ("postgresql://app", postgres_server(SCRAM_START, SCRAM_CHALLENGE, proofs=[])),
        "mysql": ("mysql://shop", fake_mysql("caching_sha2_password", known=False)),
        "mssql": ("mssql://crm", fake_sqlserver(cert)),
        "mongodb": ("mongodb://app", FakeMongo()),
        "redis": ("redis://", fake_redis()),
        "amqp": ("amqp://orders", fake_rabbitmq()),
    }
    for named, (login, script) in scripts.items():
        chance = random.Random(f"{named} {seed}")

        async def damaged(reader, writer, script=script, chance=chance):
            with contextlib.suppress(Exception):  # the server may fail too
                await script(reader, DamagingWriter(writer, chance))
            await asyncio.sleep(60)

        verdict = check_against(damaged, named, PASSWORD, login=login, seconds=0.3)
        assert PASSWORD not in verdict.reason
