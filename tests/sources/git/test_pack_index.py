"""Read pack indexes: offsets and ids are those that git reports."""

import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from outcrop.sources.git.packs import index as pack_index
from outcrop.sources.git.packs.index import OID_BYTES, PackIndex, list_pack_indexes
from tests.sources.conftest import Repo


@pytest.fixture(scope="module")
def ten_versions(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository with ten versions of three files in one pack. Tests get a copy of it."""
    repo = Repo(tmp_path_factory.mktemp("ten"))
    for version in range(10):
        repo.commit(
            {
                name: "".join(f"{name} {line} {version if line == version else 0}\n" for line in range(99))
                for name in "abc"
            }
        )
    repo.git("repack", "-adfq")
    return repo


@pytest.fixture
def repo(ten_versions: Repo, tmp_path: Path) -> Repo:
    return ten_versions.copy_to(tmp_path / "repo")


@pytest.fixture
def pack(repo: Repo) -> Path:
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    return pack


def write_index(repo: Repo, pack: Path, version: str) -> Path:
    index = pack.with_suffix(".idx")
    index.unlink()
    repo.git("index-pack", f"--index-version={version}", str(pack))
    return index


def list_entries(index: Path) -> list[tuple[int, str]]:
    with index.open("rb") as file:
        shown = subprocess.run(["git", "show-index"], stdin=file, capture_output=True, check=True).stdout
    return sorted((int(line.split()[0]), line.split()[1].decode()) for line in shown.splitlines())


@pytest.mark.parametrize("chunk", [pack_index._SORT_CHUNK, 7])
@pytest.mark.parametrize("version", ["2", "2,0x400"], ids=["4-byte", "8-byte"])
def test_objects_are_sorted_by_their_offset_in_the_pack(
    repo: Repo, pack: Path, version: str, chunk: int
) -> None:
    """Offsets beyond two gigabytes are in a second table; an option of git puts smaller ones there too."""
    path = write_index(repo, pack, version)
    with closing(PackIndex(path)) as index:
        positions, offsets = index.sort_by_offset(pack.stat().st_size, chunk)
        all_ids = index.read_ids()
        ids = [all_ids[position * OID_BYTES : (position + 1) * OID_BYTES] for position in positions]
        assert [index.find_offset(oid) for oid in ids] == list(offsets)
    assert [(offset, oid.hex()) for offset, oid in zip(offsets, ids, strict=True)] == list_entries(path)


def test_an_offset_beyond_the_end_of_the_pack_is_an_error(pack: Path) -> None:
    with closing(PackIndex(pack.with_suffix(".idx"))) as index, pytest.raises(IndexError):
        index.sort_by_offset(pack.stat().st_size // 2)


@pytest.mark.parametrize("damage", ["cut", "another version", "empty"])
def test_a_damaged_index_or_one_of_another_version_is_refused(repo: Repo, pack: Path, damage: str) -> None:
    index = pack.with_suffix(".idx")
    index.chmod(0o600)
    if damage == "cut":
        index.write_bytes(index.read_bytes()[:-1])
    elif damage == "another version":
        write_index(repo, pack, "1")
    else:
        index.write_bytes(b"")
    with pytest.raises(ValueError, match="index"):
        PackIndex(index)


def test_an_index_without_its_pack_is_ignored(pack: Path) -> None:
    objects = pack.parent.parent
    assert list_pack_indexes(objects) == [pack.with_suffix(".idx")]
    pack.rename(pack.with_suffix(".moved"))
    assert list_pack_indexes(objects) == []
    assert list_pack_indexes(objects / "not there") == []
