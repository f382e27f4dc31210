"""Read objects from packs: the same bytes as git returns; whatever is wrong is left to git."""

import random
import struct
import zlib
from pathlib import Path

import pytest

from outcrop.limits import PackLimits
from outcrop.scanner.engine.delta_scan import FileVersion
from outcrop.sources.git import objects
from outcrop.sources.git.cat_file import LargeObject
from outcrop.sources.git.objects import ReadSizes
from outcrop.sources.git.packs import pack
from outcrop.sources.git.packs.pack import PackReader
from outcrop.sources.git.repository import open_local
from tests.sources.conftest import Repo, Scan, read_objects, token

LINES = 400


def lines(version: int) -> str:
    """Return a version of a file; each version has a few other lines."""
    chance = random.Random(7)
    text = [f"line {number} says {chance.randrange(10**9)}" for number in range(LINES)]
    for number in range(version):
        text[number * 37 % LINES] = f"changed in {number}"
        text.insert(number * 91 % LINES, f"new in {number}")
    return "\n".join(text) + "\n"


@pytest.fixture
def repo(thirty_versions: Repo, tmp_path: Path) -> Repo:
    return thirty_versions.copy_to(tmp_path / "repo")


@pytest.fixture(scope="module")
def thirty_versions(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """Return a repository with 30 versions of a file in one pack. Tests get a copy of it."""
    repo = Repo(tmp_path_factory.mktemp("thirty"))
    for version in range(30):
        repo.commit({"a": lines(version), f"other/{version % 3}": f"{version}\n" * 50})
    repo.git("repack", "-adfq")
    return repo


def objects_folder(repo: Repo) -> Path:
    return repo.path / ".git" / "objects"


def read_all(repo: Repo, kind: str = "blob") -> dict[str, bytes]:
    """Return the contents of all objects of a type as git returns them."""
    found = read_objects(repo.path / ".git").items()
    return {oid: content for oid, (its_kind, content) in found if its_kind == kind}


def read_blobs(repo: Repo, oids: list[str]) -> dict[str, bytes | None]:
    packs = PackReader([objects_folder(repo)])
    try:
        return {
            oid: version and version.content
            for oid in oids
            for version in [packs.read_blob(bytes.fromhex(oid))]
        }
    finally:
        packs.close()


@pytest.mark.parametrize("by", ["offset", "name"])
@pytest.mark.parametrize("index", ["2", "2,0x40"], ids=["4-byte", "8-byte"])
def test_every_blob_is_equal_to_that_of_git(repo: Repo, by: str, index: str) -> None:
    """A delta names its base by offset or by id, and an index may have 8-byte offsets."""
    repo.git("-c", f"repack.usedeltabaseoffset={str(by == 'offset').lower()}", "repack", "-adfq")
    (pack,) = (objects_folder(repo) / "pack").glob("*.pack")
    pack.with_suffix(".idx").unlink()
    repo.git("index-pack", f"--index-version={index}", str(pack))
    expected = read_all(repo)
    assert read_blobs(repo, list(expected)) == expected


def test_loose_and_missing_objects_are_left_to_git(repo: Repo) -> None:
    oid = repo.blob(b"loose\n")
    assert read_blobs(repo, [oid, "00" * 20, "ff" * 20]) == {oid: None, "00" * 20: None, "ff" * 20: None}


def test_commits_and_trees_are_left_to_git(repo: Repo) -> None:
    others = [*read_all(repo, "commit"), *read_all(repo, "tree")]
    assert len(others) > 60
    assert set(read_blobs(repo, others).values()) == {None}


def test_an_object_may_be_in_any_of_several_packs(repo: Repo) -> None:
    for number in range(3):
        repo.commit({"b": f"pack {number}\n" * 99})
        repo.git("repack", "-dq")
    expected = read_all(repo)
    assert len(list((objects_folder(repo) / "pack").glob("*.pack"))) == 4
    assert read_blobs(repo, list(expected)) == expected


def test_copied_ranges_are_equal_in_the_base(repo: Repo) -> None:
    oids = [repo.git("rev-parse", f"HEAD~{back}:a") for back in range(30)]
    packs = PackReader([objects_folder(repo)])
    copied_bytes = 0
    for version in filter(None, (packs.read_blob(bytes.fromhex(oid)) for oid in oids)):
        for start, stop, origin in version.copied:
            assert version.base is not None
            assert version.content[start:stop] == version.base.content[origin : origin + stop - start]
            copied_bytes += stop - start
    packs.close()
    assert copied_bytes > 20 * len(lines(0)) * 0.8


def test_offset_and_size_of_a_copy_omit_zero_bytes() -> None:
    base = FileVersion(bytes(range(256)) * 1_024)
    delta = varint(1 << 18) + varint(65_536 + 256 + 0x1234 + 3)
    delta += (
        bytes([0x80]) + bytes([0x80 | 2 | 32, 5, 1]) + bytes([0x80 | 5 | 48, 7, 3, 0x34, 0x12]) + b"\3new"
    )
    version = pack._apply_delta(base, delta, list_copies=True)
    assert (
        version.content
        == base.content[:65_536]
        + base.content[1_280:1_536]
        + base.content[0x30007 : 0x30007 + 0x1234]
        + b"new"
    )
    assert version.copied == [
        (0, 65_536, 0),
        (65_792, 65_792 + 0x1234, 0x30007),
    ]  # the range between these is too short


# --- Damaged and hostile packs


@pytest.mark.parametrize("seed", range(8))
def test_blobs_of_a_damaged_pack_are_left_to_git(repo: Repo, seed: int) -> None:
    expected = read_all(repo)
    (pack,) = (objects_folder(repo) / "pack").glob("*.pack")
    undamaged = pack.read_bytes()
    pack.chmod(0o600)
    chance = random.Random(seed)
    for _ in range(20):
        damaged = bytearray(undamaged)
        for _ in range(chance.choice([1, 1, 50])):
            damaged[chance.randrange(12, len(undamaged))] = chance.randrange(256)
        pack.write_bytes(damaged[: chance.choice([len(undamaged), chance.randrange(len(undamaged))])])
        found = read_blobs(repo, list(expected))
        assert all(content is None or isinstance(content, bytes) for content in found.values())


def test_a_damaged_index_never_yields_a_wrong_blob(repo: Repo) -> None:
    expected = read_all(repo)
    (index,) = (objects_folder(repo) / "pack").glob("*.idx")
    undamaged = index.read_bytes()
    index.chmod(0o600)
    chance = random.Random(1)
    for _ in range(50):
        damaged = bytearray(undamaged)
        for _ in range(30):
            damaged[chance.randrange(8, len(undamaged))] = chance.randrange(256)
        index.write_bytes(damaged)
        assert {content for content in read_blobs(repo, list(expected)).values() if content} <= set(
            expected.values()
        )


def test_the_number_of_open_packs_is_limited(repo: Repo) -> None:
    for number in range(4):
        repo.commit({"b": f"pack {number}\n" * 99})
        repo.git("repack", "-dq")
    before = len(list(Path("/proc/self/fd").iterdir()))
    packs = PackReader([objects_folder(repo)], PackLimits(open_packs=2))
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 4
    packs.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_id_far_from_its_expected_position_is_found(tmp_path: Path) -> None:
    """Ids are expected to be distributed evenly; all of these are at the beginning of the range."""
    oids = [b"\1\0\0" + bytes([number]) * 17 for number in range(200)]
    contents = [b"content %03d" % number for number in range(200)]
    folder = write_pack(tmp_path, [entry(3, len(content), content) for content in contents], oids)
    packs = PackReader([folder])
    versions = [packs.read_blob(oid) for oid in oids]
    packs.close()
    assert [version and version.content for version in versions] == contents


def varint(number: int) -> bytes:
    low, number = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(number) if number else bytes([low])


def entry(kind: int, size: int, data: bytes, base: bytes = b"") -> bytes:
    head = bytes([(0x80 if size >> 4 else 0) | kind << 4 | size & 15]) + (
        varint(size >> 4) if size >> 4 else b""
    )
    return head + base + zlib.compress(data)


def make_ids(count: int) -> list[bytes]:
    return [bytes([number]) * 20 for number in range(1, count + 1)]


def write_pack(folder: Path, entries: list[bytes], oids: list[bytes] | None = None) -> Path:
    """Write a pack that git would not write, and its index with sorted ids; return the object folder."""
    (folder / "pack").mkdir(parents=True)
    oids = oids or make_ids(len(entries))
    pack, offsets = b"PACK" + struct.pack(">II", 2, len(entries)), []
    for data in entries:
        offsets.append(len(pack))
        pack += data
    fan_out = [sum(oid[0] <= first for oid in oids) for first in range(256)]
    index = (
        b"\xfftOc"
        + struct.pack(">I256I", 2, *fan_out)
        + b"".join(oids)
        + bytes(4 * len(oids))
        + struct.pack(f">{len(oids)}I", *offsets)
    )
    (folder / "pack" / "pack-1.pack").write_bytes(pack + bytes(20))
    (folder / "pack" / "pack-1.idx").write_bytes(index + bytes(40))
    return folder


GOOD = entry(3, 5, b"hello")
DELTA = varint(5) + varint(8) + bytes([0x90, 5]) + b"\3new"
HOSTILE = {
    "more data than its size": entry(3, 5, bytes(50_000_000)),
    "less data than its size": entry(3, 500, b"hello"),
    "larger than any memory": entry(3, 1 << 50, b"hello"),
    "a size without an end": b"\xbf" + b"\xff" * 5_000,
    "a base distance without an end": b"\xe5" + b"\xff" * 5_000,
    "an unknown type": entry(5, 5, b"hello"),
    "no type": entry(0, 5, b"hello"),
    "not compressed": bytes([0x35]) + b"hello world",
    "a delta of itself": entry(7, len(DELTA), DELTA, make_ids(2)[1]),
    "a delta of a missing object": entry(7, len(DELTA), DELTA, b"\x77" * 20),
    "a delta of a later entry": entry(6, len(DELTA), DELTA, b"\0"),
    "a delta of an offset before the pack": entry(6, len(DELTA), DELTA, b"\x7f"),
    "a delta that makes gigabytes": entry(
        6, 20, (varint(5) + varint(1 << 40) + bytes([0x90, 5]) + bytes(20))[:20], bytes([len(GOOD)])
    ),
    "a truncated delta": entry(6, 3, DELTA[:3], bytes([len(GOOD)])),
    "a delta of a base of another size": entry(6, len(DELTA), varint(6) + DELTA[1:], bytes([len(GOOD)])),
    "a delta that copies beyond its base": entry(
        6, 4, varint(5) + varint(9) + bytes([0x90, 9]), bytes([len(GOOD)])
    ),
    "nothing": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_entry_is_left_to_git(tmp_path: Path, what: str) -> None:
    packs = PackReader([write_pack(tmp_path, [GOOD, HOSTILE[what]])])
    good, bad = make_ids(2)
    assert packs.read_blob(bad) is None
    version = packs.read_blob(good)
    packs.close()
    assert version is not None
    assert version.content == b"hello"


def test_a_handwritten_pack_with_deltas_is_read(tmp_path: Path) -> None:
    packs = PackReader(
        [
            write_pack(
                tmp_path,
                [
                    GOOD,
                    entry(6, len(DELTA), DELTA, bytes([len(GOOD)])),
                    entry(7, len(DELTA), DELTA, make_ids(1)[0]),
                ],
            )
        ]
    )
    assert [version and version.content for version in map(packs.read_blob, make_ids(3))] == [
        b"hello",
        b"hellonew",
        b"hellonew",
    ]
    packs.close()


def test_a_cycle_of_deltas_is_left_to_git(tmp_path: Path) -> None:
    first, second = make_ids(2)
    packs = PackReader(
        [write_pack(tmp_path, [entry(7, len(DELTA), DELTA, second), entry(7, len(DELTA), DELTA, first)])]
    )
    assert packs.read_blob(first) is None
    packs.close()


def test_the_chain_cache_is_limited(repo: Repo) -> None:
    packs = PackReader([objects_folder(repo)], PackLimits(cached_bytes=3 * len(lines(30))))
    expected = read_all(repo)
    for oid, content in expected.items():
        version = packs.read_blob(bytes.fromhex(oid))
        assert version is not None
        assert version.content == content
        assert (
            packs._chain_bytes
            == sum(len(version.content) for version in packs._chain.values())
            <= 3 * len(lines(30))
        )
    packs.close()


def test_a_chain_with_too_many_bytes_of_deltas_is_left_to_git(tmp_path: Path) -> None:
    entries = [GOOD]
    for size in range(5, 25, 3):
        delta = varint(size) + varint(size + 3) + bytes([0x90, size]) + b"\3new"
        entries.append(entry(6, len(delta), delta, bytes([len(entries[-1])])))
    packs = PackReader([write_pack(tmp_path, entries)], PackLimits(delta_bytes=3 * len(DELTA)))
    first, *_, fourth, _, _, _, last = make_ids(len(entries))
    assert packs.read_blob(last) is None
    assert [version and version.content for version in map(packs.read_blob, (fourth, last))] == [
        b"hello" + b"new" * 3,
        None,
    ]
    assert packs.read_blob(first) is not None
    packs.close()


def test_a_version_does_not_keep_its_base_after_the_scan(repo: Repo, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    repository = open_local(repo.path / ".git", tmp_path / "work")
    oids = [repo.git("rev-parse", f"HEAD~{back}:a").encode() for back in range(30)]
    versions = [
        version
        for item in objects.read_objects(repository, [oids], ReadSizes(scanned_bytes=1))
        if isinstance(item, list)
        for _, version in item
    ]
    assert len(versions) == 30
    assert all(version.base is None for version in versions[:-1])


# --- Scans


def test_packed_and_loose_versions_have_the_same_findings(tmp_path: Path, scan: Scan) -> None:
    repo = Repo(tmp_path / "repo")
    for version in range(24):
        text = lines(version).splitlines()
        for seed in range(version // 4):
            text.insert(seed * 61 + version, f"token = '{token(str(seed))}'")
        repo.commit({"a": "\n".join(text), "b": "\n".join(text[version:])})
    loose = scan(repo.path).findings
    repo.git("repack", "-adfq")
    assert scan(repo.path).findings == loose
    assert len(loose) == 10  # five tokens in each file


def test_objects_are_read_from_packs_and_from_git(repo: Repo, tmp_path: Path) -> None:
    sizes = ReadSizes(waiting=2, scanned_bytes=10_000)
    expected = read_all(repo) | {
        repo.blob(b"loose %d\n" % number): b"loose %d\n" % number for number in range(5)
    }
    large = bytes(1_100_000)
    expected[repo.blob(large)] = large
    expected |= {oid: text.partition(b"\n\n")[2] for oid, text in read_all(repo, "commit").items()}
    (tmp_path / "work").mkdir()
    repository = open_local(repo.path / ".git", tmp_path / "work")
    found = {
        oid.decode(): content.read(1 << 21) if isinstance(content, LargeObject) else content
        for oid, content in objects.read_contents(repository, [[oid.encode() for oid in expected]], sizes)
    }
    assert found == expected
