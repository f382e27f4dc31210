"""Logins of AMQP, against a server in Python that is written from the specification."""

import struct

import pytest

from tests.support.checks import check_against

PASSWORD = "S3cr3t!pw"


def method_frame(method: tuple[int, int], body: bytes) -> bytes:
    return struct.pack("!BHIHH", 1, 0, len(body) + 4, *method) + body + b"\xce"


def start_method(mechanisms: bytes = b"AMQPLAIN PLAIN") -> bytes:
    table = b"\x07productS" + struct.pack("!I", 8) + b"RabbitMQ"
    body = (
        b"\0\x09"
        + struct.pack("!I", len(table))
        + table
        + struct.pack("!I", len(mechanisms))
        + mechanisms
        + struct.pack("!I", 5)
        + b"en_US"
    )
    return method_frame((10, 10), body)


def fake_rabbitmq(reply_code: int = 403, mechanisms: bytes = b"AMQPLAIN PLAIN"):
    """Return the script of a server that accepts the user `orders` and closes with `reply_code` otherwise."""

    async def script(reader, writer):
        assert await reader.readexactly(8) == b"AMQP\0\0\x09\x01"
        writer.write(start_method(mechanisms))
        header = await reader.readexactly(7)
        kind, channel, size = struct.unpack("!BHI", header)
        body = await reader.readexactly(size)
        assert (kind, channel, await reader.readexactly(1), body[:4]) == (1, 0, b"\xce", b"\0\x0a\0\x0b")
        properties = struct.unpack_from("!I", body, 4)[0]
        assert b"authentication_failure_close" in body[8 : 8 + properties]
        rest = body[8 + properties :]
        assert rest[:6] == b"\x05PLAIN"
        size = struct.unpack_from("!I", rest, 6)[0]
        assert rest[10 + size :] == b"\x05en_US"
        if rest[10 : 10 + size] == f"\0orders\0{PASSWORD}".encode():
            writer.write(method_frame((10, 30), struct.pack("!HIH", 2047, 131072, 60)))
            assert (await reader.readexactly(11))[7:] == b"\0\x0a\0\x32"
        else:
            text = b"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
            writer.write(
                method_frame((10, 50), struct.pack("!H", reply_code) + bytes([len(text)]) + text + bytes(4))
            )
            await reader.read(100)

    return script


@pytest.mark.parametrize(
    ("script", "login", "password", "status"),
    [
        (fake_rabbitmq(), "amqp://orders", PASSWORD, "valid"),
        (fake_rabbitmq(), "amqp://orders", "wrong-password-1", "invalid"),
        (fake_rabbitmq(), "amqp://guest", "guest", "error"),
        (fake_rabbitmq(541), "amqp://orders", "wrong-password-1", "error"),
        (fake_rabbitmq(mechanisms=b"EXTERNAL"), "amqp://orders", PASSWORD, "unvalidated"),
        (fake_rabbitmq(), "mqtt://orders", PASSWORD, "unvalidated"),
        (fake_rabbitmq(), "amqp://", PASSWORD, "unvalidated"),
    ],
)
def test_each_answer_of_the_server_has_its_verdict(script, login, password, status):
    verdict = check_against(script, "amqp", password, login=login)
    assert verdict.status == status, verdict.reason
    assert verdict.services == (("amqp",) if status == "valid" else ())


def test_a_server_of_another_version_is_an_error():
    async def script(reader, writer):
        writer.write(b"AMQP\0\1\0\0")
        await reader.read(100)

    assert check_against(script, "amqp", PASSWORD, login="amqp://orders").status == "error"
