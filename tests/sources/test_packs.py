"""The ids of all objects, each once and in the order of the packs, as git tells them."""

import itertools
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcrop.sources import listing, packs
from outcrop.sources.listing import INCOMPLETE, listed
from outcrop.sources.packs import many_ids
from outcrop.sources.repository import Repository, open_local
from tests.sources.conftest import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Two packs that have objects in common, and loose objects, of which one is in a pack too."""
    repo = Repo(tmp_path / "repo")
    for part in range(2):
        for version in range(10):
            repo.commit({name: "".join(f"{name} {line} {version if line == version else part}\n" for line in range(99)) for name in "abc"})
        repo.git("repack", "-adq" if part == 0 else "-dq")
    repo.git("pack-objects", "--quiet", ".git/objects/pack/pack", given="\n".join(everything(repo)[:20]).encode())
    repo.commit({"d": "loose\n"})
    return repo


def everything(repo: Repo) -> list[str]:
    return repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").splitlines()


def folder(repo: Repo) -> Path:
    return repo.path / ".git" / "objects"


def ids(repo: Repo) -> list[str]:
    found = many_ids([folder(repo)], least=0)
    assert found is not None
    return [oid.hex() for oid in found]


def opened(repo: Repo, work: Path) -> Repository:
    work.mkdir()
    return open_local(repo.path / ".git", work)


def test_each_object_is_told_once_whatever_holds_it(repo: Repo) -> None:
    assert len(list((folder(repo) / "pack").glob("*.idx"))) == 3
    assert sorted(ids(repo)) == everything(repo)


@pytest.mark.parametrize("together", [packs._TOGETHER, 7])
@pytest.mark.parametrize("version", ["2", "2,0x400"], ids=["near", "far"])
def test_the_order_is_that_of_the_pack(repo: Repo, monkeypatch: pytest.MonkeyPatch, version: str, together: int) -> None:
    """Offsets beyond two gigabytes stand in a table of their own; git can be told to put others there."""
    monkeypatch.setattr(packs, "_TOGETHER", together)
    repo.git("repack", "-adfq")
    (pack,) = (folder(repo) / "pack").glob("*.pack")
    pack.with_suffix(".idx").unlink()
    repo.git("index-pack", f"--index-version={version}", str(pack))
    with pack.with_suffix(".idx").open("rb") as index:
        shown = subprocess.run(["git", "show-index"], stdin=index, capture_output=True, check=True, cwd=repo.path).stdout
    by_place = sorted((int(line.split()[0]), line.split()[1].decode()) for line in shown.splitlines())
    assert ids(repo) == [oid for _, oid in by_place]


def test_few_objects_are_left_to_git(repo: Repo) -> None:
    assert many_ids([folder(repo)], least=500) is None
    assert many_ids([folder(repo)], least=100) is not None


@pytest.mark.parametrize("damage", ["cut", "another version", "empty"])
def test_so_is_what_has_an_index_of_another_kind(repo: Repo, damage: str) -> None:
    index = min((folder(repo) / "pack").glob("*.idx"))
    index.chmod(0o600)
    if damage == "cut":
        index.write_bytes(index.read_bytes()[:-1])
    elif damage == "another version":
        pack = index.with_suffix(".pack")
        index.unlink()
        repo.git("index-pack", "--index-version=1", str(pack))
    else:
        index.write_bytes(b"")
    assert many_ids([folder(repo)], least=0) is None


def test_an_index_without_its_pack_is_passed_over(repo: Repo) -> None:
    gone = min((folder(repo) / "pack").glob("*.pack"))
    gone.rename(gone.with_suffix(".kept"))
    assert sorted(ids(repo)) == everything(repo)


def test_the_list_of_blobs_is_the_same(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo.git("repack", "-adfq")
    repository = opened(repo, tmp_path / "work")
    by_git = list(listed(repository, (), lambda _: None))
    monkeypatch.setattr(listing, "_MANY", 0)
    monkeypatch.setattr(listing, "_GIVEN", 10)
    assert list(listed(repository, (), lambda _: None)) == by_git
    assert repository.gaps == []


def test_an_index_that_turns_out_to_be_damaged_is_told(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut() -> Iterator[bytes]:
        yield bytes.fromhex(everything(repo)[0])
        raise IndexError

    monkeypatch.setattr(listing, "many_ids", lambda *_, **__: cut())
    repository = opened(repo, tmp_path / "work")
    list(listed(repository, (), lambda _: None))
    assert repository.gaps == [INCOMPLETE]


def test_a_list_that_nobody_reads_to_its_end_leaves_nothing_behind(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:d"))
    monkeypatch.setattr(listing, "many_ids", lambda *_, **__: itertools.repeat(blob))
    before = threading.active_count()
    blobs = listing._blobs(opened(repo, tmp_path / "work"))
    assert next(blobs)[0] == blob
    blobs.close()
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before  # one of an earlier test may have ended meanwhile
