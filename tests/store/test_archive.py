"""The file of a backup: whole or refused, whatever is done to it, and in its place only when it is whole."""

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
WRONG = "is incomplete or was altered"


def vouch(digest: bytes) -> bytes:
    return digest[::-1]


def written() -> bytes:
    file = io.BytesIO()
    writer = ArchiveWriter(file, HEADER)
    for table in ("accounts", "members"):
        writer.begin_table(table, ["id", "slug"])
        writer.add_rows(ROWS)
        writer.end_table(30)
    writer.finish(vouch)
    assert writer.size == len(file.getvalue())
    return file.getvalue()


def read(data: bytes) -> ArchiveReader:
    """Read to the end."""
    archive = ArchiveReader(io.BytesIO(data), "it")
    for table in archive.tables():
        assert b"".join(table.pieces) in {b"", ROWS}
    return archive


def part(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(4, "big") + content


def made_of(*parts: bytes) -> bytes:
    """A file whose checksum is right, whatever it is made of."""
    data = b"outcrop backup 1\n" + b"".join(parts)
    digest = hashlib.sha256(data).digest()
    return data + part(b"Z", digest + vouch(digest))


def test_what_was_written_is_read() -> None:
    archive = ArchiveReader(io.BytesIO(written()), "it")
    assert archive.header == HEADER
    found = [(table.name, table.columns, b"".join(table.pieces), table.rows) for table in archive.tables()]
    assert found == [("accounts", ["id", "slug"], ROWS, 30), ("members", ["id", "slug"], ROWS, 30)]
    assert archive.mac == vouch(archive.digest)
    assert archive.bytes_read == len(written())


def test_a_file_that_ends_anywhere_before_its_end_is_refused() -> None:
    whole = written()
    for length in range(len(whole)):
        with pytest.raises(BadInputError, match="is not a backup of Outcrop" if length < 15 else WRONG):
            read(whole[:length])
    with pytest.raises(BadInputError, match=WRONG):
        read(whole + b"\0")


def test_a_file_with_one_other_bit_anywhere_is_refused() -> None:
    whole = written()
    for place in range(len(whole)):
        altered = bytearray(whole)
        altered[place] ^= 1 << place % 8
        if place >= len(whole) - 32:  # the code, which takes the keys to look at
            assert read(bytes(altered)).mac != vouch(read(whole).digest)
            continue
        with pytest.raises(BadInputError):
            read(bytes(altered))


@pytest.mark.parametrize("data", [b"", b"PGDMP\x01\x10", b"outcrop backu", b"{}\n" * 50, b"\0" * 5000])
def test_another_file_is_no_backup(data: bytes) -> None:
    with pytest.raises(BadInputError, match="it is not a backup of Outcrop"):
        read(data)


def test_a_later_format_is_told() -> None:
    with pytest.raises(BadInputError, match="newer version"):
        read(written().replace(b"outcrop backup 1\n", b"outcrop backup 2\n"))


H = written()[17 : written().index(b"T\0\0\0")]
TABLE = part(b"T", b'{"table": "accounts", "columns": []}')


@pytest.mark.parametrize(
    "data",
    [
        made_of(),
        made_of(part(b"H", b"[]")),
        made_of(part(b"H", b"[" * 200_000)),
        made_of(part(b"H", b'{"made_at": 5}')),
        made_of(part(b"H", b"\xff")),
        made_of(TABLE),
        made_of(H, part(b"D", zlib.compress(b"x"))),
        made_of(H, TABLE),
        made_of(H, TABLE, TABLE),
        made_of(H, TABLE, part(b"R", b'{"rows": null}')),
        made_of(H, part(b"T", b'{"table": "accounts", "columns": 5}'), part(b"R", b'{"rows": 0}')),
        made_of(H, TABLE, part(b"D", b"no zlib"), part(b"R", b'{"rows": 0}')),
        made_of(H, TABLE, part(b"D", zlib.compress(b"x") + b"more"), part(b"R", b'{"rows": 0}')),
        made_of(H, TABLE, part(b"D", zlib.compress(b"\0" * (PIECE_SIZE + 1))), part(b"R", b'{"rows": 0}')),
        made_of(H, TABLE, part(b"?", b""), part(b"R", b'{"rows": 0}')),
        made_of(H, b"T\xff\xff\xff\xff"),
    ],
)
def test_a_file_that_is_put_together_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(BadInputError, match=WRONG):
        read(data)


def test_rows_are_held_in_pieces_however_they_come() -> None:
    file = io.BytesIO()
    writer = ArchiveWriter(file, HEADER)
    writer.begin_table("etags", ["body"])
    large = os.urandom(PIECE_SIZE * 2 + 5)
    writer.add_rows(large)
    writer.end_table(1)
    writer.finish(vouch)
    table = next(ArchiveReader(io.BytesIO(file.getvalue()), "it").tables())
    pieces = list(table.pieces)
    assert [len(piece) for piece in pieces] == [PIECE_SIZE, PIECE_SIZE, 5]
    assert b"".join(pieces) == large


# --- its place


def test_a_file_is_there_when_it_is_whole_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "it"
    with create_file(path) as file:
        file.write(b"whole")
        assert list(tmp_path.iterdir()) == [], "it has no name yet"
    assert path.read_bytes() == b"whole"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def broken(path: Path, error: BaseException) -> None:
    with create_file(path) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("nameless", [True, False])
def test_a_file_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    if not nameless:
        without_nameless_files(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        broken(tmp_path / "it", KeyboardInterrupt())
    with pytest.raises(OperatorError, match=r"cannot write .*/it: No space left on device"):
        broken(tmp_path / "it", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert list(tmp_path.iterdir()) == []


def without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file system that has none answers."""
    real = os.open

    def opened(path: Path, flags: int, *given: int, **more: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(path, flags, *given, **more)

    monkeypatch.setattr(os, "open", opened)


def test_where_every_file_has_a_name_it_stands_beside_its_place_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nameless_files(monkeypatch)
    with create_file(tmp_path / "it") as file:
        file.write(b"whole")
        (beside,) = tmp_path.iterdir()
        assert beside.name.startswith(".it.")
        assert stat.S_IMODE(beside.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


def test_what_is_there_is_not_replaced_nor_what_comes_meanwhile(tmp_path: Path) -> None:
    path, link = tmp_path / "it", tmp_path / "link"
    path.write_text("before")
    link.symlink_to("nowhere")
    for taken in (path, link):
        with pytest.raises(BadInputError, match="exists already"), create_file(taken):
            pytest.fail("it was begun")
    late = tmp_path / "late"
    with pytest.raises(BadInputError, match="exists already"), create_file(late):
        late.write_text("quicker")
    assert (path.read_text(), late.read_text()) == ("before", "quicker")


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(OperatorError, match=r"cannot write .*: No such file or directory"),
        create_file(tmp_path / "no" / "it"),
    ):
        pytest.fail("it was begun")
