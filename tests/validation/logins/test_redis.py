"""Logins of Redis, against a server in Python that is written from its documentation."""

import asyncio

import pytest

from tests.support.checks import check_against

PASSWORD = "S3cr3t!pw"


async def read_command(reader) -> list[str]:
    """Read an array of bulk strings."""
    if not (line := await reader.readline()):
        raise EOFError
    count = int(line[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readline())[1:])
        words.append((await reader.readexactly(size + 2))[:-2].decode())
    return words


def fake_redis(
    *,
    users: bool = True,
    nopass: bool = False,
    admin: bool = False,
    name: str = "default",
    commands: list[list[str]] | None = None,
):
    """Return the script of a server; versions before 6 have no `users`. `commands` collects those sent."""

    async def script(reader, writer):
        authenticated = nopass
        while True:
            words = await read_command(reader)
            if commands is not None:
                commands.append(words)
            match words:
                case ["PING"]:
                    writer.write(b"+PONG\r\n" if authenticated else b"-NOAUTH Authentication required.\r\n")
                case ["AUTH", _, _] if not users:
                    writer.write(b"-ERR wrong number of arguments for 'auth' command\r\n")
                case ["AUTH", *login]:
                    authenticated = login[-1] == PASSWORD and (len(login) == 1 or login[0] == name)
                    wrong = (
                        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                        if users
                        else b"-ERR invalid password\r\n"
                    )
                    writer.write(b"+OK\r\n" if authenticated else wrong)
                case ["CONFIG", "GET", _]:
                    writer.write(
                        b"*2\r\n$9\r\ndatabases\r\n$2\r\n16\r\n"
                        if admin
                        else b"-NOPERM this user has no permissions\r\n"
                    )

    return script


@pytest.mark.parametrize(
    ("script", "login", "password", "status", "services"),
    [
        (fake_redis(), "redis://", PASSWORD, "valid", ("redis",)),
        (fake_redis(admin=True), "redis://default", PASSWORD, "valid", ("redis", "redis_admin")),
        (fake_redis(name="app"), "redis://app", PASSWORD, "valid", ("redis",)),
        (fake_redis(users=False), "redis://h", PASSWORD, "valid", ("redis",)),
        (fake_redis(users=False), "redis://h", "wrong", "invalid", ()),
        (fake_redis(), "redis://", "wrong\r\nCONFIG", "invalid", ()),
        (fake_redis(), "redis://someone", PASSWORD, "invalid", ()),
        (fake_redis(nopass=True), "redis://default", PASSWORD, "unvalidated", ()),
    ],
)
def test_each_reply_has_its_verdict(script, login, password, status, services):
    verdict = check_against(script, "redis", password, login=login)
    assert (verdict.status, verdict.services) == (status, services), verdict.reason


def test_at_most_three_commands_are_sent():
    commands: list[list[str]] = []
    check_against(fake_redis(admin=True, commands=commands), "redis", PASSWORD, login="redis://")
    assert commands == [["PING"], ["AUTH", PASSWORD], ["CONFIG", "GET", "databases"]]


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_a_failing_config_query_does_not_change_the_verdict(delay):
    async def script(reader, writer):
        await read_command(reader)
        writer.write(b"-NOAUTH Authentication required.\r\n")
        await read_command(reader)
        writer.write(b"+OK\r\n")
        await writer.drain()
        await read_command(reader)
        await asyncio.sleep(delay)

    verdict = check_against(script, "redis", PASSWORD, login="redis://")
    assert (verdict.status, verdict.services) == ("valid", ("redis",))


def test_a_server_that_is_loading_is_an_error():
    async def script(reader, writer):
        await read_command(reader)
        writer.write(b"-LOADING Redis is loading the dataset in memory\r\n" * 2)
        await reader.read(100)

    assert check_against(script, "redis", PASSWORD, login="redis://").status == "error"


def test_sentinels_and_other_forms_are_not_contacted():
    async def script(reader, writer):
        raise AssertionError

    assert check_against(script, "redis", PASSWORD, login="redis-sentinel://").status == "unvalidated"
    assert check_against(script, "redis", PASSWORD, login="redis+sentinel://").status == "unvalidated"
    assert check_against(script, "redis", PASSWORD, login="redis://", rival=" -a ").status == "unvalidated"
