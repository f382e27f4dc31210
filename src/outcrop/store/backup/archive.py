r"""Write and read the archive file of a backup: a header, the rows of each table, and a MAC over everything.

The file is a first line and parts:

    outcrop backup 1\n
    H  header (JSON)
    T  begin of a table: its name and columns (JSON)
    D  compressed rows of the table in COPY's text format; any number of these parts
    R  end of the table: the number of its rows (JSON)
    Z  SHA-256 of everything before, and a MAC of that digest made with the database's keys

Each part is its letter, the length of its content (4 bytes, big-endian) and the content. The file is
written and read in bounded memory. It contains rows only, nothing that is ever executed.
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
from outcrop.domain.secret import KeepSecrets

PIECE_SIZE = 1 << 20  # bytes of rows that are compressed together
_ZLIB_LEVEL = 1  # level 6 takes half as long again and saves a twelfth
_SIGNATURE = b"outcrop backup "
_MAGIC = _SIGNATURE + b"1\n"
_MAX_PART_SIZE = 2 * PIECE_SIZE  # limits the memory that a forged file can make us use
_DIGEST_SIZE = hashlib.sha256().digest_size
_FORMAT_ERRORS = (KeyError, TypeError, ValueError, AttributeError, zlib.error)

ArchivePart = tuple[bytes, bytes]  # letter and content


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """The database that an archive is a backup of."""

    made_at: datetime
    made_by: str  # version of the program
    schema: int
    keyring: dict[str, str]  # the wrapped keys, hexadecimal; the operator's key is not in the file
    sequences: dict[str, int]  # `table.column` -> next value
    keep_secrets: KeepSecrets | None = None  # the database's setting


@dataclass(slots=True)
class ArchivedTable:
    """A table of an archive. Its pieces can be read once; `rows` is set after the last piece."""

    name: str
    columns: list[str]
    pieces: Iterator[bytes] = field(init=False, repr=False)
    rows: int = field(default=0, init=False)


class ArchiveWriter:
    """Writes an archive: the header first, then for each table begin, rows and end, then the final part."""

    def __init__(self, file: BinaryIO, header: ArchiveHeader) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._rows = bytearray()  # not written yet
        self.size = 0  # bytes written
        self._write(_MAGIC)
        self._write_json(b"H", asdict(header) | {"made_at": header.made_at.isoformat()})

    def begin_table(self, table: str, columns: list[str]) -> None:
        """Write the begin of a table."""
        self._write_json(b"T", {"table": table, "columns": columns})

    def add_rows(self, rows: bytes | bytearray | memoryview) -> None:
        """Add rows to the table; write every full piece."""
        self._rows += rows
        while len(self._rows) >= PIECE_SIZE:
            self._write_piece()

    def end_table(self, rows: int) -> None:
        """Write the remaining rows and the table's number of rows."""
        if self._rows:
            self._write_piece()
        self._write_json(b"R", {"rows": rows})

    def finish(self, compute_mac: Callable[[bytes], bytes]) -> None:
        """Write the digest of the whole file and its MAC."""
        digest = self._hash.digest()
        self._write_part(b"Z", digest + compute_mac(digest))

    def _write_piece(self) -> None:
        """Compress and write the first PIECE_SIZE bytes of the waiting rows."""
        self._write_part(b"D", zlib.compress(self._rows[:PIECE_SIZE], _ZLIB_LEVEL))
        del self._rows[:PIECE_SIZE]

    def _write_json(self, letter: bytes, value: dict[str, Any]) -> None:
        """Write a part whose content is a JSON object."""
        self._write_part(letter, json.dumps(value).encode())

    def _write_part(self, letter: bytes, content: bytes) -> None:
        """Write a part: its letter, the length of the content, and the content."""
        self._write(letter + len(content).to_bytes(4, "big") + content)

    def _write(self, data: bytes) -> None:
        """Write bytes to the file and add them to the digest and the size."""
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)


class ArchiveReader:
    """Reads an archive from its begin; raises BadInputError for anything that is wrong with it.

    `name` is the file's name in error messages. `digest` and `mac` are set when all tables were read.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._parts = self._read_parts()
        self.bytes_read = 0
        self.digest, self.mac = b"", b""
        try:
            self.header = _parse_header(self._parse_json(b"H", next(self._parts, (b"", b""))))
        except _FORMAT_ERRORS:
            raise self._damaged() from None

    def tables(self) -> Iterator[ArchivedTable]:
        """Yield the tables in order. Each table's pieces must be read before the next table.

        After the last table the end of the file is checked.
        """
        for part in self._parts:
            begin = self._parse_json(b"T", part)
            try:
                table = ArchivedTable(str(begin["table"]), [str(column) for column in begin["columns"]])
            except _FORMAT_ERRORS:
                raise self._damaged() from None
            table.pieces = self._read_pieces(table)
            yield table

    def _read_pieces(self, table: ArchivedTable) -> Iterator[bytes]:
        """Yield the table's rows in decompressed pieces, up to its end; then set its number of rows."""
        for letter, content in self._parts:
            try:
                if letter != b"D":
                    table.rows = int(self._parse_json(b"R", (letter, content))["rows"])
                    return
                rows = _decompress_piece(content)
            except _FORMAT_ERRORS:
                raise self._damaged() from None
            yield rows
        raise self._damaged()

    def _read_parts(self) -> Iterator[ArchivePart]:
        """Check the first line, yield all parts but the last, and check the digest in the last part."""
        magic = self._file.read(len(_MAGIC))
        self.bytes_read += len(magic)
        if not magic.startswith(_SIGNATURE):
            raise BadInputError(f"{self._name} is not a backup of Outcrop")
        if len(magic) < len(_MAGIC):
            raise self._damaged()
        if magic != _MAGIC:
            raise BadInputError(f"{self._name} was written by a newer version of Outcrop: upgrade this one")
        so_far = hashlib.sha256(magic)
        while True:
            head = self._read_exactly(5)
            letter, length = head[:1], int.from_bytes(head[1:], "big")
            if length > _MAX_PART_SIZE:
                raise self._damaged()
            content = self._read_exactly(length)
            if letter == b"Z":
                break
            so_far.update(head)
            so_far.update(content)
            yield letter, content
        digest, mac = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if len(content) != 2 * _DIGEST_SIZE or digest != so_far.digest() or self._file.read(1):
            raise self._damaged()
        self.digest, self.mac = digest, mac

    def _read_exactly(self, length: int) -> bytes:
        """Read so many bytes; raise BadInputError if the file ends before."""
        if len(data := self._file.read(length)) != length:
            raise self._damaged()
        self.bytes_read += length
        return data

    def _parse_json(self, letter: bytes, part: ArchivePart) -> dict[str, Any]:
        """Parse the JSON object in a part; raise BadInputError if the part has another letter."""
        try:
            value = json.loads(part[1])
        except (ValueError, RecursionError):
            raise self._damaged() from None
        if part[0] != letter or not isinstance(value, dict):
            raise self._damaged()
        return value

    def _damaged(self) -> BadInputError:
        """Return the error for a file that is incomplete or was altered."""
        return BadInputError(f"{self._name} is incomplete or was altered: nothing is restored from it")


def _parse_header(value: dict[str, Any]) -> ArchiveHeader:
    """Return the header of its JSON object; raise one of _FORMAT_ERRORS if a field is missing or wrong."""
    return ArchiveHeader(
        made_at=datetime.fromisoformat(value["made_at"]),
        made_by=str(value["made_by"]),
        schema=int(value["schema"]),
        keyring={str(name): str(text) for name, text in value["keyring"].items()},
        sequences={str(name): int(number) for name, number in value["sequences"].items()},
        keep_secrets=None if value.get("keep_secrets") is None else KeepSecrets(value["keep_secrets"]),
    )


def _decompress_piece(content: bytes) -> bytes:
    """Decompress a piece; raise ValueError if it would be longer than PIECE_SIZE."""
    decompressor = zlib.decompressobj()
    rows = decompressor.decompress(content, PIECE_SIZE)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("the piece is longer than PIECE_SIZE")
    return rows


@contextmanager
def create_file(path: Path, *, unnamed: bool = True) -> Iterator[BinaryIO]:
    """Create a file that appears at `path` only when the block has ended and the content is on disk.

    An existing file is never replaced. Until its end the file has no name (O_TMPFILE), so that even a killed
    process leaves nothing. On file systems without such files, or if not `unnamed`, it has a hidden name in
    the same folder.
    """
    hidden = None
    exists = BadInputError(f"{path} exists already: a backup replaces no file")
    if path.exists() or path.is_symlink():
        raise exists
    try:
        fd = _open_unnamed(path.parent) if unnamed else None
        if fd is None:
            hidden = path.with_name(f".{path.name}.{os.getpid()}")
            fd = os.open(hidden, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb", buffering=PIECE_SIZE) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with _open_folder(path.parent) as folder:
                if hidden is None:
                    # With dst_dir_fd, os.link calls linkat, which follows the link of the first path.
                    os.link(f"/proc/self/fd/{file.fileno()}", path.name, dst_dir_fd=folder)
                else:
                    hidden.rename(path)
                with suppress(OSError):  # not every file system can sync a folder
                    os.fsync(folder)
    except FileExistsError:
        raise exists from None
    except OSError as error:
        raise OperatorError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if hidden is not None:
            hidden.unlink(missing_ok=True)


def _open_unnamed(folder: Path) -> int | None:
    """Create a file without a name, and return its descriptor; None if the file system has no such files."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}:
            raise
        return None


@contextmanager
def _open_folder(folder: Path) -> Iterator[int]:
    """Yield a file descriptor of the folder, and close it at the end."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
