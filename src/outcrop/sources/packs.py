"""The ids of very many objects, read off the indexes of packs in the order in which the packs hold them.

git lists them too, but remembers each that it has told: of millions that takes more memory than all of a scan.
"""

import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from outcrop.sources.rows import Ids

WIDTH = 20  # bytes of an id; of longer ones, which few repositories have, git tells
_HEADER = struct.Struct(">4sI")
_MAGIC, _VERSION = b"\xfftOc", 2
NAMES = _HEADER.size + 4 * 256  # where the ids begin, behind how many of them begin with each byte
_OF_EACH = WIDTH + 8  # its id, a sum and an offset
FAR = 1 << 31  # an offset with this bit is the number of one in the table of large ones
_BLOCK = 1 << 18  # bytes
_TOGETHER = 1 << 16  # objects that are put in order together, on average


class _Index(NamedTuple):
    path: Path
    objects: int
    pack_size: int


def many_ids(folders: Sequence[Path], *, least: int) -> Iterator[bytes] | None:
    """Give the id of each object once, in binary; None where there are fewer than so many, or where an index is of another kind."""
    try:
        found = [(path, size) for folder in folders for path, size in files_in(folder / "pack")]
    except OSError:
        return None  # git tells what is wrong
    if sum(size for path, size in found if path.suffix == ".idx") < least * _OF_EACH:
        return None
    packs = {path: size for path, size in found if path.suffix == ".pack"}
    paths = [path for path, _ in found if path.with_suffix(".pack") in packs and path.suffix == ".idx"]  # git sees no others either
    counts = [count_of(path) for path in paths]
    indexes = [
        _Index(path, count, packs[path.with_suffix(".pack")]) for path, count in zip(paths, counts, strict=True) if count is not None
    ]
    return _each_once(folders, indexes) if indexes and len(indexes) == len(paths) else None


def files_in(folder: Path) -> list[tuple[Path, int]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((Path(entry.path), entry.stat().st_size) for entry in entries if entry.is_file())
    except FileNotFoundError:
        return []


def count_of(path: Path) -> int | None:
    """Read how many objects an index has; None where it is of another kind, or damaged."""
    try:
        with path.open("rb") as file:
            head = file.read(NAMES)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < NAMES or _HEADER.unpack_from(head) != (_MAGIC, _VERSION):
        return None
    count = int.from_bytes(head[-4:], "big")
    rest = size - NAMES - count * _OF_EACH - 2 * WIDTH  # two sums of all, and large offsets
    return count if rest >= 0 and rest % 8 == 0 and rest // 8 <= count else None


def _each_once(folders: Sequence[Path], indexes: list[_Index]) -> Iterator[bytes]:
    loose = [oid for folder in folders for oid in _loose(folder)]
    if not loose and len(indexes) == 1:
        return _in_order(indexes[0])
    return filter(Ids(()).add, chain(loose, *map(_in_order, indexes)))


def _loose(folder: Path) -> Iterator[bytes]:
    for number in range(256):
        begin = f"{number:02x}"
        try:
            names = os.listdir(folder / begin)
        except OSError:
            continue
        for name in names:
            if len(name) == 2 * WIDTH - 2 and set(name) <= set("0123456789abcdef"):
                yield bytes.fromhex(begin + name)


def _in_order(index: _Index) -> Iterator[bytes]:
    """Give the ids of an index by where their objects stand, a part of the pack after the other.

    It is read and not mapped: a mapped file that somebody cuts ends the process.
    """
    with index.path.open("rb", buffering=0) as file:
        file.seek(NAMES + index.objects * (WIDTH + 4))
        offsets = _table("I", file, index.objects)
        far = _table("Q", file, (os.fstat(file.fileno()).st_size - file.tell() - 2 * WIDTH) // 8)

        def far_too(number: int) -> int:
            offset = offsets[number]
            return offset if offset < FAR else far[offset - FAR]

        place_of = far_too if far else offsets.__getitem__
        parts = [array("I") for _ in range(index.objects // _TOGETHER + 1)]
        wide = index.pack_size // len(parts) + 1
        add = [part.append for part in parts]
        for number, place in enumerate(map(place_of, range(index.objects))):
            add[place // wide](number)
        for part in parts:
            names, places = list(_names(file, part)), list(map(place_of, part))
            yield from map(names.__getitem__, sorted(range(len(part)), key=places.__getitem__))


def _names(file: FileIO, numbers: Iterable[int]) -> Iterator[bytes]:
    """Give the ids with these numbers, which ascend, from blocks of the index."""
    at, block = 0, b""
    for number in numbers:
        begin = number * WIDTH - at
        if begin + WIDTH > len(block):
            at, begin = at + begin, 0
            block = os.pread(file.fileno(), _BLOCK, NAMES + at)
            if len(block) < WIDTH:
                raise ValueError("the index has been cut")
        yield block[begin : begin + WIDTH]


def _table(kind: str, file: FileIO, count: int) -> "array[int]":
    table = array(kind)
    table.frombytes(file.read(count * table.itemsize))
    if len(table) < count:
        raise ValueError("the index has been cut")
    if sys.byteorder == "little":
        table.byteswap()
    return table
