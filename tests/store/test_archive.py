"""Test that a damaged backup file is refused, and that a backup file appears only when it is complete."""

import errno
import hashlib
import io
import os
import stat
import zlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.store.backup.archive import PIECE_SIZE, ArchiveHeader, ArchiveReader, ArchiveWriter, create_file

HEADER = ArchiveHeader(datetime(2026, 11, 15, tzinfo=UTC), "0.1.0", 9, {"salt": "00ff"}, {"accounts.id": 7})
ROWS = b"1\tacme\n" * 30
DAMAGED = "is incomplete or was altered"


def compute_mac(digest: bytes) -> bytes:
    return digest[::-1]


def write_archive() -> bytes:
    file = io.BytesIO()
    writer = ArchiveWriter(file, HEADER)
    for table in ("accounts", "members"):
        writer.begin_table(table, ["id", "slug"])
        writer.add_rows(ROWS)
        writer.end_table(30)
    writer.finish(compute_mac)
    assert writer.size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> ArchiveReader:
    """Read all tables of the file."""
    archive = ArchiveReader(io.BytesIO(data), "it")
    for table in archive.tables():
        assert b"".join(table.pieces) in {b"", ROWS}
    return archive


def part(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "big") + content


def build_file(*parts: bytes) -> bytes:
    """Return a file of these parts with a correct digest."""
    data = b"outcrop backup 1\n" + b"".join(parts)
    digest = hashlib.sha256(data).digest()
    return data + part(b"Z", digest + compute_mac(digest))


def test_a_written_archive_can_be_read() -> None:
    archive = ArchiveReader(io.BytesIO(write_archive()), "it")
    assert archive.header == HEADER
    found = [(table.name, table.columns, b"".join(table.pieces), table.rows) for table in archive.tables()]
    assert found == [("accounts", ["id", "slug"], ROWS, 30), ("members", ["id", "slug"], ROWS, 30)]
    assert archive.mac == compute_mac(archive.digest)
    assert archive.bytes_read == len(write_archive())


def test_a_file_truncated_at_any_byte_is_refused() -> None:
    complete = write_archive()
    for length in range(len(complete)):
        with pytest.raises(BadInputError, match="is not a backup of Outcrop" if length < 15 else DAMAGED):
            read(complete[:length])
    with pytest.raises(BadInputError, match=DAMAGED):
        read(complete + b"\0")


def test_a_file_with_one_flipped_bit_is_refused() -> None:
    complete = write_archive()
    for offset in range(len(complete)):
        altered = bytearray(complete)
        altered[offset] ^= 1 << offset % 8
        if offset >= len(complete) - 32:  # the MAC, which only the keys can verify
            assert read(bytes(altered)).mac != compute_mac(read(complete).digest)
            continue
        with pytest.raises(BadInputError):
            read(bytes(altered))


@pytest.mark.parametrize("data", [b"", b"PGDMP\x01\x10", b"outcrop backu", b"{}\n" * 50, b"\0" * 5000])
def test_a_file_of_another_kind_is_refused(data: bytes) -> None:
    with pytest.raises(BadInputError, match="it is not a backup of Outcrop"):
        read(data)


def test_a_newer_format_is_refused_with_the_reason() -> None:
    with pytest.raises(BadInputError, match="newer version"):
        read(write_archive().replace(b"outcrop backup 1\n", b"outcrop backup 2\n"))


H = write_archive()[17 : write_archive().index(b"T\0\0\0")]
TABLE = part(b"T", b'{"table": "accounts", "columns": []}')


@pytest.mark.parametrize(
    "data",
    [
        build_file(),
        build_file(part(b"H", b"[]")),
        build_file(part(b"H", b"[" * 200_000)),
        build_file(part(b"H", b'{"made_at": 5}')),
        build_file(part(b"H", b"\xff")),
        build_file(TABLE),
        build_file(H, part(b"D", zlib.compress(b"x"))),
        build_file(H, TABLE),
        build_file(H, TABLE, TABLE),
        build_file(H, TABLE, part(b"R", b'{"rows": null}')),
        build_file(H, part(b"T", b'{"table": "accounts", "columns": 5}'), part(b"R", b'{"rows": 0}')),
        build_file(H, TABLE, part(b"D", b"no zlib"), part(b"R", b'{"rows": 0}')),
        build_file(H, TABLE, part(b"D", zlib.compress(b"x") + b"more"), part(b"R", b'{"rows": 0}')),
        build_file(H, TABLE, part(b"D", zlib.compress(b"\0" * (PIECE_SIZE + 1))), part(b"R", b'{"rows": 0}')),
        build_file(H, TABLE, part(b"?", b""), part(b"R", b'{"rows": 0}')),
        build_file(H, b"T\xff\xff\xff\xff"),
    ],
)
def test_wrong_parts_with_a_correct_digest_are_refused(data: bytes) -> None:
    with pytest.raises(BadInputError, match=DAMAGED):
        read(data)


def test_rows_are_split_into_pieces_of_bounded_size() -> None:
    file = io.BytesIO()
    writer = ArchiveWriter(file, HEADER)
    writer.begin_table("etags", ["body"])
    large = os.urandom(PIECE_SIZE * 2 + 5)
    writer.add_rows(large)
    writer.end_table(1)
    writer.finish(compute_mac)
    table = next(ArchiveReader(io.BytesIO(file.getvalue()), "it").tables())
    pieces = list(table.pieces)
    assert [len(piece) for piece in pieces] == [PIECE_SIZE, PIECE_SIZE, 5]
    assert b"".join(pieces) == large


# --- creating the file


def test_a_file_appears_when_it_is_complete_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "it"
    with create_file(path) as file:
        file.write(b"complete")
        assert list(tmp_path.iterdir()) == [], "the file has no name yet"
    assert path.read_bytes() == b"complete"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def write_and_fail(path: Path, error: BaseException, *, unnamed: bool) -> None:
    with create_file(path, unnamed=unnamed) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_failed_write_leaves_no_file(tmp_path: Path, unnamed: bool) -> None:
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(tmp_path / "it", KeyboardInterrupt(), unnamed=unnamed)
    with pytest.raises(OperatorError, match=r"cannot write .*/it: No space left on device"):
        write_and_fail(tmp_path / "it", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), unnamed=unnamed)
    assert list(tmp_path.iterdir()) == []


def test_without_unnamed_files_a_hidden_file_is_used_until_it_is_complete(tmp_path: Path) -> None:
    with create_file(tmp_path / "it", unnamed=False) as file:
        file.write(b"complete")
        (hidden,) = tmp_path.iterdir()
        assert hidden.name.startswith(".it.")
        assert stat.S_IMODE(hidden.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "it", tmp_path / "link"
    path.write_text("before")
    link.symlink_to("nowhere")
    for existing in (path, link):
        with pytest.raises(BadInputError, match="exists already"), create_file(existing):
            pytest.fail("the block must not run")
    created_meanwhile = tmp_path / "late"
    with pytest.raises(BadInputError, match="exists already"), create_file(created_meanwhile):
        created_meanwhile.write_text("quicker")
    assert (path.read_text(), created_meanwhile.read_text()) == ("before", "quicker")


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with (
        pytest.raises(OperatorError, match=r"cannot write .*: No such file or directory"),
        create_file(tmp_path / "no" / "it"),
    ):
        pytest.fail("the block must not run")
