"""Read the body of an upload like a file: decompressed, hashed and bounded."""

import hashlib
import io
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from outcrop.domain.errors import BadInputError, OutcropError
from outcrop.limits import MEGA

_PIECE_BYTES = 256 << 10  # decompressed at once
_GZIP_BITS = 31


class TooLargeError(OutcropError):
    code = "too_large"

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"a report may have at most {max_bytes // MEGA} MB, decompressed")


class SlowBodyError(OutcropError):
    code = "too_slow"


class UploadFile(io.RawIOBase):
    """The decompressed body as a file, read by a thread.

    `read` returns the next bytes of the body. `paused` is entered while the thread waits for them.
    """

    def __init__(
        self,
        read: Callable[[], bytes],
        paused: Callable[[], AbstractContextManager[None]],
        *,
        is_gzip: bool,
        max_bytes: int,
    ) -> None:
        self._read_body, self._paused = read, paused
        self._gunzip = zlib.decompressobj(_GZIP_BITS) if is_gzip else None
        self._max_bytes = max_bytes
        self._pending = b""  # compressed, or plain without gzip
        self._is_ended = False
        self.size = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; return their number."""
        piece = b""
        while not piece and not self._is_ended:
            piece = self._next_piece(min(len(buffer), _PIECE_BYTES))
        self.size += len(piece)
        if self.size > self._max_bytes:
            raise TooLargeError(self._max_bytes)
        self.digest.update(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def _next_piece(self, size: int) -> bytes:
        """Return at most `size` bytes; b"" if more of the body has to be read first."""
        if not self._pending and not self._is_ended:
            with self._paused():
                self._pending = self._read_body()
            if not self._pending:
                self._is_ended = True
                if self._gunzip is not None and not self._gunzip.eof:
                    raise BadInputError("the compressed body ends too early")
                return b""
        if self._gunzip is None:
            piece, self._pending = self._pending[:size], self._pending[size:]
            return piece
        if self._gunzip.eof:  # the file may have several parts
            self._gunzip = zlib.decompressobj(_GZIP_BITS)
        try:
            piece = self._gunzip.decompress(self._pending, size)
        except zlib.error:
            raise BadInputError("the body is not gzip, although its Content-Encoding says so") from None
        self._pending = self._gunzip.unconsumed_tail or self._gunzip.unused_data
        return piece
