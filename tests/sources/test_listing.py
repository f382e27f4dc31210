"""All blobs, each once, in the order in which git has the least to do."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from outcrop.sources import gitcall, listing
from outcrop.sources.listing import listed
from outcrop.sources.repository import Repository, open_local
from tests.sources.conftest import Repo


@pytest.fixture(params=["sha1", "sha256"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """A repository with 40 versions of each of three files, packed as changes of each other."""
    repo = Repo(tmp_path / "packed", f"--object-format={request.param}")
    for version in range(40):
        repo.commit({name: "".join(f"{name} {line} {version if line == version else 0}\n" for line in range(300)) for name in "abc"})
    repo.git("repack", "-adfq", "--depth=5", "--window=20")
    (tmp_path / "work").mkdir()
    return open_local(repo.path / ".git", tmp_path / "work")


def bases(repository: Repository) -> dict[bytes, bytes]:
    """Ask git what each blob is kept as a change of."""
    command = ["git", "--git-dir", str(repository.folder), "cat-file", "--batch-all-objects"]
    out = subprocess.run([*command, "--batch-check=%(objecttype) %(objectname) %(deltabase)"], capture_output=True, check=True).stdout
    return {oid: base for kind, oid, base in map(bytes.split, out.splitlines()) if kind == b"blob"}


def test_every_blob_is_listed_once_and_behind_its_base(packed: Repository) -> None:
    known = bases(packed)
    order = [oid for batch in listed(packed, (), lambda _: None) for oid in batch]
    assert sorted(order) == sorted(known)
    place = {oid: at for at, oid in enumerate(order)}
    changes = {oid: base for oid, base in known.items() if base in known}
    assert len(changes) > 60
    assert all(place[base] < place[oid] for oid, base in changes.items())


def test_where_blobs_are_put_in_order_some_at_a_time_each_is_listed_once(packed: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_TOGETHER", 7)
    order = [oid for batch in listed(packed, (), lambda _: None) for oid in batch]
    assert sorted(order) == sorted(bases(packed))


def test_a_family_is_told_to_its_end_before_the_next_one(packed: Repository) -> None:
    known = bases(packed)

    def whole(oid: bytes) -> bytes:
        return whole(known[oid]) if known[oid] in known else oid

    families = [whole(oid) for batch in listed(packed, (), lambda _: None) for oid in batch]
    assert sum(one != other for one, other in pairwise(families)) == len(set(families)) - 1


def test_what_is_known_is_left_out_and_changes_of_it_are_not(packed: Repository) -> None:
    known = bases(packed)
    read = {oid for oid, base in known.items() if base not in known}
    noted: set[bytes] = set()
    order = [
        oid
        for batch in listed(packed, {bytes.fromhex(oid.decode()) for oid in read}, lambda oid: noted.add(oid.hex().encode()))
        for oid in batch
    ]
    assert sorted(order) == sorted(known.keys() - read)
    assert noted == set(order)


def test_a_git_that_has_ended_before_it_was_told_everything_is_left_quietly(repo: Repo) -> None:
    with gitcall.start(repo.path / ".git", ["cat-file", "--batch"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"still to be told")
        process.kill()
        process.wait()
    assert process.stdin.closed
