"""The index of a pack tells the same as git does."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from outcrop.sources.git.packs import index as pack_index
from outcrop.sources.git.packs.index import OID_BYTES, PackIndex, list_pack_indexes
from tests.sources.conftest import Repo


@pytest.fixture
def pack(repo: Repo) -> Path:
    for version in range(10):
        repo.commit(
            {
                name: "".join(f"{name} {line} {version if line == version else 0}\n" for line in range(99))
                for name in "abc"
            }
        )
    repo.git("repack", "-adfq")
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    return pack


def index_anew(repo: Repo, pack: Path, version: str) -> Path:
    index = pack.with_suffix(".idx")
    index.unlink()
    repo.git("index-pack", f"--index-version={version}", str(pack))
    return index


def by_place(index: Path) -> list[tuple[int, str]]:
    with index.open("rb") as file:
        shown = subprocess.run(["git", "show-index"], stdin=file, capture_output=True, check=True).stdout
    return sorted((int(line.split()[0]), line.split()[1].decode()) for line in shown.splitlines())


@pytest.mark.parametrize("together", [pack_index._SORT_CHUNK, 7])
@pytest.mark.parametrize("version", ["2", "2,0x400"], ids=["near", "far"])
def test_the_order_is_that_of_the_pack(
    repo: Repo, pack: Path, monkeypatch: pytest.MonkeyPatch, version: str, together: int
) -> None:
    """Offsets beyond two gigabytes stand in a table of their own; git can be told to put others there."""
    monkeypatch.setattr(pack_index, "_SORT_CHUNK", together)
    path = index_anew(repo, pack, version)
    with closing(PackIndex(path)) as index:
        numbers, starts = index.sort_by_offset(pack.stat().st_size)
        given = index.read_ids()
        names = [given[number * OID_BYTES : (number + 1) * OID_BYTES] for number in numbers]
        assert [index.find_offset(name) for name in names] == list(starts)
    assert [(start, name.hex()) for start, name in zip(starts, names, strict=True)] == by_place(path)


def test_an_offset_behind_the_end_of_the_pack_is_no_place(pack: Path) -> None:
    with closing(PackIndex(pack.with_suffix(".idx"))) as index, pytest.raises(IndexError):
        index.sort_by_offset(pack.stat().st_size // 2)


@pytest.mark.parametrize("damage", ["cut", "another version", "empty"])
def test_an_index_of_another_kind_is_refused(repo: Repo, pack: Path, damage: str) -> None:
    index = pack.with_suffix(".idx")
    index.chmod(0o600)
    if damage == "cut":
        index.write_bytes(index.read_bytes()[:-1])
    elif damage == "another version":
        index_anew(repo, pack, "1")
    else:
        index.write_bytes(b"")
    with pytest.raises(ValueError, match="index"):
        PackIndex(index)


def test_an_index_without_its_pack_is_passed_over(pack: Path) -> None:
    objects = pack.parent.parent
    assert list_pack_indexes(objects) == [pack.with_suffix(".idx")]
    pack.rename(pack.with_suffix(".kept"))
    assert list_pack_indexes(objects) == []
    assert list_pack_indexes(objects / "not there") == []
