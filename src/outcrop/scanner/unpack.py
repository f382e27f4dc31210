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
_SECONDS = 60.0
_FIRST_STEP, _STEP = 1 << 9, 1 << 16  # bytes that a decompressor is given at a time: what it has given before damage is kept
_BLOCK = 512  # of a tar
_LOCAL = struct.Struct("<4s5H3I2H")  # what stands before a member of a zip
_ENCRYPTED, _DEFLATED = 1, 8
_DESCRIPTOR = 24  # bytes that may stand behind a member of a zip
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
        if kind := _sealed(data):
            budget.gaps.append(f"{name or 'archive'}: is packed as {kind}, which is not unpacked")
        yield name, _utf8(data)
        return
    if depth >= _DEPTH:
        budget.gaps.append(f"{name or 'archive'}: nested too deeply")
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


_SEALED = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
}
# Of what is packed; what is so and begins otherwise has a zero among its first 512 bytes.
FIRST_BYTES = frozenset(b"\x1fPB\xfd\xff\xfe") | {magic[0] for magic in _SEALED}


def is_packed(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell by its first bytes whether a file is something to unpack rather than to read as it is."""
    stop = len(data) if stop is None else stop
    if stop - start < 4 or (data[start] not in FIRST_BYTES and data.find(b"\0", start, min(start + 512, stop)) < 0):
        return False  # the usual case, told quickly
    head = bytes(data[start : min(start + 512, stop)])
    return _opener(head) is not None or _utf16(head) is not None or _sealed(head) is not None


def _sealed(data: bytes) -> str | None:
    """Name what is packed in a way that we cannot open."""
    return next((kind for magic, kind in _SEALED.items() if data.startswith(magic)), None)


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


class _DamagedError(ValueError):
    """Compressed data is damaged; what was there before the damage is still good."""

    def __init__(self, good: bytes) -> None:
        super().__init__()
        self.good = good


class _Inflate:
    """zlib's decompressor with the interface of the other two."""

    def __init__(self, wbits: int = 31) -> None:
        self._inner = zlib.decompressobj(wbits)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        before = self._inner.copy()
        try:
            return self._inner.decompress(data, max_length)
        except zlib.error:
            raise _DamagedError(_byte_by_byte(before, data)) from None

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _byte_by_byte(inner: "zlib._Decompress", data: bytes) -> bytes:
    """Give what comes before the very byte at which zlib gives up: a wrong checksum at the end spoils nothing."""
    out = bytearray()
    try:
        for at in range(len(data)):
            out += inner.decompress(data[at : at + 1])
    except zlib.error:
        pass
    return bytes(out)


_Stream = _Inflate | bz2.BZ2Decompressor | lzma.LZMADecompressor


def _read(stream: _Stream, data: bytes, at: int, most: int, out: bytearray) -> tuple[int, str | None]:
    """Decompress a stream that begins at a place, to the end of what there is: where it ends, and why that is not all of it."""
    step = _FIRST_STEP  # one of very many small streams costs little
    try:
        while not stream.eof and at < len(data) and len(out) <= most:
            piece = data[at : at + step]
            out += stream.decompress(piece, most + 1 - len(out))
            at += len(piece) - len(stream.unused_data)
            step = min(2 * step, _STEP)
    except _DamagedError as error:
        out += error.good
        return at, "is damaged after its beginning"
    except _BROKEN:
        return at, "is damaged after its beginning"
    if len(out) > most:
        del out[most:]
        return at, "is longer than what is read"
    return at, None if stream.eof else "ends early"


def _compressed(data: bytes, budget: Budget, make: Callable[[], _Stream]) -> Iterator[tuple[str, bytes]]:
    """Decompress every stream of a file; what is there before damage or the limit is still read, and what follows as it stands."""
    out = bytearray()
    at, why, rest = 0, None, b""
    while at < len(data) and why is None:
        had = len(out)
        end, why = _read(make(), data, at, _most(budget), out)
        if why and len(out) == had:  # no stream begins here
            rest = data[at:].strip(b"\0")  # some tools fill up with zeros
            why = why if rest else None
            break
        at = end
        why = why or budget.spent()
    if why and not out:
        raise ValueError(why)
    if why:
        budget.gaps.append(f"compressed data {why}")
    budget.bytes_left -= len(out)
    budget.members_left -= 1
    content = bytes(out)
    del out  # of which there is a copy now
    yield "", content
    if rest:
        yield "", _as_it_stands(rest)


def _as_it_stands(data: bytes) -> bytes:
    """Give the bytes of something damaged so that it is not taken for an archive again."""
    return b"\n" + data


def _gzip(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, _Inflate)


def _bz2(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, bz2.BZ2Decompressor)


def _xz(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, lambda: lzma.LZMADecompressor(memlimit=256 << 20))


def _zip(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    if data.count(b"PK\1\2") > _MEMBERS:  # a directory of millions would be held in memory
        yield from _without_directory(data, budget)
        return
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except _BROKEN as error:
        budget.gaps.append(f"archive: cannot be unpacked ({type(error).__name__})")
        yield from _without_directory(data, budget)
        return
    with archive:
        for member in archive.infolist():
            if member.is_dir() and not member.file_size:
                continue
            try:
                with archive.open(member) as stream:
                    content = stream.read(_most(budget) + 1)
            except _BROKEN as error:
                budget.gaps.append(f"{member.filename}: cannot be unpacked ({type(error).__name__})")
                content = _member(data, member.header_offset, budget)[1]
            yield member.filename, _counted(member.filename, content, budget)


def _without_directory(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    """Give the members that a zip holds one after the other, whatever its directory says, and what stands between them."""
    done, at = 0, data.find(b"PK\3\4")
    while at >= 0:
        name, content, end = _member(data, at, budget)
        if content:
            if at - done > _DESCRIPTOR:
                yield "", _as_it_stands(data[done:at])
            done = end
            yield name, _counted(name, content, budget)
        at = data.find(b"PK\3\4", max(end, at + 4))
    yield "", _as_it_stands(data[done:])


def _member(data: bytes, at: int, budget: Budget) -> tuple[str, bytes, int]:
    """Read a member of a zip where it stands: its name, what can be had of it, and where it ends; nothing where none stands there."""
    if len(data) < at + _LOCAL.size:
        return "", b"", at
    _, _, flags, method, _, _, _, size, _, name, extra = _LOCAL.unpack_from(data, at)
    start = at + _LOCAL.size + name + extra
    told = data[at + _LOCAL.size : start - extra].decode("utf-8", "replace")
    if method == _DEFLATED and not flags & _ENCRYPTED:
        content = bytearray()
        end, _ = _read(_Inflate(-15), data, start, _most(budget), content)
        if content:
            return told, bytes(content), end
    end = start + size if size else data.find(b"PK", start)
    end = min(end, len(data)) if end >= 0 else len(data)
    return told, data[start : min(end, start + _most(budget) + 1)], max(at, end)


def _most(budget: Budget) -> int:
    return min(_MEMBER, max(0, budget.bytes_left))


def _tar(data: bytes, budget: Budget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        at = -1
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # it would hold all of them
            if archive.offset <= at:
                raise tarfile.ReadError
            at = archive.offset
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, _counted(member.name, stream.read(_most(budget) + 1), budget)
            elif budget.spent():
                yield member.name, b""  # and it ends here
        end = archive.offset
    if data[end : end + _BLOCK].strip(b"\0"):
        budget.gaps.append("archive: is damaged after its beginning")
        yield "", _counted("archive", _as_it_stands(data[end:]), budget)
    elif rest := data[end:].lstrip(b"\0"):  # another one may follow
        yield "", _counted("archive", rest, budget)


def _counted(name: str, content: bytes, budget: Budget) -> bytes:
    budget.members_left -= 1
    if len(content) > _most(budget):
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
