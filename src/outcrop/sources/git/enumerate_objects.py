"""Which files and messages a repository has, each behind the one it is a change of: then what it is made of need not be made anew."""

import contextlib
import os
import re
import struct
import subprocess
import tempfile
import threading
from binascii import unhexlify
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO

from outcrop.sources.git import command
from outcrop.sources.git.id_sets import IdSet, RowFile
from outcrop.sources.git.objects import Messages
from outcrop.sources.git.packs.delta_chains import blobs_of
from outcrop.sources.git.packs.index import WIDTH, indexes_in
from outcrop.sources.git.packs.pack import DAMAGED, Pack
from outcrop.sources.git.repository import Repository

INCOMPLETE = "the object store is damaged: some objects were not scanned"
_BATCH_BYTES = 1 << 20  # as they are packed
_BATCH_OBJECTS = 20_000
_LIST = ["cat-file", "--batch-check=%(objecttype) %(objectsize:disk) %(objectname) %(deltabase)", "--buffer"]
_EVERY = ["--batch-all-objects", "--unordered"]
_GIVEN = 4_096  # objects of which git is told at a time
_VIEW = {"core.packedGitLimit": "16m"}  # nothing else is at work yet
_TOGETHER = 300_000  # blobs of which git tells that are put in order together, which takes 120 bytes for each
_IS_LOOSE = re.compile(
    "[0-9a-f]{38}(?:[0-9a-f]{24})?"
)  # what git names a file, in a folder named by the first two digits
_SIZE = 6  # bytes in which a size is kept
_WHOLE = b""  # the base of what is no change
_TEXTS = (b"blob ", b"commit ", b"tag ")
_PLACED = struct.Struct(f">{WIDTH}sIQ")  # the id of a commit or a tag, which pack it is in, and where
_BATCH_MESSAGES = 5_000


def listed(
    repository: Repository, known: Container[bytes], seen: Callable[[bytes], None], jobs: int
) -> Iterator[list[bytes]]:
    """Give all commits and tags that are not known, then blobs, family by family, in batches of about equal work.

    What is known, and is noted as seen, is so by its id in bytes. All are put in order before the first is read: then the processes
    that read them do not begin with what the order was made of.
    """
    with closing(RowFile(repository.folder)) as blobs, closing(RowFile(repository.folder)) as messages:
        order = _Order(blobs, messages, known)
        try:
            _put_in_order(repository, order, jobs)
        except DAMAGED:  # git tells what is wrong
            order.clear()
            _ask_git(repository, None, order)
        yield from _in_packs(messages, order.indexes, seen)
        yield from _batches(blobs, seen)


@dataclass(frozen=True, slots=True)
class _Order:
    """What is to be read."""

    blobs: RowFile  # each with its size as it is packed; also commits and tags of which only git tells
    messages: RowFile  # each with its place
    known: Container[bytes]
    indexes: list[Path] = field(default_factory=list)  # of the packs in which messages stand

    def clear(self) -> None:
        self.blobs.clear()
        self.messages.clear()


def _put_in_order(repository: Repository, order: _Order, jobs: int) -> None:
    """Read the packs, and ask git for what is not as usual."""
    indexes = [index for folder in repository.objects for index in indexes_in(folder)]
    loose = [folder for folder in repository.objects if any(_loose(folder))]
    is_new = IdSet(()).add if loose or len(indexes) > 1 else lambda _: True
    with closing(RowFile(repository.folder)) as left:

        def leave(oid: bytes) -> None:
            if is_new(oid):
                left.add(oid)

        def place(oid: bytes, start: int) -> None:
            if is_new(oid) and oid not in order.known:
                order.messages.add(_PLACED.pack(oid, len(order.indexes) - 1, start))

        for oid in (oid for folder in loose for oid in _loose(folder)):
            leave(oid)
        for index in indexes:
            order.indexes.append(index)
            with closing(Pack(index)) as pack:
                blobs = blobs_of(pack, jobs, place, leave)
                order.blobs.extend(
                    _row(oid, size) for oid, size in blobs if is_new(oid) and oid not in order.known
                )
        if left.width:
            _ask_git(repository, left, order)


def _loose(folder: Path) -> Iterator[bytes]:
    for number in range(256):
        try:
            names = os.listdir(folder / f"{number:02x}")
        except OSError:
            continue
        for name in filter(_IS_LOOSE.fullmatch, names):
            if len(name) != 2 * WIDTH - 2:
                raise ValueError("an object with a longer id")
            yield bytes.fromhex(f"{number:02x}{name}")


def _row(oid: bytes, size: int) -> bytes:
    return oid + size.to_bytes(_SIZE, "big")


def _batches(order: RowFile, seen: Callable[[bytes], None]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    work = 0
    for entry in order:
        oid = entry[:-_SIZE]
        seen(oid)
        batch.append(oid.hex().encode())
        work += int.from_bytes(entry[-_SIZE:], "big")
        if work > _BATCH_BYTES or len(batch) >= _BATCH_OBJECTS:
            yield batch
            batch, work = [], 0
    if batch:
        yield batch


def _in_packs(messages: RowFile, indexes: list[Path], seen: Callable[[bytes], None]) -> Iterator[Messages]:
    for number, placed in groupby(map(_PLACED.unpack, messages), key=itemgetter(1)):
        while some := [(oid, start) for oid, _, start in islice(placed, _BATCH_MESSAGES)]:
            for oid, _ in some:
                seen(oid)
            yield Messages(indexes[number], ((oid.hex().encode(), start) for oid, start in some))


def _ask_git(repository: Repository, given: Iterable[bytes] | None, order: _Order) -> None:
    """Put the given objects in order, or all that there are."""
    changes: defaultdict[bytes, bytearray] = defaultdict(bytearray)  # by the blob of which they are changes
    count = 0
    for oid, size, base in _texts(repository, given):
        if oid not in order.known:
            row = _row(oid, size)
            changes[base] += row
            count += 1
            if count % _TOGETHER == 0:
                _put_by_family(changes, order.blobs, len(row))
    if changes:
        _put_by_family(changes, order.blobs, len(row))


def _put_by_family(changes: dict[bytes, bytearray], order: RowFile, width: int) -> None:
    """Put each blob's changes behind it, with theirs. Last come those whose base is not among the blobs."""
    while changes:
        first = changes.pop(_WHOLE, None) or changes.pop(next(iter(changes)))
        for at in range(0, len(first), width):
            ahead = first[at : at + width]
            while ahead:
                entry = bytes(ahead[-width:])
                del ahead[-width:]
                order.add(entry)
                ahead += changes.pop(entry[:-_SIZE], b"")


def _texts(repository: Repository, given: Iterable[bytes] | None) -> Iterator[tuple[bytes, int, bytes]]:
    """Give those of the given objects, or of all, that are no trees: their ids, sizes as they are packed, and bases; ids in bytes."""
    any_damaged = False
    arguments, stdin = ([*_LIST, *_EVERY], subprocess.DEVNULL) if given is None else (_LIST, subprocess.PIPE)
    with (
        tempfile.TemporaryFile() as errors,
        command.start(repository.folder, arguments, stdin=stdin, stderr=errors, config=_VIEW) as process,
    ):
        assert process.stdout is not None  # noqa: S101 - for the type checker
        giver = _Giver(process.stdin, iter(given)) if process.stdin and given is not None else None
        for line in process.stdout:
            if line.startswith(_TEXTS):
                _, size, oid, base = line.split()
                yield unhexlify(oid), int(size), unhexlify(base) if base.strip(b"0") else _WHOLE
            elif line.endswith(b" missing\n"):  # listed, but not even its type can be read
                any_damaged = True
                yield unhexlify(line.split()[0]), 0, _WHOLE
        process.wait()
        if giver:
            giver.join()
        if (
            process.returncode
            or (giver and not giver.told_all)
            or (os.fstat(errors.fileno()).st_size and not any_damaged)
        ):
            repository.gaps.append(INCOMPLETE)


class _Giver(threading.Thread):
    """Tells git the objects, while another thread reads what it says of them."""

    def __init__(self, stdin: IO[bytes], ids: Iterator[bytes]) -> None:
        super().__init__(daemon=True)
        self.told_all = False
        self._stdin = stdin
        self._ids = ids
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError), self._stdin as stdin:  # git has ended
            while some := list(islice(self._ids, _GIVEN)):
                stdin.write(b"".join(some).hex("\n", WIDTH).encode() + b"\n")
            self.told_all = True
