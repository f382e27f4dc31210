"""Check logins of MySQL and MariaDB.

1. The server sends a handshake packet with its capabilities and a nonce (`_parse_handshake`).
2. The client switches to TLS if the server offers it, and sends the handshake response with a proof of the
   password.
3. The server accepts, refuses, or asks for another authentication plugin (`_authenticate`).
4. After a login, SHOW GRANTS shows whether the user is an administrator (`_find_grants`).
"""

import asyncio
import hashlib
import struct
from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from outcrop.domain.finding import Confidence
from outcrop.limits import KEY_BITS, LOGIN_SECONDS, MYSQL_GRANT_PACKETS, MYSQL_LOGIN_PACKETS
from outcrop.validation.attempt import Attempt
from outcrop.validation.logins import ed25519
from outcrop.validation.logins.connection import (
    NO_CERTIFICATE,
    NO_TLS,
    LoginConnection,
    ProtocolError,
    check_login,
    query_after_login,
    read_uri_login,
)
from outcrop.validation.logins.uri import ServerLogin
from outcrop.validation.verdict import Verdict, error, invalid, unvalidated, valid, with_services

_PORTS = dict.fromkeys(("mysql", "mysql2", "mariadb", "percona", "aurora"), 3306)
# Capabilities. LOCAL_FILES is never set: a hostile server could use it to read our files.
_LONG_PASSWORD, _PROTOCOL_41, _SSL, _SECURE_CONNECTION, _PLUGIN_AUTH = 1, 0x200, 0x800, 0x8000, 0x80000
_MAX_PACKET = 1 << 16  # announced to the server
_UTF8MB4 = 45
_PROTOCOL_VERSION = 10
_NONCE_SIZE, _ED25519_NONCE_SIZE = 20, 32
_MORE_DATA, _EOF, _ERROR = 0x01, 0xFE, 0xFF  # the first byte of a packet
_FULL_AUTHENTICATION, _FAST_AUTH_SUCCESS = b"\4", b"\3"  # of caching_sha2_password
_REQUEST_PUBLIC_KEY = b"\2"
_QUIT_PACKET = b"\1\0\0\0\1"
_NO_PASSWORD_LOGIN = unvalidated("the server requires another proof than a password")
_VERDICTS_BY_ERROR = {
    1044: valid("the server accepts the password, but not for this database", ["mysql"]),
    1049: valid("the server accepts the password; its database does not exist", ["mysql"]),
    1862: valid("the server accepts the password, which must be changed", ["mysql"], Confidence.MEDIUM),
    # An account is a name and the addresses it may connect from: elsewhere the login may be accepted.
    1045: invalid("the server refuses the login, at least from here", Confidence.MEDIUM),
    3118: invalid("the account is locked", Confidence.MEDIUM),
    # MariaDB reports this only if the password is right.
    4151: invalid("the password is right, but the account is locked", Confidence.MEDIUM),
    1275: _NO_PASSWORD_LOGIN,  # only the plugin from before version 4.1, which would reveal the password
    1698: _NO_PASSWORD_LOGIN,  # MariaDB: only over the socket of its own machine
}


@dataclass(slots=True)
class _PacketStream:
    """Sends and receives packets, with the sequence number that the protocol requires."""

    connection: LoginConnection
    sequence: int = 0

    async def receive(self) -> bytes:
        """Return the payload of the next packet; set `sequence` to the number after that of the packet.

        Raise ProtocolError if the payload is empty.
        """
        header = await self.connection.receive(4)
        self.sequence = header[3] + 1 & 0xFF
        payload = await self.connection.receive(int.from_bytes(header[:3], "little"))
        if not payload:
            raise ProtocolError
        return payload

    async def send(self, payload: bytes) -> None:
        """Send a packet with this payload and the next sequence number."""
        await self.connection.send(len(payload).to_bytes(3, "little") + bytes([self.sequence]) + payload)
        self.sequence = self.sequence + 1 & 0xFF


@dataclass(slots=True)
class _Handshake:
    """The server's first packet, as far as a login needs it."""

    capabilities: int
    plugin: str
    nonce: bytes = field(repr=False)


async def check_mysql_login(attempt: Attempt, *, seconds: float = LOGIN_SECONDS) -> Verdict:
    """Log in to the MySQL or MariaDB server of the URI and return the verdict, with the services of the user.

    `seconds` is the time limit of the login.
    """
    return await check_login(attempt, lambda: read_uri_login(attempt, _PORTS), _log_in, seconds=seconds)


async def _log_in(connection: LoginConnection, login: ServerLogin) -> Verdict:
    """Exchange MySQL handshakes, with TLS if the server offers it, authenticate and return the verdict.

    If the server's authentication plugin is not supported, `mysql_native_password` is tried first.
    """
    stream = _PacketStream(connection)
    first_packet = await stream.receive()
    if first_packet[0] == _ERROR:
        return _verdict_for_error(first_packet)
    handshake = _parse_handshake(first_packet)
    capabilities = _LONG_PASSWORD | _PROTOCOL_41 | _SECURE_CONNECTION | _PLUGIN_AUTH
    if handshake.capabilities & _SSL:
        capabilities |= _SSL
        await stream.send(struct.pack("<IIB23x", capabilities, _MAX_PACKET, _UTF8MB4))
        await connection.start_tls()
    elif login.requires_tls:
        return NO_TLS
    plugin = handshake.plugin if handshake.plugin in _PLUGINS else "mysql_native_password"
    password = login.password.encode()
    proof = await asyncio.to_thread(_PLUGINS[plugin], password, handshake.nonce)
    response = struct.pack("<IIB23x", capabilities, _MAX_PACKET, _UTF8MB4)
    response += login.user.encode() + b"\0" + bytes([len(proof)]) + proof + plugin.encode() + b"\0"
    await stream.send(response)
    return await _authenticate(stream, login, plugin, handshake.nonce)


async def _authenticate(stream: _PacketStream, login: ServerLogin, plugin: str, nonce: bytes) -> Verdict:
    """Answer the MySQL server's packets until it accepts or refuses the password, and return the verdict.

    `plugin` is the authentication plugin of the handshake and `nonce` the server's random bytes; the
    server may replace both. The verdict is `unvalidated` if the server switches to a plugin that is not
    supported, or asks for the password itself without the certificate that the login requires. After a
    login, the user's grants are the services. Raise ProtocolError after MYSQL_LOGIN_PACKETS packets.
    """
    password = login.password.encode()
    for _ in range(MYSQL_LOGIN_PACKETS):
        packet = await stream.receive()
        match packet[0]:
            case 0x00:  # OK
                accepted = valid("the server accepts the login", ["mysql"])
                grants = await query_after_login(stream.connection, accepted, _find_grants(stream), set())
                return with_services(accepted, {"mysql", *grants})
            case 0xFF:  # error
                return _verdict_for_error(packet)
            case 0xFE:  # switch to another plugin
                name, _, data = packet[1:].partition(b"\0")
                plugin = name.decode("ascii")
                if plugin not in _PLUGINS:
                    return _NO_PASSWORD_LOGIN
                size = _ED25519_NONCE_SIZE if plugin == "client_ed25519" else _NONCE_SIZE
                nonce = data[:size]
                if len(nonce) < size:
                    raise ProtocolError
                await stream.send(await asyncio.to_thread(_PLUGINS[plugin], password, nonce))
            case 0x01 if plugin == "caching_sha2_password" and packet[1:] == _FULL_AUTHENTICATION:
                if login.requires_certificate:
                    return NO_CERTIFICATE
                await _send_password(stream, password, nonce)
            case 0x01 if packet[1:] == _FAST_AUTH_SUCCESS:
                continue  # the proof was right; OK or an error follows
            case _:
                raise ProtocolError
    raise ProtocolError


async def _send_password(stream: _PacketStream, password: bytes, nonce: bytes) -> None:
    """Send the password itself: over TLS, or encrypted with the server's key."""
    if stream.connection.encrypted:
        await stream.send(password + b"\0")
    else:
        await stream.send(await _encrypt_password(stream, password, nonce))


async def _encrypt_password(stream: _PacketStream, password: bytes, nonce: bytes) -> bytes:
    """Request the MySQL server's public RSA key and return the password encrypted with it, for lack of TLS.

    The password is first combined with `nonce` by xor. Raise ProtocolError or ValueError if the server sends
    no usable key.
    """
    await stream.send(_REQUEST_PUBLIC_KEY)
    packet = await stream.receive()
    try:
        key = serialization.load_pem_public_key(packet[1:])
    except UnsupportedAlgorithm:
        raise ProtocolError from None
    if packet[0] != _MORE_DATA or not isinstance(key, rsa.RSAPublicKey) or key.key_size > KEY_BITS:
        raise ProtocolError
    masked = bytes(byte ^ nonce[index % len(nonce)] for index, byte in enumerate(password + b"\0"))
    return key.encrypt(masked, padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None))  # noqa: S303 - MySQL's choice


def _parse_handshake(packet: bytes) -> _Handshake:
    """Return capabilities, plugin and nonce in the MySQL server's first packet.

    Raise ProtocolError if it is not of protocol version 10 or its nonce is too short; raise ValueError or
    struct.error if it is malformed.
    """
    version_end = packet.index(b"\0", 1)
    if packet[0] != _PROTOCOL_VERSION:
        raise ProtocolError
    rest = packet[version_end + 1 :]
    nonce_start, capabilities_low, capabilities_high, nonce_size = struct.unpack_from("<4x8sxH3xHB", rest)
    second_part_size = max(13, nonce_size - 8)  # with a NUL at its end
    nonce = nonce_start + rest[31 : 31 + second_part_size][:12]
    plugin = rest[31 + second_part_size :].partition(b"\0")[0].decode("ascii")
    if len(nonce) != _NONCE_SIZE:
        raise ProtocolError
    return _Handshake(capabilities_low | capabilities_high << 16, plugin, nonce)


def _native_password_proof(password: bytes, nonce: bytes) -> bytes:
    """Return the proof of the plugin `mysql_native_password`, computed with SHA-1.

    The proof is H(password) xor H(nonce + H(H(password))).
    """
    inner = hashlib.sha1(password).digest()  # noqa: S324 - MySQL's choice, here and below
    outer = hashlib.sha1(nonce + hashlib.sha1(inner).digest()).digest()  # noqa: S324
    return bytes(a ^ b for a, b in zip(inner, outer, strict=True))


def _caching_sha2_proof(password: bytes, nonce: bytes) -> bytes:
    """Return the proof of the plugin `caching_sha2_password`, computed with SHA-256.

    The proof is H(password) xor H(H(H(password)) + nonce).
    """
    inner = hashlib.sha256(password).digest()
    outer = hashlib.sha256(hashlib.sha256(inner).digest() + nonce).digest()
    return bytes(a ^ b for a, b in zip(inner, outer, strict=True))


_PLUGINS = {
    "mysql_native_password": _native_password_proof,
    "caching_sha2_password": _caching_sha2_proof,
    "client_ed25519": ed25519.sign,
}


def _verdict_for_error(packet: bytes) -> Verdict:
    """Return the verdict for the error code in a MySQL error packet; `error` for unknown codes."""
    code = int.from_bytes(packet[1:3], "little")
    return _VERDICTS_BY_ERROR.get(code, error(f"the server does not accept logins now (error {code})"))


async def _find_grants(stream: _PacketStream) -> set[str]:
    """Run SHOW GRANTS and return {"mysql_admin"} if the user is an administrator, else an empty set.

    An administrator has all privileges, or SUPER, on `*.*`. The connection is ended with a QUIT packet.
    """
    stream.sequence = 0
    await stream.send(b"\3SHOW GRANTS")
    labels: set[str] = set()
    for index in range(MYSQL_GRANT_PACKETS):
        packet = await stream.receive()
        # The first EOF ends the column definitions, the second one the rows.
        is_end_of_rows = packet[0] == _EOF and len(packet) < 9 and index > 2
        if packet[0] == _ERROR or is_end_of_rows:
            break
        if b" ON *.* TO " in packet and (b"GRANT ALL PRIVILEGES ON" in packet or b" SUPER" in packet):
            labels.add("mysql_admin")
            break
    await stream.connection.send(_QUIT_PACKET)
    return labels
