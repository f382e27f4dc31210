"""Rows in a file, a set of ids and a list of ids, all with little memory."""

import os
import random
from contextlib import closing
from pathlib import Path

import pytest

from outcrop.sources.git.id_sets import IdList, IdSet, RowFile, read_rows


def make_ids(count: int, width: int = 20) -> list[bytes]:
    chance = random.Random(f"{count} {width}")
    return [chance.randbytes(width) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 4_095, 4_096, 4_097, 20_000])
def test_rows_are_read_in_the_order_of_adding_and_more_can_be_added(tmp_path: Path, count: int) -> None:
    rows = make_ids(count)
    with closing(RowFile(tmp_path)) as row_file:
        row_file.extend(rows)
        assert list(row_file) == rows
        row_file.add(b"x" * 20)
        assert list(row_file) == [*rows, b"x" * 20]
        assert list(tmp_path.iterdir()) == []


def test_a_row_of_another_width_drops_the_earlier_rows(tmp_path: Path) -> None:
    with closing(RowFile(tmp_path)) as row_file:
        row_file.extend(make_ids(5_000))
        row_file.extend(wide := make_ids(5_000, 32))
        assert list(row_file) == wide
        assert row_file.width == 32


def test_a_forked_process_does_not_write_the_buffer_again(tmp_path: Path) -> None:
    rows = make_ids(6_000)
    with closing(RowFile(tmp_path)) as row_file:
        row_file.extend(rows)
        child = os.fork()
        if child == 0:
            row_file.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert list(row_file) == rows


def test_a_truncated_row_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "truncated").write_bytes(b"".join(make_ids(5_000))[:-1])
    with (tmp_path / "truncated").open("rb") as file, pytest.raises(ValueError, match="cut off"):
        list(read_rows(file, 20))


@pytest.mark.parametrize("width", [20, 32])
def test_a_set_contains_its_ids_and_no_others(width: int) -> None:
    ids = make_ids(50_000, width)
    members, others = ids[:30_000], ids[30_000:]
    id_set = IdSet(members)
    assert all(oid in id_set for oid in members)
    assert not any(oid in id_set for oid in others)
    assert not any(oid[:9] + bytes([oid[9] ^ 1]) + oid[10:] in id_set for oid in members)
    assert members[0] not in IdSet(())


def test_ids_with_equal_beginnings_or_ends_are_distinguished() -> None:
    id_set = IdSet(())
    assert all(id_set.add(b"\xab" * 16 + number.to_bytes(4, "big")) for number in range(5_000))
    assert all(id_set.add(number.to_bytes(4, "big") + b"\xab" * 16) for number in range(5_000))
    assert not id_set.add(b"\xab" * 16 + b"\0\0\0\1")


@pytest.mark.parametrize("width", [20, 32])
def test_a_list_has_the_ids_that_git_printed(width: int) -> None:
    ids = [oid.hex().encode() for oid in make_ids(5_000, width)]
    ids_from_lines = IdList(b"".join(oid + b"\n" for oid in ids))
    assert (
        len(ids_from_lines),
        list(ids_from_lines),
        ids_from_lines[-1],
        ids_from_lines[2:5],
        ids_from_lines[4_990:6_000],
    ) == (
        5_000,
        ids,
        ids[-1],
        ids[2:5],
        ids[4_990:],
    )
    assert list(reversed(ids_from_lines[:3])) == ids[2::-1]


def test_an_empty_list() -> None:
    assert (len(IdList(b"")), list(IdList(b"")), IdList(b"")[0:5], bool(IdList(b""))) == (0, [], [], False)
