"""Object folders that a repository borrows from are found as git finds them, however their names are written."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outcrop.sources.git.repository import format_alternate, parse_alternates
from tests.sources.conftest import Repo, Scan, token

FIRST = token("first")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"/a\n/b\n", [b"/a", b"/b"]),
        (b"/a b\n\n# c\n../d", [b"/a b", b"../d"]),
        (rb'"/caf\303\251"' + b"\n/b\n", ["/café".encode(), b"/b"]),
        (rb'"/a\nb\t\"\\\a"', [b'/a\nb\t"\\\a']),
        (b'"/a\nb"\n/c\n', [b"/a\nb", b"/c"]),
        (b'"/a\n/b\n', [b'"/a', b"/b"]),
        (rb'"/a\8"', [rb'"/a\8"']),
        (rb'"/a\400"', [rb'"/a\400"']),
        (b'"/a""/b"\n', [b"/a", b'/b"']),
        (b'/a"b"\n""\n', [b'/a"b"']),
        (b"", []),
    ],
)
def test_each_is_read_as_git_reads_it(raw: bytes, expected: list[bytes]) -> None:
    assert parse_alternates(raw) == expected


@given(st.lists(st.binary(min_size=1), max_size=4))
def test_what_is_written_is_read_back(names: list[bytes]) -> None:
    assert parse_alternates(b"".join(map(format_alternate, names))) == names


@pytest.mark.parametrize("name", ["café", "a\nb", '"quoted"', "back\\slash"])
def test_a_borrowed_folder_whose_name_is_quoted_is_read(
    repo: Repo, tmp_path: Path, scan: Scan, name: str
) -> None:
    repo.commit({"a": FIRST})
    own, other = repo.path / ".git" / "objects", tmp_path / name
    own.rename(other)
    (own / "info").mkdir(parents=True)
    (own / "info" / "alternates").write_bytes(format_alternate(os.fsencode(other)))
    assert repo.git("show", "HEAD:a") == FIRST, "git reads it too"
    scanned = scan(repo.path)
    assert (scanned.secrets, scanned.gaps) == ([FIRST], [])
