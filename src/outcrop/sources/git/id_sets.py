"""What is known of each object of a repository, which may have millions: on disk, and in memory by a few bytes of each."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, overload

_AT_ONCE = 1 << 12  # rows that are read or written together
_ALL_BITS = (1 << 64) - 1


class Rows:
    """Rows of one width in a file without a name, which is gone when this process is.

    What is still to be written is ours and not the file's: a process that is forked meanwhile would write it once more.
    """

    def __init__(self, folder: Path) -> None:
        self.width = 0
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - closed with this
        self._ahead = bytearray()

    def close(self) -> None:
        self._file.close()

    def add(self, row: bytes) -> None:
        """Add a row; rows of another width, of which a repository was at this place before, give way to it."""
        if len(row) != self.width:
            self.clear()
            self.width = len(row)
        self._ahead += row
        if len(self._ahead) >= self.width * _AT_ONCE:
            self._write()

    def extend(self, rows: Iterable[bytes]) -> None:
        for row in rows:
            self.add(row)

    def clear(self) -> None:
        self._ahead.clear()
        self._file.seek(0)
        self._file.truncate()

    def _write(self) -> None:
        while self._ahead:
            del self._ahead[: self._file.write(self._ahead)]

    def __iter__(self) -> Iterator[bytes]:
        self._write()
        self._file.seek(0)
        return rows_of(self._file, self.width)


def rows_of(file: IO[bytes], width: int) -> Iterator[bytes]:
    """Read rows to the end of a file; one that is cut off is an error."""
    if width < 0 or (width == 0 and file.read(1)):
        raise ValueError("a row has no such width")
    while rows := file.read(width * _AT_ONCE):
        if len(rows) % width:
            raise ValueError("a row is cut off")
        yield from (rows[at : at + width] for at in range(0, len(rows), width))


class Ids:
    """Tells whether an id in binary is one of these, by seven bytes of its hash: a set takes ten times the memory.

    The hash is another one in every run, so nobody can make two objects that have it in common. Nor does a process that was
    forked write to it by looking, as it would to a set, of which it would then have its own.
    """

    def __init__(self, ids: Iterable[bytes]) -> None:
        self._rows = [bytearray() for _ in range(1 << 14)]
        for oid in ids:
            row, key = self._place(oid)
            row += key

    def _place(self, oid: bytes) -> tuple[bytearray, bytes]:
        """Give where an id is noted, and by what."""
        key = (hash(oid) & _ALL_BITS).to_bytes(8, "big")
        return self._rows[key[0] << 6 | key[1] >> 2], key[1:]

    def add(self, oid: bytes) -> bool:
        """Add an id; tell whether it was not among them."""
        row, key = self._place(oid)
        if row.find(key) >= 0:
            return False
        row += key
        return True

    def __contains__(self, oid: Any) -> bool:
        row, key = self._place(oid)
        return row.find(key) >= 0  # half the time of `in`


class Names(Sequence[bytes]):
    """Ids in hexadecimal digits as git prints them, a line each, held in binary: a list of them takes four times the memory."""

    def __init__(self, lines: bytes) -> None:
        self._width = lines.find(b"\n") // 2
        self._ids = bytes.fromhex(lines.decode())  # which passes over line breaks

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
