"""Redis and RabbitMQ against stand-ins written from their documents."""

import asyncio
import struct

import pytest

from tests.support.checks import check_against
from tests.support.tls import make_certificate

PASSWORD = "S3cr3t!pw"


async def command(reader) -> list[str]:
    if not (line := await reader.readline()):
        raise EOFError
    count = int(line[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2].decode())
    return words


def redis(
    *,
    users: bool = True,
    nopass: bool = False,
    admin: bool = False,
    name: str = "default",
    said: list[list[str]] | None = None,
):
    async def play(reader, writer):
        inside = nopass
        while True:
            words = await command(reader)
            if said is not None:
                said.append(words)
            match words:
                case ["PING"]:
                    writer.write(b"+PONG\r\n" if inside else b"-NOAUTH Authentication required.\r\n")
                case ["AUTH", _, _] if not users:
                    writer.write(b"-ERR wrong number of arguments for 'auth' command\r\n")
                case ["AUTH", *login]:
                    inside = login[-1] == PASSWORD and (len(login) == 1 or login[0] == name)
                    wrong = (
                        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                        if users
                        else b"-ERR invalid password\r\n"
                    )
                    writer.write(b"+OK\r\n" if inside else wrong)
                case ["CONFIG", "GET", _]:
                    writer.write(
                        b"*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n"
                        if admin
                        else b"-NOPERM this user has no permissions\r\n"
                    )

    return play


@pytest.mark.parametrize(
    ("play", "login", "password", "status", "services"),
    [
        (redis(), "redis://", PASSWORD, "valid", ("redis",)),
        (redis(admin=True), "redis://default", PASSWORD, "valid", ("redis", "redis_admin")),
        (redis(name="app"), "redis://app", PASSWORD, "valid", ("redis",)),
        (redis(users=False), "redis://h", PASSWORD, "valid", ("redis",)),
        (redis(users=False), "redis://h", "wrong", "invalid", ()),
        (redis(), "redis://", "wrong\r\nCONFIG", "invalid", ()),
        (redis(), "redis://someone", PASSWORD, "invalid", ()),
        (redis(nopass=True), "redis://default", PASSWORD, "unvalidated", ()),
    ],
)
def test_redis(play, login, password, status, services):
    verdict = check_against(play, "redis", password, login=login)
    assert (verdict.status, verdict.services) == (status, services), verdict.reason


def test_redis_is_asked_three_things_at_most():
    said: list[list[str]] = []
    check_against(redis(admin=True, said=said), "redis", PASSWORD, login="redis://")
    assert said == [["PING"], ["AUTH", PASSWORD], ["CONFIG", "GET", "databases"]]


@pytest.mark.parametrize("after", [0.0, 60.0])
def test_what_becomes_of_the_last_question_takes_nothing_from_the_verdict(after):
    async def play(reader, writer):
        await command(reader)
        writer.write(b"-NOAUTH Authentication required.\r\n")
        await command(reader)
        writer.write(b"+OK\r\n")
        await writer.drain()
        await command(reader)
        await asyncio.sleep(after)

    verdict = check_against(play, "redis", PASSWORD, login="redis://")
    assert (verdict.status, verdict.services) == ("valid", ("redis",))


def test_redis_in_another_state_is_no_verdict():
    async def play(reader, writer):
        await command(reader)
        writer.write(b"-LOADING Redis is loading the dataset in memory\r\n" * 2)
        await reader.read(100)

    assert check_against(play, "redis", PASSWORD, login="redis://").status == "error"


def test_redis_by_way_of_others_is_not_asked():
    async def play(reader, writer):
        raise AssertionError

    assert check_against(play, "redis", PASSWORD, login="redis-sentinel://").status == "unvalidated"
    assert check_against(play, "redis", PASSWORD, login="redis+sentinel://").status == "unvalidated"
    assert check_against(play, "redis", PASSWORD, login="redis://", rival=" -a ").status == "unvalidated"


def frame(method: tuple[int, int], body: bytes) -> bytes:
    return struct.pack("!BHIHH", 1, 0, len(body) + 4, *method) + body + b"\xce"


def start(mechanisms: bytes = b"AMQPLAIN PLAIN") -> bytes:
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
    return frame((10, 10), body)


def rabbit(reply_code: int = 403, mechanisms: bytes = b"AMQPLAIN PLAIN"):
    async def play(reader, writer):
        assert await reader.readexactly(8) == b"AMQP\0\0\x09\x01"
        writer.write(start(mechanisms))
        head = await reader.readexactly(7)
        kind, channel, size = struct.unpack("!BHI", head)
        body = await reader.readexactly(size)
        assert (kind, channel, await reader.readexactly(1), body[:4]) == (1, 0, b"\xce", b"\0\x0a\0\x0b")
        properties = struct.unpack_from("!I", body, 4)[0]
        assert b"authentication_failure_close" in body[8 : 8 + properties]
        rest = body[8 + properties :]
        assert rest[:6] == b"\x05PLAIN"
        size = struct.unpack_from("!I", rest, 6)[0]
        assert rest[10 + size :] == b"\x05en_US"
        if rest[10 : 10 + size] == f"\0orders\0{PASSWORD}".encode():
            writer.write(frame((10, 30), struct.pack("!HIH", 2047, 131072, 60)))
            assert (await reader.readexactly(11))[7:] == b"\0\x0a\0\x32"
        else:
            text = b"ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
            writer.write(
                frame((10, 50), struct.pack("!H", reply_code) + bytes([len(text)]) + text + bytes(4))
            )
            await reader.read(100)

    return play


@pytest.mark.parametrize(
    ("play", "login", "password", "status"),
    [
        (rabbit(), "amqp://orders", PASSWORD, "valid"),
        (rabbit(), "amqp://orders", "wrong-password-1", "invalid"),
        (rabbit(), "amqp://guest", "guest", "error"),
        (rabbit(541), "amqp://orders", "wrong-password-1", "error"),
        (rabbit(mechanisms=b"EXTERNAL"), "amqp://orders", PASSWORD, "unvalidated"),
        (rabbit(), "mqtt://orders", PASSWORD, "unvalidated"),
        (rabbit(), "amqp://", PASSWORD, "unvalidated"),
    ],
)
def test_rabbitmq(play, login, password, status):
    verdict = check_against(play, "amqp", password, login=login, seconds=2)
    assert verdict.status == status, verdict.reason
    assert verdict.services == (("amqp",) if status == "valid" else ())


@pytest.mark.parametrize(
    ("named", "login", "play"),
    [
        ("redis", "rediss://", redis()),
        ("amqp", "amqps://orders", rabbit()),
        ("amqp", "amqp+ssl://orders", rabbit()),
    ],
)
def test_an_address_that_says_so_is_asked_under_tls_and_only_with_a_certificate_that_fits(
    tmp_path, named, login, play
):
    cert = make_certificate(tmp_path, "db.example")
    assert check_against(play, named, PASSWORD, login=login, tls=cert, ca=cert[0]).status == "valid"
    verdict = check_against(play, named, PASSWORD, login=login, tls=cert)
    assert (verdict.status, "certificate" in verdict.reason) == ("unreachable", True)
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", "another.example")
    assert check_against(play, named, PASSWORD, login=login, tls=other, ca=other[0]).status == "unreachable"
    assert check_against(play, named, PASSWORD, login=login, ca=cert[0], seconds=1).status == "unreachable"


def test_a_server_of_another_version_is_no_verdict():
    async def play(reader, writer):
        writer.write(b"AMQP\0\1\0\0")
        await reader.read(100)

    assert check_against(play, "amqp", PASSWORD, login="amqp://orders").status == "error"
