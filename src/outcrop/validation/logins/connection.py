"""Connect to a server, run a login protocol, and turn its outcome into a verdict.

The server may be hostile: the size of each message and the time are limited, and bytes that break the
protocol end the login.
"""

import asyncio
import contextlib
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from outcrop.limits import LOGIN_CONNECT_SECONDS, LOGIN_MESSAGE_BYTES, LOGIN_QUERY_SECONDS, LOGIN_SECONDS
from outcrop.net.tcp import TcpError, connect, start_tls, unverified_tls_context
from outcrop.validation.attempt import Attempt, UncheckableError
from outcrop.validation.logins.uri import ServerLogin, parse_uri
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated

_CLOSE_SECONDS = 1.0
NO_TLS = unvalidated("the server offers no TLS, which the connection string requires")
# Private authorities sign most certificates of databases, so certificates are not verified.
NO_CERTIFICATE = unvalidated(
    "the server asks for the password itself, and the connection string requires a trusted certificate"
)


class ProtocolError(Exception):
    """The server sent bytes that do not follow the protocol."""


@dataclass(slots=True)
class LoginConnection:
    """A connection to a server that a credential logs in to."""

    host: str
    reader: StreamReader
    writer: StreamWriter
    attempt: Attempt
    encrypted: bool = False  # TLS is active

    async def send(self, data: bytes) -> None:
        """Write the data and wait until the buffer has room again."""
        self.writer.write(data)
        await self.writer.drain()

    async def receive(self, count: int) -> bytes:
        """Return the next `count` bytes; raise ProtocolError unless there are 0 to LOGIN_MESSAGE_BYTES.

        Raise EOFError if the server closes the connection before that.
        """
        if not 0 <= count <= LOGIN_MESSAGE_BYTES:
            raise ProtocolError
        return await self.reader.readexactly(count)

    async def receive_line(self) -> bytes:
        """Return the next line without its CR LF; raise ProtocolError if the line is too long.

        Raise EOFError if the server closes the connection before that.
        """
        try:
            return (await self.reader.readuntil(b"\r\n"))[:-2]
        except asyncio.LimitOverrunError:
            raise ProtocolError from None

    async def start_tls(self) -> None:
        """Switch to TLS without verifying the certificate, as database drivers do; set `encrypted`.

        Raise TcpError if the handshake fails, and ProtocolError if more bytes have come unencrypted: they
        would be read as if they had come encrypted.
        """
        if getattr(self.reader, "_buffer", None):  # asyncio has no other way to ask
            raise ProtocolError
        await start_tls(self.writer, self.host, unverified_tls_context())
        self.encrypted = True


LoginProtocol = Callable[[LoginConnection, ServerLogin], Awaitable[Verdict]]
T = TypeVar("T")
# A message that is too short or malformed raises one of the last three.
_PROTOCOL_ERRORS = (ProtocolError, ValueError, IndexError, struct.error)


async def query_after_login(
    connection: LoginConnection, accepted: Verdict, query: Awaitable[T], default: T
) -> T:
    """Return the result of a query about the user's rights, `default` if it fails or takes too long.

    The time limit is LOGIN_QUERY_SECONDS. `accepted` is the verdict on the login. It is stored in
    `attempt.proven` before the query, so that this verdict holds whatever happens to the query.
    """
    connection.attempt.proven = accepted
    try:
        async with asyncio.timeout(LOGIN_QUERY_SECONDS):
            return await query
    except (*_PROTOCOL_ERRORS, OSError, EOFError, TimeoutError):
        return default


def read_uri_login(
    attempt: Attempt, default_ports: Mapping[str, int], *, user_required: bool = True
) -> ServerLogin:
    """Return the login of the connection URI around the password.

    `default_ports` has the port of each supported scheme. Without `user_required` the user name may be empty.
    Raise UncheckableError if the URI is incomplete, or if the companion `rival` was found: a `password=`
    right before the password, which then belongs to another form of connection string.
    """
    if attempt.companion("rival") is not None:
        raise UncheckableError("it is not part of a connection URI")
    scheme_and_user, server = attempt.companion("login"), attempt.companion("server")
    if scheme_and_user is None or server is None:
        raise UncheckableError("its server was not found with it")
    return parse_uri(scheme_and_user, server, attempt.secret, default_ports, user_required=user_required)


async def check_login(
    attempt: Attempt,
    read_login: Callable[[], ServerLogin],
    log_in: LoginProtocol,
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = LOGIN_SECONDS,
) -> Verdict:
    """Connect to the server of a login, run `log_in` on the connection and return its verdict.

    `read_login` returns the login; if it raises UncheckableError, the verdict is `unvalidated`, and nothing
    is sent. `tls` encrypts the connection from the start. `seconds` limits the time of `log_in`. If the
    server cannot be reached, is too slow or closes the connection, the verdict is `unreachable`; if it breaks
    the protocol, `error`. The connection is closed at the end.
    """
    try:
        login = read_login()
    except UncheckableError as reason:
        return unvalidated(f"cannot be checked: {reason}")
    await attempt.wait_turn()
    try:
        reader, writer = await connect(
            login.host, login.port, attempt.http.egress, seconds=min(seconds, LOGIN_CONNECT_SECONDS), tls=tls
        )
    except TcpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    connection = LoginConnection(login.host, reader, writer, attempt, encrypted=tls is not None)
    try:
        return await _run_protocol(log_in, connection, login, seconds)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()


async def _run_protocol(
    log_in: LoginProtocol, connection: LoginConnection, login: ServerLogin, seconds: float
) -> Verdict:
    """Run `log_in` and return its verdict.

    Return `unreachable` if it takes over `seconds` or the connection ends, and `error` if the server breaks
    the protocol.
    """
    try:
        async with asyncio.timeout(seconds):
            return await log_in(connection, login)
    except TimeoutError:
        return unreachable(f"the server did not respond within {seconds:g} seconds")
    except (OSError, EOFError):
        return unreachable("the server closed the connection")
    except TcpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    except _PROTOCOL_ERRORS:
        return error("the server does not speak the protocol that the connection string names")
