"""List blobs, commits and tags, each once and after its delta base, from packs and with git."""

import itertools
import random
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from outcrop.sources.fork_pool import run_in_processes
from outcrop.sources.git import command, enumerate_objects
from outcrop.sources.git.enumerate_objects import DAMAGED_STORE, LIST_SIZES, ListSizes, list_objects
from outcrop.sources.git.packs.delta_chains import HeaderSizes, list_blobs
from outcrop.sources.git.packs.pack import Pack
from outcrop.sources.git.repository import Repository, open_local
from tests.sources.conftest import Repo
from tests.support.calls import recorded_calls


def open_repository(repo: Repo, work: Path) -> Repository:
    work.mkdir()
    return open_local(repo.path / ".git", work)


def list_ids(repository: Repository, sizes: ListSizes = LIST_SIZES) -> list[bytes]:
    return [oid for batch in list_objects(repository, (), lambda _: None, 2, sizes) for oid in batch]


def bases(repository: Repository) -> dict[bytes, bytes]:
    """Return the delta base of each object that is no tree, as git reports it."""
    command = ["git", "--git-dir", str(repository.folder), "cat-file", "--batch-all-objects"]
    out = subprocess.run(
        [*command, "--batch-check=%(objecttype) %(objectname) %(deltabase)"], capture_output=True, check=True
    ).stdout
    return {oid: base for kind, oid, base in map(bytes.split, out.splitlines()) if kind != b"tree"}


def commit_versions(repo: Repo, count: int, part: int = 0) -> None:
    for version in range(count):
        repo.commit(
            {
                name: "".join(
                    f"{name} {line} {version if line == version else part}\n" for line in range(300)
                )
                for name in "abc"
            }
        )


SEVERAL_PROCESSES = ListSizes(headers=HeaderSizes(entries_per_job=30))


@pytest.fixture(scope="module", params=["sha1", "named", "sha256"])
def packed_repo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository with 40 versions of three files, packed as ofs-deltas or ref-deltas."""
    options = [f"--object-format={request.param}"] if request.param != "named" else []
    repo = Repo(tmp_path_factory.mktemp("packed"), *options)
    commit_versions(repo, 40)
    repo.git("tag", "-a", "-m", "the last", "v1")
    repo.git("config", "repack.useDeltaBaseOffset", str(request.param != "named").lower())
    repo.git("repack", "-adfq", "--depth=5", "--window=20")
    return repo


@pytest.fixture
def packed(packed_repo: Repo, tmp_path: Path) -> Repository:
    return open_repository(packed_repo, tmp_path / "work")


@pytest.fixture(scope="module")
def twenty_versions(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository with 20 versions of three files in one pack. Tests copy it."""
    repo = Repo(tmp_path_factory.mktemp("twenty"))
    commit_versions(repo, 20)
    repo.git("repack", "-adfq")
    return repo


@pytest.fixture
def mixed(repo: Repo) -> Repo:
    """Return a repository with three packs that share objects, and with loose objects."""
    for part in range(2):
        commit_versions(repo, 10, part)
        repo.git("repack", "-adq" if part == 0 else "-dq")
    everything = repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
    repo.git("pack-objects", "--quiet", ".git/objects/pack/pack", given="\n".join(everything[:20]).encode())
    repo.git("unpack-objects", "-q", given=max((repo.path / ".git/objects/pack").glob("*.pack")).read_bytes())
    repo.commit({"d": "loose\n"})
    return repo


def test_every_object_is_listed_once_and_after_its_base(packed: Repository) -> None:
    known = bases(packed)
    order = list_ids(packed)
    assert sorted(order) == sorted(known)
    place = {oid: at for at, oid in enumerate(order)}
    changes = {oid: base for oid, base in known.items() if base in known}
    assert len(changes) > 60
    assert all(place[base] < place[oid] for oid, base in changes.items())
    assert packed.gaps == []


@pytest.mark.parametrize("together", [1, 7, 50])
def test_every_object_is_listed_once_if_objects_are_grouped_in_parts(
    packed: Repository, together: int
) -> None:
    headers = HeaderSizes(read_bytes=100, entries_per_job=together * 20)
    sizes = ListSizes(grouped=together, ids_per_write=10, headers=headers)
    assert sorted(list_ids(packed, sizes)) == sorted(bases(packed))


def test_all_deltas_of_an_object_are_listed_before_the_next_object(
    packed: Repository, request: pytest.FixtureRequest
) -> None:
    known = bases(packed)

    def find_root(oid: bytes) -> bytes:
        return find_root(known[oid]) if known[oid] in known else oid

    roots = [find_root(oid) for oid in list_ids(packed)]
    parts = 1 + sum(root != next_root for root, next_root in pairwise(roots))
    by_name = "named" in request.node.name  # then git lists the deltas, after the other objects
    assert parts <= len(set(roots)) * (1 + by_name)


def test_known_objects_are_left_out_but_not_their_deltas(packed: Repository) -> None:
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


def test_git_is_not_started_for_a_usual_pack(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_versions(repo, 5)
    repo.git("repack", "-adfq")
    repository = open_repository(repo, tmp_path / "work")
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no git in it
    assert len(list_ids(repository)) == 20  # fifteen files and five commits


def test_an_object_in_several_packs_is_listed_once(mixed: Repo, tmp_path: Path) -> None:
    repository = open_repository(mixed, tmp_path / "work")
    assert len(list((repository.objects[0] / "pack").glob("*.idx"))) == 3
    assert sorted(list_ids(repository)) == sorted(bases(repository))
    assert repository.gaps == []


@pytest.mark.parametrize("width", ["sha1", "sha256"])
def test_loose_objects_without_a_pack_are_listed(tmp_path: Path, width: str) -> None:
    repo = Repo(tmp_path / "loose", f"--object-format={width}")
    repo.commit({"a": "one\n", "b": "two\n"})
    assert len(list_ids(open_repository(repo, tmp_path / "work"))) == 3  # two files and their commit


def test_an_empty_repository_has_no_objects(repo: Repo, tmp_path: Path) -> None:
    assert list_ids(open_repository(repo, tmp_path / "work")) == []


def truncate_index(pack: Path, _: random.Random) -> None:
    index = pack.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-1])


def truncate_pack(pack: Path, _: random.Random) -> None:
    pack.write_bytes(pack.read_bytes()[: pack.stat().st_size // 2])


def list_offsets(pack: Path) -> list[int]:
    with pack.with_suffix(".idx").open("rb") as file:
        shown = subprocess.run(["git", "show-index"], stdin=file, capture_output=True, check=True).stdout
    return [int(line.split()[0]) for line in shown.splitlines()]


def overwrite_headers(pack: Path, chance: random.Random) -> None:
    """Overwrite headers of entries: they get other types, or offsets at which no entry begins."""
    data = bytearray(pack.read_bytes())
    for at in chance.sample(list_offsets(pack), 20):
        data[at : at + 3] = chance.randbytes(3)
    pack.write_bytes(data)


def make_headers_endless(pack: Path, chance: random.Random) -> None:
    """Overwrite headers of deltas so that they never end."""
    data = bytearray(pack.read_bytes())
    for at in chance.sample(list_offsets(pack), 5):
        data[at : at + 100] = b"\xe0" + b"\xff" * 99
    pack.write_bytes(data)


def truncate_header(pack: Path, _: random.Random) -> None:
    """Truncate a pack in the header of its last delta."""
    data = pack.read_bytes()
    last = max(at for at in list_offsets(pack) if data[at] >> 4 & 7 == 6)
    pack.write_bytes(data[: last + 2])


@pytest.mark.parametrize(
    "damage", [truncate_index, truncate_pack, truncate_header, make_headers_endless, *[overwrite_headers] * 5]
)
def test_objects_of_a_damaged_pack_are_listed_as_git_lists_them(
    twenty_versions: Repo,
    tmp_path: Path,
    damage: Callable[[Path, random.Random], None],
    request: pytest.FixtureRequest,
) -> None:
    repo = twenty_versions.copy_to(tmp_path / "repo")
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    for file in (pack, pack.with_suffix(".idx")):
        file.chmod(0o600)
    damage(pack, random.Random(request.node.name))
    ours, by_git = open_repository(repo, tmp_path / "ours"), open_repository(repo, tmp_path / "git")
    everything = enumerate_objects.RowFile(tmp_path)  # type: ignore[attr-defined]
    messages = enumerate_objects.RowFile(tmp_path)  # type: ignore[attr-defined]
    enumerate_objects._list_with_git(by_git, None, enumerate_objects._ObjectLists(everything, messages, ()))
    of_git = {row[: -enumerate_objects._SIZE_BYTES].hex().encode() for row in [*everything, *messages]}
    everything.close()
    messages.close()
    listed = set(list_ids(ours, SEVERAL_PROCESSES))  # in processes, whose errors would end the scan
    assert of_git <= listed or ours.gaps == by_git.gaps == [DAMAGED_STORE]


def test_entries_of_a_pack_that_cannot_be_read_are_left_to_git(twenty_versions: Repo, tmp_path: Path) -> None:
    class HalfReadablePack(Pack):
        def read(self, offset: int, size: int) -> bytes:
            if offset > self.size // 3:
                raise OSError("input/output error")
            return super().read(offset, size)

    repo = twenty_versions.copy_to(tmp_path / "repo")
    (index,) = (repo.path / ".git" / "objects" / "pack").glob("*.idx")
    sizes = HeaderSizes(read_bytes=200, entries_per_job=30)

    def list_entries(pack: Pack) -> tuple[set[bytes], set[bytes]]:
        """Return the ids that are listed, and those that are left to git."""
        messages, unknown = set[bytes](), set[bytes]()
        with closing(pack):
            blobs = list_blobs(pack, 2, lambda oid, _: messages.add(oid), unknown.add, sizes)
            return {oid for oid, _ in blobs} | messages, unknown

    listed, unknown = list_entries(HalfReadablePack(index))
    everything, none = list_entries(Pack(index))
    assert len(listed) > 10 < len(unknown)
    assert listed <= everything <= listed | unknown
    assert none == set()


def test_a_pack_that_is_read_in_several_processes_has_the_same_objects(
    twenty_versions: Repo, tmp_path: Path
) -> None:
    repo = twenty_versions.copy_to(tmp_path / "repo")
    repository = open_repository(repo, tmp_path / "work")
    expected = list_ids(repository)
    with recorded_calls(run_in_processes) as runs:
        assert list_ids(repository, SEVERAL_PROCESSES) == expected
    assert [len(run.arguments["batches"]) for run in runs] == [4]  # of 120 objects


def test_a_listing_that_is_closed_early_leaves_no_thread_behind(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"d": "loose\n"})
    blob = bytes.fromhex(repo.git("rev-parse", "HEAD:d"))
    before = threading.active_count()
    texts = enumerate_objects._query_git(open_repository(repo, tmp_path / "work"), itertools.repeat(blob))
    assert next(texts)[0] == blob
    texts.close()  # type: ignore[attr-defined]
    for _ in range(100):
        if threading.active_count() <= before:
            break
        time.sleep(0.05)
    assert threading.active_count() <= before  # one of an earlier test may have ended meanwhile


def test_a_git_that_ended_before_it_read_its_input_is_no_error(repo: Repo) -> None:
    with command.start(repo.path / ".git", ["cat-file", "--batch"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"still to be written")
        process.kill()
        process.wait()
    assert process.stdin.closed
