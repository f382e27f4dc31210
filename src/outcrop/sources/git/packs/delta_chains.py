"""The blobs of a pack, family by family: read off the heads of its entries, which tell what each is a change of.

git lists objects too, but remembers each that it has told: with many that takes more memory than all of a scan.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate

from outcrop.sources.fork_pool import Emit, run_in_processes
from outcrop.sources.git.packs.index import WIDTH
from outcrop.sources.git.packs.pack import BLOB, COMMIT, OF_OFFSET, TAG, TREE, Pack, head_of

_BLOCK = 1 << 18  # bytes of a pack that are read together
_HEAD = 64  # bytes that the head of an entry has at most
_TOGETHER = 1 << 15  # objects whose heads a process reads before it tells
_FEW = 8  # objects among which one is looked for by its place
_ODD = 0  # a kind of which git is to tell

Blob = tuple[bytes, int]  # its id, and its size as it is packed


def blobs_of(
    pack: Pack, jobs: int, message: Callable[[bytes, int], None], leave: Callable[[bytes], None]
) -> Iterator[Blob]:
    """Give the blobs of a pack, each before what is a change of it.

    Tell of commits and tags, with where they stand, and of what is not as usual.
    """
    numbers, starts = pack.index.in_order(pack.size)
    names = pack.index.names()

    def name(at: int) -> bytes:
        number = numbers[at] * WIDTH
        return names[number : number + WIDTH]

    def tell(kind: int, at: int) -> None:
        if kind in (COMMIT, TAG):
            message(name(at), starts[at])
        else:
            leave(name(at))

    for at in _in_families(pack, starts, jobs, tell):
        yield name(at), (starts[at + 1] if at + 1 < len(starts) else pack.size) - starts[at]


def _in_families(
    pack: Pack, starts: "array[int]", jobs: int, tell: Callable[[int, int], None]
) -> Iterator[int]:
    """Give how many objects stand before each blob, each behind its base; tell of the others, and of what kind they are."""
    kinds, bases = _heads(pack, starts, jobs)
    blobs, parents = array("I", [0]), array("I", [0])  # by number, from one on; 0 is no blob
    for at, base in enumerate(bases):
        kind = kinds[at] = kinds[base - 1] if base else kinds[at]
        if kind == BLOB:
            parents.append(bases[base - 1] if base else 0)
            bases[at] = len(blobs)  # from now on its number
            blobs.append(at)
        elif kind != TREE:
            tell(kind, at)
    below, beside = array("I", bytes(4 * len(blobs))), array("I", bytes(4 * len(blobs)))
    for number in range(len(blobs) - 1, 0, -1):
        parent = parents[number]
        beside[number], below[parent] = below[parent], number
    ahead = [below[0]] if below[0] else []
    while ahead:
        number = ahead.pop()
        if beside[number]:
            ahead.append(beside[number])
        if below[number]:
            ahead.append(below[number])
        yield blobs[number]


def _heads(pack: Pack, starts: "array[int]", jobs: int) -> tuple[bytearray, "array[int]"]:
    """Read the kind of each object, and what it is a change of: by how many stand before that, from one on; 0 is no change."""
    find = _finder(starts)
    if len(starts) <= _TOGETHER:  # of so few a process is not started, and of many packs most are small
        return _read(pack, starts, find)
    kinds, bases = bytearray(len(starts)), array("I", bytes(4 * len(starts)))

    def work(parts: Iterator[int], emit: Emit) -> None:
        for first in parts:
            emit((first, *_read(pack, starts[first : first + _TOGETHER], find)))

    for first, kinds_read, bases_read in run_in_processes(range(0, len(starts), _TOGETHER), work, jobs):
        kinds[first : first + _TOGETHER] = kinds_read
        bases[first : first + _TOGETHER] = bases_read
    return kinds, bases


def _read(pack: Pack, starts: "array[int]", find: Callable[[int], int]) -> tuple[bytearray, "array[int]"]:
    kinds, bases = bytearray(), array("I")
    begin, block = 0, b""
    for start in starts:
        at = start - begin
        if at + _HEAD > len(block):
            begin, at, block = start, 0, b""
            with suppress(OSError):  # git tells what is wrong with it
                block = pack.read(start, _BLOCK)
        kind, base = block[at] >> 4 & 7 if block else _ODD, 0
        if kind == OF_OFFSET:
            kind = _ODD  # until it is known what its base is
            with suppress(IndexError):  # a head without an end
                base = find(start - head_of(block[at : at + _HEAD], 0)[2])
        kinds.append(kind)
        bases.append(base)
    return kinds, bases


def _finder(starts: "array[int]") -> Callable[[int], int]:
    """Give a function that tells how many objects stand before the one at a place, and that one; 0 where there is none."""
    end = starts[-1] if starts else 0
    shift = (end // max(1, len(starts)) * _FEW).bit_length()
    before = array("I", bytes(4 * ((end >> shift) + 2)))  # how many stand before each stretch of the pack
    for at, start in enumerate(starts, 1):
        before[(start >> shift) + 1] = at
    before = array("I", accumulate(before, max))

    def find(start: int) -> int:
        if not 0 <= start <= end:
            return 0
        at = bisect_left(starts, start, before[start >> shift], before[(start >> shift) + 1])
        return at + 1 if starts[at] == start else 0

    return find
