"""Check logins of PostgreSQL and its relatives, with version 3 of its protocol.

1. The client asks for TLS and sends the startup message with user and database (`_log_in`).
2. The server asks for a password, an MD5 digest or SCRAM (`_answer_authentication`).
3. After a login the server sends its parameters; `is_superuser` is one. No statement is run.
"""

import asyncio
import hashlib
import secrets
import struct
import unicodedata
from dataclasses import dataclass

from outcrop.domain.finding import Confidence
from outcrop.limits import LOGIN_SECONDS, POSTGRES_MESSAGES
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.logins.connection import (
    NO_CERTIFICATE,
    NO_TLS,
    LoginConnection,
    ProtocolError,
    check_login,
    read_uri_login,
)
from outcrop.validation.logins.scram import ScramClient
from outcrop.validation.logins.uri import ServerLogin, checked_field, parse_dsn, parse_host, parse_port
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_PORT = 5432
_PORTS = dict.fromkeys(("postgres", "postgresql", "postgis", "pgsql", "timescaledb"), _PORT) | {
    "redshift": 5439,
    "cockroachdb": 26257,
}
_SSL_REQUEST = struct.pack("!II", 8, 80877103)
_TERMINATE = b"X\0\0\0\4"
_PROTOCOL_VERSION = 3 << 16
# SQLSTATE codes.
_INVALID_PASSWORD, _INVALID_AUTHORIZATION = "28P01", "28000"
_SENT_AFTER_LOGIN = {"3D000", "42501"}  # no such database, no permission for it: sent only after the login


async def check_postgres_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the PostgreSQL server of the connection string and return the verdict.

    `seconds` is the time limit of the login.
    """
    return await check_login(attempt, lambda: _read_login(attempt), _log_in, seconds=seconds)


async def check_pgpass_entry(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the PostgreSQL server of a line in a password file (.pgpass) and return the verdict.

    `seconds` is the time limit of the login.
    """
    return await check_login(attempt, lambda: _read_pgpass_entry(attempt), _log_in, seconds=seconds)


def _read_login(attempt: Attempt) -> ServerLogin:
    """Return the login around the password: from a URI or from a `host=… user=…` string.

    The string is read if a blank and `password=` are right before the password. Raise UncheckableError if the
    login is incomplete.
    """
    before_password = attempt.companion("dsn")
    if (attempt.companion("rival") or "").startswith((" ", "\t")) and before_password is not None:
        return parse_dsn(before_password, attempt.secret, _PORT)
    return read_uri_login(attempt, _PORTS)


def _read_pgpass_entry(attempt: Attempt) -> ServerLogin:
    """Return the login of a .pgpass line: `host:port:database:user` and the password.

    `*` as port or database means the default. Raise UncheckableError if the host or the user is `*`, or if a
    field is not valid.
    """
    fields = attempt.values["part.entry"].split(":")
    if len(fields) != 4 or fields[0] == "*" or fields[3] == "*":
        raise UncheckableError("its line does not name one host and user")
    host, port, database, user = fields
    password = attempt.secret.replace("\\:", ":").replace("\\\\", "\\")
    parsed_port = parse_port(None if port == "*" else port, _PORT)
    return ServerLogin(
        "postgresql",
        parse_host(host),
        parsed_port,
        checked_field(user),
        checked_field(password),
        "" if database == "*" else checked_field(database),
    )


@dataclass(slots=True)
class _LoginState:
    """The state of one login."""

    login: ServerLogin
    password_sent: bool = False  # the password or a proof of it
    accepted: bool = False
    superuser: bool = False
    scram: ScramClient | None = None


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Log in to PostgreSQL, with TLS if the server offers it, and return the verdict.

    Send the startup message, then answer the server's messages until it is ready for a query, sends an error,
    or asks for what cannot be answered: the password without TLS, or another proof than a password. Raise
    ProtocolError or ScramError if the server breaks the protocol, and ProtocolError after POSTGRES_MESSAGES.
    """
    await connection.send(_SSL_REQUEST)
    if await connection.receive(1) == b"S":
        await connection.start_tls()
    elif login.requires_tls:
        return NO_TLS
    await connection.send(_startup_message(login))
    state = _LoginState(login)
    for _ in range(POSTGRES_MESSAGES):
        kind, size = struct.unpack("!cI", await connection.receive(5))
        body = await connection.receive(size - 4)
        match kind:
            case b"R":  # authentication request
                if verdict := await _answer_authentication(connection, state, body):
                    return verdict
            case b"S":  # parameter status
                state.superuser |= body == b"is_superuser\0on\0"
            case b"E":  # error response
                return _verdict_for_error(state, _sqlstate_of(body))
            case b"Z":  # ready for query
                await connection.send(_TERMINATE)
                return _verdict_when_ready(state)
    raise ProtocolError


def _startup_message(login: ServerLogin) -> bytes:
    """Return PostgreSQL's startup message for the login.

    If the login has no database, the user's name is used as the database's name.
    """
    parameters = {
        "user": login.user,
        "database": login.database or login.user,
        "application_name": "outcrop",
    }
    body = b"".join(text.encode() + b"\0" for pair in parameters.items() for text in pair) + b"\0"
    return struct.pack("!II", len(body) + 8, _PROTOCOL_VERSION) + body


async def _answer_authentication(
    connection: LoginConnection, state: _LoginState, body: bytes
) -> Verdict | None:
    """Answer a PostgreSQL authentication request and return None; return a verdict if no answer is possible.

    That verdict is `unvalidated`: the server wants the password without TLS or a trusted certificate, or
    another proof than a password. `body` is the body of the request. An accepted login, a sent password
    and the SCRAM client are noted in `state`. Raise ScramError if the server breaks SCRAM, and
    ProtocolError if it asks for a second proof: that would cost CPU time, or be a weaker one.
    """
    (code,), data = struct.unpack_from("!I", body), body[4:]
    password = state.login.password.encode()
    match code:
        case 0 if state.scram is None or state.scram.is_verified:  # OK
            state.accepted = True
        case 0:
            raise ProtocolError  # the server has not proved that it knows the password
        case 3 | 5 | 10 if state.password_sent:
            raise ProtocolError
        case 3 if verdict := _refuse_clear_text(connection, state.login):
            return verdict
        case 3:
            await _send_password(connection, state, password + b"\0")
        case 5:  # MD5, with a salt of four bytes
            inner = hashlib.md5(password + state.login.user.encode(), usedforsecurity=False).hexdigest()
            outer = hashlib.md5(inner.encode() + data[:4], usedforsecurity=False).hexdigest()
            await _send_password(connection, state, b"md5" + outer.encode() + b"\0")
        case 10 if b"SCRAM-SHA-256" in data.split(b"\0"):  # SASL mechanisms
            normalized = unicodedata.normalize("NFKC", state.login.password).encode()
            # PostgreSQL ignores the user name here and uses that of the startup message.
            state.scram = ScramClient("sha256", "", normalized, secrets.token_urlsafe(18))
            message = state.scram.client_first_message()
            initial_response = b"SCRAM-SHA-256\0" + struct.pack("!I", len(message)) + message
            await _send_password(connection, state, initial_response)
        case 11 if state.scram and not state.scram.has_proved:  # SASL: the server-first message
            message = await asyncio.to_thread(state.scram.client_final_message, data)
            await _send_password(connection, state, message)
        case 12 if state.scram:  # SASL: the server-final message
            state.scram.verify_server_final(data)
        case _:
            return unvalidated("the server requires another proof than a password")
    return None


def _refuse_clear_text(connection: LoginConnection, login: ServerLogin) -> Verdict | None:
    """Return the verdict if the password itself may not be sent on this connection; None if it may."""
    if not connection.encrypted:
        return unvalidated(
            "the server asks for the password unencrypted, which others on the network could read"
        )
    return NO_CERTIFICATE if login.requires_certificate else None


async def _send_password(connection: LoginConnection, state: _LoginState, proof: bytes) -> None:
    """Send a PostgreSQL password message and note in `state` that it was sent.

    `proof` is the message's body: the password, a digest of it or a SCRAM message.
    """
    state.password_sent = True
    await connection.send(b"p" + struct.pack("!I", len(proof) + 4) + proof)


def _verdict_when_ready(state: _LoginState) -> Verdict:
    """Return the verdict when PostgreSQL is ready for a query.

    The verdict is `valid`, or `unvalidated` if the server asked for no password. Raise ProtocolError if the
    server has not accepted the login before.
    """
    if not state.accepted:
        raise ProtocolError
    if not state.password_sent:
        return unvalidated("the server accepts its user without a password")
    labels = ["postgres", "postgres_superuser"] if state.superuser else ["postgres"]
    return valid("the server accepts the login", labels)


def _verdict_for_error(state: _LoginState, sqlstate: str) -> Verdict:
    """Return the verdict for a PostgreSQL error response with this SQLSTATE code.

    If the password was accepted before the error, the verdict is `valid`, or `invalid` if the user may not
    log in. If not, it is `invalid` for a wrong password and `error` for any other code.
    """
    if state.accepted and state.password_sent:
        if sqlstate == _INVALID_AUTHORIZATION:
            return invalid("the password is right, but its user may not log in", Confidence.MEDIUM)
        confidence = Confidence.HIGH if sqlstate in _SENT_AFTER_LOGIN else Confidence.MEDIUM
        return valid(f"the server accepts the password, then reports {sqlstate}", ["postgres"], confidence)
    if sqlstate == _INVALID_PASSWORD:
        return invalid("the server refuses the password")
    if sqlstate == _INVALID_AUTHORIZATION:
        return error("the server accepts no login of this user from here, whatever the password")
    return error(f"the server does not accept logins now (SQLSTATE {sqlstate})")


def _sqlstate_of(body: bytes) -> str:
    """Return the SQLSTATE code in the body of a PostgreSQL error response; raise ProtocolError without one.

    The message in the body is not used: it may contain data of the server.
    """
    for field in body.split(b"\0"):
        if field[:1] == b"C" and len(field) == 6 and field.isalnum():
            return field[1:].decode("ascii")
    raise ProtocolError
