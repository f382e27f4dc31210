"""Read the files and messages in a git bundle: a list of refs with a pack after it.

The pack is read here and git is not started. Files get the path under which a commit has them.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from dulwich.pack import apply_delta

from outcrop.lazy_regex import regex
from outcrop.limits import BUNDLE_BYTES, BUNDLE_HEADER_BYTES, BUNDLE_OBJECTS
from outcrop.scanner.text.archive_members import READ_ERRORS, Members, RawBytes, UnpackBudget
from outcrop.scanner.text.decompress import Inflater, read_stream

_PACK = b"PACK\0\0\0\2"
_PACK_HEADER_BYTES = 12
_COMMIT, _TREE, _BLOB, _TAG, _OFFSET_DELTA, _REF_DELTA = 1, 2, 3, 4, 6, 7
_TYPE_NAMES = {_COMMIT: b"commit", _TREE: b"tree", _BLOB: b"blob", _TAG: b"tag"}
_ZLIB = 15
_FOLDER = b"40000"
_TREE_ID = regex(rb"tree ([0-9a-f]{40,64})\n")


def read_git_bundle(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the refs of a bundle, its files by path, and its messages by commit.

    The refs have the name "" and are raw bytes. Everything else is subtracted from the budget. Raise
    ValueError if there is no pack.
    """
    end = data.find(b"\n\n", 0, BUNDLE_HEADER_BYTES)
    if end < 0 or not data.startswith(_PACK, end + 2):
        raise ValueError("a bundle without a pack")
    header = data[: end + 1]
    yield "", RawBytes(header)
    pack = _Pack(data, end + 2, "sha256" if b"\n@object-format=sha256" in header else "sha1")
    pack.read(budget)
    paths = pack.find_paths()
    for oid, (kind, content) in pack.objects.items():
        if kind == _TREE:
            continue
        short = oid.hex()[:12]
        name = paths.get(oid, f"blob {short}") if kind == _BLOB else f"{_TYPE_NAMES[kind].decode()} {short}"
        yield name, budget.count(name, content[: budget.max_bytes() + 1])
    budget.gaps += [f"git bundle: {gap}" for gap in pack.gaps]


@dataclass(slots=True)
class _Pack:
    """The objects of a pack that begins at an offset of `data`."""

    data: bytes
    start: int
    algorithm: str
    objects: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)  # id -> type and content
    gaps: list[str] = field(default_factory=list)
    _ids: dict[int, bytes] = field(default_factory=dict)  # offset -> id
    _bytes_left: int = BUNDLE_BYTES

    def read(self, budget: UnpackBudget) -> None:
        """Read all objects within the limits. Of what is damaged or incomplete, add a gap."""
        count = int.from_bytes(self.data[self.start + 8 : self.start + _PACK_HEADER_BYTES], "big")
        at = self.start + _PACK_HEADER_BYTES
        waiting: list[tuple[int, bytes, bytes]] = []  # deltas whose base comes later: offset, base, delta
        limit = None
        try:
            for _ in range(min(count, BUNDLE_OBJECTS)):
                if limit := budget.exceeded_limit():
                    break
                at = self._read_entry(at, waiting)
        except READ_ERRORS as error:
            limit = str(error) or "damaged, only a part was read"
        if limit is None and count > BUNDLE_OBJECTS:
            limit = "too many objects, the rest was skipped"
        self._apply_waiting(waiting)
        if limit:
            self.gaps.append(limit)

    def _read_entry(self, at: int, waiting: list[tuple[int, bytes, bytes]]) -> int:
        """Read the entry at an offset and return the offset after it."""
        offset, byte = at, self.data[at]
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            at += 1
            byte = self.data[at]
            size |= (byte & 0x7F) << shift
            shift += 7
        at += 1
        base: bytes | None = None
        if kind == _OFFSET_DELTA:
            distance, at = self._read_distance(at)
            base = self._ids.get(offset - distance, b"")
        elif kind == _REF_DELTA:
            length = hashlib.new(self.algorithm, usedforsecurity=False).digest_size
            base, at = self.data[at : at + length], at + length
        elif kind not in _TYPE_NAMES:
            raise ValueError("damaged, only a part was read")
        self._take(size)
        content = bytearray()
        at, gap = read_stream(Inflater(_ZLIB), self.data, at, size, content)
        if gap or len(content) != size:
            raise ValueError("damaged, only a part was read")
        if base is None:
            self._add(offset, kind, bytes(content))
        elif base in self.objects:
            self._apply(offset, base, bytes(content))
        else:
            waiting.append((offset, base, bytes(content)))
        return at

    def _read_distance(self, at: int) -> tuple[int, int]:
        """Return how far before it the base of a delta begins, and the offset after that number."""
        byte = self.data[at]
        distance = byte & 0x7F
        while byte & 0x80:
            at += 1
            byte = self.data[at]
            distance = ((distance + 1) << 7) | (byte & 0x7F)
        return distance, at + 1

    def _take(self, size: int) -> None:
        """Subtract bytes from the limit of a bundle; raise ValueError if there are fewer."""
        if size > self._bytes_left:
            raise ValueError("too large when unpacked, the rest was skipped")
        self._bytes_left -= size

    def _add(self, offset: int, kind: int, content: bytes) -> None:
        """Store an object under its id."""
        digest = hashlib.new(
            self.algorithm, b"%s %d\0" % (_TYPE_NAMES[kind], len(content)), usedforsecurity=False
        )
        digest.update(content)
        self._ids[offset] = oid = digest.digest()
        self.objects[oid] = kind, content

    def _apply(self, offset: int, base: bytes, delta: bytes) -> None:
        """Store the object that a delta makes of its base."""
        kind, content = self.objects[base]
        self._take(_result_size(delta))
        self._add(offset, kind, b"".join(apply_delta(content, delta)))

    def _apply_waiting(self, waiting: list[tuple[int, bytes, bytes]]) -> None:
        """Apply the deltas whose base was read after them; add a gap if bases are in no bundle."""
        children: dict[bytes, list[tuple[int, bytes]]] = {}
        for offset, base, delta in waiting:
            children.setdefault(base, []).append((offset, delta))
        known = [base for base in children if base in self.objects]
        applied = 0
        try:
            while known:
                base = known.pop()
                for offset, delta in children.get(base, ()):
                    self._apply(offset, base, delta)
                    applied += 1
                    known.append(self._ids[offset])
        except READ_ERRORS as error:
            self.gaps.append(str(error) or "damaged, only a part was read")
            return
        if applied < len(waiting):
            self.gaps.append(f"{len(waiting) - applied} objects need others that the bundle does not have")

    def find_paths(self) -> dict[bytes, str]:
        """Return a path for each file that a commit has. Each folder is read once, wherever it is."""
        paths: dict[bytes, str] = {}
        seen: set[bytes] = set()
        for kind, content in list(self.objects.values()):
            if kind != _COMMIT or (match := _TREE_ID.match(content)) is None:
                continue
            waiting = [(bytes.fromhex(match[1].decode()), "")]
            while waiting:
                tree, folder = waiting.pop()
                if tree in seen or self.objects.get(tree, (0, b""))[0] != _TREE:
                    continue
                seen.add(tree)
                for mode, name, oid in self._entries(self.objects[tree][1]):
                    path = folder + name
                    if mode == _FOLDER:
                        waiting.append((oid, path + "/"))
                    else:
                        paths.setdefault(oid, path)
        return paths

    def _entries(self, tree: bytes) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield mode, name and id of the entries of a tree, as far as they can be read."""
        length = hashlib.new(self.algorithm, usedforsecurity=False).digest_size
        at = 0
        while (space := tree.find(b" ", at)) >= 0 and (null := tree.find(b"\0", space)) >= 0:
            name = tree[space + 1 : null].decode("utf-8", "surrogateescape")
            yield tree[at:space], name, tree[null + 1 : null + 1 + length]
            at = null + 1 + length


def _result_size(delta: bytes) -> int:
    """Return the size of what a delta makes, its second number; raise IndexError if there is none."""
    at = size = 0
    for _ in range(2):
        size, shift = 0, 0
        while True:
            byte = delta[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
    return size
