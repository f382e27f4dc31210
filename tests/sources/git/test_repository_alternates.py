"""Parse and write the alternates file of a repository as git does."""

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
def test_a_line_is_parsed_as_git_parses_it(raw: bytes, expected: list[bytes]) -> None:
    assert parse_alternates(raw) == expected


@given(st.lists(st.binary(min_size=1), max_size=4))
def test_a_formatted_line_is_parsed_back(names: list[bytes]) -> None:
    assert parse_alternates(b"".join(map(format_alternate, names))) == names


@pytest.mark.parametrize("name", ["café", "a\nb", '"quoted"', "back\\slash"])
def test_an_alternate_with_a_quoted_name_is_scanned(
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
