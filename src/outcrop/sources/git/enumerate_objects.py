"""List the blobs, commits and annotated tags of a repository in batches; each blob follows its delta base.

1. `_list_packs` reads the headers of all pack entries (`delta_chains.list_blobs`).
2. `_list_with_git` asks git about loose objects, and about entries that cannot be read here.
3. `list_objects` yields batches of commits and tags, then batches of blobs. A blob follows its base, so the
   process that reads the batch has the base in its cache.
"""

import contextlib
import os
import struct
import subprocess
import tempfile
import threading
from binascii import unhexlify
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO

from outcrop.lazy_regex import regex
from outcrop.sources.git import command
from outcrop.sources.git.id_sets import IdSet, RowFile
from outcrop.sources.git.packs.delta_chains import HEADER_SIZES, HeaderSizes, list_blobs
from outcrop.sources.git.packs.index import OID_BYTES, list_pack_indexes
from outcrop.sources.git.packs.pack import READ_ERRORS, Pack
from outcrop.sources.git.ref_files import list_loose_folders, list_names
from outcrop.sources.git.repository import Repository

DAMAGED_STORE = "the object store is damaged: some objects were not scanned"
_BATCH_BYTES = 1 << 20  # packed size of a batch of blobs: about equal work for each process
_BATCH_BLOBS = 20_000
_BATCH_MESSAGES = 5_000
_BATCH_CHECK = [
    "cat-file",
    "--batch-check=%(objecttype) %(objectsize:disk) %(objectname) %(deltabase)",
    "--buffer",
]
_ALL_OBJECTS = ["--batch-all-objects", "--unordered"]
_LIST_CONFIG = {"core.packedGitLimit": "16m"}  # more than usual: nothing else runs meanwhile
# A file name in one of the 256 folders of loose objects. The folder is named by the first two digits of the
# id.
_LOOSE_NAME = regex("[0-9a-f]{38}(?:[0-9a-f]{24})?")
_SIZE_BYTES = 6  # of the packed size in a row
_NO_BASE = b""
_SCANNED_TYPES = (b"blob ", b"commit ", b"tag ")
_MESSAGE_ROW = struct.Struct(f">{OID_BYTES}sIQ")  # id of a commit or tag, number of its pack, pack offset


@dataclass(frozen=True, slots=True)
class ListSizes:
    """How many objects are handled at once while they are listed."""

    grouped: int = 300_000  # by delta base: each takes 120 bytes
    ids_per_write: int = 4_096  # to git
    headers: HeaderSizes = HEADER_SIZES


LIST_SIZES = ListSizes()


class MessageBatch(list[bytes]):
    """Hexadecimal ids of commits and tags in the pack of `pack_index`, with their pack offsets.

    With the offsets nothing has to be looked up in the pack index, which git would map into memory.
    """

    def __init__(self, pack_index: Path, entries: Iterable[tuple[bytes, int]]) -> None:
        ids, offsets = zip(*entries, strict=True)
        super().__init__(ids)
        self.pack_index = pack_index
        self.offsets: tuple[int, ...] = offsets


def list_objects(
    repository: Repository,
    known: Container[bytes],
    on_listed: Callable[[bytes], None],
    jobs: int,
    sizes: ListSizes = LIST_SIZES,
) -> Iterator[list[bytes]]:
    """Yield batches of hexadecimal ids of all commits and tags that are not `known`, then of all such blobs.

    `known` holds binary ids, and `on_listed` is called with the binary id of each object in a batch. Commits
    and tags that are not in a pack are in the batches of blobs. Headers of packs are read by `jobs`
    processes; if a pack cannot be read here, git lists all objects. If git fails too, DAMAGED_STORE is added
    to the repository's gaps. Everything is listed before the first batch: so the processes that read batches
    are forked when the memory for listing is free again.
    """
    with closing(RowFile(repository.folder)) as blobs, closing(RowFile(repository.folder)) as messages:
        lists = _ObjectLists(blobs, messages, known, sizes=sizes)
        try:
            _list_packs(repository, lists, jobs)
        except READ_ERRORS:  # git reports what is damaged
            blobs.clear()
            messages.clear()
            _list_with_git(repository, None, lists)
        yield from _batch_messages(messages, lists.indexes, on_listed)
        yield from _batch_blobs(blobs, on_listed)


@dataclass(frozen=True, slots=True)
class _ObjectLists:
    """The objects that are to be scanned."""

    blobs: RowFile  # id and packed size; also of commits and tags that git has listed
    messages: RowFile  # _MESSAGE_ROW of each commit and tag in a pack
    known: Container[bytes]  # binary ids that are left out
    indexes: list[Path] = field(default_factory=list)  # the pack indexes, by the number in `messages`
    sizes: ListSizes = LIST_SIZES


def _list_packs(repository: Repository, lists: _ObjectLists, jobs: int) -> None:
    """Add the objects of all packs and the loose objects to `lists`, each object once.

    Trees and objects in `lists.known` are left out. `jobs` processes read the packs; git is asked about loose
    objects, and about entries whose type cannot be read here. Raise one of READ_ERRORS if a pack or its index
    cannot be read here.
    """
    indexes = [index for folder in repository.objects for index in list_pack_indexes(folder)]
    loose_folders = [folder for folder in repository.objects if any(_list_loose(folder))]
    add_new = IdSet(()).add if loose_folders or len(indexes) > 1 else lambda _: True
    with closing(RowFile(repository.folder)) as unknown:  # ids that git is asked about

        def add_unknown(oid: bytes) -> None:
            """Add an id to `unknown`, unless an object with this id was already listed from another place."""
            if add_new(oid):
                unknown.add(oid)

        def add_message(oid: bytes, offset: int) -> None:
            """Add a commit or tag of the current pack to `lists.messages`; `offset` is its pack offset.

            Do nothing if an object with this id was already listed from another place, or if it is in
            `lists.known`.
            """
            if add_new(oid) and oid not in lists.known:
                lists.messages.add(_MESSAGE_ROW.pack(oid, len(lists.indexes) - 1, offset))

        for oid in chain.from_iterable(map(_list_loose, loose_folders)):
            add_unknown(oid)
        for index in indexes:
            lists.indexes.append(index)
            with closing(Pack(index)) as pack:
                for oid, size in list_blobs(pack, jobs, add_message, add_unknown, lists.sizes.headers):
                    if add_new(oid) and oid not in lists.known:
                        lists.blobs.add(oid + size.to_bytes(_SIZE_BYTES, "big"))
        if unknown.width:
            _list_with_git(repository, unknown, lists)


def _list_loose(object_folder: Path) -> Iterator[bytes]:
    """Yield the binary ids of the loose objects in an object folder; raise ValueError for a SHA-256 id.

    Folders that cannot be listed are skipped.
    """
    for folder in list_loose_folders(object_folder):
        for name in filter(_LOOSE_NAME.fullmatch, list_names(object_folder / folder)):
            if len(name) != 2 * OID_BYTES - 2:
                raise ValueError("a SHA-256 id")
            yield bytes.fromhex(folder + name)


def _batch_messages(
    messages: RowFile, indexes: list[Path], on_listed: Callable[[bytes], None]
) -> Iterator[MessageBatch]:
    """Yield batches of at most _BATCH_MESSAGES commits and tags, each batch from one pack.

    `on_listed` is called with each binary id. `messages` has a _MESSAGE_ROW for each commit and tag;
    `indexes` has the pack index for each pack number in the rows.
    """
    for pack_number, rows in groupby(map(_MESSAGE_ROW.unpack, messages), key=itemgetter(1)):
        while entries := [(oid, offset) for oid, _, offset in islice(rows, _BATCH_MESSAGES)]:
            for oid, _ in entries:
                on_listed(oid)
            yield MessageBatch(
                indexes[pack_number], ((oid.hex().encode(), offset) for oid, offset in entries)
            )


def _batch_blobs(blobs: RowFile, on_listed: Callable[[bytes], None]) -> Iterator[list[bytes]]:
    """Yield the hexadecimal ids of the blobs in batches of about _BATCH_BYTES of packed data.

    A batch has at most _BATCH_BLOBS ids. The rows of `blobs` are a binary id and the packed size. `on_listed`
    is called with each binary id.
    """
    batch: list[bytes] = []
    batch_bytes = 0
    for row in blobs:
        oid = row[:-_SIZE_BYTES]
        on_listed(oid)
        batch.append(oid.hex().encode())
        batch_bytes += int.from_bytes(row[-_SIZE_BYTES:], "big")
        if batch_bytes > _BATCH_BYTES or len(batch) >= _BATCH_BLOBS:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def _list_with_git(repository: Repository, ids: Iterable[bytes] | None, lists: _ObjectLists) -> None:
    """Add the objects with these binary ids, or all objects if `ids` is None, to `lists.blobs` by asking git.

    Commits and tags are added there too. Trees and the objects in `lists.known` are left out. An object
    follows its delta base if both are among the same `lists.sizes.grouped` objects. If git fails,
    DAMAGED_STORE is added to the repository's gaps.
    """
    rows_by_base: defaultdict[bytes, bytearray] = defaultdict(bytearray)
    count = 0
    for oid, size, base in _query_git(repository, ids, lists.sizes.ids_per_write):
        if oid not in lists.known:
            row = oid + size.to_bytes(_SIZE_BYTES, "big")
            rows_by_base[base] += row
            count += 1
            if count % lists.sizes.grouped == 0:
                _append_delta_chains(rows_by_base, lists.blobs, len(row))
    if rows_by_base:
        _append_delta_chains(rows_by_base, lists.blobs, len(row))


def _append_delta_chains(rows_by_base: dict[bytes, bytearray], blobs: RowFile, width: int) -> None:
    """Move all rows to `blobs`: each object, then its deltas, then the deltas of these.

    `rows_by_base` maps the id of a base (_NO_BASE for complete objects) to the concatenated rows of its
    deltas, each `width` bytes long. `rows_by_base` is empty afterwards. Deltas whose base is not in the rows
    come last.
    """
    while rows_by_base:
        roots = rows_by_base.pop(_NO_BASE, None) or rows_by_base.pop(next(iter(rows_by_base)))
        for at in range(0, len(roots), width):
            stack = roots[at : at + width]
            while stack:
                row = bytes(stack[-width:])
                del stack[-width:]
                blobs.add(row)
                stack += rows_by_base.pop(row[:-_SIZE_BYTES], b"")


def _query_git(
    repository: Repository, ids: Iterable[bytes] | None, ids_per_write: int = LIST_SIZES.ids_per_write
) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield binary id, packed size and binary id of the delta base of each object that is not a tree.

    The objects are those with the given binary ids, or all objects if `ids` is None. The base is _NO_BASE if
    the object is not a delta. An object that git cannot read is yielded with the size 0. If git fails,
    DAMAGED_STORE is added to the repository's gaps.
    """
    any_missing = False
    arguments, stdin = (
        ([*_BATCH_CHECK, *_ALL_OBJECTS], subprocess.DEVNULL)
        if ids is None
        else (_BATCH_CHECK, subprocess.PIPE)
    )
    with (
        tempfile.TemporaryFile(dir=repository.folder) as errors,
        command.start(
            repository.folder, arguments, stdin=stdin, stderr=errors, config=_LIST_CONFIG
        ) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - for the type checker
        feeder = (
            _IdFeeder(process.stdin, iter(ids), ids_per_write) if process.stdin and ids is not None else None
        )
        for line in process.stdout:
            if line.startswith(_SCANNED_TYPES):
                _, size, oid, base = line.split()
                yield unhexlify(oid), int(size), unhexlify(base) if base.strip(b"0") else _NO_BASE
            elif line.endswith(b" missing\n"):  # listed, but not even its type can be read
                any_missing = True
                yield unhexlify(line.split()[0]), 0, _NO_BASE
        process.wait()
        if feeder:
            feeder.join()
        has_failed = process.returncode or (feeder and not feeder.has_finished)
        if has_failed or (os.fstat(errors.fileno()).st_size and not any_missing):
            repository.gaps.append(DAMAGED_STORE)


class _IdFeeder(threading.Thread):
    """A thread that writes binary ids in hexadecimal to git's input while another thread reads git's output.

    It starts itself. `has_finished` is set when all ids are written.
    """

    def __init__(self, stdin: IO[bytes], ids: Iterator[bytes], ids_per_write: int) -> None:
        super().__init__(daemon=True)
        self.has_finished = False
        self._stdin = stdin
        self._ids = ids
        self._ids_per_write = ids_per_write
        self.start()

    def run(self) -> None:
        """Write all ids to git's input, set `has_finished`, and close the input.

        If git ends before that, return without an error; `has_finished` stays False.
        """
        with contextlib.suppress(OSError, ValueError), self._stdin as stdin:  # git has ended
            while ids := list(islice(self._ids, self._ids_per_write)):
                stdin.write(b"".join(ids).hex("\n", OID_BYTES).encode() + b"\n")
            self.has_finished = True
