"""SQL Server's packets (TDS 7.4), and TLS whose greeting goes inside of them."""

import ssl
import struct
from dataclasses import dataclass, field

from outcrop.net.tcp import TcpError, unverified_tls_context
from outcrop.validation.logins.connection import MOST, Dialog, OddError

PRELOGIN, LOGIN7, RESPONSE = 0x12, 0x10, 0x04
_LAST = 0x01
_PACKET = 4_000  # bytes: less than any server takes
_MOST_ROUNDS = 20  # of a TLS greeting


@dataclass(slots=True)
class Line:
    """Says and hears whole messages; encrypted once `encrypt` has been called."""

    dialog: Dialog
    _tls: ssl.SSLObject | None = None
    _arrived: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    _leaving: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    async def say(self, kind: int, body: bytes) -> None:
        for start in range(0, max(len(body), 1), _PACKET):
            part = body[start : start + _PACKET]
            last = _LAST if start + _PACKET >= len(body) else 0
            await self._send(struct.pack("!BBHHBB", kind, last, len(part) + 8, 0, 1, 0) + part)

    async def hear(self) -> bytes:
        """Hear one message, however many packets it comes in."""
        body = b""
        while True:
            kind, status, size = struct.unpack("!BBH4x", await self._receive(8))
            if kind != RESPONSE or size < 8 or len(body) + size > MOST:
                raise OddError
            body += await self._receive(size - 8)
            if status & _LAST:
                return body

    async def encrypt(self) -> None:
        """Greet under TLS, each piece in a packet; what follows goes without packets around it, as the protocol says."""
        context = unverified_tls_context()
        context.maximum_version = (
            ssl.TLSVersion.TLSv1_2
        )  # later versions speak on after the greeting, where nobody unwraps it
        tls = context.wrap_bio(self._arrived, self._leaving, server_hostname=self.dialog.host)
        try:
            for _ in range(_MOST_ROUNDS):
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await self.say(PRELOGIN, self._leaving.read())
                    kind, _, size = struct.unpack("!BBH4x", await self.dialog.hear(8))
                    if kind not in {PRELOGIN, RESPONSE} or size < 8:
                        raise OddError from None
                    self._arrived.write(await self.dialog.hear(size - 8))
            else:
                raise OddError
        except ssl.SSLError:
            raise TcpError("TLS failed") from None
        if self._leaving.pending:
            await self.say(PRELOGIN, self._leaving.read())
        self._tls = tls
        self.dialog.encrypted = True

    async def _send(self, data: bytes) -> None:
        if self._tls is not None:
            self._tls.write(data)
            data = self._leaving.read()
        await self.dialog.say(data)

    async def _receive(self, count: int) -> bytes:
        if self._tls is None:
            return await self.dialog.hear(count)
        data = b""
        while len(data) < count:
            try:
                data += self._tls.read(count - len(data))
            except ssl.SSLWantReadError:
                head = await self.dialog.hear(5)  # of a TLS record
                self._arrived.write(head + await self.dialog.hear(int.from_bytes(head[3:], "big")))
        return data
