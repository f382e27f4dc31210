"""Read git pack indexes (.idx, version 2): which objects a pack has, and at which offsets.

An index is read and not memory-mapped: if somebody truncates a mapped file, the process dies.
A position is the number of an object in the index, which is sorted by object id.
"""

import os
import struct
import sys
from array import array
from math import isqrt
from pathlib import Path

OID_BYTES = 20  # length of a SHA-1 object id; repositories with SHA-256 ids are rare and left to git
_HEADER = struct.Struct(">4sI")
_MAGIC, _VERSION = b"\xfftOc", 2
_IDS_START = _HEADER.size + 4 * 256  # the ids follow the header and the fanout table
_BYTES_PER_OBJECT = OID_BYTES + 8  # id, CRC-32 and offset
_IS_LARGE_OFFSET = 1 << 31  # an offset with this bit is a position in the table of 8-byte offsets
_MAX_FANOUT_IDS = (
    1 << 16
)  # ids with the same first byte in an index of 16 million objects: too many to search
_SORT_CHUNK = 1 << 16  # objects that are sorted together, on average


class PackIndex:
    """An open pack index. A file of another version, or a damaged one, raises ValueError on opening."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.object_count, self._large_offset_count, self._fanout = _read_header(self._file)
        except ValueError:
            os.close(self._file)
            raise
        # Ids are distributed evenly: an id is rarely further from its expected position than this.
        self._search_radius = 8 + 3 * isqrt(self.object_count // 256 + 1)

    def close(self) -> None:
        """Close the index file."""
        os.close(self._file)

    def find_offset(self, oid: bytes) -> int | None:
        """Return the pack offset of the object with this binary id; None if it is not found.

        In an index with more than 16 million objects an id may not be found although the index has it.
        """
        low, high = self._fanout[oid[0]], self._fanout[oid[0] + 1]
        expected = low + ((high - low) * int.from_bytes(oid[1:4], "big") >> 24)
        first, last = max(low, expected - self._search_radius), min(high, expected + self._search_radius)
        position = self._find_position(oid, first, last)
        if position is None and self._search_radius < high - low <= _MAX_FANOUT_IDS:
            position = self._find_position(oid, low, high)
        return None if position is None else self._read_offset(position)

    def _find_position(self, oid: bytes, first: int, last: int) -> int | None:
        """Return the position of a binary id in range(first, last); None if the id is not there."""
        ids = os.pread(self._file, max(0, last - first) * OID_BYTES, _IDS_START + first * OID_BYTES)
        at = ids.find(oid)
        while at >= 0 and at % OID_BYTES:
            at = ids.find(oid, at + 1)
        return first + at // OID_BYTES if at >= 0 else None

    def _read_offset(self, position: int) -> int:
        """Return the pack offset of the object at this position."""
        offsets_start = _IDS_START + self.object_count * (OID_BYTES + 4)
        offset = int.from_bytes(os.pread(self._file, 4, offsets_start + position * 4), "big")
        if offset < _IS_LARGE_OFFSET:
            return offset
        large_offsets_start = _IDS_START + self.object_count * _BYTES_PER_OBJECT
        large_position = offset - _IS_LARGE_OFFSET
        return int.from_bytes(os.pread(self._file, 8, large_offsets_start + large_position * 8), "big")

    def read_ids(self) -> bytes:
        """Return all binary ids, OID_BYTES each, as one byte string in the order of positions."""
        return os.pread(self._file, self.object_count * OID_BYTES, _IDS_START)

    def sort_by_offset(self, pack_size: int, chunk: int = _SORT_CHUNK) -> tuple["array[int]", "array[int]"]:
        """Return the positions of all objects in the order of their pack offsets, and the sorted offsets.

        `pack_size` is the size of the pack in bytes. Raise IndexError if an offset is clearly beyond it, and
        ValueError if the index has been truncated.
        """
        offsets = self._read_offsets()
        # First distribute positions over equal ranges of the pack, then sort each range: a single sort of
        # millions of Python integers would take much more memory.
        ranges = [array("I") for _ in range(self.object_count // chunk + 1)]
        range_size = pack_size // len(ranges) + 1
        append_to = [positions.append for positions in ranges]
        for position, offset in enumerate(offsets):
            append_to[offset // range_size](position)
        sorted_positions, sorted_offsets = array("I"), array(offsets.typecode)
        for positions in ranges:
            in_order = sorted(positions, key=offsets.__getitem__)
            sorted_positions.fromlist(in_order)
            sorted_offsets.fromlist([offsets[position] for position in in_order])
        return sorted_positions, sorted_offsets

    def _read_offsets(self) -> "array[int]":
        """Return the pack offsets of all objects, in the order of positions.

        Raise ValueError if the index has been truncated, and IndexError if it lacks an 8-byte offset.
        """
        offsets = self._read_table("I", _IDS_START + self.object_count * (OID_BYTES + 4), self.object_count)
        if not self._large_offset_count:
            return offsets
        large = self._read_table(
            "Q", _IDS_START + self.object_count * _BYTES_PER_OBJECT, self._large_offset_count
        )
        return array(
            "Q",
            [offset if offset < _IS_LARGE_OFFSET else large[offset - _IS_LARGE_OFFSET] for offset in offsets],
        )

    def _read_table(self, typecode: str, start: int, count: int) -> "array[int]":
        """Return `count` big-endian numbers of this array typecode from the byte `start` of the index on.

        Raise ValueError if the index ends before.
        """
        table = array(typecode)
        table.frombytes(os.pread(self._file, count * table.itemsize, start))
        if len(table) < count:
            raise ValueError("the pack index has been truncated")
        if sys.byteorder == "little":
            table.byteswap()
        return table


def _read_header(file: int) -> tuple[int, int, list[int]]:
    """Return the number of objects, the number of 8-byte offsets, and the fanout table with a 0 before it.

    `file` is the descriptor of an open pack index. No number in the fanout table is larger than the number of
    objects. Raise ValueError if the index is not of version 2, is damaged, or has SHA-256 ids.
    """
    head = os.pread(file, _IDS_START, 0)
    if len(head) < _IDS_START or _HEADER.unpack_from(head) != (_MAGIC, _VERSION):
        raise ValueError("not a pack index of version 2")
    counts = struct.unpack_from(">256I", head, _HEADER.size)
    checksums = 2 * OID_BYTES  # of the pack and of the index
    large_offset_bytes = os.fstat(file).st_size - _IDS_START - counts[-1] * _BYTES_PER_OBJECT - checksums
    if large_offset_bytes < 0 or large_offset_bytes % 8 or large_offset_bytes // 8 > counts[-1]:
        raise ValueError("the pack index is damaged, or has SHA-256 ids")
    return counts[-1], large_offset_bytes // 8, [0, *(min(count, counts[-1]) for count in counts)]


def list_pack_indexes(object_folder: Path) -> list[Path]:
    """Return the sorted paths of the pack indexes of an object folder whose pack exists.

    git ignores the others too. Return [] if there is no folder `pack`; raise OSError if it cannot be listed.
    """
    try:
        with os.scandir(object_folder / "pack") as entries:
            paths = sorted(Path(entry.path) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []
    existing = set(paths)
    return [path for path in paths if path.suffix == ".idx" and path.with_suffix(".pack") in existing]
