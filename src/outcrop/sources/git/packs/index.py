"""The index of a pack: which objects the pack has, and where.

It is read and not mapped: a mapped file that somebody cuts ends the process.
"""

import os
import struct
import sys
from array import array
from math import isqrt
from pathlib import Path

WIDTH = 20  # bytes of an id; of longer ones, which few repositories have, git tells
_HEADER = struct.Struct(">4sI")
_MAGIC, _VERSION = b"\xfftOc", 2
_NAMES = _HEADER.size + 4 * 256  # where the ids begin, behind how many of them begin with each byte
_OF_EACH = WIDTH + 8  # its id, a sum and an offset
_FAR = 1 << 31  # an offset with this bit is the number of one in the table of large ones
_MOST_NAMES = 1 << 16  # ids that begin alike: so many have one of 256 beginnings among 16 million
_TOGETHER = 1 << 16  # objects that are put in order together, on average


class Index:
    """An index that is open. One of another kind, or that is damaged, raises ValueError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.objects, self._far_ones, self._fan_out = _head(self._file)
        except ValueError:
            os.close(self._file)
            raise
        self._near = 8 + 3 * isqrt(
            self.objects // 256 + 1
        )  # ids are spread evenly: so far from where one should be it is seldom

    def close(self) -> None:
        os.close(self._file)

    def find(self, oid: bytes) -> int | None:
        """Give where an object stands in the pack."""
        low, high = self._fan_out[oid[0]], self._fan_out[oid[0] + 1]
        guess = low + ((high - low) * int.from_bytes(oid[1:4], "big") >> 24)
        first, last = max(low, guess - self._near), min(high, guess + self._near)
        number = self._number(oid, first, last)
        if number is None and self._near < high - low <= _MOST_NAMES:
            number = self._number(oid, low, high)
        return None if number is None else self._offset(number)

    def _number(self, oid: bytes, first: int, last: int) -> int | None:
        names = os.pread(self._file, max(0, last - first) * WIDTH, _NAMES + first * WIDTH)
        at = names.find(oid)
        while at >= 0 and at % WIDTH:
            at = names.find(oid, at + 1)
        return first + at // WIDTH if at >= 0 else None

    def _offset(self, number: int) -> int:
        offset = int.from_bytes(
            os.pread(self._file, 4, _NAMES + self.objects * (WIDTH + 4) + number * 4), "big"
        )
        if offset < _FAR:
            return offset
        return int.from_bytes(
            os.pread(self._file, 8, _NAMES + self.objects * _OF_EACH + (offset - _FAR) * 8), "big"
        )

    def names(self) -> bytes:
        """Give all ids, one behind the other, by number."""
        return os.pread(self._file, self.objects * WIDTH, _NAMES)

    def in_order(self, size: int) -> tuple["array[int]", "array[int]"]:
        """Give the numbers of the objects by where they stand in a pack of this size, and where that is."""
        places = self._places()
        parts = [array("I") for _ in range(self.objects // _TOGETHER + 1)]
        wide = size // len(parts) + 1
        add = [part.append for part in parts]
        for number, place in enumerate(places):
            add[place // wide](number)
        numbers, starts = array("I"), array(places.typecode)
        for part in parts:
            in_order = sorted(part, key=places.__getitem__)
            numbers.fromlist(in_order)
            starts.fromlist([places[number] for number in in_order])
        return numbers, starts

    def _places(self) -> "array[int]":
        """Give where the objects stand, by number."""
        offsets = self._table("I", _NAMES + self.objects * (WIDTH + 4), self.objects)
        if not self._far_ones:
            return offsets
        far = self._table("Q", _NAMES + self.objects * _OF_EACH, self._far_ones)
        return array("Q", [offset if offset < _FAR else far[offset - _FAR] for offset in offsets])

    def _table(self, kind: str, at: int, count: int) -> "array[int]":
        table = array(kind)
        table.frombytes(os.pread(self._file, count * table.itemsize, at))
        if len(table) < count:
            raise ValueError("the index has been cut")
        if sys.byteorder == "little":
            table.byteswap()
        return table


def _head(file: int) -> tuple[int, int, list[int]]:
    """Read how many objects an index has, how many of them stand far away, and how many begin with each byte or one before it."""
    head = os.pread(file, _NAMES, 0)
    if len(head) < _NAMES or _HEADER.unpack_from(head) != (_MAGIC, _VERSION):
        raise ValueError("no index, or one of another kind")
    counts = struct.unpack_from(">256I", head, _HEADER.size)
    rest = (
        os.fstat(file).st_size - _NAMES - counts[-1] * _OF_EACH - 2 * WIDTH
    )  # two sums of all, and large offsets
    if rest < 0 or rest % 8 or rest // 8 > counts[-1]:
        raise ValueError("an index that is damaged, or one with longer ids")
    return counts[-1], rest // 8, [0, *(min(count, counts[-1]) for count in counts)]


def indexes_in(folder: Path) -> list[Path]:
    """Give the indexes of a folder whose packs are there: git sees no others either."""
    try:
        with os.scandir(folder / "pack") as entries:
            paths = sorted(Path(entry.path) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []
    there = set(paths)
    return [path for path in paths if path.suffix == ".idx" and path.with_suffix(".pack") in there]
