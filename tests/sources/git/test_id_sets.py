"""Rows of bytes on disk, and which ids are among very many."""

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from outcrop.sources.git.id_sets import IdList, IdSet, RowFile, read_rows


def drawn(count: int, width: int = 20) -> list[bytes]:
    chance = random.Random(f"{count} {width}")
    return [chance.randbytes(width) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 4_095, 4_096, 4_097, 20_000])
def test_rows_come_as_they_were_added_and_more_can_be_added_afterwards(tmp_path: Path, count: int) -> None:
    rows = drawn(count)
    with closing(RowFile(tmp_path)) as kept:
        kept.extend(rows)
        assert list(kept) == rows
        kept.add(b"x" * 20)
        assert list(kept) == [*rows, b"x" * 20]
        assert list(tmp_path.iterdir()) == []


def test_rows_of_another_width_give_way(tmp_path: Path) -> None:
    with closing(RowFile(tmp_path)) as kept:
        kept.extend(drawn(5_000))
        kept.extend(wide := drawn(5_000, 32))
        assert list(kept) == wide
        assert kept.width == 32


def test_a_forked_process_writes_nothing_once_more(tmp_path: Path) -> None:
    rows = drawn(6_000)
    with closing(RowFile(tmp_path)) as kept:
        kept.extend(rows)
        child = os.fork()
        if child == 0:
            kept.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert list(kept) == rows


def test_a_row_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cut").write_bytes(b"".join(drawn(5_000))[:-1])
    with (tmp_path / "cut").open("rb") as file, pytest.raises(ValueError, match="cut off"):
        list(read_rows(file, 20))


@pytest.mark.parametrize("width", [20, 32])
def test_ids_are_told_from_others(width: int) -> None:
    ids = drawn(50_000, width)
    among, others = ids[:30_000], ids[30_000:]
    known = IdSet(among)
    assert all(oid in known for oid in among)
    assert not any(oid in known for oid in others)
    assert not any(oid[:9] + bytes([oid[9] ^ 1]) + oid[10:] in known for oid in among)
    assert among[0] not in IdSet(())


def test_ids_that_somebody_made_to_begin_or_end_alike_are_told_apart() -> None:
    known = IdSet(())
    assert all(known.add(b"\xab" * 16 + number.to_bytes(4, "big")) for number in range(5_000))
    assert all(known.add(number.to_bytes(4, "big") + b"\xab" * 16) for number in range(5_000))
    assert not known.add(b"\xab" * 16 + b"\0\0\0\1")


@pytest.mark.parametrize("width", [20, 32])
def test_names_are_as_they_were_printed(width: int) -> None:
    ids = [oid.hex().encode() for oid in drawn(5_000, width)]
    names = IdList(b"".join(oid + b"\n" for oid in ids))
    assert (len(names), list(names), names[-1], names[2:5], names[4_990:6_000]) == (
        5_000,
        ids,
        ids[-1],
        ids[2:5],
        ids[4_990:],
    )
    assert list(reversed(names[:3])) == ids[2::-1]


def test_no_names() -> None:
    assert (len(IdList(b"")), list(IdList(b"")), IdList(b"")[0:5], bool(IdList(b""))) == (0, [], [], False)
