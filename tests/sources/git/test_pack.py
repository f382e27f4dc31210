"""Objects as we read them from packs: the same bytes as git gives, and whatever is wrong is left to git."""

import random
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from outcrop.scanner.engine.delta_scan import FileVersion
from outcrop.sources.git import objects
from outcrop.sources.git.cat_file import LargeObject
from outcrop.sources.git.packs import index, pack
from outcrop.sources.git.packs.pack import PackReader
from outcrop.sources.git.repository import open_local
from tests.sources.conftest import Repo, Scan, token

LINES = 400


def lines(version: int) -> str:
    """Give a file of which each version has a few other lines."""
    chance = random.Random(7)
    text = [f"line {number} says {chance.randrange(10**9)}" for number in range(LINES)]
    for number in range(version):
        text[number * 37 % LINES] = f"changed in {number}"
        text.insert(number * 91 % LINES, f"new in {number}")
    return "\n".join(text) + "\n"


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    for version in range(30):
        repo.commit({"a": lines(version), f"other/{version % 3}": f"{version}\n" * 50})
    repo.git("repack", "-adfq")
    return repo


def objects_folder(repo: Repo) -> Path:
    return repo.path / ".git" / "objects"


def everything(repo: Repo) -> dict[str, bytes]:
    """Give all files as git gives them."""
    return {oid: cat(repo, "blob", oid) for oid in named(repo, "blob")}


def named(repo: Repo, kind: str) -> list[str]:
    ids = repo.git(
        "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"
    ).splitlines()
    return [line.split()[1] for line in ids if line.startswith(kind)]


def cat(repo: Repo, kind: str, oid: str) -> bytes:
    return subprocess.run(
        ["git", "cat-file", kind, oid], cwd=repo.path, capture_output=True, check=True
    ).stdout


def read(repo: Repo, oids: list[str]) -> dict[str, bytes | None]:
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
@pytest.mark.parametrize("index", ["2", "2,0x40"], ids=["near", "far"])
def test_every_file_is_what_git_gives(repo: Repo, by: str, index: str) -> None:
    """A change names what it is a change of by its place, or by its id; far places stand in a table of their own."""
    repo.git("-c", f"repack.usedeltabaseoffset={str(by == 'offset').lower()}", "repack", "-adfq")
    (pack,) = (objects_folder(repo) / "pack").glob("*.pack")
    pack.with_suffix(".idx").unlink()
    repo.git("index-pack", f"--index-version={index}", str(pack))
    given = everything(repo)
    assert read(repo, list(given)) == given


def test_what_is_loose_is_left_to_git(repo: Repo) -> None:
    oid = repo.blob(b"loose\n")
    assert read(repo, [oid, "00" * 20, "ff" * 20]) == {oid: None, "00" * 20: None, "ff" * 20: None}


def test_what_is_no_file_is_left_to_git(repo: Repo) -> None:
    others = [*named(repo, "commit"), *named(repo, "tree")]
    assert len(others) > 60
    assert set(read(repo, others).values()) == {None}


def test_an_object_may_be_in_any_of_several_packs(repo: Repo) -> None:
    for number in range(3):
        repo.commit({"b": f"pack {number}\n" * 99})
        repo.git("repack", "-dq")
    given = everything(repo)
    assert len(list((objects_folder(repo) / "pack").glob("*.pack"))) == 4
    assert read(repo, list(given)) == given


def test_what_a_version_has_from_another_one_is_told(repo: Repo) -> None:
    oids = [repo.git("rev-parse", f"HEAD~{back}:a") for back in range(30)]
    packs = PackReader([objects_folder(repo)])
    told = 0
    for version in filter(None, (packs.read_blob(bytes.fromhex(oid)) for oid in oids)):
        for start, stop, origin in version.copied:
            assert version.base is not None
            assert version.content[start:stop] == version.base.content[origin : origin + stop - start]
            told += stop - start
    packs.close()
    assert told > 20 * len(lines(0)) * 0.8


def test_a_size_or_place_is_written_without_its_zeros() -> None:
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
    ]  # the one between is too short to be of use


# --- what is wrong


@pytest.mark.parametrize("seed", range(8))
def test_damage_is_never_more_than_something_for_git(repo: Repo, seed: int) -> None:
    given = everything(repo)
    (pack,) = (objects_folder(repo) / "pack").glob("*.pack")
    whole = pack.read_bytes()
    pack.chmod(0o600)
    chance = random.Random(seed)
    for _ in range(20):
        damaged = bytearray(whole)
        for _ in range(chance.choice([1, 1, 50])):
            damaged[chance.randrange(12, len(whole))] = chance.randrange(256)
        pack.write_bytes(damaged[: chance.choice([len(whole), chance.randrange(len(whole))])])
        found = read(repo, list(given))
        assert all(content is None or isinstance(content, bytes) for content in found.values())


def test_a_damaged_index_is_never_more_than_that(repo: Repo) -> None:
    given = everything(repo)
    (index,) = (objects_folder(repo) / "pack").glob("*.idx")
    whole = index.read_bytes()
    index.chmod(0o600)
    chance = random.Random(1)
    for _ in range(50):
        damaged = bytearray(whole)
        for _ in range(30):
            damaged[chance.randrange(8, len(whole))] = chance.randrange(256)
        index.write_bytes(damaged)
        assert {content for content in read(repo, list(given)).values() if content} <= set(given.values())


def test_no_more_files_are_open_than_packs_are_read(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        repo.commit({"b": f"pack {number}\n" * 99})
        repo.git("repack", "-dq")
    monkeypatch.setattr(pack, "_MAX_OPEN_PACKS", 2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    packs = PackReader([objects_folder(repo)])
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 4
    packs.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_ids_that_are_not_where_they_should_be_are_looked_for(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = everything(repo)
    monkeypatch.setattr(index, "isqrt", lambda _: -2)
    assert read(repo, list(given)) == given


def varint(number: int) -> bytes:
    low, number = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(number) if number else bytes([low])


def entry(kind: int, size: int, data: bytes, base: bytes = b"") -> bytes:
    head = bytes([(0x80 if size >> 4 else 0) | kind << 4 | size & 15]) + (
        varint(size >> 4) if size >> 4 else b""
    )
    return head + base + zlib.compress(data)


def names(count: int) -> list[bytes]:
    return [bytes([number]) * 20 for number in range(1, count + 1)]


def made(folder: Path, entries: list[bytes]) -> Path:
    """Write a pack that git would not make, and an index of it."""
    (folder / "pack").mkdir(parents=True)
    oids = names(len(entries))
    pack, offsets = b"PACK" + struct.pack(">II", 2, len(entries)), []
    for one in entries:
        offsets.append(len(pack))
        pack += one
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
    "more than it says": entry(3, 5, bytes(50_000_000)),
    "less than it says": entry(3, 500, b"hello"),
    "as large as no memory": entry(3, 1 << 50, b"hello"),
    "a size without an end": b"\xbf" + b"\xff" * 5_000,
    "a place without an end": b"\xe5" + b"\xff" * 5_000,
    "an unknown kind": entry(5, 5, b"hello"),
    "no kind": entry(0, 5, b"hello"),
    "not packed": bytes([0x35]) + b"hello world",
    "a change of itself": entry(7, len(DELTA), DELTA, names(2)[1]),
    "a change of what is not here": entry(7, len(DELTA), DELTA, b"\x77" * 20),
    "a change of what comes later": entry(6, len(DELTA), DELTA, b"\0"),
    "a change of what is before the pack": entry(6, len(DELTA), DELTA, b"\x7f"),
    "a change to gigabytes": entry(
        6, 20, (varint(5) + varint(1 << 40) + bytes([0x90, 5]) + bytes(20))[:20], bytes([len(GOOD)])
    ),
    "a change that ends early": entry(6, 3, DELTA[:3], bytes([len(GOOD)])),
    "a change of another size": entry(6, len(DELTA), varint(6) + DELTA[1:], bytes([len(GOOD)])),
    "a change that reads beyond": entry(6, 4, varint(5) + varint(9) + bytes([0x90, 9]), bytes([len(GOOD)])),
    "nothing": b"",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_pack_that_is_made_to_hurt(tmp_path: Path, what: str) -> None:
    packs = PackReader([made(tmp_path, [GOOD, HOSTILE[what]])])
    good, bad = names(2)
    assert packs.read_blob(bad) is None
    version = packs.read_blob(good)
    packs.close()
    assert version is not None
    assert version.content == b"hello"


def test_what_is_made_by_hand_can_be_read(tmp_path: Path) -> None:
    packs = PackReader(
        [
            made(
                tmp_path,
                [
                    GOOD,
                    entry(6, len(DELTA), DELTA, bytes([len(GOOD)])),
                    entry(7, len(DELTA), DELTA, names(1)[0]),
                ],
            )
        ]
    )
    assert [version and version.content for version in map(packs.read_blob, names(3))] == [
        b"hello",
        b"hellonew",
        b"hellonew",
    ]
    packs.close()


def test_changes_of_one_another_have_an_end(tmp_path: Path) -> None:
    one, other = names(2)
    packs = PackReader(
        [made(tmp_path, [entry(7, len(DELTA), DELTA, other), entry(7, len(DELTA), DELTA, one)])]
    )
    assert packs.read_blob(one) is None
    packs.close()


def test_what_is_held_on_the_way_is_bounded(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack, "_CHAIN_CACHE_BYTES", 3 * len(lines(30)))
    packs = PackReader([objects_folder(repo)])
    given = everything(repo)
    for oid, content in given.items():
        version = packs.read_blob(bytes.fromhex(oid))
        assert version is not None
        assert version.content == content
        assert (
            packs._chain_bytes == sum(len(one.content) for one in packs._chain.values()) <= 3 * len(lines(30))
        )
    packs.close()


def test_changes_that_are_large_are_not_held_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pack, "_MAX_DELTA_BYTES", 3 * len(DELTA))
    entries = [GOOD]
    for size in range(5, 25, 3):
        delta = varint(size) + varint(size + 3) + bytes([0x90, size]) + b"\3new"
        entries.append(entry(6, len(delta), delta, bytes([len(entries[-1])])))
    packs = PackReader([made(tmp_path, entries)])
    first, *_, fourth, _, _, _, last = names(len(entries))
    assert packs.read_blob(last) is None
    assert [version and version.content for version in map(packs.read_blob, (fourth, last))] == [
        b"hello" + b"new" * 3,
        None,
    ]
    assert packs.read_blob(first) is not None
    packs.close()


def test_what_was_read_does_not_hold_what_it_was_made_of(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_SCAN_BYTES", 1)
    (tmp_path / "work").mkdir()
    repository = open_local(repo.path / ".git", tmp_path / "work")
    oids = [repo.git("rev-parse", f"HEAD~{back}:a").encode() for back in range(30)]
    given = [
        version
        for item in objects.read_objects(repository, [oids])
        if isinstance(item, list)
        for _, version in item
    ]
    assert len(given) == 30
    assert all(version.base is None for version in given[:-1])


# --- and what is found


def test_a_scan_of_packs_tells_what_one_of_loose_objects_does(tmp_path: Path, scan: Scan) -> None:
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


def test_objects_come_from_packs_and_from_git(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_MAX_WAITING", 2)
    monkeypatch.setattr(objects, "_SCAN_BYTES", 10_000)
    given = everything(repo) | {
        repo.blob(b"loose %d\n" % number): b"loose %d\n" % number for number in range(5)
    }
    large = bytes(1_100_000)
    given[repo.blob(large)] = large
    given |= {oid: cat(repo, "commit", oid).partition(b"\n\n")[2] for oid in named(repo, "commit")}
    (tmp_path / "work").mkdir()
    repository = open_local(repo.path / ".git", tmp_path / "work")
    found = {
        oid.decode(): content.read(1 << 21) if isinstance(content, LargeObject) else content
        for oid, content in objects.read_contents(repository, [[oid.encode() for oid in given]])
    }
    assert found == given
