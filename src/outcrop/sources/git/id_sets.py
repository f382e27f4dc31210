"""Store millions of object ids with little memory: rows in a file, a set by hash, a list in binary."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, overload

_ROWS_PER_READ = 1 << 12  # rows that are read or written by one system call
_ALL_BITS = (1 << 64) - 1


class RowFile:
    """Rows of equal width in an unnamed temporary file in `folder`, which is gone when this process ends.

    `width` is the number of bytes of a row, 0 before the first row. Rows that are not written yet are in a
    buffer of this class and not of the file object: a forked process would write the buffer of a file object
    once more.
    """

    def __init__(self, folder: Path) -> None:
        self.width = 0
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed with this
        self._unwritten = bytearray()

    def close(self) -> None:
        """Close the file, which removes its rows."""
        self._file.close()

    def add(self, row: bytes) -> None:
        """Append a row; if its width differs from that of the earlier rows, drop these first.

        Then the earlier rows come from a cache of another repository at the same path, with ids of another
        length.
        """
        if len(row) != self.width:
            self.clear()
            self.width = len(row)
        self._unwritten += row
        if len(self._unwritten) >= self.width * _ROWS_PER_READ:
            self._write()

    def extend(self, rows: Iterable[bytes]) -> None:
        """Append each of the rows as `add` does."""
        for row in rows:
            self.add(row)

    def clear(self) -> None:
        """Drop all rows; `width` does not change."""
        self._unwritten.clear()
        self._file.seek(0)
        self._file.truncate()

    def _write(self) -> None:
        """Write all rows of the buffer to the file, and empty the buffer."""
        while self._unwritten:
            del self._unwritten[: self._file.write(self._unwritten)]

    def __iter__(self) -> Iterator[bytes]:
        self._write()
        self._file.seek(0)
        return read_rows(self._file, self.width)


def read_rows(file: IO[bytes], width: int) -> Iterator[bytes]:
    """Yield the rows of `width` bytes from the current position to the end of a file.

    Raise ValueError if the last row is cut off, or the width is negative, or it is 0 and the file has data.
    """
    if width < 0 or (width == 0 and file.read(1)):
        raise ValueError("a row has no such width")
    while rows := file.read(width * _ROWS_PER_READ):
        if len(rows) % width:
            raise ValueError("a row is cut off")
        yield from (rows[at : at + width] for at in range(0, len(rows), width))


class IdSet:
    """A set of binary object ids that stores seven bytes of each id's hash: a tenth of the memory of a set.

    Python's hash is seeded in each run, so nobody can prepare two objects with the same hash. A lookup in a
    set writes to its memory (reference counts), so a forked process would copy it; a lookup here does not.
    """

    def __init__(self, ids: Iterable[bytes]) -> None:
        self._buckets = [bytearray() for _ in range(1 << 14)]
        for oid in ids:
            bucket, key = self._find_bucket(oid)
            bucket += key

    def _find_bucket(self, oid: bytes) -> tuple[bytearray, bytes]:
        """Return the bucket of a binary id, and the seven bytes that represent the id in that bucket."""
        key = (hash(oid) & _ALL_BITS).to_bytes(8, "big")
        return self._buckets[key[0] << 6 | key[1] >> 2], key[1:]

    def add(self, oid: bytes) -> bool:
        """Add a binary id; return whether it is new, and False if the set had it already."""
        bucket, key = self._find_bucket(oid)
        if bucket.find(key) >= 0:
            return False
        bucket += key
        return True

    def __contains__(self, oid: Any) -> bool:
        bucket, key = self._find_bucket(oid)
        return bucket.find(key) >= 0  # takes half the time of `in`


class IdList(Sequence[bytes]):
    """A list of hexadecimal ids that stores them in binary: a quarter of the memory of a list.

    `lines` holds the ids as git prints them, one per line.
    """

    def __init__(self, lines: bytes) -> None:
        self._width = lines.find(b"\n") // 2
        self._ids = bytes.fromhex(lines.decode())  # which ignores line breaks

    def __len__(self) -> int:
        return len(self._ids) // self._width if self._ids else 0

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        numbers = range(len(self))[at]
        if isinstance(numbers, int):
            return self._ids[numbers * self._width : (numbers + 1) * self._width].hex().encode()
        return [self[number] for number in numbers]
