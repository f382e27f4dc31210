"""Scan damaged and hostile repositories: no program of theirs runs, and damage hides no other finding."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.limits import SOURCE_LIMITS
from outcrop.sources.git import command
from tests.sources.conftest import Outcrop, Repo, Scan, changed_bytes, listing, token, without_override
from tests.support.rulesets import cached_in

FIRST, SECOND, THIRD = token("first"), token("second"), token("third")


@pytest.fixture
def pair(repo: Repo) -> Repo:
    """Two commits with a value each."""
    repo.commit({"a": f"{FIRST}\n"})
    repo.commit({"b": f"{SECOND}\n"})
    return repo


GitStarts = Callable[[], int]


@pytest.fixture
def git_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GitStarts]:
    """Yield a function that returns how many git processes a scan has started.

    A scan starts git in processes of its own, so they are counted by a program of the same name. git may
    neither write files nor connect to a socket, so the program takes a byte out of a pipe.
    """
    program, pipe = tmp_path / "bin" / "git", tmp_path / "not started"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f"case \" $* \" in *' --no-replace-objects '*) read _ < '{pipe}' ;; esac\n"
        f"exec '{shutil.which('git')}' \"$@\"\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    os.mkfifo(pipe)
    counter = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    capacity = os.write(counter, b"\n" * (1 << 20))  # the shell reads a line byte by byte

    def count() -> int:
        started = capacity - len(os.read(counter, capacity))
        os.write(counter, b"\n" * capacity)
        return started

    yield count
    os.close(counter)


def oid(repo: Repo, name: str) -> str:
    return repo.git("rev-parse", name)


# Nothing of a repository is executed


PROGRAMS = {
    "core.fsmonitor": "{program}",
    "core.hooksPath": "{hooks}",
    "core.sshCommand": "{program}",
    "core.pager": "{program}",
    "core.editor": "{program}",
    "core.askPass": "{program}",
    "core.gitProxy": "{program}",
    "core.alternateRefsCommand": "{program}",
    "credential.helper": "!{program}",
    "diff.external": "{program}",
    "diff.evil.command": "{program}",
    "diff.evil.textconv": "{program}",
    "filter.evil.clean": "{program}",
    "filter.evil.smudge": "{program}",
    "filter.evil.process": "{program}",
    "filter.evil.required": "true",
    "merge.evil.driver": "{program}",
    "gpg.program": "{program}",
    "alias.cat-file": "!{program}",
    "alias.rev-list": "!{program}",
    "alias.diff-tree": "!{program}",
    "pager.cat-file": "{program}",
    "uploadpack.packObjectsHook": "{program}",
    "extensions.partialClone": "origin",
    "core.repositoryFormatVersion": "1",
    "remote.origin.url": "ssh://evil.invalid/repository",
    "remote.origin.promisor": "true",
    "remote.origin.uploadpack": "{program}",
    "remote.origin.vcs": "ext",
    "protocol.ext.allow": "always",
    "trace2.eventTarget": "{marker}.trace",
}


def _arm(repo: Repo, folder: Path) -> Path:
    """Set every configuration that makes git start a program; the program writes a marker file."""
    marker, program, hooks = folder / "marker", folder / "program", folder / "hooks"
    program.write_text(f"#!/bin/sh\necho ran >> {marker}\n")
    program.chmod(0o755)
    for place in (hooks, repo.path / ".git" / "hooks"):
        place.mkdir(exist_ok=True)
        for name in (
            "post-checkout",
            "pre-commit",
            "post-index-change",
            "reference-transaction",
            "fsmonitor-watchman",
            "pre-auto-gc",
        ):
            (place / name).write_bytes(program.read_bytes())
            (place / name).chmod(0o755)
    (repo.path / ".git" / "info").mkdir(exist_ok=True)
    (repo.path / ".git" / "info" / "attributes").write_text("* diff=evil filter=evil merge=evil\n")
    settings = {
        key: value.format(program=program, hooks=hooks, marker=marker) for key, value in PROGRAMS.items()
    }
    (folder / "included").write_text("".join(_section(key, value) for key, value in settings.items()))
    with (repo.path / ".git" / "config").open("a") as config:
        config.write("".join(_section(key, value) for key, value in settings.items()))
        config.write(_section("include.path", str(folder / "included")))
    (repo.path / ".git" / "config.worktree").write_text(_section("core.fsmonitor", str(program)))
    return marker


def _section(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    first, _, second = section.partition(".")
    return f'[{first}{f" {chr(34)}{second}{chr(34)}" if second else ""}]\n\t{name} = "{value}"\n'


@pytest.mark.parametrize(
    ("options", "expected"),
    [([], [None, "b"]), (["--staged"], ["c"]), (["--since", "HEAD~1"], ["b"])],
    ids=["history", "staged", "since"],
)
def test_no_program_named_by_a_configuration_is_started(
    pair: Repo, outcrop: Outcrop, tmp_path: Path, options: list[str], expected: list[str | None]
) -> None:
    pair.write(".gitattributes", "* diff=evil filter=evil merge=evil\n")
    pair.write("c", f"{THIRD}\n")
    pair.git("add", "--all")
    lost = oid(pair, "HEAD:a")
    pair.loose(lost).unlink()  # a promisor's missing object is what git would fetch
    marker = _arm(pair, tmp_path)
    before = listing(pair.path)
    ran = outcrop("scan", "--json", "--no-cache", *options, pair.path)
    assert ran.code == 1
    assert [finding["file_path"] for finding in ran.findings] == expected
    assert sorted(tmp_path.glob("marker*")) == []
    assert listing(pair.path) == before
    pair.git("status", check=False)
    assert marker.exists(), "the trap is one: git itself falls into it"


def test_environment_variables_do_not_lead_git_elsewhere(
    pair: Repo, outcrop: Outcrop, tmp_path: Path
) -> None:
    other = Repo(tmp_path / "other")
    other.commit({"c": f"{THIRD}\n"})
    marker = _arm(other, tmp_path)
    elsewhere = {
        "GIT_DIR": str(other.path / ".git"),
        "GIT_OBJECT_DIRECTORY": str(other.path / ".git/objects"),
        "GIT_INDEX_FILE": "/nonexistent",
    }
    ran = outcrop(
        "scan",
        "--json",
        "--no-cache",
        pair.path,
        **elsewhere,
        GIT_CONFIG_GLOBAL=str(other.path / ".git" / "config"),
    )
    assert [finding["file_path"] for finding in ran.findings] == ["a", "b"]
    assert not marker.exists()


# Damage: everything else is found, and the damage is a gap


def test_a_ref_to_a_missing_object_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan) -> None:
    (pair.path / ".git" / "refs" / "heads" / "gone").write_text("1234567890" * 4 + "\n")
    scanned = scan(pair.path)
    assert [scanned.of(value)["source_type"] for value in (FIRST, SECOND)] == ["repo", "repo"]
    assert scanned.has_gap("refs point at objects that are missing")


def test_an_unreadable_ref_is_reported_on_one_line(pair: Repo, outcrop: Outcrop) -> None:
    heads = os.fsencode(pair.path / ".git" / "refs" / "heads")
    for name, content in ((b"malformed", b"\0\xff malformed"), (b"empty", b""), (b"bad\xff\nname", b"x")):
        Path(os.fsdecode(heads + b"/" + name)).write_bytes(content)
    for kind in ("json", "sarif"):
        ran = outcrop("scan", "--format", kind, "--no-cache", pair.path)
        assert ran.code == 1
        assert [line.partition(" ref ")[2] for line in ran.err.splitlines()] == [
            r"refs/heads/bad\xff\nname cannot be read",
            "refs/heads/empty cannot be read",
            "refs/heads/malformed cannot be read",
        ]


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("packed-refs", "packed-refs is damaged or cannot be read"),
        ("HEAD", "HEAD cannot be read"),
        ("refs/heads", "refs in refs/heads cannot be read"),
        ("objects/pack", "object store is damaged"),
    ],
)
def test_a_part_of_a_repository_without_read_permission_is_a_gap(
    pair: Repo, outcrop: Outcrop, name: str, gap: str
) -> None:
    if name == "packed-refs":
        pair.git("pack-refs", "--all")
    (pair.path / ".git" / name).chmod(0)
    ran = outcrop("scan", "--json", "--no-validate", "--no-cache", pair.path, before=without_override)
    (pair.path / ".git" / name).chmod(0o700)
    assert ran.code == 1
    assert len(ran.findings) == 2
    assert gap in ran.err


def test_objects_without_read_permission_are_an_error(pair: Repo, outcrop: Outcrop) -> None:
    (pair.path / ".git" / "objects").chmod(0)
    ran = outcrop("scan", "--json", "--no-validate", pair.path, before=without_override)
    (pair.path / ".git" / "objects").chmod(0o700)
    assert (ran.code, ran.err) == (2, f"outcrop: {pair.path}: permission denied\n")


def test_alternates_without_read_permission_hide_nothing(
    pair: Repo, outcrop: Outcrop, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    (other / "pack").mkdir(parents=True)
    (pair.path / ".git" / "objects" / "info").mkdir(exist_ok=True)
    (pair.path / ".git" / "objects" / "info" / "alternates").write_text(f"{other}\n")
    other.chmod(0)
    ran = outcrop("scan", "--json", "--no-validate", pair.path, before=without_override)
    other.chmod(0o700)
    assert ran.code == 1
    assert len(ran.findings) == 2
    assert "object store is damaged" in ran.err


@pytest.mark.parametrize("line", ["malformed", "1234 refs/heads/short", "\0", "{head} heads/elsewhere"])
def test_damaged_packed_refs_are_a_gap(pair: Repo, scan: Scan, line: str) -> None:
    pair.git("pack-refs", "--all")
    assert scan(pair.path).gaps == []
    with (pair.path / ".git" / "packed-refs").open("a") as file:
        file.write(line.format(head=oid(pair, "HEAD")) + "\n")
    scanned = scan(pair.path)
    assert [scanned.of(value)["source_type"] for value in (FIRST, SECOND)] == ["repo", "repo"]
    assert scanned.has_gap("packed-refs is damaged")


@pytest.mark.parametrize("content", [b"", b"malformed", b"\0" * 41])
def test_a_malformed_head_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan, content: bytes) -> None:
    (pair.path / ".git" / "HEAD").write_bytes(content)
    scanned = scan(pair.path)
    assert [scanned.of(value)["file_path"] for value in (FIRST, SECOND)] == ["a", "b"]
    assert scanned.has_gap("HEAD cannot be read")


def test_a_repository_without_head_is_scanned_with_its_history(pair: Repo, scan: Scan) -> None:
    pair.commit({"a": "clean\n"})
    head = pair.path / ".git" / "HEAD"
    head.unlink()
    for link in (None, "refs/heads/none"):
        if link:
            head.symlink_to(link)
        scanned = scan(pair.path)
        assert [scanned.of(value)["file_path"] for value in (FIRST, SECOND)] == ["a", "b"]
        assert scanned.has_gap("HEAD cannot be read")


@pytest.mark.parametrize(("kind", "other"), [("sha1", 62), ("sha256", 38)])
def test_a_file_named_like_an_object_of_another_format_hides_nothing(
    tmp_path: Path, scan: Scan, kind: str, other: int
) -> None:
    repo = Repo(tmp_path / "made", f"--object-format={kind}")
    repo.commit({"a": f"{FIRST}\n"})
    (repo.path / ".git" / "objects" / "ab").mkdir(exist_ok=True)
    (repo.path / ".git" / "objects" / "ab" / ("0" * other)).touch()
    scanned = scan(repo.path)
    assert scanned.of(FIRST)["source_type"] == "repo"
    assert scanned.has_gap("some objects have SHA-1 ids and others SHA-256 ids")


def test_a_link_to_a_folder_among_the_refs_is_a_gap(pair: Repo, scan: Scan, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (pair.path / ".git" / "refs" / "heads" / "link").symlink_to(tmp_path / "outside")
    assert scan(pair.path).has_gap("ref refs/heads/link cannot be read")


def test_a_ref_with_an_id_of_another_format_hides_nothing(pair: Repo, scan: Scan) -> None:
    (pair.path / ".git" / "refs" / "heads" / "long").write_text("0123456789abcdef" * 4 + "\n")
    scanned = scan(pair.path)
    assert scanned.secrets == [FIRST, SECOND]
    assert scanned.of(FIRST)["commit"] is not None


def test_symbolic_refs_in_a_cycle_end(pair: Repo, scan: Scan) -> None:
    heads = pair.path / ".git" / "refs" / "heads"
    (heads / "x").write_text("ref: refs/heads/y\n")
    (heads / "y").write_text("ref: refs/heads/x\n")
    assert scan(pair.path).secrets == [FIRST, SECOND]


def test_special_files_and_links_among_the_refs_do_not_hang(pair: Repo, scan: Scan) -> None:
    heads = pair.path / ".git" / "refs" / "heads"
    os.mkfifo(heads / "pipe")
    (heads / "loop").symlink_to(heads)
    (heads / "zero").symlink_to("/dev/zero")
    os.mkfifo(pair.path / ".git" / "packed-refs")
    os.mkfifo(pair.path / ".git" / "shallow")
    assert scan(pair.path).secrets == [FIRST, SECOND]


def test_special_files_among_the_objects_do_not_hang(pair: Repo, scan: Scan) -> None:
    objects = pair.path / ".git" / "objects"
    (objects / "ab").mkdir(exist_ok=True)
    os.mkfifo(objects / "ab" / ("0" * 38))
    (objects / "ab" / ("1" * 38)).symlink_to("/dev/zero")
    for name in ("pack/pack-1.idx", "pack/pack-1.pack", "info/commit-graph", "pack/multi-pack-index"):
        (objects / name).parent.mkdir(exist_ok=True)
        os.mkfifo(objects / name)
    scanned = scan(pair.path)
    assert scanned.secrets == [FIRST, SECOND]
    assert scanned.has_gap("6 special files are among the objects")


def test_a_folder_named_like_an_object_hides_nothing_else(pair: Repo, scan: Scan) -> None:
    for place in (pair.loose(oid(pair, "HEAD:a")), pair.path / ".git" / "objects" / "pack" / "pack-1.idx"):
        place.unlink(missing_ok=True)
        place.mkdir(parents=True)
    scanned = scan(pair.path)
    assert scanned.secrets == [SECOND]
    assert scanned.has_gap("2 special files are among the objects")
    assert scanned.has_gap("1 objects that the tips of refs name are missing")


def test_a_missing_blob_is_a_gap_in_a_scan_of_the_history(pair: Repo, scan: Scan) -> None:
    pair.loose(oid(pair, "HEAD:a")).unlink()
    scanned = scan(pair.path)
    assert scanned.secrets == [SECOND]
    assert scanned.has_gap("1 objects that the tips of refs name are missing")


def test_a_missing_blob_of_an_earlier_commit_is_a_gap(pair: Repo, scan: Scan) -> None:
    before = oid(pair, "HEAD:a")
    pair.commit({"a": "nothing\n"})
    pair.loose(before).unlink()
    scanned = scan(pair.path)
    assert scanned.secrets == [SECOND]
    assert scanned.has_gap("1 objects that commits before the tips name are missing")


@pytest.mark.parametrize("holding", [True, False])
def test_a_missing_blob_many_commits_before_the_tips_is_a_gap(repo: Repo, scan: Scan, holding: bool) -> None:
    """With and without a finding: without one, commits are not walked to attribute it."""
    repo.commit({"a": "nothing\n", "b": f"{FIRST}\n" if holding else "nothing either\n"})
    lost = oid(repo, "HEAD:a")
    tree, parent = oid(repo, f"{repo.commit({'a': 'something'})}^{{tree}}"), oid(repo, "HEAD")
    stream = "".join(
        f"commit refs/heads/main\ncommitter Ben <ben@example.org> {1_700_000_000 + number} +0000\ndata 0\n"
        f"{f'from {parent}' if not number else ''}\nM 040000 {tree} \n\n"
        for number in range(1_100)
    )
    repo.git("fast-import", "--quiet", "--force", given=stream.encode())
    repo.loose(lost).unlink()
    scanned = scan(repo.path)
    assert scanned.secrets == ([FIRST] if holding else [])
    assert scanned.has_gap("1 objects that commits before the tips name are missing")


def test_a_missing_blob_hides_nothing_else(pair: Repo, scan: Scan) -> None:
    pair.loose(oid(pair, "HEAD:a")).unlink()
    found = scan(pair.path).of(SECOND)
    assert (found["source_type"], found["commit"]) == ("repo", oid(pair, "HEAD"))


def test_a_missing_blob_is_a_gap_with_since_and_staged(pair: Repo, scan: Scan) -> None:
    pair.write("c", "will be lost\n")
    pair.git("add", "c")
    for name in ("HEAD:b", ":c"):
        pair.loose(oid(pair, name)).unlink()
    for scanned in (scan(pair.path, since="HEAD~1"), scan(pair.path, staged=True)):
        assert scanned.findings == []
        assert scanned.has_gap("missing or damaged")


def test_a_missing_tree_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan) -> None:
    pair.loose(oid(pair, "HEAD~1^{tree}")).unlink()
    scanned = scan(pair.path)
    assert sorted(scanned.secrets) == sorted([FIRST, SECOND])
    assert scanned.has_gap("trees of a commit are missing")


def test_a_missing_commit_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan) -> None:
    repo = pair
    middle = repo.commit({"c": f"{THIRD}\n"})
    tip = repo.commit({"d": f"{token('fourth')}\n"})
    repo.loose(middle).unlink()
    scanned = scan(repo.path)
    assert sorted(scanned.secrets) == sorted([FIRST, SECOND, THIRD, token("fourth")])
    assert scanned.has_gap("commits are missing")
    assert scanned.of(token("fourth"))["commit"] == tip
    assert scanned.of(token("fourth"))["source_type"] == "repo"


@pytest.mark.parametrize("at", [0, 2, 15, -10], ids=["type", "header", "middle", "end"])
@pytest.mark.parametrize("what", ["HEAD:a", "HEAD~1^{tree}", "HEAD~1", "HEAD^{tree}", "HEAD"])
def test_a_damaged_loose_object_is_a_gap_and_hides_nothing(
    pair: Repo, scan: Scan, what: str, at: int
) -> None:
    changed_bytes(pair.loose(oid(pair, what)), at, 8)
    scanned = scan(pair.path)
    assert set(scanned.secrets) >= ({SECOND} if what == "HEAD:a" else {FIRST, SECOND})
    assert scanned.gaps


@pytest.mark.parametrize("at", [0, 2, 15, -10], ids=["type", "header", "middle", "end"])
def test_a_damaged_blob_is_reported_by_its_path_if_that_is_known(pair: Repo, scan: Scan, at: int) -> None:
    changed_bytes(pair.loose(oid(pair, "HEAD:a")), at, 8)
    scanned = scan(pair.path)
    assert scanned.gaps == [("a", "object is missing or damaged")]
    assert (scanned.of(SECOND)["file_path"], scanned.of(SECOND)["source_type"]) == ("b", "repo")


def test_an_empty_loose_object_is_a_gap(pair: Repo, scan: Scan) -> None:
    file = pair.loose(oid(pair, "HEAD:a"))
    file.chmod(0o600)
    file.write_bytes(b"")
    scanned = scan(pair.path)
    assert scanned.secrets == [SECOND]
    assert scanned.gaps == [("a", "object is missing or damaged")]


def test_the_exit_code_is_1_if_there_is_damage_and_a_finding(pair: Repo, outcrop: Outcrop) -> None:
    changed_bytes(pair.loose(oid(pair, "HEAD:a")), 0, 8)
    for _ in range(2):  # the second time from the cache
        ran = outcrop("scan", "--json", pair.path)
        assert ran.code == 1
        assert [finding["file_path"] for finding in ran.findings] == ["b"]
        assert ran.err == "not scanned: a: object is missing or damaged\n"


def test_many_damaged_objects_need_few_git_processes(repo: Repo, scan: Scan, git_starts: GitStarts) -> None:
    repo.commit({f"f{number}": f"{number}\n" for number in range(150)} | {"key": f"{FIRST}\n"})
    for number in range(0, 150, 3):
        changed_bytes(repo.loose(oid(repo, f"HEAD:f{number}")), 0, 8)
    scanned = scan(repo.path)
    assert scanned.secrets == [FIRST]
    assert sum(why == "object is missing or damaged" for _, why in scanned.gaps) == 50
    assert 0 < git_starts() < 30


def _packed(repo: Repo) -> Path:
    repo.git("repack", "--quiet", "-a", "-d", "-f")
    (pack,) = (repo.path / ".git" / "objects" / "pack").glob("*.pack")
    return pack


@pytest.mark.parametrize("part", [0.2, 0.5, 0.8])
def test_a_damaged_pack_is_a_gap_and_hides_nothing_else(repo: Repo, scan: Scan, part: float) -> None:
    for number in range(30):
        repo.commit({f"f{number}": f"{token(str(number))}\n"})
    pack = _packed(repo)
    repo.commit({"loose": f"{FIRST}\n"})
    changed_bytes(pack, int(pack.stat().st_size * part), 4)
    scanned = scan(repo.path)
    assert len({*scanned.secrets} & {token(str(number)) for number in range(30)}) >= 25
    assert scanned.of(FIRST)["source_type"] == "repo"
    assert scanned.gaps


@pytest.mark.parametrize("damage", ["header", "fanout", "truncated", "empty", "gone"])
def test_a_damaged_pack_index_is_a_gap_in_every_scan(
    repo: Repo, scan: Scan, tmp_path: Path, damage: str
) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    index = _packed(repo).with_suffix(".idx")
    index.chmod(0o600)
    repo.commit({"b": f"{SECOND}\n"})
    if damage in {"header", "fanout"}:
        changed_bytes(index, 0 if damage == "header" else 500, 4)
    elif damage == "gone":
        index.unlink()
    else:
        index.write_bytes(index.read_bytes()[: 100 if damage == "truncated" else 0])
    scanned, rescanned = (scan(repo.path, cache=tmp_path / "cache") for _ in range(2))
    assert SECOND in scanned.secrets
    assert scanned.gaps == rescanned.gaps != []
    assert scanned.findings == rescanned.findings


def test_a_damaged_pack_index_is_a_gap_without_any_finding(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    changed_bytes(_packed(repo).with_suffix(".idx"), 0, 4)
    scanned = scan(repo.path)
    assert scanned.findings == []
    assert scanned.gaps


def test_a_truncated_pack_is_a_gap(repo: Repo, scan: Scan) -> None:
    repo.commit({f"f{number}": f"{token(str(number))}\n" for number in range(30)})
    pack = _packed(repo)
    repo.commit({"b": f"{SECOND}\n"})
    pack.chmod(0o600)
    pack.write_bytes(pack.read_bytes()[:400])
    scanned = scan(repo.path)
    assert SECOND in scanned.secrets
    assert scanned.gaps


@pytest.mark.parametrize("damage", ["away", "cut", "changed", "forbidden"])
def test_a_restored_pack_is_scanned_though_its_index_was_cached(
    repo: Repo, outcrop: Outcrop, tmp_path: Path, damage: str
) -> None:
    origin = repo.commit({"a": f"{FIRST}\n"})
    pack, backup = _packed(repo), tmp_path / "backup"
    shutil.copyfile(pack, backup)
    pack.chmod(0o600)
    if damage == "away":
        pack.unlink()
    elif damage == "cut":
        pack.write_bytes(b"")
    elif damage == "changed":
        changed_bytes(pack, 12, pack.stat().st_size - 12)
    else:
        pack.chmod(0)
    home = {"XDG_CACHE_HOME": str(cached_in(tmp_path / "home"))}
    lost = outcrop("scan", "--json", "--no-validate", repo.path, before=without_override, **home)
    assert lost.findings == []
    assert "objects that are missing" in lost.err
    pack.unlink(missing_ok=True)
    shutil.copyfile(backup, pack)
    rescanned = outcrop("scan", "--json", "--no-validate", repo.path, **home)
    assert [(f["commit"], f["source_type"], f["file_path"]) for f in rescanned.findings] == [
        (origin, "repo", "a")
    ]
    assert "missing" not in rescanned.err


def test_a_repaired_commit_is_followed(pair: Repo, scan: Scan, tmp_path: Path) -> None:
    file = pair.loose(oid(pair, "HEAD~1"))
    backup = file.read_bytes()
    changed_bytes(file, 0, 8)
    assert scan(pair.path, cache=tmp_path / "cache").gaps != []
    file.write_bytes(backup)
    rescanned, full = scan(pair.path, cache=tmp_path / "cache"), scan(pair.path)
    assert (rescanned.findings, rescanned.gaps) == (full.findings, [])


def test_files_beside_a_damaged_tree_are_at_the_tip(repo: Repo, scan: Scan) -> None:
    repo.commit({"m/x": f"{FIRST}\n", "z": f"{THIRD}\n"})
    repo.commit({"a": f"{SECOND}\n", "m/y": "more\n"})
    changed_bytes(repo.loose(oid(repo, "HEAD:m")), 0, 8)
    scanned = scan(repo.path)
    assert [scanned.of(value)["source_type"] for value in (SECOND, THIRD)] == ["repo", "repo"]


# Links from one part of a repository to another


def test_a_git_file_that_points_nowhere_is_scanned_as_a_folder(tmp_path: Path, scan: Scan) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_text(FIRST)
    for content in (
        "gitdir: /nowhere/at/all\n",
        "gitdir: \0\n",
        "gitdir:",
        "",
        "gitdir: .\n",
        f"gitdir: {'x/' * 9_000}\n",
    ):
        (folder / ".git").write_text(content)
        assert scan(folder).secrets == [FIRST], content
        scanned = scan(folder, type="git")
        assert scanned.report.failures == [f"{folder}: is not a git repository"], content


@pytest.mark.parametrize(
    "line",
    [
        b"/nowhere",
        b".",
        b"../objects",
        b"/tmp/a\nb",
        b"\0",
        b'"/nowhere"',
        b"x" * 5_000,
        b"loop",
        b"#",
        b"\xff",
    ],
)
def test_alternates_that_do_not_exist_hide_nothing(pair: Repo, scan: Scan, line: bytes) -> None:
    objects = pair.path / ".git" / "objects"
    (objects / "loop").symlink_to("loop")
    (objects / "info").mkdir(exist_ok=True)
    (objects / "info" / "alternates").write_bytes(line + b"\n")
    scanned = scan(pair.path)
    assert scanned.secrets == [FIRST, SECOND]
    assert bool(scanned.gaps) == (line not in {b".", b"../objects", b"#"})


@pytest.mark.parametrize(
    "last",
    [
        b"all",
        b"\xff",
    ],
)
def test_an_alternate_may_have_any_character_in_its_name(
    pair: Repo, scan: Scan, tmp_path: Path, last: bytes
) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b'/odd "name"\\\twith\n' + last))
    pair.path.rename(odd)
    scanned = scan(odd)
    assert scanned.secrets == [FIRST, SECOND]
    assert scanned.gaps == []


@pytest.mark.parametrize("name", ["/nowhere", "/no\0where", "x/" * 9_000, "y" * 300])
def test_a_missing_common_folder_is_an_error_or_a_gap(
    pair: Repo, scan: Scan, tmp_path: Path, name: str
) -> None:
    pair.git("worktree", "add", "--quiet", "-b", "side", str(tmp_path / "tree"))
    (pair.path / ".git" / "worktrees" / "tree" / "commondir").write_text(f"{name}\n")
    scanned = scan(tmp_path / "tree")
    assert scanned.gaps or scanned.report.failures


# Many refs


def test_a_hundred_thousand_refs_to_one_commit_take_little_time(pair: Repo, scan: Scan) -> None:
    head = oid(pair, "HEAD")
    refs = b"".join(f"{head} refs/heads/b{number:06}\n".encode() for number in range(100_000))
    (pair.path / ".git" / "packed-refs").write_bytes(b"# pack-refs with: peeled fully-peeled sorted\n" + refs)
    begun = time.monotonic()
    assert scan(pair.path).secrets == [FIRST, SECOND]
    assert time.monotonic() - begun < 60


def test_many_refs_to_different_commits_need_few_git_processes(
    repo: Repo, scan: Scan, git_starts: GitStarts
) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    base = repo.commit({"a": "clean\n"})
    commits = b"".join(
        (
            f"commit refs/heads/b{number}\ncommitter Ben <ben@example.org> {number} +0000\n"
            f"data 1\nx\nfrom {base}\n\n"
        ).encode()
        for number in range(3_000)
    )
    repo.git("fast-import", "--quiet", given=commits)
    assert scan(repo.path).of(FIRST)["source_type"] == "commit"
    assert 0 < git_starts() < 30


# Paths


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"a\nb", r"a\nb"),
        (b"a\tb", r"a\tb"),
        (b"a\x1b[31mb\x7f", r"a\x1b[31mb\x7f"),
        (b"a\xff\xfeb", r"a\xff\xfeb"),
        (b"-rf", "-rf"),
        (b"--output=x", "--output=x"),
        (b" missing", " missing"),
        (b":colon", ":colon"),
        (b'"quoted"', '"quoted"'),
        ("ä-日本".encode(), "ä-日本"),
        ("\u202egnp.exe".encode(), r"\u202egnp.exe"),
        (b"x" * 255, "x" * 255),
    ],
)
def test_a_path_of_any_bytes_is_printed_on_one_line_and_at_the_tip(
    repo: Repo, scan: Scan, name: bytes, shown: str
) -> None:
    repo.write(name, f"{FIRST}\n")
    repo.write("plain", f"{SECOND}\n")
    repo.commit()
    scanned = scan(repo.path)
    assert [scanned.of(value)["file_path"] for value in (FIRST, SECOND)] == [shown, "plain"]
    assert [scanned.of(value)["source_type"] for value in (FIRST, SECOND)] == ["repo", "repo"]


def test_paths_of_any_bytes_are_printed_in_every_format(repo: Repo, outcrop: Outcrop) -> None:
    repo.write(b"a\nb\xff\x1b[31m", f"{FIRST}\n")
    repo.commit()
    for kind in ("table", "json", "jsonl", "sarif"):
        ran = outcrop("scan", "--format", kind, repo.path)
        assert (ran.code, ran.err) == (1, "")
        assert b"\x1b" not in ran.out
        assert b"\xff" not in ran.out


@pytest.mark.parametrize("name", [b"..", b".", b".git", b"a/b", b"../../../etc/passwd", b"./x", b"/abs"])
def test_a_tree_entry_whose_name_leaves_its_folder_is_scanned(repo: Repo, scan: Scan, name: bytes) -> None:
    evil = repo.blob(f"{FIRST}\n".encode())
    good = repo.blob(f"{SECOND}\n".encode())
    repo.commit_tree(repo.tree(("100644", name, evil), ("100644", b"z", good)))
    before = listing(repo.path)
    scanned = scan(repo.path)
    assert scanned.of(FIRST)["file_path"] == name.decode()
    assert scanned.of(SECOND)["source_type"] == "repo"
    assert listing(repo.path) == before


def test_files_beside_folders_whose_names_leave_their_folder_are_at_the_tip(repo: Repo, scan: Scan) -> None:
    inner = repo.tree(("100644", b"x", repo.blob(f"{FIRST}\n".encode())))
    good = repo.blob(f"{SECOND}\n".encode())
    repo.commit_tree(repo.tree(("40000", b".", inner), ("40000", b"..", inner), ("100644", b"z", good)))
    scanned = scan(repo.path)
    assert sorted(finding["file_path"] for finding in scanned.findings) == ["../x", "./x", "z"]
    assert scanned.of(SECOND)["source_type"] == "repo"


def test_all_tree_entries_of_the_same_name_are_scanned(repo: Repo, scan: Scan) -> None:
    first, second = (repo.blob(f"{value}\n".encode()) for value in (FIRST, SECOND))
    inner = repo.tree(("100644", b"same", repo.blob(f"{THIRD}\n".encode())))
    repo.commit_tree(
        repo.tree(("100644", b"same", first), ("100644", b"same", second), ("40000", b"same", inner))
    )
    assert sorted(scan(repo.path).secrets) == sorted([FIRST, SECOND, THIRD])


def test_tree_entries_out_of_order_and_of_unusual_modes_are_scanned(repo: Repo, scan: Scan) -> None:
    first, second, third = (repo.blob(f"{value}\n".encode()) for value in (FIRST, SECOND, THIRD))
    repo.commit_tree(repo.tree(("100666", b"z", first), ("0", b"m", second), ("160000", b"a", third)))
    assert sorted(scan(repo.path).secrets) == sorted([FIRST, SECOND, THIRD])


def test_a_tree_entry_without_a_name_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan) -> None:
    blob = pair.blob(f"{THIRD}\n".encode())
    pair.commit_tree(pair.tree(("100644", b"", blob)), oid(pair, "HEAD"))
    scanned = scan(pair.path)
    assert sorted(scanned.secrets) == sorted([FIRST, SECOND, THIRD])
    assert scanned.of(FIRST)["file_path"] == "a"


def test_a_tree_that_names_a_commit_or_a_blob_as_a_folder_hides_nothing(pair: Repo, scan: Scan) -> None:
    blob = pair.blob(f"{THIRD}\n".encode())
    pair.commit_tree(pair.tree(("40000", b"x", blob), ("40000", b"y", oid(pair, "HEAD"))), oid(pair, "HEAD"))
    scanned = scan(pair.path)
    assert sorted(scanned.secrets) == sorted([FIRST, SECOND, THIRD])
    assert scanned.of(FIRST)["file_path"] == "a"


def test_folders_hundreds_deep_are_scanned(repo: Repo, scan: Scan) -> None:
    tree = repo.tree(("100644", b"x", repo.blob(f"{FIRST}\n".encode())))
    for _ in range(300):
        tree = repo.tree(("40000", b"d", tree))
    repo.commit_tree(tree)
    found = scan(repo.path).of(FIRST)
    assert found["file_path"] == "d/" * 300 + "x"
    assert found["source_type"] == "repo"


def test_the_scan_of_a_tree_that_expands_to_billions_of_files_ends(pair: Repo, scan: Scan) -> None:
    tree = pair.tree(("100644", b"x", pair.blob(f"{THIRD}\n".encode())))
    for _ in range(10):
        tree = pair.tree(*(("40000", b"d%d" % number, tree) for number in range(10)))
    pair.commit_tree(tree, oid(pair, "HEAD"))
    # git would take half a minute to fill the usual memory.
    scanned = scan(pair.path, limits=replace(SOURCE_LIMITS, diff_memory=24 << 20))
    assert {FIRST, SECOND, THIRD} == {*scanned.secrets}
    assert scanned.of(FIRST)["file_path"] == "a"
    assert scanned.has_gap("too large")


# Commits


@pytest.mark.parametrize(
    ("author", "name", "at"),
    [
        (b"", None, None),
        (b"author Ada <ada@example.org> 5 +0000\n", "Ada <ada@example.org>", 5),
        (b"author \n", None, None),
        (b"author malformed\n", "malformed", None),
        (b"author Ada <ada@example.org> -5 +0000\n", "Ada <ada@example.org>", None),
        (b"author Ada <ada@example.org> 99999999999999999999 +0000\n", "Ada <ada@example.org>", None),
        (b"author Ada <ada@example.org> " + b"9" * 10_000 + b" +0000\n", "Ada <ada@example.org>", None),
        (b"author Ada <ada@example.org> yesterday\n", "Ada <ada@example.org>", None),
        (b"author \xff\xfe <\xff> 5 +9999\n", "\ufffd\ufffd <\ufffd>", 5),
        (b"author <> 253402300799 +0000\n", "<>", 253_402_300_799),
    ],
    ids=["none", "right", "blank", "malformed", "negative", "far", "endless", "word", "bytes", "last"],
)
def test_a_commit_with_a_malformed_author_is_scanned(
    repo: Repo, scan: Scan, author: bytes, name: str | None, at: int | None
) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    tree = oid(repo, "HEAD^{tree}")
    raw = f"tree {tree}\n".encode() + author + b"committer Ben <ben@example.org> 1 +0000\n\nmessage\n"
    made = repo.blob(raw, "-t", "commit", "--literally")
    (repo.path / ".git" / "refs" / "heads" / "main").write_text(f"{made}\n")
    found = scan(repo.path).of(FIRST)
    assert (found["commit"], found["author"], found["source_type"]) == (made, name, "repo")
    assert (found["committed_at"] and int(found["committed_at"].timestamp())) == at


def test_a_malformed_commit_is_a_gap_and_hides_nothing(pair: Repo, scan: Scan) -> None:
    for number, raw in enumerate((b"malformed", b"", b"tree " + b"0" * 40, b"tree x\nparent y\n\n")):
        made = pair.blob(raw, "-t", "commit", "--literally")
        (pair.path / ".git" / "refs" / "heads" / f"n{number}").write_text(f"{made}\n")
    scanned = scan(pair.path)
    assert [scanned.of(value)["source_type"] for value in (FIRST, SECOND)] == ["repo", "repo"]
    assert scanned.of(SECOND)["commit"] == oid(pair, "main")
    assert scanned.gaps


def _write_history_with_a_malformed_parent(repo: Repo, length: int) -> str:
    """Write a long history whose last commit has a second, unreadable parent; return the commit before it."""
    stream = "".join(
        f"commit refs/heads/main\ncommitter Ben <b@x> {number} +0000\ndata 0\n"
        f"M 100644 inline f\ndata {len(str(number))}\n{number}\n\n"
        for number in range(length)
    )
    repo.git("fast-import", "--quiet", given=stream.encode())
    repo.git("reset", "--quiet", "--hard")
    before = repo.commit({"a": f"{FIRST}\n"})
    malformed = repo.blob(b"tree x\nparent y\nparent --all\n\n", "-t", "commit", "--literally")
    who = "author Ada <a@x> 5 +0000\ncommitter Ben <b@x> 1 +0000\n"
    raw = f"tree {oid(repo, 'HEAD^{tree}')}\nparent {before}\nparent {malformed}\n{who}\nx\n"
    repo.git("update-ref", "refs/heads/main", repo.blob(raw.encode(), "-t", "commit", "--literally"))
    return before


def test_a_malformed_parent_hides_nothing_and_needs_few_git_processes(
    repo: Repo, scan: Scan, git_starts: GitStarts
) -> None:
    before = _write_history_with_a_malformed_parent(repo, 2_500)
    scanned = scan(repo.path)
    assert 0 < git_starts() < 40
    assert (scanned.of(FIRST)["commit"], scanned.of(FIRST)["source_type"]) == (before, "repo")
    assert scanned.has_gap("commits are missing or damaged")


def test_since_is_respected_when_git_cannot_walk_the_commits(repo: Repo, scan: Scan) -> None:
    before = _write_history_with_a_malformed_parent(repo, 3)
    assert scan(repo.path, since=f"{before}~1").secrets == [FIRST]
    assert scan(repo.path, since=before).secrets == []


def test_a_clone_without_older_trees_needs_few_git_processes(
    repo: Repo, scan: Scan, tmp_path: Path, git_starts: GitStarts
) -> None:
    for number in range(3):
        repo.commit({"a": f"{number}\n"})
    stream = "".join(
        f"commit refs/heads/main\ncommitter Ben <b@x> {number} +0000\ndata 0\n"
        f"{'from refs/heads/main^0' if not number else ''}\n"
        f"M 100644 inline f\ndata {len(str(number))}\n{number}\n\n"
        for number in range(1_000)
    )
    repo.git("fast-import", "--quiet", given=stream.encode())
    repo.git("reset", "--quiet", "--hard")
    tip = repo.commit({"b": f"{FIRST}\n"})
    repo.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    repo.git("clone", "--quiet", "--filter=tree:0", repo.path.as_uri(), str(clone))
    scanned = scan(clone)
    assert 0 < git_starts() < 40
    assert (scanned.of(FIRST)["commit"], scanned.of(FIRST)["source_type"]) == (tip, "repo")
    assert scanned.has_gap("trees of a commit are missing")


def test_nested_tags_of_a_missing_object_hide_nothing(pair: Repo, scan: Scan) -> None:
    last = "1234567890" * 4
    for number in range(50):
        kind = "tag" if number else "commit"
        raw = f"object {last}\ntype {kind}\ntag t{number}\ntagger Ben <b@x> 1 +0000\n\nx\n"
        last = pair.blob(raw.encode(), "-t", "tag", "--literally")
    (pair.path / ".git" / "refs" / "tags").mkdir(exist_ok=True)
    (pair.path / ".git" / "refs" / "tags" / "t").write_text(f"{last}\n")
    assert scan(pair.path).of(SECOND)["source_type"] == "repo"


def test_a_commit_with_a_message_of_megabytes_is_scanned(repo: Repo, scan: Scan) -> None:
    repo.commit({"a": f"{FIRST}\n"})
    raw = (
        f"tree {oid(repo, 'HEAD^{tree}')}\nauthor Ada <a@x> 5 +0000\ncommitter Ben <b@x> 1 +0000\n\n".encode()
        + b"word " * 2_000_000
    )
    made = repo.blob(raw, "-t", "commit", "--literally")
    repo.git("update-ref", "refs/heads/main", made)
    found = scan(repo.path).of(FIRST)
    assert (found["commit"], found["source_type"], found["author"]) == (made, "repo", "Ada <a@x>")


def test_replace_refs_and_grafts_are_ignored(pair: Repo, scan: Scan) -> None:
    clean, parent = pair.blob(b"clean\n"), oid(pair, "HEAD~1")
    pair.git("replace", oid(pair, "HEAD:a"), clean)
    (pair.path / ".git" / "info").mkdir(exist_ok=True)
    (pair.path / ".git" / "info" / "grafts").write_text(f"{oid(pair, 'HEAD')}\n")
    scanned = scan(pair.path)
    assert (scanned.of(FIRST)["commit"], scanned.of(FIRST)["source_type"]) == (parent, "repo")


# Large objects


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, dict[int, str]]:
    """Return a repository with a blob of 80 MB, and the values in it, some at the borders of the pieces."""
    repo = Repo(tmp_path_factory.mktemp("large") / "repo")
    mega = 1 << 20
    places = [
        10,
        40 * mega,
        *(
            at + shift
            for at in (32 * mega, 32 * mega - (256 << 10), 64 * mega - (256 << 10))
            for shift in (-90, -20, 60)
        ),
    ]
    line = b"the quick brown fox jumps over the lazy dog, line after line\n"
    raw = bytearray(line * (80 * mega // len(line)))
    values = {}
    for number, at in enumerate([*sorted(places), len(raw) - 42]):
        values[at] = token(f"large {number}")
        raw[at : at + 42] = b"\n" + values[at].encode() + b"\n"
    repo.git("config", "core.compression", "1")
    repo.commit({"large": bytes(raw), "small": f"{SECOND}\n"})
    return repo, values


def test_a_large_blob_is_scanned_in_pieces_without_a_gap(
    large: tuple[Repo, dict[int, str]], scan: Scan
) -> None:
    repo, values = large
    scanned = scan(repo.path)
    assert sorted(scanned.secrets) == sorted([*values.values(), SECOND])
    raw = (repo.path / "large").read_bytes()
    for at, value in values.items():
        found = scanned.of(value)
        assert (found["line_number"], found["column"]) == (raw.count(b"\n", 0, at + 1) + 1, 1)
        assert found["source_type"] == "repo"


def test_a_large_blob_that_is_damaged_in_its_middle_is_a_gap(
    large: tuple[Repo, dict[int, str]], scan: Scan, tmp_path: Path
) -> None:
    repo = Repo(tmp_path / "copy")
    repo.git("fetch", "--quiet", str(large[0].path), "main:refs/heads/copy")
    repo.git("unpack-objects", "-q", check=False)
    blob = oid(repo, "copy:large")
    files = [
        file
        for file in (repo.path / ".git" / "objects").rglob("*")
        if file.is_file() and file.stat().st_size > 100_000
    ]
    assert files, blob
    changed_bytes(files[0], files[0].stat().st_size // 2, 8)
    scanned = scan(repo.path)
    assert SECOND in scanned.secrets
    assert scanned.has_gap("large: ")


def test_blobs_of_about_the_size_of_the_buffer_are_all_scanned(repo: Repo, scan: Scan) -> None:
    half = 4 << 20
    sizes = [half - 1, half, half + 1, 2 * half - 200, 2 * half - 100, 2 * half, 2 * half + 1]
    files: dict[str, str | bytes] = {}
    for number, size in enumerate(sizes):
        value = token(f"buffer {number}").encode()
        files[f"f{number}"] = value + b"\n" + b"x y\n" * ((size - 41) // 4) + b"z" * ((size - 41) % 4)
        files[f"g{number}"] = token(f"small {number}")
    repo.git("config", "core.compression", "1")
    repo.commit(files)
    scanned = scan(repo.path)
    assert len(scanned.secrets) == len({*scanned.secrets}) == 2 * len(sizes)
    assert {finding["source_type"] for finding in scanned.findings} == {"repo"}


def test_the_resources_of_git_are_limited(repo: Repo) -> None:
    repo.commit({"a": "x"})
    with command.start(
        repo.path / ".git", ["cat-file", "--batch"], stdin=subprocess.PIPE, memory=1 << 30
    ) as git:
        limits = Path(f"/proc/{git.pid}/limits").read_text()
        git.communicate(b"")
    bounds = {
        name: re.search(rf"^Max {name} +(\S+)", limits, re.MULTILINE)[1]
        for name in ("core file size", "address space", "data size")
    }
    assert bounds == {"core file size": "0", "address space": str(32 << 30), "data size": str(1 << 30)}
