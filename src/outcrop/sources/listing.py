"""Which blobs a repository has, in the order in which git reads them at the least cost."""

import contextlib
import os
import subprocess
import tempfile
import threading
from binascii import unhexlify
from collections import defaultdict
from collections.abc import Callable, Container, Iterator
from contextlib import closing
from itertools import islice
from typing import IO

from outcrop.sources import gitcall
from outcrop.sources.packs import WIDTH, many_ids
from outcrop.sources.repository import Repository
from outcrop.sources.rows import Rows

INCOMPLETE = "the object store is damaged: some objects were not scanned"
_BATCH_BYTES = 3 << 20  # as they are packed
_BATCH_BLOBS = 20_000
_LIST = ["cat-file", "--batch-check=%(objecttype) %(objectsize:disk) %(objectname) %(deltabase)", "--buffer"]
_EVERY = ["--batch-all-objects", "--unordered"]
_MANY = 1_000_000  # objects from which on git is told which there are
_GIVEN = 4_096  # of which it is told at a time
_VIEW = {"core.packedGitLimit": "16m"}  # nothing else is at work yet
_TOGETHER = 300_000  # blobs that are put in order together, which takes 120 bytes for each
_SIZE = 6  # bytes in which a size is kept
_WHOLE = b""  # the base of what is no change


def listed(repository: Repository, known: Container[bytes], seen: Callable[[bytes], None]) -> Iterator[list[bytes]]:
    """Give the ids of all blobs that are not known, family by family, in batches of about equal work.

    What is known, and is noted as seen, is so by its id in bytes.
    """
    with closing(Rows(repository.folder)) as order:
        changes: defaultdict[bytes, bytearray] = defaultdict(bytearray)  # by the blob of which they are changes
        count = 0
        for oid, size, base in _blobs(repository):
            if oid not in known:
                seen(oid)
                changes[base] += oid + size.to_bytes(_SIZE, "big")
                count += 1
                if count % _TOGETHER == 0:
                    _put_by_family(changes, order, len(oid) + _SIZE)
        if changes:
            _put_by_family(changes, order, len(oid) + _SIZE)
        yield from _batches(order)


def _put_by_family(changes: dict[bytes, bytearray], order: Rows, width: int) -> None:
    """Put each blob's changes behind it, with theirs, so that git need not make it anew for each of them.

    Last come those whose base is not among the blobs. All are put in order before the first is read: then the processes that read them
    do not begin with what the order was made of.
    """
    while changes:
        first = changes.pop(_WHOLE, None) or changes.pop(next(iter(changes)))
        for at in range(0, len(first), width):
            ahead = first[at : at + width]
            while ahead:
                entry = bytes(ahead[-width:])
                del ahead[-width:]
                order.add(entry)
                ahead += changes.pop(entry[:-_SIZE], b"")


def _batches(order: Rows) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    work = 0
    for entry in order:
        batch.append(entry[:-_SIZE].hex().encode())
        work += int.from_bytes(entry[-_SIZE:], "big")
        if work > _BATCH_BYTES or len(batch) >= _BATCH_BLOBS:
            yield batch
            batch, work = [], 0
    if batch:
        yield batch


def _blobs(repository: Repository) -> Iterator[tuple[bytes, int, bytes]]:
    """Give every blob that there is, its size as it is packed, and its base; ids in bytes."""
    any_damaged = False
    given = many_ids(repository.objects, least=_MANY)
    command, stdin = ([*_LIST, *_EVERY], subprocess.DEVNULL) if given is None else (_LIST, subprocess.PIPE)
    with tempfile.TemporaryFile() as errors, gitcall.start(repository.folder, command, stdin=stdin, stderr=errors, config=_VIEW) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        giver = _Giver(process.stdin, given) if process.stdin and given else None
        for line in process.stdout:
            if line.startswith(b"blob "):
                _, size, oid, base = line.split()
                yield unhexlify(oid), int(size), unhexlify(base) if base.strip(b"0") else _WHOLE
            elif line.endswith(b" missing\n"):  # listed, but not even its type can be read
                any_damaged = True
                yield unhexlify(line.split()[0]), 0, _WHOLE
        process.wait()
        if giver:
            giver.join()
        if process.returncode or (giver and not giver.told_all) or (os.fstat(errors.fileno()).st_size and not any_damaged):
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
        with contextlib.suppress(OSError, ValueError, IndexError), self._stdin as stdin:  # git has ended, or an index is damaged
            while some := list(islice(self._ids, _GIVEN)):
                stdin.write(b"".join(some).hex("\n", WIDTH).encode() + b"\n")
            self.told_all = True
