"""PostgreSQL: a login by its own protocol (version 3). No statement is run: the server says by itself whether it is a superuser's."""

import asyncio
import hashlib
import secrets
import struct
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.http.request import UnfitError
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, log_in, login_of
from outcrop.validation.logins.scram import Scram
from outcrop.validation.logins.uri import Login, host_of, plain, port_of, read_dsn
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_PORT = 5432
_PORTS = dict.fromkeys(("postgres", "postgresql", "postgis", "pgsql", "timescaledb"), _PORT) | {
    "redshift": 5439,
    "cockroachdb": 26257,
}
_MOST_MESSAGES = 200
_REFUSED, _NOT_FROM_HERE = "28P01", "28000"
_AFTER_LOGIN = {
    "3D000",
    "42501",
}  # no such database, or not this one: told only to those who have proven themselves


async def postgres(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as the connection string says, and hang up."""
    return await log_in(http, turn, lambda: _login(values), _talk, seconds=seconds)


async def pgpass(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as a line of a password file says: host, port, database, user."""

    def read() -> Login:
        fields = values["part.entry"].split(":")
        if len(fields) != 4 or fields[0] == "*" or fields[3] == "*":
            raise UnfitError("its line names no single host or user")
        host, port, database, user = fields
        password = values["secret"].replace("\\:", ":").replace("\\\\", "\\")
        at = port_of(None if port == "*" else port, _PORT)
        return Login(
            "postgresql",
            host_of(host),
            at,
            plain(user),
            plain(password),
            "" if database == "*" else plain(database),
        )

    return await log_in(http, turn, read, _talk, seconds=seconds)


def _login(values: Mapping[str, str]) -> Login:
    """Read an address, or libpq's own form; what stands right before the password tells which it is."""
    if values.get("part.rival", "").startswith((" ", "\t")) and "part.dsn" in values:
        return read_dsn(values["part.dsn"], values["secret"], _PORT)
    return login_of(values, _PORTS)


@dataclass(slots=True)
class _State:
    login: Login
    proven: bool = False  # the password was asked for
    accepted: bool = False
    superuser: bool = False
    scram: Scram | None = None


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    await dialog.say(struct.pack("!II", 8, 80877103))  # may we speak TLS?
    if await dialog.hear(1) == b"S":
        await dialog.encrypt()
    names = {"user": login.user, "database": login.database or login.user, "application_name": "outcrop"}
    body = b"".join(_text(part) for pair in names.items() for part in pair) + b"\0"
    await dialog.say(struct.pack("!II", len(body) + 8, 3 << 16) + body)
    state = _State(login)
    for _ in range(_MOST_MESSAGES):
        kind, size = struct.unpack("!cI", await dialog.hear(5))
        body = await dialog.hear(size - 4)
        match kind:
            case b"R":
                if refusal := await _prove(dialog, state, body):
                    return refusal
            case b"S":
                state.superuser |= body == b"is_superuser\0on\0"
            case b"E":
                return _error(state, _sqlstate(body))
            case b"Z":
                await dialog.say(b"X\0\0\0\4")
                return _in(state)
    raise OddError


async def _prove(dialog: Dialog, state: _State, body: bytes) -> Verdict | None:
    """Answer what the server asks for; a verdict where that cannot be done."""
    (code,), rest = struct.unpack_from("!I", body), body[4:]
    password = state.login.password.encode()
    match code:  # 0 welcome, 3 clear text, 5 MD5, 10 to 12 SASL
        case 0:
            state.accepted = True
        case 3 if dialog.encrypted:
            await _send(dialog, state, password + b"\0")
        case 3:
            return unvalidated(
                "the server wants the password unencrypted, over a network that anybody may read"
            )
        case 5:
            inner = hashlib.md5(password + state.login.user.encode(), usedforsecurity=False).hexdigest()
            await _send(
                dialog,
                state,
                b"md5"
                + hashlib.md5(inner.encode() + rest[:4], usedforsecurity=False).hexdigest().encode()
                + b"\0",
            )
        case 10 if b"SCRAM-SHA-256" in rest.split(b"\0"):
            # PostgreSQL takes the name from the beginning of the connection.
            state.scram = Scram(
                "sha256",
                "",
                unicodedata.normalize("NFKC", state.login.password).encode(),
                secrets.token_urlsafe(18),
            )
            first = state.scram.first()
            await _send(dialog, state, b"SCRAM-SHA-256\0" + struct.pack("!I", len(first)) + first)
        case 11 if state.scram:
            await _send(dialog, state, await asyncio.to_thread(state.scram.answer, rest))
        case 12 if state.scram:
            state.scram.check(rest)
        case _:
            return unvalidated("the server asks for a proof other than a password")
    return None


async def _send(dialog: Dialog, state: _State, proof: bytes) -> None:
    state.proven = True
    await dialog.say(b"p" + struct.pack("!I", len(proof) + 4) + proof)


def _in(state: _State) -> Verdict:
    if not state.accepted:
        raise OddError
    if not state.proven:
        return unvalidated("the server lets its user in without a password")
    labels = ("postgres", "postgres_superuser") if state.superuser else ("postgres",)
    return valid("the server accepts the login", services=labels, asked=True)


def _error(state: _State, sqlstate: str) -> Verdict:
    if state.accepted and state.proven:
        if sqlstate == _NOT_FROM_HERE:
            return invalid("the password is right, but its user may not log in", Confidence.MEDIUM)
        sure = Confidence.HIGH if sqlstate in _AFTER_LOGIN else Confidence.MEDIUM
        return valid(
            f"the server accepts the password, then says {sqlstate}", sure, ("postgres",), asked=True
        )
    if sqlstate == _REFUSED:
        return invalid("the server refuses the password")
    if sqlstate == _NOT_FROM_HERE:
        return error("the server takes no login of this user from here, whatever the password")
    return error(f"the server cannot take a login now (SQLSTATE {sqlstate})")


def _sqlstate(body: bytes) -> str:
    """Find the code among the fields of an error; its message is not ours to repeat."""
    for field in body.split(b"\0"):
        if field[:1] == b"C" and len(field) == 6 and field.isalnum():
            return field[1:].decode("ascii")
    raise OddError


def _text(value: str) -> bytes:
    return value.encode() + b"\0"
