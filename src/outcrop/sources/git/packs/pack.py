"""Objects read from packs by ourselves: files as versions of one another, for git would not tell what of them is new.

Whatever is not as usual is left to git: what is loose, large, damaged, or written in a way that few repositories have. Packs are read
and not mapped: a mapped file that somebody cuts ends the process.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dulwich.errors import ApplyDeltaError

from outcrop.scanner.engine.delta_scan import MIN_COPIED_RANGE, CopiedRange, FileVersion
from outcrop.sources.git.packs.index import WIDTH, Index, indexes_in

try:  # of dulwich only this, which is compiled: all of its reading of packs takes 30 ms to load
    from dulwich._pack import apply_delta  # type: ignore[import-not-found]
except ImportError:  # where nobody has compiled it
    from dulwich.pack import apply_delta

_MOST_PACKS = 64  # each takes two open files
_LARGEST = 1 << 20  # bytes of an object
_MOST_STEPS = 4_096  # from an object to the one that is no change: git makes 50, and 4,095 at most
_MOST_HELD = 32 << 20  # bytes of the changes between the two
_KEPT = 4 << 20  # bytes of objects on the way to the last one
_FIRST = 4_096  # bytes that are read of an object at first
_MORE = 1 << 18
_SPARSE = 24  # a change that has so many times fewer bytes than what it makes is worth reading step by step
COMMIT, TREE, BLOB, TAG, OF_OFFSET, _OF_NAME = 1, 2, 3, 4, 6, 7  # kinds of entries
_FILES, _MESSAGES = (BLOB,), (COMMIT, TAG)
_Place = tuple["Pack", int]
DAMAGED = (OSError, ValueError, IndexError, MemoryError, zlib.error, ApplyDeltaError)


class Packs:
    """The packs of a repository, and the objects that the last one was made of."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._packs = list(islice((pack for folder in folders for pack in _opened(folder)), _MOST_PACKS))
        self._by_index = {pack.index.path: pack for pack in self._packs}
        # From one that is no change to the last that was read: families are read one after the other.
        self._path: dict[_Place, FileVersion] = {}
        self._size = 0

    def close(self) -> None:
        for pack in self._packs:
            pack.close()

    def version(self, oid: bytes) -> FileVersion | None:
        """Give a file, and what it has from the one it is a change of; None where git is to be asked."""
        try:
            place = self._find(oid)
            return self._read(place, _FILES) if place else None
        except DAMAGED:
            return None

    def with_message(self, index: Path, start: int) -> bytes | None:
        """Give the commit or the tag at this place of the pack of an index; None where git is to be asked."""
        pack = self._by_index.get(index)
        try:
            return self._read((pack, start), _MESSAGES).content if pack else None
        except DAMAGED:
            return None

    def _find(self, oid: bytes) -> _Place | None:
        for number, pack in enumerate(self._packs):
            offset = pack.index.find(oid)
            if offset is not None:
                if number:  # the next one is most likely here too
                    self._packs.insert(0, self._packs.pop(number))
                return pack, offset
        return None

    def _read(self, place: _Place, kinds: Sequence[int]) -> FileVersion:
        """Read an object from the nearest that is kept, or that is no change; those between are made anew."""
        steps: list[tuple[_Place, bytes]] = []
        held = 0
        at = place
        while (version := self._path.get(at)) is None:
            base, data = at[0].entry(at[1], kinds)
            if base is None:
                version = FileVersion(data)
                break
            steps.append((at, data))
            held += len(data)
            found = (at[0], base) if isinstance(base, int) else self._find(base)
            if found is None or len(steps) > _MOST_STEPS or held > _MOST_HELD:
                raise ValueError("what it is a change of is not here, or too far away")
            at = found
        self._go_back(at)
        self._keep(at, version)
        while steps:
            at, delta = steps.pop()
            version = _changed(version, delta, is_wanted=not steps)
            self._keep(at, version)
        return version

    def _go_back(self, place: _Place) -> None:
        """Forget a place, and what lies behind it on the way; or all of a way on which it does not lie."""
        while self._path:
            last, version = self._path.popitem()
            self._size -= len(version.content)
            if last == place:
                return

    def _keep(self, place: _Place, version: FileVersion) -> None:
        self._path[place] = version
        self._size += len(version.content)
        while self._size > _KEPT:
            first = next(iter(self._path))
            self._size -= len(self._path.pop(first).content)


def _opened(folder: Path) -> Iterator["Pack"]:
    """Open the packs of a folder that can be read here; git tells what is wrong with the others."""
    with suppress(OSError):
        for path in indexes_in(folder):
            with suppress(OSError, ValueError):
                yield Pack(path)


class Pack:
    """A pack that is open, with its index. One that cannot be read here raises OSError or ValueError."""

    def __init__(self, index: Path) -> None:
        self.index = Index(index)
        try:
            self._file = os.open(index.with_suffix(".pack"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.index.close()
            raise
        self.size = os.fstat(self._file).st_size

    def close(self) -> None:
        self.index.close()
        os.close(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """Read so many bytes of the pack, or fewer where it ends."""
        return os.pread(self._file, size, offset)

    def entry(self, offset: int, kinds: Sequence[int]) -> tuple[int | bytes | None, bytes]:
        """Read what stands at a place: an object of these kinds, or a change with the place or the name of what it is a change of."""
        data = self.read(offset, _FIRST)
        kind, size, back, at = head_of(data, 0)
        base: int | bytes | None = None
        if kind == OF_OFFSET:
            base = offset - back
        elif kind == _OF_NAME:
            base = data[at : at + WIDTH]
            at += WIDTH
        elif kind not in kinds:
            raise ValueError("an object of another kind")
        if size > _LARGEST or (isinstance(base, int) and not 0 < base < offset):
            raise ValueError("an object that is large, or a change of nothing")
        return base, self._inflated(memoryview(data)[at:], size, offset + len(data))

    def _inflated(self, head: memoryview, size: int, behind: int) -> bytes:
        """Unpack so many bytes, and not more."""
        inflate = zlib.decompressobj()
        data = inflate.decompress(head, size + 1)
        if not inflate.eof:
            parts = [data]
            left = size + 1 - len(data)
            while left and not inflate.eof and (more := self.read(behind, min(max(left, _FIRST), _MORE))):
                behind += len(more)
                parts.append(inflate.decompress(more, left))
                left -= len(parts[-1])
            data = b"".join(parts)
        if not inflate.eof or len(data) != size:
            raise ValueError("an object that is damaged")
        return data


def head_of(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Read the head of an entry: its kind, its size, how far before it stands what it is a change of, and where the head ends."""
    sign = data[at]
    kind, size = sign >> 4 & 7, sign & 15
    at += 1
    shift = 4
    while sign & 0x80:
        sign = data[at]
        size |= (sign & 0x7F) << shift
        shift += 7
        at += 1
    back = 0
    if kind == OF_OFFSET:
        sign = data[at]
        at += 1
        back = sign & 0x7F
        while sign & 0x80:
            sign = data[at]
            back = (back + 1) << 7 | sign & 0x7F
            at += 1
    return kind, size, back, at


def _changed(base: FileVersion, delta: bytes, *, is_wanted: bool) -> FileVersion:
    """Carry a change out. What is only on the way to another one is not told apart."""
    _, at = _written(delta, 0)
    size, at = _written(delta, at)
    if size > _LARGEST:
        raise ValueError("an object that is large")
    content: bytes = apply_delta(base.content, delta)[0]
    if is_wanted and len(delta) * _SPARSE < size:
        return FileVersion(content, base, _copied(delta, at))
    return FileVersion(content)


def _written(data: bytes, at: int) -> tuple[int, int]:
    """Read a number that is written in seven bits of each byte, the lowest first; give where it ends too."""
    number = shift = 0
    while True:
        sign = data[at]
        at += 1
        number |= (sign & 0x7F) << shift
        shift += 7
        if not sign & 0x80:
            return number, at


def _copied(delta: bytes, at: int) -> list[CopiedRange]:
    """Give what a change copies, if it is enough to be of use; what it copies piece by piece, as one."""
    copied: list[CopiedRange] = []
    start = place = origin = 0  # what is at hand began in the new text and in the old one
    while at < len(delta):
        sign = delta[at]
        at += 1
        if sign < 0x80:
            if place - start >= MIN_COPIED_RANGE:
                copied.append((start, place, origin))
            at += sign
            place += sign
            start = place
            continue
        width, mask, shift = _LAYOUT[sign]
        number = int.from_bytes(delta[at : at + width], "little")
        source, size = (number & mask, number >> shift) if mask else _with_zeros(delta[at : at + width], sign)
        at += width
        if start == place:
            origin = source
        elif source != origin + place - start:
            if place - start >= MIN_COPIED_RANGE:
                copied.append((start, place, origin))
            start, origin = place, source
        place += size or 1 << 16
    if place - start >= MIN_COPIED_RANGE:
        copied.append((start, place, origin))
    return copied


def _layout(sign: int) -> tuple[int, int, int]:
    """Tell how a place and a size are written behind a sign: in how many bytes, and how many of them are the place.

    Of both only bytes that are not zero are written, and the sign's bits tell which. The mask is zero where one is left out before others.
    """
    place, size = sign & 15, sign >> 4 & 7
    width = place.bit_count()
    is_plain = not place & (place + 1) and not size & (size + 1) and place
    return width + size.bit_count(), (1 << 8 * width) - 1 if is_plain else 0, 8 * width


_LAYOUT = [_layout(sign) for sign in range(256)]


def _with_zeros(written: bytes, sign: int) -> tuple[int, int]:
    """Read a place and a size of which some bytes are left out."""
    given = iter(written)
    place = sum(next(given) << 8 * bit for bit in range(4) if sign >> bit & 1)
    return place, sum(next(given) << 8 * bit for bit in range(3) if sign >> bit & 16)
