"""Logins of PostgreSQL, against a real server with users of every kind, and against fake servers."""

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from outcrop.net.guard import Egress
from outcrop.store.embedded.binaries import USER_NAMESPACE, find_programs
from outcrop.validation.verdict import Verdict
from tests.support.checks import check_against, load_check, run_check
from tests.support.tls import make_certificate

PASSWORD = "S3cr3t!pw:ü"
HBA = """
local all all trust
host all clear 127.0.0.1/32 password
host all trusted 127.0.0.1/32 trust
host all old 127.0.0.1/32 md5
host all hidden 127.0.0.1/32 reject
host all all 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Run a PostgreSQL that listens on loopback and yield its port; the other tests use a socket."""
    folder = Path(tmp_path_factory.mktemp("pg"))
    programs = find_programs(None)
    if os.geteuid() == 0:
        programs = replace(programs, prefix=USER_NAMESPACE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    data, log = folder / "data", folder / "log"
    code, text = programs.run(
        "initdb",
        "--auth=trust",
        "--username=postgres",
        "--no-sync",
        "--encoding=UTF8",
        env={"PGDATA": str(data)},
    )
    assert code == 0, text
    (data / "pg_hba.conf").write_text(HBA)
    options = (
        f"-c listen_addresses=127.0.0.1 -p {number} -c unix_socket_directories={folder} "
        "-c fsync=off -c dynamic_shared_memory_type=mmap"
    )
    with log.open("wb") as out:
        start = ("start", "--silent", "--wait", "--timeout=30", "--options", options)
        code, text = programs.run("pg_ctl", *start, env={"PGDATA": str(data)}, output=out.fileno())
    assert code == 0, log.read_text()
    try:
        with psycopg.connect(
            host=str(folder), port=number, user="postgres", dbname="postgres", autocommit=True
        ) as db:
            for encryption, user, attributes in (
                ("md5", "old", ""),
                ("scram-sha-256", "app", ""),
                ("scram-sha-256", "boss", "SUPERUSER"),
                ("scram-sha-256", "clear", ""),
                ("scram-sha-256", "trusted", ""),
                ("scram-sha-256", "hidden", ""),
                ("scram-sha-256", "shut", "NOINHERIT"),
            ):
                db.execute(f"SET password_encryption = '{encryption}'")
                db.execute(
                    psycopg.sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} " + attributes).format(
                        psycopg.sql.Identifier(user), PASSWORD
                    )
                )
            db.execute("ALTER ROLE shut NOLOGIN")
        yield number
    finally:
        programs.run("pg_ctl", "stop", "--silent", "--mode=immediate", "--wait", env={"PGDATA": str(data)})


def log_in(
    port: int, user: str, password: str = PASSWORD, database: str = "postgres", **companions: str
) -> Verdict:
    egress = Egress.parse([], [f"db.example:5432=127.0.0.1:{port}"], None)
    parts = {"login": f"postgresql://{user}", "server": f"db.example/{database}"} | companions
    return run_check(egress, load_check("postgres", "postgres_uri"), password, **parts)


@pytest.mark.parametrize(
    ("user", "services"),
    [("app", ("postgres",)), ("old", ("postgres",)), ("boss", ("postgres", "postgres_superuser"))],
)
def test_a_right_password_is_valid(port, user, services):
    verdict = log_in(port, user)
    assert (verdict.status, verdict.confidence, verdict.services) == ("valid", "high", services), (
        verdict.reason
    )


@pytest.mark.parametrize("user", ["app", "old", "nobody"])
def test_a_wrong_password_is_invalid(port, user):
    verdict = log_in(port, user, "wrong-password-1")
    assert (verdict.status, verdict.confidence) == ("invalid", "high"), verdict.reason
    assert "wrong-password-1" not in verdict.reason


def test_a_missing_database_still_proves_the_password(port):
    verdict = log_in(port, "app", database="no_such_database")
    assert (verdict.status, verdict.confidence) == ("valid", "high")
    assert log_in(port, "app", "wrong-password-1", "no_such_database").status == "invalid"


@pytest.mark.parametrize(
    ("user", "status"), [("trusted", "unvalidated"), ("hidden", "error"), ("shut", "invalid")]
)
def test_logins_that_prove_nothing_are_not_valid(port, user, status):
    verdict = log_in(port, user)
    assert verdict.status == status, verdict.reason


def test_libpq_strings_and_pgpass_lines_are_checked_too(port):
    egress = Egress.parse([], [f"db.example:5432=127.0.0.1:{port}"], None)
    check = load_check("postgres", "postgres_uri")
    dsn = {"dsn": "host=db.example user=app dbname=postgres ", "rival": " password="}
    assert run_check(egress, check, PASSWORD, **dsn).status == "valid"
    assert (
        run_check(
            egress, check, PASSWORD, login="postgres://app", server="db.example", rival="&password="
        ).status
        == "unvalidated"
    )
    entry = load_check("pgpass", "pgpass_password")
    assert (
        run_check(egress, entry, PASSWORD.replace(":", "\\:"), entry="db.example:5432:*:app").status
        == "valid"
    )
    assert run_check(egress, entry, PASSWORD, entry="*:*:*:app").status == "unvalidated"


async def forward(source, target, copy):
    """Forward everything from a reader to a writer, and append it to `copy`."""
    while data := await source.read(4096):
        copy.append(data)
        target.write(data)


def relay(port: int, sent: list[bytes], tls: ssl.SSLContext | None = None):
    """Return a script that forwards to the real server (which has no TLS) and copies sent bytes to `sent`."""

    async def script(reader, writer):
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        await reader.readexactly(8)
        writer.write(b"S" if tls else b"N")
        if tls:
            await writer.start_tls(tls)
        tasks = {
            asyncio.ensure_future(forward(reader, server_writer, sent)),
            asyncio.ensure_future(forward(server_reader, writer, [])),
        }
        try:
            await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
        finally:
            for task in tasks:
                task.cancel()
            server_writer.transport.abort()
            await asyncio.sleep(0)

    return script


def test_no_statement_is_run_and_the_password_is_not_sent(port):
    """The server reports by itself whether the user is a superuser, so a login is enough."""
    sent: list[bytes] = []
    verdict = check_against(
        relay(port, sent), "postgres", PASSWORD, login="postgresql://boss", database="/postgres"
    )
    assert verdict.services == ("postgres", "postgres_superuser")
    received = b"".join(sent)
    assert received.endswith(b"X\0\0\0\4")
    assert PASSWORD.encode() not in received
    assert b"SELECT" not in received.upper()


def test_a_clear_text_password_is_sent_over_tls_only(port, tmp_path):
    sent: list[bytes] = []
    assert (
        check_against(relay(port, sent), "postgres", PASSWORD, login="postgresql://clear").status
        == "unvalidated"
    )
    assert PASSWORD.encode() not in b"".join(sent)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*make_certificate(tmp_path))
    verdict = check_against(
        relay(port, sent, tls), "postgres", PASSWORD, login="postgresql://clear", database="/postgres"
    )
    assert (verdict.status, verdict.reason) == ("valid", "the server accepts the login")
    assert PASSWORD.encode() in b"".join(sent)
    assert (
        check_against(
            relay(port, sent, tls), "postgres", "wrong-password-1", login="postgresql://clear"
        ).status
        == "invalid"
    )


def send_messages(*messages: bytes):
    """Return the script of a server without TLS that sends these messages, whatever it receives."""

    async def script(reader, writer):
        await reader.readexactly(8)
        writer.write(b"N")
        for message in messages:
            await reader.read(4096)
            writer.write(message)
            await writer.drain()
        await reader.read(4096)

    return script


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def authentication_request(code: int, rest: bytes = b"") -> bytes:
    return message(b"R", struct.pack("!I", code) + rest)


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([authentication_request(3)], "unvalidated"),  # clear text without TLS
        ([authentication_request(7)], "unvalidated"),  # GSSAPI
        ([authentication_request(10, b"SCRAM-SHA-512\0\0")], "unvalidated"),
        (
            [
                authentication_request(10, b"SCRAM-SHA-256\0\0"),
                authentication_request(11, b"r=other,s=QUFB,i=4096"),
            ],
            "error",
        ),
        ([authentication_request(10, b"SCRAM-SHA-256\0\0"), authentication_request(11, b"\xff")], "error"),
        ([authentication_request(11, b"r=x,s=QUFB,i=4096")], "unvalidated"),
        (
            [
                authentication_request(5, b"salt"),
                authentication_request(0) + message(b"E", b"SFATAL\0C57P03\0\0"),
            ],
            "valid",
        ),
        ([message(b"E", b"SFATAL\0C57P03\0\0")], "error"),
        ([message(b"E", b"SFATAL\0C28000\0\0")], "error"),
        ([message(b"E", b"SFATAL\0\0")], "error"),
        ([message(b"Z", b"I")], "error"),
        ([authentication_request(0) + message(b"Z", b"I")], "unvalidated"),
        ([authentication_request(5)[:7]], "unreachable"),
        ([b"E\xff\xff\xff\xff"], "error"),
        ([b"R\0\0\0\0"], "error"),
        ([message(b"R", b"")], "error"),
        ([message(b"N", b"x") * 500], "error"),
    ],
)
def test_each_message_of_a_fake_server_has_its_verdict(messages, status):
    verdict = check_against(
        send_messages(*messages),
        "postgres",
        "S3cr3t-of-mine",
        login="postgresql://app",
        seconds=1 if status == "unreachable" else 60,  # the server says nothing more
    )
    assert verdict.status == status, verdict.reason
    assert "S3cr3t" not in verdict.reason


def test_a_scram_server_must_prove_that_it_knows_the_password():
    async def script(reader, writer):
        await reader.readexactly(8)
        writer.write(b"N")
        await reader.read(4096)
        writer.write(authentication_request(10, b"SCRAM-SHA-256\0\0"))
        nonce = (await reader.read(4096)).rpartition(b"r=")[2]
        writer.write(authentication_request(11, b"r=" + nonce + b"more,s=QUFBQQ==,i=4096"))
        await reader.read(4096)
        writer.write(
            authentication_request(12, b"v=QUFBQQ==") + authentication_request(0) + message(b"Z", b"I")
        )
        await reader.read(4096)

    assert check_against(script, "postgres", "S3cr3t", login="postgresql://app").status == "error"


def test_too_many_scram_iterations_are_refused():
    async def script(reader, writer):
        await reader.readexactly(8)
        writer.write(b"N")
        await reader.read(4096)
        writer.write(authentication_request(10, b"SCRAM-SHA-256\0\0"))
        nonce = (await reader.read(4096)).rpartition(b"r=")[2]
        writer.write(authentication_request(11, b"r=" + nonce + b"more,s=QUFBQQ==,i=9999999"))
        if reply := await reader.read(4096):
            replies.append(reply)

    replies: list[bytes] = []
    assert check_against(script, "postgres", "S3cr3t", login="postgresql://app").status == "error"
    assert replies == []  # no proof was computed and sent
