"""Files and messages in git bundles; incomplete and damaged ones, and packs that are made to cost much."""

import hashlib
import random
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.scan import scan_content
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking
from tests.sources.git.test_pack import varint
from tests.support.git_host import ENV
from tests.support.rulesets import github_token, ruleset

FIRST, SECOND, IN_MESSAGE = (github_token(f"bundle {number}") for number in range(3))
FILLER = "".join(f"line {number}\n" for number in range(300))


def git(*arguments: str, cwd: Path) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *arguments], cwd=cwd, env=ENV, check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    git("init", "-q", "-b", "main", cwd=folder)
    (folder / "src").mkdir()
    for content, message in ((FIRST, "one"), (SECOND, f"remove it\n\n{IN_MESSAGE}"), ("x", "three")):
        (folder / "src" / "settings.txt").write_text(f"{FILLER}{content}\n")
        git("add", ".", cwd=folder)
        git("commit", "-qm", message, cwd=folder)
    git("repack", "-adfq", cwd=folder)
    return folder


def bundle(repository: Path, *arguments: str) -> bytes:
    git("bundle", "create", "-q", "--version=3", "x.bundle", *arguments, cwd=repository)
    return (repository / "x.bundle").read_bytes()


def found_in(data: bytes) -> tuple[dict[str, str], list[str]]:
    result = scan_content(ruleset(), data, Confidence.MEDIUM)
    return {reveal(hit.secret): f"{name}:{hit.line}" for name, hit in result.hits}, result.gaps


def test_every_version_of_a_file_and_the_messages_are_scanned(repository):
    data = bundle(repository, "--all")
    assert needs_unpacking(data)
    found, gaps = found_in(data)
    assert found.pop(IN_MESSAGE).startswith("commit ")
    assert found == {FIRST: "src/settings.txt:301", SECOND: "src/settings.txt:301"}
    assert gaps == []


def test_a_bundle_that_needs_other_objects_is_read_as_far_as_possible(repository):
    found, gaps = found_in(bundle(repository, "HEAD~1..HEAD~0", "main"))
    assert found == {}
    assert gaps == ["git bundle: 1 objects need others that the bundle does not have"] or gaps == []
    found, gaps = found_in(bundle(repository, "main", "^HEAD~2"))
    assert IN_MESSAGE in found
    assert all(gap.endswith("that the bundle does not have") for gap in gaps)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_truncated_bundle_is_a_gap(repository, share):
    data = bundle(repository, "--all")
    _, gaps = found_in(data[: int(len(data) * share)])
    assert len(gaps) == 1


def test_random_damage_never_raises(repository):
    data, chance = bundle(repository, "--all"), random.Random(3)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(3):
            damaged[chance.randrange(30, len(data))] = chance.randrange(256)
        list(unpack_texts(bytes(damaged), UnpackBudget()))


def packed(*entries: bytes) -> bytes:
    return b"# v2 git bundle\n\n" + b"PACK" + struct.pack(">LL", 2, len(entries)) + b"".join(entries)


def test_deltas_that_copy_their_base_many_times_end_as_a_gap():
    base = bytes(60_000)
    oid = hashlib.sha1(b"blob 60000\0" + base).digest()
    copies = 5_000
    delta = varint(len(base)) + varint(len(base) * copies) + b"\xb0\x60\xea" * copies  # 300 MB
    head = _entry_head(7, len(delta))
    data = packed(_entry_head(3, len(base)) + zlib.compress(base), head + oid + zlib.compress(delta))
    texts = list(unpack_texts(data, budget := UnpackBudget()))
    assert [len(text) for _, text in texts] == [16, 60_000]
    assert budget.gaps == ["git bundle: too large when unpacked, the rest was skipped"]


def _entry_head(kind: int, size: int) -> bytes:
    """Return the head of a pack entry."""
    out = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        out[-1] |= 0x80
        out.append(size & 0x7F)
        size >>= 7
    return bytes(out)


def test_folders_that_contain_one_another_many_times_are_read_once():
    """Ten levels of ten entries each would be ten billion paths."""
    objects = [(3, b"text of the file")]
    child, mode = hashlib.sha1(b"blob 16\0text of the file").digest(), b"100644"
    for _ in range(10):
        tree = b"".join(b"%b f%d\0%b" % (mode, number, child) for number in range(10))
        objects.append((2, tree))
        child, mode = hashlib.sha1(b"tree %d\0%b" % (len(tree), tree)).digest(), b"40000"
    objects.append((1, b"tree " + child.hex().encode() + b"\n\nmessage"))
    data = packed(*(_entry_head(kind, len(text)) + zlib.compress(text) for kind, text in objects))
    names = [name for name, _ in unpack_texts(data, UnpackBudget())]
    assert [name.count("/") for name in names[1:2]] == [9]
