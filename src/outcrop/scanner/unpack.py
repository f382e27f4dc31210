"""Archives, compressed files and UTF-16 into plain texts, within a bounded depth, size and time whatever the input claims."""

import bz2
import io
import lzma
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

_DEPTH = 6  # an image's tar, a layer's gzip, its tar, an archive in it, and a file in that
_MEMBER = 128 << 20
_TOTAL = 512 << 20
_MEMBERS = 100_000
_STREAMS = 1_000  # in one compressed file
_SECONDS = 60.0
_BROKEN = (
    OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, MemoryError, OverflowError,
    struct.error, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(slots=True)
class Budget:
    """What one file may cost when it is unpacked, and what had to be left out."""

    clock: Callable[[], float] = time.monotonic
    bytes_left: int = _TOTAL
    members_left: int = _MEMBERS
    gaps: list[str] = field(default_factory=list)
    _stop_at: float = 0.0

    def __post_init__(self) -> None:
        self._stop_at = self.clock() + _SECONDS

    def spent(self) -> str | None:
        if self.bytes_left <= 0:
            return "unpacks to too much"
        if self.members_left <= 0:
            return "has too many members"
        return "takes too long to unpack" if self.clock() > self._stop_at else None


def texts(data: bytes, budget: Budget, name: str = "", depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Give the plain texts in a file, each with its name inside it; the file itself, under no name, where it is plain."""
    opener = _opener(data)
    if opener is None:
        yield name, _utf8(data)
        return
    if depth >= _DEPTH:
        budget.gaps.append(f"{name}: nested too deeply")
        yield name, data
        return
    try:
        for inner, content in opener(data, budget):
            if reason := budget.spent():
                budget.gaps.append(f"{name or 'archive'}: {reason}")
                return
            yield from texts(content, budget, _joined(name, inner), depth + 1)
    except _BROKEN as error:
        budget.gaps.append(f"{name or 'archive'}: cannot be unpacked ({type(error).__name__})")
        yield name, data


_FIRST = frozenset(b"\x1fPB\xfd\xff\xfe")


def is_packed(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell by its first bytes whether a file is something to unpack rather than to read as it is."""
    stop = len(data) if stop is None else stop
    if stop - start < 4 or (data[start] not in _FIRST and data.find(b"\0", start, min(start + 512, stop)) < 0):
        return False  # the usual case, told quickly
    head = bytes(data[start : min(start + 512, stop)])
    return _opener(head) is not None or _utf16(head) is not None


def _joined(outer: str, inner: str) -> str:
    return f"{outer}!{inner}" if outer and inner else outer or inner


def _opener(data: bytes) -> Callable[[bytes, Budget], Iterator[tuple[str, bytes]]] | None:
    if data[:2] == b"\x1f\x8b":
        return _gzip
    if data[:4] in {b"PK\x03\x04", b"PK\x05\x06"}:
        return _zip
    if data[257:262] == b"ustar":
        return _tar
    if data[:3] == b"BZh" and data[4:10] == b"1AY&SY":
        return _bz2
    if data[:6] == b"\xfd7zXZ\x00":
        return _xz
    return None


class _Inflate:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(data, max_length)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


_Stream = _Inflate | bz2.BZ2Decompressor | lzma.LZMADecompressor


def _compressed(data: bytes, budget: Budget, make: Callable[[], _Stream]) -> Iterator[tuple[str, bytes]]:
    """Decompress every stream of a file; what is there before damage or the limit is still read."""
    out = bytearray()
    limit = min(_MEMBER, budget.bytes_left)
    streams = 0
    try:
        while data and len(out) < limit:
            stream = make()
            out += stream.decompress(data, limit - len(out) + 1)
            if not stream.eof:
                budget.gaps.append("compressed data " + ("is longer than what is read" if len(out) > limit else "ends early"))
                break
            data = stream.unused_data
            streams += 1
            if streams >= _STREAMS and data:  # each copies all that follow it
                budget.gaps.append("compressed data has too many parts")
                break
    except _BROKEN:
        if not out:
            raise
        budget.gaps.append("compressed data is damaged after its beginning")
    budget.bytes_left -= len(out)
    budget.members_left -= 1
    yield "", bytes(out[:limit])


def _gzip(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, _Inflate)


def _bz2(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, bz2.BZ2Decompressor)


def _xz(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, lambda: lzma.LZMADecompressor(memlimit=256 << 20))


def _zip(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            try:
                with archive.open(member) as stream:
                    content = stream.read(min(_MEMBER, max(0, budget.bytes_left)) + 1)
            except _BROKEN as error:
                budget.gaps.append(f"{member.filename}: cannot be unpacked ({type(error).__name__})")
                content = _as_it_stands(data, member)
            yield member.filename, _counted(member.filename, content, budget)


def _as_it_stands(data: bytes, member: zipfile.ZipInfo) -> bytes:
    """Give the bytes of a damaged member without its header."""
    start = member.header_offset + 30 + len(member.orig_filename)
    return data[start : start + member.compress_size]


def _tar(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, _counted(member.name, stream.read(min(_MEMBER, max(0, budget.bytes_left)) + 1), budget)


def _counted(name: str, content: bytes, budget: Budget) -> bytes:
    budget.members_left -= 1
    if len(content) > min(_MEMBER, budget.bytes_left):
        budget.gaps.append(f"{name}: only its beginning was read")
    budget.bytes_left -= len(content)
    return content


def _utf8(data: bytes) -> bytes:
    encoding = _utf16(data)
    return data.decode(encoding, "replace").encode("utf-8", "replace") if encoding else data


def _utf16(data: bytes) -> str | None:
    """Tell UTF-16 by its mark, or by every other byte of its beginning being zero."""
    if data[:2] == b"\xff\xfe" and data[2:4] != b"\0\0":
        return "utf-16"
    if data[:2] == b"\xfe\xff":
        return "utf-16"
    head = data[:256]
    if len(head) < 16 or b"\0" not in head:
        return None
    even, odd = head[::2].count(0) / len(head[::2]), head[1::2].count(0) / len(head[1::2])
    if odd > 0.8 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 and odd < 0.1 else None
