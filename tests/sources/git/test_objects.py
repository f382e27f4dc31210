"""Read messages at their offsets in a pack: the same as git returns; git reads only unusual objects."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outcrop.limits import PackLimits
from outcrop.sources.git import objects
from outcrop.sources.git.cat_file import Content, MessageId, read_with_git
from outcrop.sources.git.enumerate_objects import list_objects
from outcrop.sources.git.objects import READ_SIZES, ReadSizes
from outcrop.sources.git.repository import open_local
from tests.sources.conftest import Repo, read_objects
from tests.support.calls import recorded_calls


@pytest.fixture
def repo(many_messages: Repo, tmp_path: Path) -> Repo:
    return many_messages.copy_to(tmp_path / "repo")


@pytest.fixture(scope="module")
def many_messages(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Write commits with long and similar messages, which git packs as deltas, an empty message and a tag."""
    repo = Repo(tmp_path_factory.mktemp("messages"))
    chance = random.Random(3)
    text = [f"* line {number} was {chance.randrange(10**9)}" for number in range(200)]
    for number in range(20):
        text[number * 7] = f"* changed in {number}"
        repo.commit_message("\n".join(["Subject", "", *text]) + "\n")
    repo.git("commit", "--quiet", "--allow-empty", "--allow-empty-message", "-m", "")
    repo.git("tag", "-a", "-m", "what is released", "v1")
    repo.git("repack", "-adfq")
    return repo


def read_with_cat_file(repo: Repo) -> dict[bytes, bytes]:
    """Return all messages as git returns them."""
    return {
        oid.encode(): content.partition(b"\n\n")[2]
        for oid, (kind, content) in read_objects(repo.path / ".git").items()
        if kind in {"commit", "tag"}
    }


def read_messages(repo: Repo, work: Path, sizes: ReadSizes = READ_SIZES) -> dict[bytes, Content]:
    repository = open_local(repo.path / ".git", work)
    batches = list_objects(repository, (), lambda _: None, 1)
    return {
        content[0]: content
        for content in objects.read_contents(repository, batches, sizes)
        if isinstance(content[0], MessageId)
    }


def texts(messages: dict[bytes, Content]) -> dict[bytes, object]:
    return {oid: content for oid, (_, content) in messages.items()}


@pytest.fixture
def ids_for_git() -> Iterator[Callable[[], list[bytes]]]:
    """Yield a function that returns the ids which git was asked for."""
    with recorded_calls(read_with_git) as calls:
        yield lambda: [oid for call in calls for batch in call.arguments["batches"] for oid in batch]


def test_messages_in_a_pack_are_read_without_git(
    repo: Repo, tmp_path: Path, ids_for_git: Callable[[], list[bytes]]
) -> None:
    (index,) = (repo.path / ".git" / "objects" / "pack").glob("*.idx")
    rows = repo.git("verify-pack", "-v", str(index)).splitlines()
    assert sum(" commit " in row and len(row.split()) > 5 for row in rows) >= 10  # deltas of other commits
    messages = read_messages(repo, tmp_path / "work")
    assert len(messages) == 22
    assert texts(messages) == read_with_cat_file(repo)
    assert ids_for_git() == []


def test_messages_are_read_in_several_batches(repo: Repo, tmp_path: Path) -> None:
    sizes = ReadSizes(scanned_bytes=10_000)
    assert texts(read_messages(repo, tmp_path / "work", sizes)) == read_with_cat_file(repo)


def test_messages_of_several_packs_are_read_once(
    repo: Repo, tmp_path: Path, ids_for_git: Callable[[], list[bytes]]
) -> None:
    repo.commit_message("in a second pack\n")
    repo.git("repack", "-dq")
    repo.commit_message("loose\n")
    repository = open_local(repo.path / ".git", tmp_path / "work")
    ids = [oid for batch in list_objects(repository, (), lambda _: None, 1) for oid in batch]
    assert len(ids) == len(set(ids)) == 24
    assert texts(read_messages(repo, tmp_path / "second")) == read_with_cat_file(repo)
    assert ids_for_git() == [repo.git("rev-parse", "HEAD").encode()]


def test_messages_of_a_pack_that_is_not_open_are_left_to_git(
    repo: Repo, tmp_path: Path, ids_for_git: Callable[[], list[bytes]]
) -> None:
    sizes = ReadSizes(packs=PackLimits(open_packs=0))
    assert texts(read_messages(repo, tmp_path / "work", sizes)) == read_with_cat_file(repo)
    assert sorted(ids_for_git()) == sorted(read_with_cat_file(repo))


def test_messages_of_a_replaced_pack_are_left_to_git(
    repo: Repo, tmp_path: Path, ids_for_git: Callable[[], list[bytes]]
) -> None:
    repository = open_local(repo.path / ".git", tmp_path / "work")
    batches = list(list_objects(repository, (), lambda _: None, 1))
    repo.commit_message("new in the repack\n")
    repo.git("repack", "-adfq")
    messages = {content[0]: content for content in objects.read_contents(repository, batches)}
    assert texts(messages) == {oid: text for oid, text in read_with_cat_file(repo).items() if oid in messages}
    assert len(messages) == 22
    assert sorted(ids_for_git()) == sorted(messages)


def test_a_damaged_message_is_missing_and_the_others_are_read(repo: Repo, tmp_path: Path) -> None:
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    (last,) = (
        row
        for row in repo.git("verify-pack", "-v", str(pack)).splitlines()
        if row.startswith(repo.git("rev-parse", "v1"))
    )
    oid, _, _, _, start = last.split()[:5]
    good = read_with_cat_file(repo)
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.seek(int(start) + 10)
        file.write(b"\0\0\0\0")
    repository = open_local(repo.path / ".git", tmp_path / "work")
    messages = {
        content[0]: content
        for content in objects.read_contents(repository, list_objects(repository, (), lambda _: None, 1))
    }
    assert messages.pop(oid.encode())[1] is None
    assert texts(messages) == {name: text for name, text in good.items() if name != oid.encode()}
