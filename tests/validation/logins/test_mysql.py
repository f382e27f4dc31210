"""Logins of MySQL, against a server in Python that is written from its documentation.

Every authentication plugin is tested, with and without TLS.
"""

import hashlib
import ssl
import struct

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from tests.support.checks import check_against
from tests.support.tls import make_certificate, rsa_key

USER, PASSWORD = "shop", "S3cr3t!pw"
NONCE = bytes(range(1, 21))
KEY = rsa_key()
SSL, CONNECT_WITH_DB, LOCAL_FILES, PLUGIN_AUTH = 0x800, 0x8, 0x80, 0x80000


def packet(number: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "little") + bytes([number]) + body


def error_packet(code: int) -> bytes:
    return (
        b"\xff"
        + struct.pack("<H", code)
        + b"#28000"
        + f"Access denied for user '{USER}'@'203.0.113.9' (using password: YES)".encode()
    )


def handshake_packet(plugin: str, *, tls: bool = False) -> bytes:
    low = 0x8000 | 0x200 | (SSL if tls else 0)
    head = (
        b"\x0a8.0.36\0"
        + struct.pack("<I", 7)
        + NONCE[:8]
        + b"\0"
        + struct.pack("<HBHHB", low, 45, 2, PLUGIN_AUTH >> 16, 21)
    )
    return head + bytes(10) + NONCE[8:] + b"\0" + plugin.encode() + b"\0"


def is_native_proof(proof: bytes, nonce: bytes = NONCE) -> bool:
    """Whether a `mysql_native_password` proof is right; the server stores only the hash of the hash."""
    stored = hashlib.sha1(hashlib.sha1(PASSWORD.encode()).digest()).digest()
    inner = bytes(a ^ b for a, b in zip(proof, hashlib.sha1(nonce + stored).digest(), strict=True))
    return hashlib.sha1(inner).digest() == stored


def is_caching_sha2_proof(proof: bytes) -> bool:
    stored = hashlib.sha256(hashlib.sha256(PASSWORD.encode()).digest()).digest()
    inner = bytes(a ^ b for a, b in zip(proof, hashlib.sha256(stored + NONCE).digest(), strict=True))
    return hashlib.sha256(inner).digest() == stored


class ServerTls:
    """The server's side of TLS.

    asyncio's `start_tls` cannot be used: the client's first TLS message may be in the read buffer already.
    """

    def __init__(self, reader, writer, context: ssl.SSLContext) -> None:
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    async def run(self, step, *arguments):
        while True:
            try:
                return step(*arguments)
            except ssl.SSLWantReadError:
                self.writer.write(self.outgoing.read())
                data = await self.reader.read(65536)
                if not data:
                    raise EOFError from None
                self.incoming.write(data)
            finally:
                self.writer.write(self.outgoing.read())

    async def readexactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            data += await self.run(self.tls.read, count - len(data))
        return data

    def write(self, data: bytes) -> None:
        self.tls.write(data)
        self.writer.write(self.outgoing.read())


async def read_packet(reader) -> tuple[int, bytes]:
    header = await reader.readexactly(4)
    return header[3], await reader.readexactly(int.from_bytes(header[:3], "little"))


def parse_response(body: bytes) -> tuple[int, str, bytes, str]:
    capabilities, _, _ = struct.unpack_from("<IIB", body)
    user, _, rest = body[32:].partition(b"\0")
    proof, plugin = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
    return capabilities, user.decode(), proof, plugin.rstrip(b"\0").decode()


def fake_mysql(
    plugin: str,
    *,
    tls: ssl.SSLContext | None = None,
    switch: bool = False,
    known: bool = True,
    grants: str = "GRANT USAGE ON *.* TO",
):
    """Return the script of a server that uses this plugin; with `known`, its password cache has the user."""

    async def script(reader, writer):
        writer.write(
            packet(0, handshake_packet("auth_gssapi_client" if switch else plugin, tls=tls is not None))
        )
        number, body = await read_packet(reader)
        if tls:
            assert len(body) == 32
            reader = writer = ServerTls(reader, writer, tls)
            await reader.run(reader.tls.do_handshake)
            number, body = await read_packet(reader)
        capabilities, user, proof, named = parse_response(body)
        assert not capabilities & (LOCAL_FILES | CONNECT_WITH_DB)
        nonce = NONCE
        if switch:
            nonce = NONCE[::-1]
            writer.write(packet(number + 1, b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0"))
            number, proof = await read_packet(reader)
        else:
            assert named == plugin
        right = user == USER and (
            is_native_proof(proof, nonce)
            if plugin == "mysql_native_password"
            else is_caching_sha2_proof(proof)
        )
        if plugin == "caching_sha2_password" and not (known and right):
            writer.write(packet(number + 1, b"\1\4"))
            number, sent = await read_packet(reader)
            if tls is None:
                assert sent == b"\2"
                key = KEY.public_key().public_bytes(
                    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
                )
                writer.write(packet(number + 1, b"\1" + key))
                number, encrypted = await read_packet(reader)
                masked = KEY.decrypt(
                    encrypted, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
                )
                sent = bytes(byte ^ NONCE[index % 20] for index, byte in enumerate(masked))
            right = user == USER and sent == PASSWORD.encode() + b"\0"
        elif plugin == "caching_sha2_password":
            writer.write(packet(number + 1, b"\1\3"))
            number += 1
        if not right:
            writer.write(packet(number + 1, error_packet(1045)))
            return
        writer.write(packet(number + 1, b"\0\0\0\2\0\0\0"))
        assert await read_packet(reader) == (0, b"\3SHOW GRANTS")
        end = b"\xfe\0\0\2\0"
        row = f"{grants} `{USER}`@`%`".encode()
        for index, part in enumerate([b"\1", b"\3def" + bytes(20), end, bytes([len(row)]) + row, end]):
            writer.write(packet(index + 1, part))
        assert await read_packet(reader) == (0, b"\1")

    return script


def log_in(script, password: str = PASSWORD, login: str = f"mysql://{USER}", **companions: str):
    return check_against(script, "mysql", password, login=login, database="/shop", **companions)


@pytest.fixture
def tls(tmp_path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(tmp_path))
    return context


@pytest.mark.parametrize("switch", [False, True])
def test_native_password_logins(switch):
    verdict = log_in(fake_mysql("mysql_native_password", switch=switch))
    assert (verdict.status, verdict.confidence, verdict.services) == ("valid", "high", ("mysql",)), (
        verdict.reason
    )
    verdict = log_in(fake_mysql("mysql_native_password", switch=switch), "wrong-password-1")
    assert (verdict.status, verdict.confidence) == ("invalid", "medium")
    assert not any(text in verdict.reason for text in ("wrong-password-1", USER))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("encrypted", [True, False])
def test_caching_sha2_logins(known, encrypted, tls):
    script = fake_mysql("caching_sha2_password", known=known, tls=tls if encrypted else None)
    assert log_in(script).status == "valid"
    assert log_in(script, "wrong-password-1").status == "invalid"


@pytest.mark.parametrize("grants", ["GRANT ALL PRIVILEGES ON *.* TO", "GRANT SELECT, SUPER, FILE ON *.* TO"])
def test_an_administrator_has_its_own_label(grants):
    assert log_in(fake_mysql("mysql_native_password", grants=grants)).services == ("mysql", "mysql_admin")
    assert log_in(
        fake_mysql("mysql_native_password", grants="GRANT ALL PRIVILEGES ON `shop`.* TO")
    ).services == ("mysql",)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (1044, "valid"),
        (1049, "valid"),
        (1862, "valid"),
        (1045, "invalid"),
        (3118, "invalid"),
        (1130, "error"),
        (1040, "error"),
    ],
)
def test_each_server_error_has_its_verdict(code, status):
    async def script(reader, writer):
        writer.write(packet(0, handshake_packet("mysql_native_password")))
        number, _ = await read_packet(reader)
        writer.write(packet(number + 1, error_packet(code)))
        await reader.read(1)

    assert log_in(script).status == status


@pytest.mark.parametrize(
    ("first", "status"),
    [
        (packet(0, error_packet(1130)), "error"),
        (packet(0, b"\x09" + handshake_packet("x")[1:]), "error"),
        (packet(0, handshake_packet("mysql_native_password")[:20]), "error"),
        (packet(0, b"\x0a" + b"8" * 300), "error"),
        (packet(0, b""), "error"),
        (b"\xff\xff\xff\0", "error"),
    ],
)
def test_a_broken_handshake_packet_is_an_error(first, status):
    async def script(reader, writer):
        writer.write(first)
        await reader.read(1)

    assert log_in(script).status == status


@pytest.mark.parametrize(
    "packet_body",
    [
        b"\xfemysql_clear_password\0",
        b"\xfeauth_gssapi_client\0x",
        b"\xfe\xff\0",
        b"\1\4",
        b"\1",
        b"\7",
        b"\xfe",
    ],
)
def test_the_password_is_not_sent_to_other_plugins(packet_body):
    received = []

    async def script(reader, writer):
        writer.write(packet(0, handshake_packet("mysql_native_password")))
        number, _ = await read_packet(reader)
        writer.write(packet(number + 1, packet_body))
        received.append(await reader.read(4096))

    assert log_in(script).status in {"unvalidated", "error"}
    assert received in ([], [b""])


def test_a_connection_closed_after_the_login_keeps_the_verdict():
    async def script(reader, writer):
        writer.write(packet(0, handshake_packet("mysql_native_password")))
        number, _ = await read_packet(reader)
        writer.write(packet(number + 1, b"\0\0\0\2\0\0\0"))
        await read_packet(reader)

    assert (log_in(script).status, log_in(script).services) == ("valid", ("mysql",))


def test_other_forms_and_schemes_are_not_contacted():
    async def script(reader, writer):
        raise AssertionError

    assert log_in(script, rival="@tcp(").status == "unvalidated"
    assert log_in(script, login="mysqlx://shop").status == "unvalidated"
