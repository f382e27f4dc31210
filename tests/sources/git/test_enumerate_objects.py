"""All files, commits and tags, each once, and each behind the one it is a change of, whoever tells of them."""

import itertools
import random
import subprocess
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from outcrop.sources.git import command, enumerate_objects
from outcrop.sources.git.enumerate_objects import DAMAGED_STORE, list_objects
from outcrop.sources.git.packs import delta_chains
from outcrop.sources.git.repository import Repository, open_local
from tests.sources.conftest import Repo


def opened(repo: Repo, work: Path) -> Repository:
    work.mkdir()
    return open_local(repo.path / ".git", work)


def told(repository: Repository) -> list[bytes]:
    return [oid for batch in list_objects(repository, (), lambda _: None, 2) for oid in batch]


def bases(repository: Repository) -> dict[bytes, bytes]:
    """Ask git what each object that is no tree is kept as a change of."""
    command = ["git", "--git-dir", str(repository.folder), "cat-file", "--batch-all-objects"]
    out = subprocess.run(
        [*command, "--batch-check=%(objecttype) %(objectname) %(deltabase)"], capture_output=True, check=True
    ).stdout
    return {oid: base for kind, oid, base in map(bytes.split, out.splitlines()) if kind != b"tree"}


def versions(repo: Repo, count: int, part: int = 0) -> None:
    for version in range(count):
        repo.commit(
            {
                name: "".join(
                    f"{name} {line} {version if line == version else part}\n" for line in range(300)
                )
                for name in "abc"
            }
        )


def no_git(*_: object, **__: object) -> None:
    raise AssertionError("git is not needed here")


@pytest.fixture(params=["sha1", "named", "sha256"])
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Repository:
    """A repository with 40 versions of each of three files, packed as changes of each other, which are told by place or by name."""
    repo = Repo(
        tmp_path / "packed", *([f"--object-format={request.param}"] if request.param != "named" else [])
    )
    versions(repo, 40)
    repo.git("tag", "-a", "-m", "the last", "v1")
    repo.git("config", "repack.useDeltaBaseOffset", str(request.param != "named").lower())
    repo.git("repack", "-adfq", "--depth=5", "--window=20")
    return opened(repo, tmp_path / "work")


@pytest.fixture
def mixed(repo: Repo) -> Repo:
    """Three packs that have objects in common, and loose objects, of which one is in a pack too."""
    for part in range(2):
        versions(repo, 10, part)
        repo.git("repack", "-adq" if part == 0 else "-dq")
    everything = repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    repo.git("pack-objects", "--quiet", ".git/objects/pack/pack", given="\n".join(everything[:20]).encode())
    repo.git("unpack-objects", "-q", given=max((repo.path / ".git/objects/pack").glob("*.pack")).read_bytes())
    repo.commit({"d": "loose\n"})
    return repo


def test_every_text_is_listed_once_and_behind_its_base(packed: Repository) -> None:
    known = bases(packed)
    order = told(packed)
    assert sorted(order) == sorted(known)
    place = {oid: at for at, oid in enumerate(order)}
    changes = {oid: base for oid, base in known.items() if base in known}
    assert len(changes) > 60
    assert all(place[base] < place[oid] for oid, base in changes.items())
    assert packed.gaps == []


@pytest.mark.parametrize("together", [1, 7, 50])
def test_where_texts_are_put_in_order_some_at_a_time_each_is_listed_once(
    packed: Repository, monkeypatch: pytest.MonkeyPatch, together: int
) -> None:
    monkeypatch.setattr(enumerate_objects, "_MAX_GROUPED", together)
    monkeypatch.setattr(delta_chains, "_ENTRIES_PER_JOB", together * 20)
    monkeypatch.setattr(delta_chains, "_READ_BYTES", 100)
    monkeypatch.setattr(enumerate_objects, "_IDS_PER_WRITE", 10)
    assert sorted(told(packed)) == sorted(bases(packed))


def test_a_family_is_told_to_its_end_before_the_next_one(
    packed: Repository, request: pytest.FixtureRequest
) -> None:
    known = bases(packed)

    def whole(oid: bytes) -> bytes:
        return whole(known[oid]) if known[oid] in known else oid

    families_told = [whole(oid) for oid in told(packed)]
    parts = 1 + sum(one != other for one, other in pairwise(families_told))
    by_name = "named" in request.node.name  # then git tells of the changes, after what is none
    assert parts <= len(set(families_told)) * (1 + by_name)


def test_what_is_known_is_left_out_and_changes_of_it_are_not(packed: Repository) -> None:
    known = bases(packed)
    read = {oid for oid, base in known.items() if base not in known}
    noted: set[bytes] = set()
    order = [
        oid
        for batch in list_objects(
            packed,
            {bytes.fromhex(oid.decode()) for oid in read},
            lambda oid: noted.add(oid.hex().encode()),
            2,
        )
        for oid in batch
    ]
    assert sorted(order) == sorted(known.keys() - read)
    assert noted == set(order)


def test_git_is_not_asked_where_all_is_as_usual(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(repo, 5)
    repo.git("repack", "-adfq")
    repository = opened(repo, tmp_path / "work")
    monkeypatch.setattr(command, "start", no_git)
    assert len(told(repository)) == 20  # fifteen files and five commits


def test_each_text_is_told_once_whatever_holds_it(mixed: Repo, tmp_path: Path) -> None:
    repository = opened(mixed, tmp_path / "work")
    assert len(list((repository.objects[0] / "pack").glob("*.idx"))) == 3
    assert sorted(told(repository)) == sorted(bases(repository))
    assert repository.gaps == []


@pytest.mark.parametrize("width", ["sha1", "sha256"])
def test_loose_objects_alone_are_told(tmp_path: Path, width: str) -> None:
    repo = Repo(tmp_path / "loose", f"--object-format={width}")
    repo.commit({"a": "one\n", "b": "two\n"})
    assert len(told(opened(repo, tmp_path / "work"))) == 3  # two files and their commit


def test_nothing_is_told_of_nothing(repo: Repo, tmp_path: Path) -> None:
    assert told(opened(repo, tmp_path / "work")) == []


def cut_index(pack: Path, _: random.Random) -> None:
    index = pack.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-1])


def cut_pack(pack: Path, _: random.Random) -> None:
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def places(pack: Path) -> list[int]:
    with pack.with_suffix(".idx").open("rb") as file:
        shown = subprocess.run(["git", "show-index"], stdin=file, capture_output=True, check=True).stdout
    return [int(line.split()[0]) for line in shown.splitlines()]


def spoil_heads(pack: Path, chance: random.Random) -> None:
    """Write something else over the heads of entries: other kinds, changes of what does not stand there."""
    data = bytearray(pack.read_bytes())
    for at in chance.sample(places(pack), 20):
        data[at : at + 3] = chance.randbytes(3)
    pack.write_bytes(data)


def lengthen_heads(pack: Path, chance: random.Random) -> None:
    """Let heads of changes go on without an end."""
    data = bytearray(pack.read_bytes())
    for at in chance.sample(places(pack), 5):
        data[at : at + 100] = b"\xe0" + b"\xff" * 99
    pack.write_bytes(data)


def cut_head(pack: Path, _: random.Random) -> None:
    """End a pack within the head of its last change."""
    data = pack.read_bytes()
    last = max(at for at in places(pack) if data[at] >> 4 & 7 == 6)
    pack.write_bytes(data[: last + 2])


@pytest.mark.parametrize("damage", [cut_index, cut_pack, cut_head, lengthen_heads, *[spoil_heads] * 5])
def test_what_is_damaged_is_told_as_git_tells_it(
    repo: Repo,
    tmp_path: Path,
    damage: Callable[[Path, random.Random], None],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta_chains, "_ENTRIES_PER_JOB", 30)  # by processes, whose errors would end the scan
    versions(repo, 20)
    repo.git("repack", "-adfq")
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    for file in (pack, pack.with_suffix(".idx")):
        file.chmod(0o600)
    damage(pack, random.Random(request.node.name))
    ours, by_git = opened(repo, tmp_path / "ours"), opened(repo, tmp_path / "git")
    everything = enumerate_objects.RowFile(tmp_path)
    messages = enumerate_objects.RowFile(tmp_path)
    enumerate_objects._list_with_git(by_git, None, enumerate_objects._ObjectLists(everything, messages, ()))
    of_git = {row[: -enumerate_objects._SIZE_BYTES].hex().encode() for row in [*everything, *messages]}
    everything.close()
    messages.close()
    assert of_git <= set(told(ours)) or ours.gaps == by_git.gaps == [DAMAGED_STORE]


def test_what_cannot_be_read_of_a_pack_is_left_to_git(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(repo, 20)
    repo.git("repack", "-adfq")
    repository = opened(repo, tmp_path / "work")
    by_one = told(repository)
    whole = delta_chains.Pack.read

    def read(pack: delta_chains.Pack, offset: int, size: int) -> bytes:
        if offset > pack.size // 3:
            raise OSError("input/output error")
        return whole(pack, offset, size)

    monkeypatch.setattr(delta_chains, "_ENTRIES_PER_JOB", 30)
    monkeypatch.setattr(delta_chains, "_READ_BYTES", 200)
    monkeypatch.setattr(delta_chains.Pack, "read", read)
    assert sorted(told(repository)) == sorted(by_one)


def test_a_pack_is_read_in_parts_by_processes_as_by_one(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions(repo, 20)
    repo.git("repack", "-adfq")
    repository = opened(repo, tmp_path / "work")
    by_one = told(repository)
    started: list[int] = []
    run = delta_chains.run_in_processes
    monkeypatch.setattr(delta_chains, "_ENTRIES_PER_JOB", 30)
    monkeypatch.setattr(
        delta_chains,
        "run_in_processes",
        lambda parts, work, jobs: started.append(len(parts)) or run(parts, work, jobs),
    )
    assert told(repository) == by_one
    assert started == [4]  # of 120 objects


def test_a_list_that_nobody_reads_to_its_end_leaves_nothing_behind(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"d": "loose\n"})
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:d"))
    before = threading.active_count()
    texts = enumerate_objects._query_git(opened(repo, tmp_path / "work"), itertools.repeat(blob))
    assert next(texts)[0] == blob
    texts.close()
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before  # one of an earlier test may have ended meanwhile


def test_a_git_that_has_ended_before_it_was_told_everything_is_left_quietly(repo: Repo) -> None:
    with command.start(repo.path / ".git", ["cat-file", "--batch"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"still to be told")
        process.kill()
        process.wait()
    assert process.stdin.closed
