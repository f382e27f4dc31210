"""MySQL and MariaDB: a login by their own protocol, and the one question of what was granted."""

import asyncio
import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.logins import ed25519
from outcrop.validation.logins.connection import SECONDS, Dialog, OddError, further, log_in, login_of
from outcrop.validation.logins.uri import Login
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid, with_services

_PORTS = dict.fromkeys(("mysql", "mysql2", "mariadb", "percona", "aurora"), 3306)
_LONG_PASSWORD, _PROTOCOL_41, _SSL, _SECURE, _PLUGIN_AUTH = (
    1,
    0x200,
    0x800,
    0x8000,
    0x80000,
)  # never LOCAL FILES
_UTF8MB4 = 45
_MOST_ROWS = 100
_LARGEST_KEY = 8192  # bits
_MORE, _END, _ERROR = 0x01, 0xFE, 0xFF  # how a packet begins
_NO_PASSWORD = unvalidated("the server asks for a proof other than a password")
_MEANS = {
    1044: valid(
        "the server accepts the password, but not for this database", services=("mysql",), asked=True
    ),
    1049: valid("the server accepts the password; its database is gone", services=("mysql",), asked=True),
    1862: valid(
        "the server accepts the password, which must be changed", Confidence.MEDIUM, ("mysql",), asked=True
    ),
    # An account is a name and the addresses it may come from: the same login can be good from elsewhere.
    1045: invalid("the server refuses the login, at least from here", Confidence.MEDIUM),
    3118: invalid("the account is locked", Confidence.MEDIUM),
    4151: invalid(
        "the password is right, but the account is locked", Confidence.MEDIUM
    ),  # MariaDB, to those who know it
    1275: _NO_PASSWORD,  # only a proof of before version 4.1, which gives the password away
    1698: _NO_PASSWORD,  # MariaDB: by the socket of its own machine
}


@dataclass(slots=True)
class _Line:
    """Numbers packets, as the protocol wants."""

    dialog: Dialog
    number: int = 0

    async def hear(self) -> bytes:
        head = await self.dialog.hear(4)
        self.number = head[3] + 1 & 0xFF
        body = await self.dialog.hear(int.from_bytes(head[:3], "little"))
        if not body:
            raise OddError
        return body

    async def say(self, body: bytes) -> None:
        await self.dialog.say(len(body).to_bytes(3, "little") + bytes([self.number]) + body)
        self.number = self.number + 1 & 0xFF


@dataclass(slots=True)
class _Greeting:
    capabilities: int
    plugin: str
    nonce: bytes = field(repr=False)


async def mysql(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, seconds: float = SECONDS
) -> Verdict:
    """Log in as the address says, ask what was granted, and hang up."""
    return await log_in(http, turn, lambda: login_of(values, _PORTS), _talk, seconds=seconds)


async def _talk(dialog: Dialog, login: Login) -> Verdict:
    line = _Line(dialog)
    first = await line.hear()
    if first[0] == _ERROR:
        return _refusal(first)
    greeting = _greeting(first)
    wanted = _LONG_PASSWORD | _PROTOCOL_41 | _SECURE | _PLUGIN_AUTH
    if greeting.capabilities & _SSL:
        wanted |= _SSL
        await line.say(struct.pack("<IIB23x", wanted, 1 << 16, _UTF8MB4))
        await dialog.encrypt()
    plugin = greeting.plugin if greeting.plugin in _PLUGINS else "mysql_native_password"
    proof = _PLUGINS[plugin](login.password.encode(), greeting.nonce)
    user, name = login.user.encode() + b"\0", plugin.encode() + b"\0"
    await line.say(
        struct.pack("<IIB23x", wanted, 1 << 16, _UTF8MB4) + user + bytes([len(proof)]) + proof + name
    )
    return await _proven(line, login.password.encode(), plugin, greeting.nonce)


async def _proven(line: _Line, password: bytes, plugin: str, nonce: bytes) -> Verdict:
    for _ in range(8):  # more turns than any way of logging in takes
        body = await line.hear()
        match body[0]:  # welcome, refused, another way, more to say
            case 0x00:
                accepted = valid("the server accepts the login", services=("mysql",), asked=True)
                return with_services(
                    accepted, {"mysql", *await further(line.dialog, accepted, _granted(line), set())}
                )
            case 0xFF:
                return _refusal(body)
            case 0xFE:
                name, _, data = body[1:].partition(b"\0")
                plugin = name.decode("ascii")
                if plugin not in _PLUGINS:
                    return _NO_PASSWORD
                nonce = data[: 32 if plugin == "client_ed25519" else 20]
                await line.say(await asyncio.to_thread(_PLUGINS[plugin], password, nonce))
            case 0x01 if plugin == "caching_sha2_password" and body[1:] == b"\4":
                await line.say(
                    password + b"\0" if line.dialog.encrypted else await _sealed(line, password, nonce)
                )
            case 0x01 if body[1:] == b"\3":
                continue  # known already: what comes next is the answer
            case _:
                raise OddError
    raise OddError


async def _sealed(line: _Line, password: bytes, nonce: bytes) -> bytes:
    """Encrypt the password with the server's key, for lack of TLS."""
    await line.say(b"\2")
    body = await line.hear()
    try:
        key = serialization.load_pem_public_key(body[1:])
    except UnsupportedAlgorithm:
        raise OddError from None
    if body[0] != _MORE or not isinstance(key, rsa.RSAPublicKey) or key.key_size > _LARGEST_KEY:
        raise OddError
    mixed = bytes(byte ^ nonce[at % len(nonce)] for at, byte in enumerate(password + b"\0"))
    return key.encrypt(mixed, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))  # noqa: S303 - MySQL's choice


def _greeting(body: bytes) -> _Greeting:
    end = body.index(b"\0", 1)
    if body[0] != 10:
        raise OddError
    rest = body[end + 1 :]
    first, low, high, size = struct.unpack_from("<4x8sxH3xHB", rest)
    second = rest[31 : 31 + max(13, size - 8)][:12]
    plugin = rest[31 + max(13, size - 8) :].partition(b"\0")[0].decode("ascii")
    if len(first + second) != 20:
        raise OddError
    return _Greeting(low | high << 16, plugin, first + second)


def _native(password: bytes, nonce: bytes) -> bytes:
    inner = hashlib.sha1(password).digest()  # noqa: S324 - MySQL's choice, here and below
    outer = hashlib.sha1(nonce + hashlib.sha1(inner).digest()).digest()  # noqa: S324
    return bytes(a ^ b for a, b in zip(inner, outer, strict=True))


def _caching(password: bytes, nonce: bytes) -> bytes:
    inner = hashlib.sha256(password).digest()
    outer = hashlib.sha256(hashlib.sha256(inner).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(inner, outer, strict=True))


_PLUGINS = {
    "mysql_native_password": _native,
    "caching_sha2_password": _caching,
    "client_ed25519": ed25519.sign,
}


def _refusal(body: bytes) -> Verdict:
    code = int.from_bytes(body[1:3], "little")
    return _MEANS.get(code, error(f"the server cannot take a login now (error {code})"))


async def _granted(line: _Line) -> set[str]:
    """Ask for the grants; whoever may do anything anywhere is an administrator."""
    line.number = 0
    await line.say(b"\3SHOW GRANTS")
    for packet in range(_MOST_ROWS):
        body = await line.hear()
        if body[0] == _ERROR or (
            body[0] == _END and len(body) < 9 and packet > 2
        ):  # the second end: that of the rows
            break
        if b" ON *.* TO " in body and (b"GRANT ALL PRIVILEGES ON" in body or b" SUPER" in body):
            await line.dialog.say(b"\1\0\0\0\1")
            return {"mysql_admin"}
    await line.dialog.say(b"\1\0\0\0\1")
    return set()
