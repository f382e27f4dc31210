"""Messages read by their places in a pack: the same as git gives, and git is asked only for what is not as usual."""

import random
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from outcrop.sources.git import objects
from outcrop.sources.git.enumerate_objects import list_objects
from outcrop.sources.git.objects import MessageId
from outcrop.sources.git.packs import pack
from outcrop.sources.git.repository import open_local
from tests.sources.conftest import Repo


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    """Commits whose messages are long and alike, so that git keeps some as changes of others, an empty one, and a tag."""
    repo = Repo(tmp_path / "repo")
    chance = random.Random(3)
    text = [f"* line {number} was {chance.randrange(10**9)}" for number in range(200)]
    for number in range(20):
        text[number * 7] = f"* changed in {number}"
        repo.commit_message("\n".join(["Subject", "", *text]) + "\n")
    repo.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "-m", "")
    repo.git("tag", "-a", "-m", "what is released", "v1")
    repo.git("repack", "-adfq")
    return repo


def by_git(repo: Repo) -> dict[bytes, bytes]:
    """Give all messages as git gives them."""
    command = ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"]
    lines = subprocess.run(command, cwd=repo.path, capture_output=True, check=True).stdout.splitlines()
    kinds = dict(reversed(line.split()) for line in lines)
    given = {}
    for oid, kind in kinds.items():
        if kind in {b"commit", b"tag"}:
            whole = subprocess.run(
                ["git", "cat-file", kind, oid], cwd=repo.path, capture_output=True, check=True
            ).stdout
            given[oid] = whole.partition(b"\n\n")[2]
    return given


def by_us(repo: Repo, work: Path) -> dict[bytes, objects.Content]:
    repository = open_local(repo.path / ".git", work)
    return {
        one[0]: one
        for one in objects.read_contents(repository, list_objects(repository, (), lambda _: None, 1))
        if isinstance(one[0], MessageId)
    }


def texts(given: dict[bytes, objects.Content]) -> dict[bytes, object]:
    return {oid: content for oid, (_, content) in given.items()}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Give what git was asked for."""
    ids: list[bytes] = []
    ask = objects.read_with_git

    def note(
        repository: objects.Repository, batches: Iterable[list[bytes]], *, messages_only: bool = True
    ) -> object:
        batches = list(batches)
        ids.extend(oid for batch in batches for oid in batch)
        return ask(repository, batches, messages_only=messages_only)

    monkeypatch.setattr(objects, "read_with_git", note)
    return ids


def test_they_are_those_that_git_gives_and_git_is_not_asked(
    repo: Repo, tmp_path: Path, asked: list[bytes]
) -> None:
    (index,) = (repo.path / ".git" / "objects" / "pack").glob("*.idx")
    rows = repo.git("verify-pack", "-v", str(index)).splitlines()
    assert sum(" commit " in row and len(row.split()) > 5 for row in rows) >= 10  # changes of other commits
    given = by_us(repo, tmp_path / "work")
    assert len(given) == 22
    assert texts(given) == by_git(repo)
    assert asked == []


def test_they_come_many_at_a_time(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_SCAN_BYTES", 10_000)
    assert texts(by_us(repo, tmp_path / "work")) == by_git(repo)


def test_those_of_several_packs_are_told_once(repo: Repo, tmp_path: Path, asked: list[bytes]) -> None:
    repo.commit_message("in a second pack\n")
    repo.git("repack", "-dq")
    repo.commit_message("loose\n")
    repository = open_local(repo.path / ".git", tmp_path / "work")
    ids = [oid for batch in list_objects(repository, (), lambda _: None, 1) for oid in batch]
    assert len(ids) == len(set(ids)) == 24
    assert texts(by_us(repo, tmp_path / "again")) == by_git(repo)
    assert asked == [repo.git("rev-parse", "HEAD").encode()]


def test_those_of_a_pack_that_is_not_open_are_left_to_git(
    repo: Repo, tmp_path: Path, asked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "_MAX_OPEN_PACKS", 0)
    assert texts(by_us(repo, tmp_path / "work")) == by_git(repo)
    assert sorted(asked) == sorted(by_git(repo))


def test_what_is_no_longer_where_it_was_is_left_to_git(
    repo: Repo, tmp_path: Path, asked: list[bytes]
) -> None:
    repository = open_local(repo.path / ".git", tmp_path / "work")
    batches = list(list_objects(repository, (), lambda _: None, 1))
    repo.commit_message("what a repack brings\n")
    repo.git("repack", "-adfq")
    given = {one[0]: one for one in objects.read_contents(repository, batches)}
    assert texts(given) == {oid: text for oid, text in by_git(repo).items() if oid in given}
    assert len(given) == 22
    assert sorted(asked) == sorted(given)


def test_a_damaged_one_is_told_and_the_others_are_read(repo: Repo, tmp_path: Path) -> None:
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    (last,) = (
        row
        for row in repo.git("verify-pack", "-v", str(pack)).splitlines()
        if row.startswith(repo.git("rev-parse", "v1"))
    )
    oid, _, _, _, start = last.split()[:5]
    good = by_git(repo)
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.seek(int(start) + 10)
        file.write(b"\0\0\0\0")
    repository = open_local(repo.path / ".git", tmp_path / "work")
    given = {
        one[0]: one
        for one in objects.read_contents(repository, list_objects(repository, (), lambda _: None, 1))
    }
    assert given.pop(oid.encode())[1] is None
    assert texts(given) == {name: text for name, text in good.items() if name != oid.encode()}
