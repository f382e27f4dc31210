"""A short talk with a server of somebody else's: everything it says is bounded, and it has so long and no longer."""

import asyncio
import contextlib
import ssl
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from outcrop.net.http import HttpClient
from outcrop.net.tcp import TcpError, connect, start_tls, unverified_tls_context
from outcrop.validation.http.check import Turn
from outcrop.validation.http.request import UnfitError
from outcrop.validation.logins.uri import Login, read_uri
from outcrop.validation.verdict import Verdict, error, unreachable, unvalidated

SECONDS = 15.0
_CONNECT_SECONDS = 8.0
_FURTHER_SECONDS = 3.0
MOST = 1 << 16  # bytes of one message: logins are short


class OddError(Exception):
    """A server that does not speak as the protocol says."""


@dataclass(slots=True)
class Dialog:
    """A connection to a server; `encrypted` tells whether what is said is hidden from the network."""

    host: str
    reader: StreamReader
    writer: StreamWriter
    turn: Turn
    encrypted: bool = False

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hear(self, count: int) -> bytes:
        if not 0 <= count <= MOST:
            raise OddError
        return await self.reader.readexactly(count)

    async def line(self) -> bytes:
        """Hear a line, without its end."""
        try:
            return (await self.reader.readuntil(b"\r\n"))[:-2]
        except asyncio.LimitOverrunError:
            raise OddError from None

    async def encrypt(self) -> None:
        await start_tls(self.writer, self.host, unverified_tls_context())
        self.encrypted = True


Talk = Callable[[Dialog, Login], Awaitable[Verdict]]
T = TypeVar("T")
_ODD = (OddError, ValueError, IndexError, struct.error)


async def further(dialog: Dialog, accepted: Verdict, question: Awaitable[T], otherwise: T) -> T:
    """Ask what a login opens; whatever becomes of that, the login has been accepted."""
    dialog.turn.proven = accepted
    try:
        async with asyncio.timeout(_FURTHER_SECONDS):
            return await question
    except (*_ODD, OSError, EOFError, TimeoutError):
        return otherwise


def login_of(values: Mapping[str, str], ports: Mapping[str, int], *, nobody: bool = False) -> Login:
    """Put the login together from what stands around the password. `rival` tells that the password stands in no such address."""
    if "part.rival" in values:
        raise UnfitError("it does not stand in an address")
    if "part.login" not in values or "part.server" not in values:
        raise UnfitError("its server was not found with it")
    return read_uri(values["part.login"], values["part.server"], values["secret"], ports, nobody=nobody)


async def log_in(
    http: HttpClient,
    turn: Turn,
    read: Callable[[], Login],
    talk: Talk,
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = SECONDS,
) -> Verdict:
    """Connect, talk, and hang up; what goes wrong on the way says nothing of the credential."""
    try:
        login = read()
    except UnfitError as reason:
        return unvalidated(f"cannot be asked about: {reason}")
    await turn()
    try:
        reader, writer = await connect(
            login.host, login.port, http.egress, seconds=min(seconds, _CONNECT_SECONDS), tls=tls
        )
    except TcpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    try:
        return await _talked(
            talk, Dialog(login.host, reader, writer, turn, encrypted=tls is not None), login, seconds
        )
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


async def _talked(talk: Talk, dialog: Dialog, login: Login, seconds: float) -> Verdict:
    try:
        async with asyncio.timeout(seconds):
            return await talk(dialog, login)
    except TimeoutError:
        return unreachable(f"the server did not answer within {seconds:g} seconds")
    except (OSError, EOFError):
        return unreachable("the server hung up")
    except TcpError as failure:
        return unreachable(f"the server cannot be reached: {failure}")
    except _ODD:
        return error("the server does not speak the protocol that the address names")
