"""Rows of SQLite databases, also of damaged ones, and databases that are made to cost much."""

import random
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.support.rulesets import github_token, ruleset

TOKEN = github_token("sqlite")
PAGE = 4096


def database(folder: Path, *statements: str, rows: int = 300) -> bytes:
    """Return a database with a table `users` of this many rows; the token is in the last."""
    connection = sqlite3.connect(folder / "a.db")
    for statement in statements:
        connection.execute(statement)
    connection.execute(
        'create table users (id integer primary key, name text, "api key" text, check (id >= 0))'
    )
    connection.execute("create index by_key on users ('api key')")
    values = ((number, f"name {number}", "x" * (number * 37 % 9000)) for number in range(rows))
    connection.executemany("insert into users values (?, ?, ?)", values)
    connection.execute("insert into users values (99999, 'robot ', ?)", (TOKEN,))
    connection.commit()
    connection.close()
    return (folder / "a.db").read_bytes()


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_each_row_is_a_line_of_its_table(tmp_path, encoding):
    data = database(tmp_path, f"pragma encoding='{encoding}'")
    assert needs_unpacking(data)
    found = scan_content(ruleset(), data, Confidence.MEDIUM)
    assert [(name, reveal(hit.secret), hit.line) for name, hit in found.hits] == [("users", TOKEN, 301)]
    assert found.gaps == []
    texts = dict(unpack_texts(data, UnpackBudget()))
    assert texts["users"].splitlines()[2] == b'{"name":"name 2","api key":"%b"}' % (b"x" * 74)


def test_values_of_all_types_and_tables_without_row_ids_are_read(tmp_path):
    data = database(
        tmp_path,
        "create table other (a text primary key, b) without rowid",
        "insert into other values ('k', -7), ('l', 1.5), ('m', null), ('n', x'00ff41'), ('o', 1), ('p', 0)",
    )
    lines = dict(unpack_texts(data, UnpackBudget()))["other"].decode().splitlines()
    assert lines[:3] == ['{"a":"k","b":-7}', '{"a":"l","b":1.5}', '{"a":"m"}']
    assert lines[4:] == ['{"a":"o","b":1}', '{"a":"p","b":0}']


def test_deleted_rows_are_still_text(tmp_path):
    database(tmp_path)
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("pragma secure_delete=off")
    connection.execute("drop table users")
    connection.commit()
    connection.close()
    found = scan_content(ruleset(), (tmp_path / "a.db").read_bytes(), Confidence.MEDIUM)
    assert {(name, reveal(hit.secret)) for name, hit in found.hits} == {("", TOKEN)}


@pytest.mark.parametrize("cut", [50, 200, PAGE + 100, 20 * PAGE])
def test_a_truncated_database_is_a_gap_and_no_crash(tmp_path, cut):
    budget = UnpackBudget()
    assert list(unpack_texts(database(tmp_path)[:-cut] if cut > 200 else database(tmp_path)[:cut], budget))
    assert budget.gaps


def test_pages_that_refer_to_each_other_are_read_once(tmp_path):
    data = bytearray(database(tmp_path))
    root = next(
        at
        for at in range(PAGE, len(data), PAGE)
        if data[at] == 5  # a branch: its first child becomes itself
    )
    data[root + 8 : root + 12] = (root // PAGE + 1).to_bytes(4, "big")
    list(unpack_texts(bytes(data), budget := UnpackBudget()))
    assert budget.gaps == ["database: damaged, only a part was read"]


def test_many_cells_at_one_place_end_as_a_gap(tmp_path):
    data = bytearray(
        database(tmp_path, "create table bomb (a text)", f"insert into bomb values ('{'y' * 3000}')")
    )
    leaf = next(
        at for at in range(PAGE, len(data), PAGE) if data[at] == 13 and b"yyy" in data[at : at + PAGE]
    )
    pointer = data[leaf + 8 : leaf + 10]
    count = 400
    data[leaf + 3 : leaf + 5] = count.to_bytes(2, "big")
    data[leaf + 8 : leaf + 8 + 2 * count] = pointer * count
    budget = UnpackBudget(max_member_bytes=100_000)
    sizes = {name: len(text) for name, text in unpack_texts(bytes(data), budget)}
    assert sizes["bomb"] == 100_001
    assert "bomb: too large, only the beginning was read" in budget.gaps


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_damage_anywhere_never_raises(tmp_path_factory, seed):
    folder = tmp_path_factory.getbasetemp() / "sqlite-damage"
    if not (file := folder / "a.db").exists():
        folder.mkdir()
        database(folder, rows=40)
    data, chance = bytearray(file.read_bytes()), random.Random(seed)
    for _ in range(30):
        data[chance.randrange(16, len(data))] = chance.randrange(256)
    list(unpack_texts(bytes(data), UnpackBudget(max_member_bytes=1 << 20)))
