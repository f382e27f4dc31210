"""Parse git objects and index files to find the object ids that they refer to.

The parsers work on objects of an incomplete repository, which git commands refuse.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from outcrop.lazy_regex import regex
from outcrop.limits import GIT_FOLDER_PACKED_IDS, GIT_FOLDER_PARSED_BYTES
from outcrop.sources.git import command

_ID = regex(rb"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_NULL_ID = b"0" * 40
_OBJECT_HEADER = regex(rb"(blob|tree|commit|tag) (\d{1,12})\0")
_MAX_OBJECT_HEADER = 64  # bytes
_ID_LINES = regex(rb"^(?:tree|parent|object) ([0-9a-f]{40})$", re.MULTILINE)
_SUBMODULE_MODE = b"160000"
_CAT_FILE_BATCH = 2_000  # objects per `git cat-file`
_BATCH_BYTES = 16 << 20  # of these objects, about

_INDEX_HEADER = struct.Struct(">4sII")  # signature, version, number of entries
_INDEX_ENTRY_BYTES = 62  # of an entry before its path
_EXTENDED_FLAG = 0x4000
_SUBMODULE_TYPE = 0o16  # the upper bits of an index entry's mode


def find_ids(text: bytes) -> set[bytes]:
    """Return the object ids (40 hexadecimal digits) in a text, except the null id."""
    return {match[0] for match in _ID.finditer(text)} - {_NULL_ID}


def inflate_object(raw: bytes, max_bytes: int) -> bytes | None:
    """Return a loose object decompressed, with its header `type size NUL`.

    Return None if it is malformed or larger than about `max_bytes`.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(raw, max_bytes + _MAX_OBJECT_HEADER)
    except zlib.error:
        return None
    header = _OBJECT_HEADER.match(data)
    if not header or not inflater.eof or len(data) - header.end() != int(header[2]):
        return None
    return data


def referenced_ids(data: bytes) -> set[bytes]:
    """Return the hexadecimal ids that an object refers to; `data` is its header and its content.

    The set is empty for a blob, and for data without a valid header.
    """
    header = _OBJECT_HEADER.match(data)
    return _content_references(header[1], data[header.end() :]) if header else set()


def _content_references(kind: bytes, content: bytes) -> set[bytes]:
    """Return the hexadecimal ids that the content of an object of the type `kind` refers to.

    The set is empty for a blob. Submodules of a tree do not count.
    """
    if kind == b"tree":
        return set(_tree_entry_ids(content))
    if kind == b"blob":
        return set()
    return set(_ID_LINES.findall(content.partition(b"\n\n")[0]))


def _tree_entry_ids(content: bytes) -> Iterator[bytes]:
    """Yield the hexadecimal ids of a tree's entries, except submodules: their commits are elsewhere."""
    at = 0
    while (end := content.find(b"\0", at)) >= 0 and end + 21 <= len(content):
        if not content.startswith(_SUBMODULE_MODE, at):
            yield content[end + 1 : end + 21].hex().encode()
        at = end + 21


def index_ids(raw: bytes) -> set[bytes]:
    """Return the hexadecimal ids of the blobs in a git index; of a damaged one those before the damage.

    The set is empty if `raw` is no index. Submodules do not count.
    """
    found: set[bytes] = set()
    if len(raw) < _INDEX_HEADER.size or raw[:4] != b"DIRC":
        return found
    _, version, count = _INDEX_HEADER.unpack_from(raw)
    at = _INDEX_HEADER.size
    for _ in range(count):
        if at + _INDEX_ENTRY_BYTES > len(raw):
            break
        mode, flags = struct.unpack_from(">I", raw, at + 24)[0], struct.unpack_from(">H", raw, at + 60)[0]
        if mode >> 12 != _SUBMODULE_TYPE:
            found.add(raw[at + 40 : at + 60].hex().encode())
        path = at + _INDEX_ENTRY_BYTES + (2 if version >= 3 and flags & _EXTENDED_FLAG else 0)
        # Since version 4 a path is stored as the change to the previous one: a varint precedes it.
        while version >= 4 and path < len(raw) and raw[path] & 0x80:
            path += 1
        end = raw.find(b"\0", path + (version >= 4))
        if end < 0:
            break
        # Up to version 3 entries are padded to a multiple of eight bytes.
        at = end + 1 if version >= 4 else at + (end - at + 8) // 8 * 8
    return found


def packed_ids(folder: Path, limit: int = GIT_FOLDER_PACKED_IDS) -> tuple[set[bytes], set[bytes]]:
    """Return the hexadecimal ids of all objects in a repository, and the ids that these objects refer to.

    `folder` is a repository of our own, in which git may run. Objects larger than GIT_FOLDER_PARSED_BYTES are
    not searched for ids. Each set has at most about `limit` ids: the packs may be made to exhaust the memory.
    """
    row_format = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    arguments = ["cat-file", "--batch-all-objects", "--unordered", row_format]
    present: set[bytes] = set()
    referenced: set[bytes] = set()
    batch: list[bytes] = []
    batch_bytes = 0
    with command.start(folder, arguments) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for oid, kind, digits in (row for line in process.stdout if len(row := line.split()) == 3):
            present.add(oid)
            size = int(digits)
            if kind != b"blob" and size <= GIT_FOLDER_PARSED_BYTES and len(referenced) < limit:
                batch.append(oid)
                batch_bytes += size
                if batch_bytes > _BATCH_BYTES or len(batch) == _CAT_FILE_BATCH:
                    referenced |= _read_references(folder, batch, limit)
                    batch, batch_bytes = [], 0
            if len(present) >= limit:
                process.kill()
                break
    return present, referenced | _read_references(folder, batch, limit)


def _read_references(folder: Path, oids: list[bytes], limit: int) -> set[bytes]:
    """Return the ids that the objects with these ids refer to; stop when there are `limit` ids."""
    found: set[bytes] = set()
    if not oids:
        return found
    _, output = command.run(folder, "cat-file", "--batch", stdin_data=b"".join(oid + b"\n" for oid in oids))
    for kind, content in _cat_file_objects(output):
        found |= _content_references(kind, content)
        if len(found) >= limit:
            break
    return found


def _cat_file_objects(output: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield (type, content) of each object in the output of `git cat-file --batch`; skip missing ones."""
    at = 0
    while (end := output.find(b"\n", at)) >= 0:
        fields = output[at:end].split()  # id, type, size; or: id, "missing"
        if len(fields) != 3:
            at = end + 1
            continue
        size = int(fields[2])
        yield fields[1], output[end + 1 : end + 1 + size]
        at = end + size + 2
