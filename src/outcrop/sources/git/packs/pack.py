"""Read objects from git pack files.

1. `PackReader` finds the pack and offset of an object (`PackIndex.find_offset`).
2. It follows the delta chain to an object in its cache, or to one that is not a delta (`Pack.read_entry`).
3. It applies the deltas in reverse order (`_apply_delta`). The last step also lists which ranges the object
   has copied from its base, so that the scanner need not scan these ranges again.

Everything unusual is left to git: loose, large and damaged objects, and SHA-256 ids. Packs are read and not
memory-mapped: if somebody truncates a mapped file, the process dies.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dulwich.errors import ApplyDeltaError

from outcrop.limits import DELTA_CHAIN_LENGTH, PACK_LIMITS, PackLimits
from outcrop.scanner.engine.delta_scan import MIN_COPIED_RANGE, CopiedRange, FileVersion
from outcrop.sources.git.packs.index import OID_BYTES, PackIndex, list_pack_indexes

try:  # only this compiled function of dulwich: importing its pack module takes 30 ms
    from dulwich._pack import apply_delta  # type: ignore[import-not-found]
except ImportError:  # dulwich was installed without its compiled part
    from dulwich.pack import apply_delta

_MAX_OBJECT_BYTES = 1 << 20
_FIRST_READ_BYTES = 4_096  # of an entry: most fit
_MAX_READ_BYTES = 1 << 18  # of each later read
# If an object is so many times larger than its delta, most of it is copied, and listing the ranges pays off.
_MIN_EXPANSION = 24
COMMIT, TREE, BLOB, TAG, OFS_DELTA, _REF_DELTA = 1, 2, 3, 4, 6, 7  # types of pack entries
_BLOB_TYPES, _MESSAGE_TYPES = (BLOB,), (COMMIT, TAG)
_EntryLocation = tuple["Pack", int]  # pack and offset
READ_ERRORS = (OSError, ValueError, IndexError, MemoryError, zlib.error, ApplyDeltaError)  # of damaged packs


class PackReader:
    """Reads objects from the packs of these object folders, and caches the objects of the last delta chain.

    Of more than `limits.open_packs` packs only the first are opened.
    """

    def __init__(self, object_folders: Sequence[Path], limits: PackLimits = PACK_LIMITS) -> None:
        packs = (pack for folder in object_folders for pack in _open_packs(folder))
        self._packs = list(islice(packs, limits.open_packs))
        self._max_delta_bytes = limits.delta_bytes
        self._max_chain_bytes = limits.cached_bytes
        self._by_index = {pack.index.path: pack for pack in self._packs}
        # The last delta chain, from its base to the object that was read last. Callers read chain by chain.
        self._chain: dict[_EntryLocation, FileVersion] = {}
        self._chain_bytes = 0

    def close(self) -> None:
        """Close all packs that were opened."""
        for pack in self._packs:
            pack.close()

    def read_blob(self, oid: bytes) -> FileVersion | None:
        """Return the blob with this binary id, with its delta base and copied ranges if these save scanning.

        Return None if no open pack has the blob, or if it is large, damaged or not a blob: then git has to
        read it.
        """
        try:
            location = self._find_entry(oid)
            return self._read_object(location, _BLOB_TYPES) if location else None
        except READ_ERRORS:
            return None

    def read_commit_or_tag(self, index: Path, offset: int) -> bytes | None:
        """Return the commit or tag at `offset` in the pack of the index file `index`, with its header.

        Return None if the pack is not open, or if the object is large, damaged or of another type: then git
        has to read it.
        """
        pack = self._by_index.get(index)
        try:
            return self._read_object((pack, offset), _MESSAGE_TYPES).content if pack else None
        except READ_ERRORS:
            return None

    def _find_entry(self, oid: bytes) -> _EntryLocation | None:
        """Return pack and offset of the object with this binary id; None if no open pack has it.

        Move the pack to the front, so that it is searched first next time.
        """
        for number, pack in enumerate(self._packs):
            offset = pack.index.find_offset(oid)
            if offset is not None:
                if number:  # search this pack first next time: neighbouring objects are in the same pack
                    self._packs.insert(0, self._packs.pop(number))
                return pack, offset
        return None

    def _read_object(self, location: _EntryLocation, types: Sequence[int]) -> FileVersion:
        """Return the object at this location, and put its delta chain into the cache.

        The result has the ranges that it copies from its delta base under the conditions of `_apply_delta`.
        Raise ValueError if its type is not in `types`, if it is too large, or if its chain is too long or
        incomplete; raise another of READ_ERRORS if the pack is damaged.
        """
        deltas: list[tuple[_EntryLocation, bytes]] = []
        delta_bytes = 0
        at = location
        while (version := self._chain.get(at)) is None:
            base, data = at[0].read_entry(at[1], types)
            if base is None:
                version = FileVersion(data)
                break
            deltas.append((at, data))
            delta_bytes += len(data)
            base_location = (at[0], base) if isinstance(base, int) else self._find_entry(base)
            if (
                base_location is None
                or len(deltas) > DELTA_CHAIN_LENGTH
                or delta_bytes > self._max_delta_bytes
            ):
                raise ValueError("the delta base is missing, or the delta chain is too long")
            at = base_location
        self._truncate_chain(at)
        self._append_to_chain(at, version)
        while deltas:
            at, delta = deltas.pop()
            version = _apply_delta(version, delta, list_copies=not deltas)
            self._append_to_chain(at, version)
        return version

    def _truncate_chain(self, location: _EntryLocation) -> None:
        """Drop the entry at `location` and all later ones from the chain cache.

        If the cache does not have the entry, clear the cache.
        """
        while self._chain:
            last, version = self._chain.popitem()
            self._chain_bytes -= len(version.content)
            if last == location:
                return

    def _append_to_chain(self, location: _EntryLocation, version: FileVersion) -> None:
        """Add an object at the end of the chain cache; drop the first ones while the cache is too large."""
        self._chain[location] = version
        self._chain_bytes += len(version.content)
        while self._chain_bytes > self._max_chain_bytes:
            first = next(iter(self._chain))
            self._chain_bytes -= len(self._chain.pop(first).content)


def _open_packs(object_folder: Path) -> Iterator["Pack"]:
    """Yield the packs of an object folder, opened; skip those that cannot be opened.

    Yield nothing if the folder cannot be listed. git reports what is wrong.
    """
    with suppress(OSError):
        for path in list_pack_indexes(object_folder):
            with suppress(OSError, ValueError):
                yield Pack(path)


class Pack:
    """An open pack; `index` is the path of its index. Opening raises OSError or ValueError on failure."""

    def __init__(self, index: Path) -> None:
        self.index = PackIndex(index)
        try:
            self._file = os.open(index.with_suffix(".pack"), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.index.close()
            raise
        self.size = os.fstat(self._file).st_size

    def close(self) -> None:
        """Close the pack and its index."""
        self.index.close()
        os.close(self._file)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes of the pack file from this offset on; fewer at its end."""
        return os.pread(self._file, size, offset)

    def read_entry(self, offset: int, types: Sequence[int]) -> tuple[int | bytes | None, bytes]:
        """Return the delta base and the decompressed data of the entry at this offset.

        The base of an ofs-delta is its offset, of a ref-delta its binary object id, of a complete object
        None. Raise ValueError for a complete object of a type that is not in `types`, and for an entry of
        more than _MAX_OBJECT_BYTES; raise ValueError, IndexError or zlib.error for a damaged entry.
        """
        data = self.read(offset, _FIRST_READ_BYTES)
        entry_type, size, base_distance, at = parse_entry_header(data, 0)
        base: int | bytes | None = None
        if entry_type == OFS_DELTA:
            base = offset - base_distance
        elif entry_type == _REF_DELTA:
            base = data[at : at + OID_BYTES]
            at += OID_BYTES
        elif entry_type not in types:
            raise ValueError("the object is of another type")
        if size > _MAX_OBJECT_BYTES or (isinstance(base, int) and not 0 < base < offset):
            raise ValueError("the object is too large, or its base offset is outside the pack")
        return base, self._inflate(memoryview(data)[at:], size, offset + len(data))

    def _inflate(self, compressed: memoryview, size: int, next_offset: int) -> bytes:
        """Return the `size` decompressed bytes of an entry; raise ValueError if it has more or fewer.

        `compressed` is the beginning of the data, which continues at `next_offset` of the pack. Raise
        zlib.error if the data cannot be decompressed.
        """
        inflate = zlib.decompressobj()
        data = inflate.decompress(compressed, size + 1)
        if not inflate.eof:
            parts = [data]
            remaining = size + 1 - len(data)
            while remaining and not inflate.eof:
                block = self.read(next_offset, min(max(remaining, _FIRST_READ_BYTES), _MAX_READ_BYTES))
                if not block:
                    break
                next_offset += len(block)
                parts.append(inflate.decompress(block, remaining))
                remaining -= len(parts[-1])
            data = b"".join(parts)
        if not inflate.eof or len(data) != size:
            raise ValueError("the object is damaged")
        return data


def parse_entry_header(data: bytes, at: int) -> tuple[int, int, int, int]:
    """Return (type, decompressed size, distance to the base, end of the header) of an entry at `data[at]`.

    The distance is 0 unless the entry is an ofs-delta. The end is an index in `data`. Raise IndexError if the
    header is cut off.
    """
    byte = data[at]
    entry_type, size = byte >> 4 & 7, byte & 15
    at += 1
    shift = 4
    while byte & 0x80:
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    base_distance = 0
    if entry_type == OFS_DELTA:
        byte = data[at]
        at += 1
        base_distance = byte & 0x7F
        while byte & 0x80:
            byte = data[at]
            base_distance = (base_distance + 1) << 7 | byte & 0x7F
            at += 1
    return entry_type, size, base_distance, at


def _apply_delta(base: FileVersion, delta: bytes, *, list_copies: bool) -> FileVersion:
    """Return the object that a delta makes of its base.

    If `list_copies`, and the delta is small compared with the object, the result also has the base and the
    ranges that are copied from it. Raise ValueError if the object is too large, and ApplyDeltaError if the
    delta does not fit the base.
    """
    _, at = _parse_varint(delta, 0)
    size, at = _parse_varint(delta, at)
    if size > _MAX_OBJECT_BYTES:
        raise ValueError("the object is too large")
    content: bytes = apply_delta(base.content, delta)[0]
    if list_copies and len(delta) * _MIN_EXPANSION < size:
        return FileVersion(content, base, _list_copied_ranges(delta, at))
    return FileVersion(content)


def _parse_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at `data[at]`, and the index behind its last byte.

    Each byte has seven bits of the number, the lowest first; its highest bit is set if another byte follows.
    Raise IndexError if the number is cut off.
    """
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, at


def _list_copied_ranges(delta: bytes, at: int) -> list[CopiedRange]:
    """Return the ranges of an object that its delta copies, each as (start, end, start in the base).

    Ranges shorter than MIN_COPIED_RANGE bytes are left out. The instructions of the delta begin at
    `delta[at]`. Copies that are adjacent in both texts become one range.
    """
    ranges: list[CopiedRange] = []
    start = end = base_start = 0  # of the current range
    while at < len(delta):
        opcode = delta[at]
        at += 1
        if opcode < 0x80:  # insert so many bytes
            if end - start >= MIN_COPIED_RANGE:
                ranges.append((start, end, base_start))
            at += opcode
            end += opcode
            start = end
            continue
        width, mask, shift = _COPY_LAYOUTS[opcode]
        number = int.from_bytes(delta[at : at + width], "little")
        offset, size = (
            (number & mask, number >> shift) if mask else _parse_sparse_copy(delta[at : at + width], opcode)
        )
        at += width
        if start == end:
            base_start = offset
        elif offset != base_start + end - start:
            if end - start >= MIN_COPIED_RANGE:
                ranges.append((start, end, base_start))
            start, base_start = end, offset
        end += size or 1 << 16
    if end - start >= MIN_COPIED_RANGE:
        ranges.append((start, end, base_start))
    return ranges


def _copy_layout(opcode: int) -> tuple[int, int, int]:
    """Return the layout of a copy instruction: bytes of both numbers, mask of the offset, shift of the size.

    Bits 0 to 3 of the opcode say which bytes of the offset follow, bits 4 to 6 which bytes of the size; bytes
    that are zero are omitted. The mask is 0 if a byte is omitted before another: see `_parse_sparse_copy`.
    """
    offset_bits, size_bits = opcode & 15, opcode >> 4 & 7
    width = offset_bits.bit_count()
    is_dense = not offset_bits & (offset_bits + 1) and not size_bits & (size_bits + 1) and offset_bits
    return width + size_bits.bit_count(), (1 << 8 * width) - 1 if is_dense else 0, 8 * width


_COPY_LAYOUTS = [_copy_layout(opcode) for opcode in range(256)]


def _parse_sparse_copy(data: bytes, opcode: int) -> tuple[int, int]:
    """Return offset and size of a copy instruction in which bytes are omitted before others.

    `data` has the bytes after the opcode. The size 0 means 65,536 bytes.
    """
    stored = iter(data)
    offset = sum(next(stored) << 8 * bit for bit in range(4) if opcode >> bit & 1)
    return offset, sum(next(stored) << 8 * bit for bit in range(3) if opcode >> bit & 16)
