"""git's objects and its index as data: which ids they name. For repositories of which only pieces can be had."""

import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from outcrop.sources.git import command

_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_NOTHING = b"0" * 40
_HEADER = re.compile(rb"(blob|tree|commit|tag) (\d{1,12})\0")
_LINES = re.compile(rb"^(?:tree|parent|object) ([0-9a-f]{40})$", re.MULTILINE)
_SUBMODULE = b"160000"
_LARGEST = 16 << 20  # of a commit or tree
_BATCH = 2_000
_INDEX_ENTRY = 62  # bytes before the path
_EXTENDED = 0x4000


def ids_in(text: bytes) -> set[bytes]:
    """Give the ids that stand in a text."""
    return {found[0] for found in _ID.finditer(text)} - {_NOTHING}


def unpack(raw: bytes, most: int) -> bytes | None:
    """Inflate a loose object, header and all; None where it is none, or larger than it may be."""
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(raw, most + 64)
    except zlib.error:
        return None
    header = _HEADER.match(data)
    if not header or not inflater.eof or len(data) - header.end() != int(header[2]):
        return None
    return data


def references(data: bytes) -> set[bytes]:
    """Give the ids that an object with its header refers to."""
    header = _HEADER.match(data)
    return _refers(header[1], data[header.end() :]) if header else set()


def _refers(kind: bytes, content: bytes) -> set[bytes]:
    if kind == b"tree":
        return set(_entries(content))
    if kind == b"blob":
        return set()
    return set(_LINES.findall(content.partition(b"\n\n")[0]))


def _entries(content: bytes) -> Iterator[bytes]:
    """Give what a tree holds, but for submodules, whose commits are another repository's."""
    at = 0
    while (end := content.find(b"\0", at)) >= 0 and end + 21 <= len(content):
        if not content.startswith(_SUBMODULE, at):
            yield content[end + 1 : end + 21].hex().encode()
        at = end + 21


def index_ids(raw: bytes) -> set[bytes]:
    """Give the blobs that an index names, as far as it can be read."""
    found: set[bytes] = set()
    if len(raw) < 12 or raw[:4] != b"DIRC":
        return found
    version, count = struct.unpack_from(">II", raw, 4)
    at = 12
    for _ in range(count):
        if at + _INDEX_ENTRY > len(raw):
            break
        mode, flags = struct.unpack_from(">I", raw, at + 24)[0], struct.unpack_from(">H", raw, at + 60)[0]
        if mode >> 12 != 0o16:  # a submodule
            found.add(raw[at + 40 : at + 60].hex().encode())
        path = at + _INDEX_ENTRY + (2 if version >= 3 and flags & _EXTENDED else 0)
        while (
            version >= 4 and path < len(raw) and raw[path] & 0x80
        ):  # a number before the path, seven bits to a byte
            path += 1
        end = raw.find(b"\0", path + (version >= 4))
        if end < 0:
            break
        # Up to version 3 an entry is filled up to eight bytes; later its path is written as the change to the one before.
        at = end + 1 if version >= 4 else at + (end - at + 8) // 8 * 8
    return found


def packed_ids(folder: Path) -> tuple[set[bytes], set[bytes]]:
    """Give the ids of all objects in a repository of ours, and the ids that they refer to."""
    form = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    _, listing = command.run(folder, "cat-file", "--batch-all-objects", "--unordered", form)
    rows = [line.split() for line in listing.splitlines()]
    had = {row[0] for row in rows if len(row) == 3}
    linking = iter(
        [row[0] for row in rows if len(row) == 3 and row[1] != b"blob" and int(row[2]) <= _LARGEST]
    )
    referred: set[bytes] = set()
    while batch := list(islice(linking, _BATCH)):
        _, out = command.run(folder, "cat-file", "--batch", stdin_data=b"".join(oid + b"\n" for oid in batch))
        for kind, content in _answers(out):
            referred |= _refers(kind, content)
    return had, referred


def _answers(out: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Read what `cat-file --batch` gives: a line with the size, the content, a line break."""
    at = 0
    while (end := out.find(b"\n", at)) >= 0:
        words = out[at:end].split()
        if len(words) != 3:  # missing
            at = end + 1
            continue
        size = int(words[2])
        yield words[1], out[end + 1 : end + 1 + size]
        at = end + size + 2
