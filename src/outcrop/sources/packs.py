"""The ids of very many objects, read off the indexes of packs in the order in which the packs hold them.

git lists them too, but remembers each that it has told: of millions that takes more memory than all of a scan.
"""

import mmap
import os
import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from outcrop.sources.rows import Ids

_WIDTH = 20  # bytes of an id; of longer ones, which few repositories have, git tells
_HEADER = struct.Struct(">4sI")
_MAGIC, _VERSION = b"\xfftOc", 2
_NAMES = _HEADER.size + 4 * 256  # where the ids begin, behind how many of them begin with each byte
_OF_EACH = _WIDTH + 8  # its id, a sum and an offset
_FAR = 1 << 31  # an offset with this bit is the number of one in the table of large ones
_TOGETHER = 1 << 16  # objects that are put in order together, on average


class _Index(NamedTuple):
    path: Path
    objects: int
    pack_size: int


def many_ids(folders: Sequence[Path], *, least: int) -> Iterator[bytes] | None:
    """Give the id of each object once, in hexadecimal; None where there are fewer than so many, or where an index is of another kind."""
    found = [(path, size) for folder in folders for path, size in _files(folder / "pack")]
    if sum(size for path, size in found if path.suffix == ".idx") < least * _OF_EACH:
        return None
    packs = {path: size for path, size in found if path.suffix == ".pack"}
    paths = [path for path, _ in found if path.with_suffix(".pack") in packs and path.suffix == ".idx"]  # git sees no others either
    counts = [_count(path) for path in paths]
    indexes = [
        _Index(path, count, packs[path.with_suffix(".pack")]) for path, count in zip(paths, counts, strict=True) if count is not None
    ]
    return _each_once(folders, indexes) if indexes and len(indexes) == len(paths) else None


def _files(folder: Path) -> list[tuple[Path, int]]:
    try:
        with os.scandir(folder) as entries:
            return sorted((Path(entry.path), entry.stat().st_size) for entry in entries if entry.is_file())
    except OSError:
        return []


def _count(path: Path) -> int | None:
    """Read how many objects an index has; None where it is of another kind, or damaged."""
    try:
        with path.open("rb") as file:
            head = file.read(_NAMES)
            size = os.fstat(file.fileno()).st_size
    except OSError:
        return None
    if len(head) < _NAMES or _HEADER.unpack_from(head) != (_MAGIC, _VERSION):
        return None
    count = int.from_bytes(head[-4:], "big")
    rest = size - _NAMES - count * _OF_EACH - 2 * _WIDTH  # two sums of all, and large offsets
    return count if rest >= 0 and rest % 8 == 0 and rest // 8 <= count else None


def _each_once(folders: Sequence[Path], indexes: list[_Index]) -> Iterator[bytes]:
    loose = [oid for folder in folders for oid in _loose(folder)]
    known = Ids(()) if loose or len(indexes) > 1 else None
    for ids in (iter(loose), *map(_in_order, indexes)):
        for oid in ids:
            if known is None or known.add(oid):
                yield oid.hex().encode()


def _loose(folder: Path) -> Iterator[bytes]:
    for number in range(256):
        begin = f"{number:02x}"
        try:
            names = os.listdir(folder / begin)
        except OSError:
            continue
        for name in names:
            if len(name) == 2 * _WIDTH - 2 and set(name) <= set("0123456789abcdef"):
                yield bytes.fromhex(begin + name)


def _in_order(index: _Index) -> Iterator[bytes]:
    """Give the ids of an index by where their objects stand, a part of the pack after the other."""
    with index.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = _NAMES + index.objects * (_WIDTH + 4)
        with memoryview(content) as view:
            offsets = _table("I", view[at : at + 4 * index.objects])
            far = _table("Q", view[at + 4 * index.objects : -2 * _WIDTH])
        parts = [array("I") for _ in range(index.objects // _TOGETHER + 1)]
        wide = index.pack_size // len(parts) + 1
        for number, offset in enumerate(offsets):
            place = offset if offset < _FAR else far[offset - _FAR]
            parts[min(place // wide, len(parts) - 1)].append(number)

        def place_of(number: int) -> int:
            offset = offsets[number]
            return offset if offset < _FAR else far[offset - _FAR]

        for part in parts:
            for number in sorted(part, key=place_of):
                name = _NAMES + number * _WIDTH
                yield content[name : name + _WIDTH]


def _table(kind: str, content: memoryview) -> "array[int]":
    table = array(kind)
    table.frombytes(content)
    if sys.byteorder == "little":
        table.byteswap()
    return table
