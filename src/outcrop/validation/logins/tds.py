"""Send and receive messages of TDS 7.4, SQL Server's protocol, and start TLS inside it.

The TLS handshake travels in prelogin packets. After it, TDS packets travel inside TLS.
"""

import ssl
import struct
from dataclasses import dataclass, field

from outcrop.limits import LOGIN_MESSAGE_BYTES, MSSQL_TLS_ROUNDS
from outcrop.net.tcp import TcpError, unverified_tls_context
from outcrop.validation.logins.connection import LoginConnection, ProtocolError

PRELOGIN, LOGIN7, RESPONSE = 0x12, 0x10, 0x04  # packet types
_END_OF_MESSAGE = 0x01
_HEADER_SIZE = 8
_MAX_PACKET_BODY = 4_000  # bytes: smaller than the smallest limit of any server
_TLS_RECORD_HEADER_SIZE = 5


@dataclass(slots=True)
class TdsStream:
    """Sends and receives messages, encrypted after `start_tls`."""

    connection: LoginConnection
    _tls: ssl.SSLObject | None = None
    _incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    _outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    async def send(self, kind: int, message: bytes) -> None:
        """Send a TDS message in as many packets as it needs; `kind` is their packet type."""
        for start in range(0, max(len(message), 1), _MAX_PACKET_BODY):
            part = message[start : start + _MAX_PACKET_BODY]
            status = _END_OF_MESSAGE if start + _MAX_PACKET_BODY >= len(message) else 0
            header = struct.pack("!BBHHBB", kind, status, len(part) + _HEADER_SIZE, 0, 1, 0)
            await self._send_bytes(header + part)

    async def receive(self) -> bytes:
        """Return the next TDS response message, joined from its packets.

        Raise ProtocolError if another packet type arrives or the message is longer than LOGIN_MESSAGE_BYTES.
        """
        message = b""
        while True:
            kind, status, size = struct.unpack("!BBH4x", await self._receive_bytes(_HEADER_SIZE))
            if kind != RESPONSE or size < _HEADER_SIZE or len(message) + size > LOGIN_MESSAGE_BYTES:
                raise ProtocolError
            message += await self._receive_bytes(size - _HEADER_SIZE)
            if status & _END_OF_MESSAGE:
                return message

    async def start_tls(self) -> None:
        """Do the TLS handshake in prelogin packets; everything after that is sent inside TLS.

        Raise TcpError if TLS fails, and ProtocolError if the server sends other packets.
        """
        context = unverified_tls_context()
        # TLS 1.3 sends messages after the handshake, which would no longer be in prelogin packets.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=self.connection.host)
        try:
            await self._do_handshake(tls)
        except ssl.SSLError:
            raise TcpError("TLS failed") from None
        if self._outgoing.pending:
            await self.send(PRELOGIN, self._outgoing.read())
        self._tls = tls
        self.connection.encrypted = True

    async def _do_handshake(self, tls: ssl.SSLObject) -> None:
        """Exchange TLS handshake messages in prelogin packets until the handshake is complete.

        Raise ProtocolError after MSSQL_TLS_ROUNDS rounds or for another packet type.
        """
        for _ in range(MSSQL_TLS_ROUNDS):
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(PRELOGIN, self._outgoing.read())
                kind, _, size = struct.unpack("!BBH4x", await self.connection.receive(_HEADER_SIZE))
                if kind not in {PRELOGIN, RESPONSE} or size < _HEADER_SIZE:
                    raise ProtocolError from None
                self._incoming.write(await self.connection.receive(size - _HEADER_SIZE))
            else:
                return
        raise ProtocolError

    async def _send_bytes(self, data: bytes) -> None:
        """Send bytes, encrypted if TLS is active."""
        if self._tls is not None:
            self._tls.write(data)
            data = self._outgoing.read()
        await self.connection.send(data)

    async def _receive_bytes(self, count: int) -> bytes:
        """Return exactly `count` bytes, decrypted if TLS is active."""
        if self._tls is None:
            return await self.connection.receive(count)
        data = b""
        while len(data) < count:
            try:
                part = self._tls.read(count - len(data))
                if not part:  # the server has closed its side of TLS
                    raise EOFError
                data += part
            except ssl.SSLWantReadError:
                header = await self.connection.receive(_TLS_RECORD_HEADER_SIZE)
                record_size = int.from_bytes(header[3:], "big")
                self._incoming.write(header + await self.connection.receive(record_size))
        return data
