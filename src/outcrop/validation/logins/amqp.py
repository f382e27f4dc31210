"""AMQP 0-9-1 (RabbitMQ): the first steps of a connection, up to where the server has looked at the login."""

import struct
from collections.abc import Mapping

from outcrop.net.http import HttpClient, tls_context
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, log_in, login_of
from outcrop.validation.logins.uri import Login
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_SECURE_PORT = 5671
_PORTS = {"amqp": 5672, "pyamqp": 5672, "amqps": _SECURE_PORT}
_METHOD, _END = 1, b"\xce"
_START, _START_OK, _TUNE, _CLOSE = (10, 10), (10, 11), (10, 30), (10, 50)
_ACCESS_REFUSED = 403


async def amqp(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as the address says, and close before anything is opened."""
    secure = values.get("part.login", "").startswith(("amqps:", "amqp+ssl:", "pyamqp+ssl:"))
    context = tls_context(http.egress) if secure else None
    ports = _PORTS | ({"amqp": _SECURE_PORT, "pyamqp": _SECURE_PORT} if secure else {})
    return await log_in(http, turn, lambda: login_of(values, ports), _talk, tls=context, seconds=seconds)


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    await dialog.say(b"AMQP\0\0\x09\x01")
    method, rest = await _heard(dialog)
    if method != _START:
        raise OddError
    (size,) = struct.unpack_from("!I", rest, 2)  # the server's properties, after its version
    (length,) = struct.unpack_from("!I", rest, 6 + size)
    if b"PLAIN" not in rest[10 + size : 10 + size + length].split():
        return unvalidated("the server asks for a proof other than a password")
    # Without this a server hangs up on a wrong password and does not say why.
    told = _table(b"authentication_failure_close", b"t\1")
    proof = f"\0{login.user}\0{login.password}".encode()
    await _say(
        dialog,
        _START_OK,
        _table(b"capabilities", b"F" + told) + _short(b"PLAIN") + _long(proof) + _short(b"en_US"),
    )
    method, rest = await _heard(dialog)
    if method == _TUNE:
        await _say(dialog, _CLOSE, struct.pack("!H", 200) + _short(b"bye") + struct.pack("!HH", 0, 0))
        return valid("the server accepts the login", services=("amqp",), asked=True)
    if method != _CLOSE:
        raise OddError
    (code,) = struct.unpack_from("!H", rest)
    if code != _ACCESS_REFUSED:
        return error(f"the server cannot take a login now (code {code})")
    if login.user == "guest":
        return error("the server takes this user from its own machine only")
    return invalid("the server refuses the login")


async def _heard(dialog: Dialog) -> tuple[tuple[int, int], bytes]:
    head = await dialog.hear(7)
    kind, _, size = struct.unpack("!BHI", head)
    if kind != _METHOD:  # also where a server names another version of the protocol
        raise OddError
    body = await dialog.hear(size)
    if await dialog.hear(1) != _END:
        raise OddError
    first, second = struct.unpack_from("!HH", body)
    return (first, second), body[4:]


async def _say(dialog: Dialog, method: tuple[int, int], body: bytes) -> None:
    await dialog.say(struct.pack("!BHIHH", _METHOD, 0, len(body) + 4, *method) + body + _END)


def _short(text: bytes) -> bytes:
    return bytes([len(text)]) + text


def _long(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def _table(name: bytes, value: bytes) -> bytes:
    return _long(_short(name) + value)
