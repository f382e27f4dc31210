"""Archives, compressed files and wide characters into plain texts, within a bounded depth, size and time whatever the input claims."""

import bz2
import io
import lzma
import re
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outcrop.scanner.text.linux_packages import ar_members, cpio_members, rpm_payload
from outcrop.scanner.text.magic import (
    ZIP_END,
    ZIP_END_SIZE,
    ends_with_zip,
    has_utf16_strings,
    opener_of,
    sealed_as,
    wide_of,
)

_DEPTH = 6  # an image's tar, a layer's gzip, its tar, an archive in it, and a file in that
_MEMBER = 128 << 20
_TOTAL = 512 << 20
_MEMBERS = 100_000
_SECONDS = 60.0
_FIRST_STEP, _STEP = (
    1 << 9,
    1 << 16,
)  # bytes that a decompressor is given at a time: what it has given before damage is kept
_BLOCK = 512  # of a tar
_MEMBER_BEGINS = b"PK\3\4"
_LOCAL = struct.Struct("<4s5H3I2H")  # what stands before a member of a zip
_ENCRYPTED, _DEFLATED = 1, 8
_BLANK = bytes(
    byte if byte == 10 else 32 for byte in range(256)
)  # what is read elsewhere keeps its lines and columns
_KINDS = bytes(
    97 if byte in b"\t\r\n" or 32 <= byte < 127 else min(byte, 1) for byte in range(256)
)  # a letter, zero, another
_WIDE_LETTERS, _WIDE_STRING = b"a\0" * 8, re.compile(rb"(?:a\0)++")
_BROKEN = (
    OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, MemoryError, OverflowError,
    struct.error, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


@dataclass(slots=True)
class UnpackBudget:
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


def unpack_texts(
    data: bytes, budget: UnpackBudget, name: str = "", depth: int = 0
) -> Iterator[tuple[str, bytes]]:
    """Give the plain texts in a file, each with its name inside it; the file itself, under no name, where it is plain."""
    if isinstance(data, _Plain):
        yield name, data
        return
    opener = opener_of(data) or ("zip" if ends_with_zip(data) else None)
    if opener is None:
        if kind := sealed_as(data):
            budget.gaps.append(f"{name or 'archive'}: is packed as {kind}, which is not unpacked")
        yield name, _utf8(data)
        return
    if depth >= _DEPTH:
        budget.gaps.append(f"{name or 'archive'}: nested too deeply")
        yield name, data
        return
    try:
        for inner, content in _OPENERS[opener](data, budget):
            if reason := budget.spent():
                budget.gaps.append(f"{name or 'archive'}: {reason}")
                return
            yield from unpack_texts(content, budget, _joined(name, inner), depth + 1)
    except _BROKEN as error:
        budget.gaps.append(f"{name or 'archive'}: cannot be unpacked ({type(error).__name__})")
        yield name, data


def _joined(outer: str, inner: str) -> str:
    return f"{outer}!{inner}" if outer and inner else outer or inner


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


def _compressed(
    data: bytes, budget: UnpackBudget, make: Callable[[], _Stream]
) -> Iterator[tuple[str, bytes]]:
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
        yield "", _Plain(rest)


class _Plain(bytes):
    """The bytes of something damaged, not to be taken for an archive again."""


def _from(data: bytes, place: int) -> _Plain:
    """Give what stands behind a place, at its own line and column."""
    return _Plain(data[:place].translate(_BLANK) + data[place:])


def _gzip(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, _Inflate)


def _bz2(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, bz2.BZ2Decompressor)


def _xz(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, lambda: lzma.LZMADecompressor(memlimit=256 << 20))


def _lzma(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _compressed(data, budget, lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=256 << 20))


def _deb(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _each(ar_members(data), budget)


def _cpio(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return _each(cpio_members(data), budget)


def _each(members: Iterator[tuple[str, bytes]], budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    return ((name, _counted(name, content[: _most(budget) + 1], budget)) for name, content in members)


def _rpm(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    """Give what an rpm says of itself, its scripts among it, and what it installs."""
    place = rpm_payload(data)
    yield "", _Plain(data[:place])
    yield "", _counted("archive", data[place:], budget)


def _zip(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    if data.count(b"PK\1\2") > _MEMBERS:  # a directory of millions would be held in memory
        yield from _without_directory(data, budget)
        return
    try:
        archive, first = _directory(data)
    except _BROKEN as error:
        budget.gaps.append(f"archive: cannot be unpacked ({type(error).__name__})")
        yield from _without_directory(data, budget)
        return
    with archive:
        if before := data[:first]:  # a script or a program, or another zip
            budget.bytes_left -= len(before)
            yield "", before
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
        if said := _beside_members(data, archive):
            yield "", _Plain(_counted("archive", said, budget))


def _directory(data: bytes) -> tuple[zipfile.ZipFile, int]:
    """Open a zip, and tell where its first member stands; one whose directory leads elsewhere is none."""
    archive = zipfile.ZipFile(io.BytesIO(data))
    places = [member.header_offset for member in archive.infolist()]
    if not all(place >= 0 and data.startswith(_MEMBER_BEGINS, place) for place in places):
        raise zipfile.BadZipFile
    return archive, min(places, default=data.rfind(ZIP_END))


def _beside_members(data: bytes, archive: zipfile.ZipFile) -> bytes:
    """Give the comments of a zip, and whatever was put behind it."""
    end = data.rfind(ZIP_END) + ZIP_END_SIZE + len(archive.comment)
    return b"\n".join(
        filter(None, (archive.comment, *(member.comment for member in archive.infolist()), data[end:]))
    )


def _without_directory(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
    """Give the members that a zip holds one after the other, whatever its directory says, and what stands between them."""
    at = data.find(_MEMBER_BEGINS)
    done = max(0, at)
    if done:
        yield "", _Plain(data[:done])
    beside = bytearray(data[:done].translate(_BLANK))
    while at >= 0:
        name, content, end = _member(data, at, budget)
        if content:
            beside += data[done:at]
            beside += data[at:end].translate(_BLANK)
            done = end
            yield name, _counted(name, content, budget)
        at = data.find(_MEMBER_BEGINS, max(end, at + 4))
    beside += data[done:]
    yield "", _Plain(beside)


def _member(data: bytes, at: int, budget: UnpackBudget) -> tuple[str, bytes, int]:
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


def _most(budget: UnpackBudget) -> int:
    return min(_MEMBER, max(0, budget.bytes_left))


def _tar(data: bytes, budget: UnpackBudget) -> Iterator[tuple[str, bytes]]:
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
        _counted("archive", data[end:], budget)
        yield "", _from(data, end)
    elif rest := data[end:].lstrip(b"\0"):  # another one may follow
        yield "", _counted("archive", rest, budget)


def _counted(name: str, content: bytes, budget: UnpackBudget) -> bytes:
    budget.members_left -= 1
    if len(content) > _most(budget):
        budget.gaps.append(f"{name}: only its beginning was read")
    budget.bytes_left -= len(content)
    return content


def _utf8(data: bytes) -> bytes:
    if encoding := wide_of(data):
        return data.decode(encoding, "replace").encode("utf-8", "replace")
    return _narrowed(data) if has_utf16_strings(data) else data


def _narrowed(data: bytes) -> bytes:
    """Write each string in UTF-16 as a plain one that takes as much room; a search for eight letters of one is quicker than a pattern."""
    kinds = data.translate(_KINDS)
    out = bytearray(data)
    at = kinds.find(_WIDE_LETTERS)
    while at >= 0:
        wide = _WIDE_STRING.match(kinds, at)
        end = wide.end() if wide else at + len(_WIDE_LETTERS)
        out[at:end] = data[at:end:2] + bytes((end - at) // 2)
        at = kinds.find(_WIDE_LETTERS, end)
    return bytes(out)


_OPENERS = {
    "gzip": _gzip,
    "zip": _zip,
    "tar": _tar,
    "bz2": _bz2,
    "xz": _xz,
    "lzma": _lzma,
    "deb": _deb,
    "rpm": _rpm,
    "cpio": _cpio,
}
