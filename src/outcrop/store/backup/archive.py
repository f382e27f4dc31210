r"""The file of a backup: what it is a backup of, the rows of each table in compressed pieces, and an end that vouches for all of it.

    outcrop backup 1\n
    H  what it is a backup of (JSON)
    T  a table begins: its name and columns (JSON)
    D  a piece of its rows, in COPY's text format, compressed; as many as it takes
    R  the table ends: how many rows it has (JSON)
    Z  the SHA-256 of everything before, and a code over that which takes the keys of the database

Each part is a letter, the length of what follows (4 bytes, the highest first), and that. It is written and read in bounded memory, and
holds rows only: nothing in it is ever run.
"""

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from outcrop.domain.errors import BadInputError, OperatorError

PIECE_SIZE = 1 << 20  # bytes of rows that are compressed together
_LEVEL = 1  # of zlib: level 6 takes half as long again for a twelfth less
_KIND = b"outcrop backup "
_MAGIC = _KIND + b"1\n"
_LONGEST = 2 * PIECE_SIZE  # of a part; a file cannot have us hold more
_HASH = hashlib.sha256().digest_size
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, zlib.error)


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """What a file is a backup of."""

    made_at: datetime
    made_by: str  # the program's version
    schema: int
    keyring: dict[
        str, str
    ]  # hexadecimal, as the database holds them: wrapped by a key that is not in the file
    sequences: dict[str, int]  # what the next row of `table.column` gets at least


@dataclass(slots=True)
class ArchivedTable:
    """A table in the file, whose pieces are read once and in their place; how many rows they were is known after the last."""

    name: str
    columns: list[str]
    pieces: Iterator[bytes] = field(init=False, repr=False)
    rows: int = field(default=0, init=False)


class ArchiveWriter:
    """Writes the parts in their order."""

    def __init__(self, file: BinaryIO, header: ArchiveHeader) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._rows = bytearray()
        self.size = 0
        self._write(_MAGIC)
        self._json(b"H", asdict(header) | {"made_at": header.made_at.isoformat()})

    def begin_table(self, table: str, columns: list[str]) -> None:
        self._json(b"T", {"table": table, "columns": columns})

    def add_rows(self, rows: bytes | bytearray | memoryview) -> None:
        self._rows += rows
        while len(self._rows) >= PIECE_SIZE:
            self._piece()

    def end_table(self, rows: int) -> None:
        if self._rows:
            self._piece()
        self._json(b"R", {"rows": rows})

    def finish(self, vouch: Callable[[bytes], bytes]) -> None:
        digest = self._hash.digest()
        self._part(b"Z", digest + vouch(digest))

    def _piece(self) -> None:
        self._part(b"D", zlib.compress(self._rows[:PIECE_SIZE], _LEVEL))
        del self._rows[:PIECE_SIZE]

    def _json(self, kind: bytes, value: dict[str, Any]) -> None:
        self._part(kind, json.dumps(value).encode())

    def _part(self, kind: bytes, content: bytes) -> None:
        self._write(kind + len(content).to_bytes(4, "big") + content)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)


class ArchiveReader:
    """A file that was opened for reading, from its beginning; whatever is wrong with it is told in one way."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._parts = self._read()
        self.bytes_read = 0  # bytes so far
        self.digest, self.mac = b"", b""  # there when everything was read
        try:
            self.header = _header(self._json(b"H", next(self._parts, (b"", b""))))
        except _UNREADABLE:
            raise self._damaged() from None

    def tables(self) -> Iterator[ArchivedTable]:
        """Give the tables one after the other. The end of the file has been looked at when there are no more."""
        for part in self._parts:
            begins = self._json(b"T", part)
            try:
                table = ArchivedTable(str(begins["table"]), [str(column) for column in begins["columns"]])
            except _UNREADABLE:
                raise self._damaged() from None
            table.pieces = self._pieces(table)
            yield table

    def _pieces(self, table: ArchivedTable) -> Iterator[bytes]:
        for kind, content in self._parts:
            try:
                if kind != b"D":
                    table.rows = int(self._json(b"R", (kind, content))["rows"])
                    return
                rows = _unpacked(content)
            except _UNREADABLE:
                raise self._damaged() from None
            yield rows
        raise self._damaged()

    def _read(self) -> Iterator[tuple[bytes, bytes]]:
        magic = self._file.read(len(_MAGIC))
        self.bytes_read += len(magic)
        if not magic.startswith(_KIND):
            raise BadInputError(f"{self._name} is no backup of Outcrop")
        if len(magic) < len(_MAGIC):
            raise self._damaged()
        if magic != _MAGIC:
            raise BadInputError(f"{self._name} was written by a newer version of Outcrop: upgrade this one")
        so_far = hashlib.sha256(magic)
        while True:
            head = self._exactly(5)
            kind, length = head[:1], int.from_bytes(head[1:], "big")
            if length > _LONGEST:
                raise self._damaged()
            content = self._exactly(length)
            if kind == b"Z":
                break
            so_far.update(head)
            so_far.update(content)
            yield kind, content
        if len(content) != 2 * _HASH or content[:_HASH] != so_far.digest() or self._file.read(1):
            raise self._damaged()
        self.digest, self.mac = content[:_HASH], content[_HASH:]

    def _exactly(self, length: int) -> bytes:
        if len(data := self._file.read(length)) != length:
            raise self._damaged()
        self.bytes_read += length
        return data

    def _json(self, kind: bytes, part: tuple[bytes, bytes]) -> dict[str, Any]:
        try:
            value = json.loads(part[1])
        except (ValueError, RecursionError):
            raise self._damaged() from None
        if part[0] != kind or not isinstance(value, dict):
            raise self._damaged()
        return value

    def _damaged(self) -> BadInputError:
        return BadInputError(f"{self._name} is cut short or was altered: nothing is restored from it")


def _header(value: dict[str, Any]) -> ArchiveHeader:
    return ArchiveHeader(
        made_at=datetime.fromisoformat(value["made_at"]),
        made_by=str(value["made_by"]),
        schema=int(value["schema"]),
        keyring={str(name): str(text) for name, text in value["keyring"].items()},
        sequences={str(name): int(number) for name, number in value["sequences"].items()},
    )


def _unpacked(content: bytes) -> bytes:
    """Unpack one piece, however much it claims to hold."""
    unpacking = zlib.decompressobj()
    rows = unpacking.decompress(content, PIECE_SIZE)
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("a piece is longer than pieces are")
    return rows


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that is there when it is whole and durable, and not before; one that is there already stays as it is.

    It has no name until then, so that not even a killed process leaves a part of it. Where the file system has no such files it
    stands beside its place, under a name with a dot before it.
    """
    beside = None
    there = BadInputError(f"{path} is there already: a backup replaces nothing")
    if path.exists() or path.is_symlink():
        raise there
    try:
        try:
            fd = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
                raise
            beside = path.with_name(f".{path.name}.{os.getpid()}")
            fd = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb", buffering=PIECE_SIZE) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with _opened(path.parent) as folder:
                if beside is None:
                    os.link(
                        f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder
                    )  # given a folder it follows the first name
                else:
                    beside.rename(path)
                with suppress(OSError):  # some file systems cannot
                    os.fsync(folder)
    except FileExistsError:
        raise there from None
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
