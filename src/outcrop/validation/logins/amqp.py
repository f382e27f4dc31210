"""Check logins of AMQP 0-9-1 servers such as RabbitMQ.

The server sends Start, the client answers Start-Ok with the password, and the server sends Tune if it accepts
it. The connection is closed before a virtual host is opened.
"""

import struct

from outcrop.limits import LOGIN_SECONDS
from outcrop.net.tls import tls_context
from outcrop.validation.attempt import Attempt
from outcrop.validation.logins.connection import (
    LoginConnection,
    ProtocolError,
    check_login,
    read_uri_login,
)
from outcrop.validation.logins.uri import ServerLogin, requires_tls
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid

_TLS_PORT = 5671
_PORTS = {"amqp": 5672, "pyamqp": 5672, "amqps": _TLS_PORT}
_TLS_SCHEMES = ("amqps:", "amqp+ssl:", "pyamqp+ssl:")
_PROTOCOL_HEADER = b"AMQP\0\0\x09\x01"
_METHOD_FRAME, _FRAME_END = 1, b"\xce"
_START, _START_OK, _TUNE, _CLOSE = (10, 10), (10, 11), (10, 30), (10, 50)  # methods of the class Connection
_REPLY_SUCCESS, _ACCESS_REFUSED = 200, 403


async def check_amqp_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the AMQP server of the URI and return the verdict.

    TLS is used if the scheme or an option says so. `seconds` is the time limit of the login.
    """
    use_tls = (attempt.companion("login") or "").startswith(_TLS_SCHEMES)
    use_tls = use_tls or requires_tls(attempt.companion("server") or "")
    tls = tls_context(attempt.http.egress) if use_tls else None
    ports = _PORTS | ({"amqp": _TLS_PORT, "pyamqp": _TLS_PORT} if use_tls else {})
    return await check_login(
        attempt, lambda: read_uri_login(attempt, ports), _log_in, tls=tls, seconds=seconds
    )


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Begin an AMQP connection with the login and return the verdict for the server's answer.

    The verdict is `valid` if the server answers Tune, `invalid` if it closes the connection with the code
    403. Other reasons to close the connection, and a refused user `guest`, are an `error` verdict. If the
    server does not accept passwords, the verdict is `unvalidated`, and the login is not sent. Raise
    ProtocolError if the server does not follow AMQP.
    """
    await connection.send(_PROTOCOL_HEADER)
    method, arguments = await _receive_method(connection)
    if method != _START:
        raise ProtocolError
    if b"PLAIN" not in _mechanisms(arguments):
        return unvalidated("the server requires another proof than a password")
    await _send_method(connection, _START_OK, _start_ok_arguments(login))
    method, arguments = await _receive_method(connection)
    if method == _TUNE:
        goodbye = struct.pack("!H", _REPLY_SUCCESS) + _short_string(b"bye") + struct.pack("!HH", 0, 0)
        await _send_method(connection, _CLOSE, goodbye)
        return valid("the server accepts the login", ["amqp"])
    if method != _CLOSE:
        raise ProtocolError
    (code,) = struct.unpack_from("!H", arguments)
    if code != _ACCESS_REFUSED:
        return error(f"the server does not accept logins now (code {code})")
    if login.user == "guest":
        return error("the server accepts this user from its own machine only")
    return invalid("the server refuses the login")


def _mechanisms(start_arguments: bytes) -> list[bytes]:
    """Return the SASL mechanisms in the arguments of the AMQP method Start.

    The mechanisms follow two version bytes and the server's properties.
    """
    (properties_size,) = struct.unpack_from("!I", start_arguments, 2)
    (size,) = struct.unpack_from("!I", start_arguments, 6 + properties_size)
    return start_arguments[10 + properties_size : 10 + properties_size + size].split()


def _start_ok_arguments(login: ServerLogin) -> bytes:
    """Return the arguments of AMQP's Start-Ok: client properties, mechanism, user and password, locale."""
    # Without this capability a server closes the connection on a wrong password without a reason.
    capabilities = _table(b"authentication_failure_close", b"t\1")
    properties = _table(b"capabilities", b"F" + capabilities)
    plain_response = f"\0{login.user}\0{login.password}".encode()
    return properties + _short_string(b"PLAIN") + _long_string(plain_response) + _short_string(b"en_US")


async def _receive_method(connection: LoginConnection) -> tuple[tuple[int, int], bytes]:
    """Receive an AMQP method frame and return the method, as class id and method id, and its arguments.

    Raise ProtocolError if the server sends anything else.
    """
    kind, _, size = struct.unpack("!BHI", await connection.receive(7))
    if kind != _METHOD_FRAME:  # also if the server answers with the header of another version
        raise ProtocolError
    payload = await connection.receive(size)
    if await connection.receive(1) != _FRAME_END:
        raise ProtocolError
    class_id, method_id = struct.unpack_from("!HH", payload)
    return (class_id, method_id), payload[4:]


async def _send_method(connection: LoginConnection, method: tuple[int, int], arguments: bytes) -> None:
    """Send an AMQP method frame on channel 0; `method` is its class id and method id."""
    header = struct.pack("!BHIHH", _METHOD_FRAME, 0, len(arguments) + 4, *method)
    await connection.send(header + arguments + _FRAME_END)


def _short_string(text: bytes) -> bytes:
    """Return an AMQP short string: the length of the text in one byte, then the text."""
    return bytes([len(text)]) + text


def _long_string(data: bytes) -> bytes:
    """Return an AMQP long string: the length of the data in four bytes, then the data."""
    return struct.pack("!I", len(data)) + data


def _table(name: bytes, value: bytes) -> bytes:
    """Return an AMQP field table with one field; `value` begins with the letter of its type."""
    return _long_string(_short_string(name) + value)
