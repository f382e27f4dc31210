"""Decompress gzip, bzip2, xz and lzma, also where the data is damaged or truncated."""

import bz2
import lzma
import zlib
from collections.abc import Callable

from outcrop.limits import LZMA_MEMORY, ZSTD_WINDOW_BYTES
from outcrop.scanner.text.archive_members import READ_ERRORS, Members, RawBytes, UnpackBudget

# Compressed bytes that a decompressor gets at a time. What it returns before damage is kept. The first steps
# are small, since a file may have very many small streams.
_FIRST_STEP_BYTES, _MAX_STEP_BYTES = 1 << 9, 1 << 16
_ZSTD_STEP_BYTES = 1 << 8  # four bytes can become 128 KiB
_DAMAGED = "damaged, only a part was unpacked"


class _DamagedError(ValueError):
    """Compressed data is damaged; `good` was decompressed before the damage."""

    def __init__(self, good: bytes) -> None:
        super().__init__()
        self.good = good


class Inflater:
    """The decompressor of zlib with the interface of those of bz2 and lzma.

    `wbits` is the window size and format as in zlib: 31 is gzip, -15 is deflate without a header.
    """

    def __init__(self, wbits: int = 31) -> None:
        self._zlib = zlib.decompressobj(wbits)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next data decompressed, at most `max_length` bytes; input that is left over is lost.

        If the data is damaged, raise _DamagedError with all that was decompressed of it before the damage.
        """
        before = self._zlib.copy()
        try:
            return self._zlib.decompress(data, max_length)
        except zlib.error:
            raise _DamagedError(_decompress_bytewise(before, data)) from None

    @property
    def eof(self) -> bool:
        """Whether the end of the compressed stream was reached."""
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        """The bytes that were passed to `decompress` but are after the end of the stream."""
        return self._zlib.unused_data


def _decompress_bytewise(inflater: "zlib._Decompress", data: bytes) -> bytes:
    """Return the data decompressed up to the byte at which zlib fails.

    If only the checksum at the end is wrong, that is everything. `inflater` has read what was before `data`.
    """
    out = bytearray()
    try:
        for at in range(len(data)):
            out += inflater.decompress(data[at : at + 1])
    except zlib.error:
        pass
    return bytes(out)


class ZstdStream:
    """The decompressor of zstd with the interface of those of bz2 and lzma, for one frame."""

    def __init__(self) -> None:
        import zstandard  # noqa: PLC0415 - rarely needed

        self._error = zstandard.ZstdError
        self._stream = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES).decompressobj()
        self._rest = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next data decompressed, little more than `max_length` bytes; input left over is lost.

        Raise _DamagedError with all that was decompressed if the data is damaged, or asks for more memory
        than ZSTD_WINDOW_BYTES.
        """
        out = bytearray()
        for at in range(0, len(data), _ZSTD_STEP_BYTES):
            try:
                out += self._stream.decompress(data[at : at + _ZSTD_STEP_BYTES])
            except self._error:
                raise _DamagedError(bytes(out)) from None
            if self._stream.eof:
                self._rest = self._stream.unused_data + data[at + _ZSTD_STEP_BYTES :]
                break
            if len(out) > max_length:
                break
        return bytes(out)

    @property
    def eof(self) -> bool:
        """Whether the end of the frame was reached."""
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        """The bytes that were passed to `decompress` but are after the end of the frame."""
        return self._rest


Decompressor = Inflater | bz2.BZ2Decompressor | lzma.LZMADecompressor | ZstdStream


def read_stream(
    stream: Decompressor, data: bytes, at: int, max_bytes: int, out: bytearray
) -> tuple[int, str | None]:
    """Decompress the stream that begins at offset `at` of `data`, and append the result to `out`.

    `stream` is a new decompressor for the format. `out` is cut to `max_bytes`, with what it had before.
    Return the offset at which reading ended, after the stream if it is complete; and the text of a gap, or
    None if all was read. Damaged data is no error but a gap.
    """
    step = _FIRST_STEP_BYTES
    try:
        while not stream.eof and at < len(data) and len(out) <= max_bytes:
            piece = data[at : at + step]
            out += stream.decompress(piece, max_bytes + 1 - len(out))
            at += len(piece) - len(stream.unused_data)
            step = min(2 * step, _MAX_STEP_BYTES)
    except _DamagedError as error:
        out += error.good
        return at, _DAMAGED
    except READ_ERRORS:
        return at, _DAMAGED
    if len(out) > max_bytes:
        del out[max_bytes:]
        return at, "too large, only the beginning was read"
    return at, None if stream.eof else "truncated"


def read_gzip(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the decompressed content of all gzip streams together, then the bytes after them, if any.

    Both have the name "". The content is subtracted from the budget. Raise ValueError if nothing can be
    decompressed.
    """
    return _read_streams(data, budget, Inflater)


def read_bz2(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the decompressed content of all bzip2 streams together, then the bytes after them, if any.

    Both have the name "". The content is subtracted from the budget. Raise ValueError if nothing can be
    decompressed.
    """
    return _read_streams(data, budget, bz2.BZ2Decompressor)


def read_xz(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the decompressed content of all xz streams together, then the bytes after them, if any.

    Both have the name "". The content is subtracted from the budget. Raise ValueError if nothing can be
    decompressed.
    """
    return _read_streams(data, budget, lambda: lzma.LZMADecompressor(memlimit=LZMA_MEMORY))


def read_zstd(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the decompressed content of all zstd frames together, then the bytes after them, if any.

    Both have the name "". The content is subtracted from the budget. Raise ValueError if nothing can be
    decompressed.
    """
    return _read_streams(data, budget, ZstdStream)


def read_lzma(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the decompressed content of lzma without the container of xz, then the bytes after it, if any.

    Both have the name "". The content is subtracted from the budget. Raise ValueError if nothing can be
    decompressed.
    """
    return _read_streams(data, budget, lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=LZMA_MEMORY))


def _read_streams(
    data: bytes, budget: UnpackBudget, make_decompressor: Callable[[], Decompressor]
) -> Members:
    """Yield the content of all streams together, then the bytes after them, if any, as raw bytes.

    Both have the name "". `make_decompressor` returns a new decompressor for each stream. The content is
    subtracted from the budget. What was read before damage or a limit is kept, and a gap is added to the
    budget. Raise ValueError if nothing was read before the gap.
    """
    out = bytearray()
    at, gap, rest = 0, None, b""
    while at < len(data) and gap is None:
        size_before = len(out)
        end, gap = read_stream(make_decompressor(), data, at, budget.max_bytes(), out)
        if gap and len(out) == size_before:  # no stream begins here
            rest = data[at:].strip(b"\0")  # some programs pad with zeros
            gap = gap if rest else None
            break
        at = end
        gap = gap or budget.exceeded_limit()
    if gap and not out:
        raise ValueError(gap)
    if gap:
        budget.gaps.append(f"compressed data: {gap}")
    budget.bytes_left -= len(out)
    budget.members_left -= 1
    content = bytes(out)
    del out  # free the memory of the copy
    yield "", content
    if rest:
        yield "", RawBytes(rest)
