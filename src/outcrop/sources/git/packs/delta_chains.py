"""List the blobs of a pack, each after its delta base, from the headers of the pack entries.

git can list objects too, but it remembers every object that it lists: in a large repository that takes more
memory than the whole scan. An entry number is the number of an entry in the order of pack offsets.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from outcrop.sources.fork_pool import Emit, run_in_processes
from outcrop.sources.git.packs.index import OID_BYTES
from outcrop.sources.git.packs.pack import BLOB, COMMIT, OFS_DELTA, TAG, TREE, Pack, parse_entry_header

_MAX_HEADER_BYTES = 64  # of a pack entry
_ENTRIES_PER_STRETCH = 8  # average number of entries among which the entry at an offset is searched
_UNKNOWN_TYPE = 0  # of an entry that git has to read

_EntryHeaders = tuple[bytearray, "array[int]"]  # type of each entry; 1 + entry number of its base, 0 for none


@dataclass(frozen=True, slots=True)
class HeaderSizes:
    """How much of a pack is read at once to find its entries."""

    read_bytes: int = 1 << 18  # by one system call
    entries_per_job: int = 1 << 15  # whose headers a process reads before it sends the result


HEADER_SIZES = HeaderSizes()


def list_blobs(
    pack: Pack,
    jobs: int,
    on_message: Callable[[bytes, int], None],
    on_unknown: Callable[[bytes], None],
    sizes: HeaderSizes = HEADER_SIZES,
) -> Iterator[tuple[bytes, int]]:
    """Yield the binary id and the packed size of each blob of a pack, each blob after its delta base.

    Before the first blob, call `on_message(oid, offset)` for each commit and annotated tag, and
    `on_unknown(oid)` for each entry whose type only git can find out, such as a ref-delta. Trees are skipped.
    Up to `jobs` processes read a large pack. Raise ValueError or IndexError if the pack index is damaged.
    """
    positions, offsets = pack.index.sort_by_offset(pack.size)
    ids = pack.index.read_ids()

    def get_id(entry: int) -> bytes:
        """Return the binary object id of the entry with this entry number."""
        start = positions[entry] * OID_BYTES
        return ids[start : start + OID_BYTES]

    types, bases = _read_headers(pack, offsets, jobs, sizes)
    # Blobs are numbered from 1 in the order of the pack; 0 is the parent of blobs that are no delta.
    blobs, parents = (
        array("I", [0]),
        array("I", [0]),
    )  # blob number -> entry number; -> blob number of the base
    for entry, base in enumerate(bases):
        entry_type = types[entry] = types[base - 1] if base else types[entry]
        if entry_type == BLOB:
            parents.append(bases[base - 1] if base else 0)
            bases[entry] = len(blobs)  # from here on the blob's number, which later deltas look up
            blobs.append(entry)
        elif entry_type in (COMMIT, TAG):
            on_message(get_id(entry), offsets[entry])
        elif entry_type != TREE:
            on_unknown(get_id(entry))
    for number in _walk_delta_trees(parents):
        entry = blobs[number]
        end = offsets[entry + 1] if entry + 1 < len(offsets) else pack.size
        yield get_id(entry), end - offsets[entry]


def _walk_delta_trees(parents: "array[int]") -> Iterator[int]:
    """Yield all blob numbers (1, 2, ...) depth first, each after its base.

    `parents[number]` is the number of the base, or 0 if the blob is not a delta. `parents[0]` is not used.
    """
    first_child, next_sibling = array("I", bytes(4 * len(parents))), array("I", bytes(4 * len(parents)))
    for number in range(len(parents) - 1, 0, -1):
        parent = parents[number]
        next_sibling[number], first_child[parent] = first_child[parent], number
    stack = [first_child[0]] if first_child[0] else []
    while stack:
        number = stack.pop()
        if next_sibling[number]:
            stack.append(next_sibling[number])
        if first_child[number]:
            stack.append(first_child[number])
        yield number


def _read_headers(pack: Pack, offsets: "array[int]", jobs: int, sizes: HeaderSizes) -> _EntryHeaders:
    """Return the type of each entry, and 1 + the entry number of its delta base.

    Types and bases are as in `_read_headers_at`. `offsets` are the sorted offsets of all entries of the pack.
    `jobs` processes are used if there are more than `sizes.entries_per_job` entries.
    """
    find_entry = _make_entry_finder(offsets)
    count = sizes.entries_per_job
    if len(offsets) <= count:  # starting a process takes longer, and most packs are small
        return _read_headers_at(pack, offsets, find_entry, sizes.read_bytes)
    types, bases = bytearray(len(offsets)), array("I", bytes(4 * len(offsets)))

    def read_parts(first_entries: Iterator[int], emit: Emit) -> None:
        """Emit (first entry number, types, bases) of `count` entries from each first one on."""
        for first in first_entries:
            part = offsets[first : first + count]
            emit((first, *_read_headers_at(pack, part, find_entry, sizes.read_bytes)))

    first_entries = range(0, len(offsets), count)
    for first, part_types, part_bases in run_in_processes(first_entries, read_parts, jobs):
        types[first : first + count] = part_types
        bases[first : first + count] = part_bases
    return types, bases


def _read_headers_at(
    pack: Pack, offsets: "array[int]", find_entry: Callable[[int], int], read_bytes: int
) -> _EntryHeaders:
    """Return the type of each entry at these offsets, and 1 + the entry number of its delta base.

    The base is 0 if the entry is not an ofs-delta or its base is not found; `find_entry` returns the base for
    an offset. The type of an ofs-delta, and of an entry that cannot be read, is _UNKNOWN_TYPE.
    """
    types, bases = bytearray(), array("I")
    block_start, block = 0, b""
    for offset in offsets:
        at = offset - block_start
        if at + _MAX_HEADER_BYTES > len(block):
            block_start, at, block = offset, 0, b""
            with suppress(OSError):  # git reports what is wrong with the pack
                block = pack.read(offset, read_bytes)
        entry_type, base = block[at] >> 4 & 7 if block else _UNKNOWN_TYPE, 0
        if entry_type == OFS_DELTA:
            entry_type = _UNKNOWN_TYPE  # the type of its base, which `list_blobs` sets
            with suppress(IndexError):  # the header has no end
                base = find_entry(offset - parse_entry_header(block[at : at + _MAX_HEADER_BYTES], 0)[2])
        types.append(entry_type)
        bases.append(base)
    return types, bases


def _make_entry_finder(offsets: "array[int]") -> Callable[[int], int]:
    """Return a function that finds the entry at an offset: 1 + its entry number, 0 if no entry begins there.

    `offsets` are the sorted offsets of all entries. The pack is divided into stretches of equal size. A table
    has, for each stretch, the number of entries that begin before it, so only the entries of one stretch are
    searched. The table takes half a byte per entry; a dictionary would take 100.
    """
    last_offset = offsets[-1] if offsets else 0
    shift = (last_offset // max(1, len(offsets)) * _ENTRIES_PER_STRETCH).bit_length()
    entries_before = array("I", bytes(4 * ((last_offset >> shift) + 2)))  # by the number of a stretch
    for count, offset in enumerate(offsets, 1):
        entries_before[(offset >> shift) + 1] = count
    entries_before = array("I", accumulate(entries_before, max))

    def find_entry(offset: int) -> int:
        """Return 1 + the number of the entry at this offset, or 0 if no entry begins there."""
        if not 0 <= offset <= last_offset:
            return 0
        stretch = offset >> shift
        entry = bisect_left(offsets, offset, entries_before[stretch], entries_before[stretch + 1])
        return entry + 1 if offsets[entry] == offset else 0

    return find_entry
