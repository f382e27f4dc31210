"""Which blobs a repository has, in the order in which git reads them at the least cost."""

import os
import tempfile
from binascii import unhexlify
from collections.abc import Callable, Container, Iterator

from outcrop.sources import gitcall
from outcrop.sources.repository import Repository

INCOMPLETE = "the object store is damaged: some objects were not scanned"
_BATCH_BYTES = 3 << 20  # as they are packed
_BATCH_BLOBS = 20_000
_LIST = [
    "cat-file",
    "--batch-check=%(objecttype) %(objectsize:disk) %(objectname) %(deltabase)",
    "--batch-all-objects",
    "--unordered",
    "--buffer",
]
_VIEW = {"core.packedGitLimit": "32m"}  # nothing else is at work yet
_SIZE = 6  # bytes in which a size is kept
_WHOLE = b""  # the base of what is no change


def listed(repository: Repository, known: Container[bytes], seen: Callable[[bytes], None]) -> Iterator[list[bytes]]:
    """Give the ids of all blobs that are not known, family by family, in batches of about equal work.

    What is known, and is noted as seen, is so by its id in bytes.
    """
    entries, width = _by_family(*_changes(repository, known, seen))
    batch: list[bytes] = []
    work = 0
    for at in range(0, len(entries), width):
        batch.append(entries[at : at + width - _SIZE].hex().encode())
        work += int.from_bytes(entries[at + width - _SIZE : at + width], "big")
        if work > _BATCH_BYTES or len(batch) >= _BATCH_BLOBS:
            yield batch
            batch, work = [], 0
    if batch:
        yield batch


def _changes(repository: Repository, known: Container[bytes], seen: Callable[[bytes], None]) -> tuple[dict[bytes, bytearray], int]:
    """Give the blobs by the one that each is kept as a change of, as bytes since there may be millions, and how wide an entry is."""
    changes = {_WHOLE: bytearray()}
    entry = b""
    for oid, size, base in _blobs(repository):
        if oid not in known:
            seen(oid)
            entry = oid + size.to_bytes(_SIZE, "big")
            if base in changes:
                changes[base] += entry
            else:
                changes[base] = bytearray(entry)
    return changes, len(entry) or 1


def _by_family(changes: dict[bytes, bytearray], width: int) -> tuple[bytearray, int]:
    """Put each blob's changes behind it, with theirs, so that git need not make it anew for each of them.

    Last come those whose base is not among the blobs. All are put in order before the first is given: then the processes that read them
    begin with a row of bytes in memory, and not with what it was made of.
    """
    order = bytearray()
    while changes:
        first = changes.pop(next(iter(changes)))
        for at in range(0, len(first), width):
            ahead = first[at : at + width]
            while ahead:
                entry = bytes(ahead[-width:])
                del ahead[-width:]
                order += entry
                ahead += changes.pop(entry[:-_SIZE], b"")
    return order, width


def _blobs(repository: Repository) -> Iterator[tuple[bytes, int, bytes]]:
    """Give every blob that there is, its size as it is packed, and its base; ids in bytes."""
    any_damaged = False
    with tempfile.TemporaryFile() as errors, gitcall.start(repository.folder, _LIST, stderr=errors, config=_VIEW) as process:
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for line in process.stdout:
            if line.startswith(b"blob "):
                _, size, oid, base = line.split()
                yield unhexlify(oid), int(size), unhexlify(base) if base.strip(b"0") else _WHOLE
            elif line.endswith(b" missing\n"):  # listed, but not even its type can be read
                any_damaged = True
                yield unhexlify(line.split()[0]), 0, _WHOLE
        process.wait()
        if process.returncode or (os.fstat(errors.fileno()).st_size and not any_damaged):
            repository.gaps.append(INCOMPLETE)
