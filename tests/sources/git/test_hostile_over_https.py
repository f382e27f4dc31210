"""Clone hostile repositories over https: what git refuses is an error of one line, and hides no other target.

Git's own server would not send most of these, so their objects and refs are sent as they are.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sources.conftest import Repo, token
from tests.sources.git.test_clone import BEGINNING, packet
from tests.support.command import Ran, run
from tests.support.git_host import GitHost, git_host

VALUE = token("over https")
Streams = tuple[list[bytes], list[bytes]]


def plain(repo: Repo) -> None:
    repo.commit({"a": f"{VALUE}\n"})


def names_that_leave_their_folder(repo: Repo) -> None:
    blob = repo.blob(f"{VALUE}\n".encode())
    names = (b"..", b".git", b"../../../etc/passwd", b"/abs", b"a\nb")
    repo.commit_tree(repo.tree(*(("100644", name, blob) for name in names)))


def hooks_and_configuration(repo: Repo) -> None:
    program = repo.path.parent / "program"
    program.write_text(f"#!/bin/sh\necho ran > {repo.path.parent}/executed\n")
    program.chmod(0o755)
    hook = ("100755", b"post-checkout", repo.blob(program.read_bytes()))
    config = ("100644", b"config", repo.blob(f"[core]\n\tfsmonitor = {program}\n".encode()))
    modules = f'[submodule "x"]\n\tpath = x\n\turl = ext::{program}\n\tupdate = !{program}\n'
    repo.commit_tree(
        repo.tree(
            ("40000", b".git", repo.tree(config, ("40000", b"hooks", repo.tree(hook)))),
            ("100644", b".gitattributes", repo.blob(b"* filter=evil diff=evil merge=evil\n")),
            ("100644", b".gitmodules", repo.blob(modules.encode())),
            ("100644", b"a", repo.blob(f"{VALUE}\n".encode())),
            ("120000", b"link", repo.blob(b"/etc/passwd")),
            ("160000", b"x", "1" * 40),
        )
    )


def entries_of_unusual_modes(repo: Repo) -> None:
    blob = repo.blob(f"{VALUE}\n".encode())
    repo.commit_tree(repo.tree(("100666", b"z", blob), ("0", b"m", blob), ("100644", b"a", blob)))


def deep_folders(repo: Repo) -> None:
    tree = repo.tree(("100644", b"x", repo.blob(f"{VALUE}\n".encode())))
    for _ in range(200):
        tree = repo.tree(("40000", b"d", tree))
    repo.commit_tree(tree)


def malformed_author(repo: Repo) -> None:
    plain(repo)
    raw = f"tree {repo.git('rev-parse', 'HEAD^{tree}')}\nauthor \xff <\n>\ncommitter\n\n{VALUE}\n"
    write_ref(repo, "refs/heads/main", repo.blob(raw.encode("latin-1"), "-t", "commit", "--literally"))


def malformed_commit(repo: Repo) -> None:
    plain(repo)
    write_ref(repo, "refs/heads/n", repo.blob(b"tree x\nparent y\n\n", "-t", "commit", "--literally"))


def file_as_folder(repo: Repo) -> None:
    blob = repo.blob(f"{VALUE}\n".encode())
    repo.commit_tree(repo.tree(("40000", b"x", blob), ("100644", b"y", blob)))


def missing_file(repo: Repo) -> None:
    plain(repo)
    repo.loose(repo.git("rev-parse", "HEAD:a")).unlink()


def missing_parent(repo: Repo) -> None:
    plain(repo)
    parent = repo.head()
    repo.commit({"b": "nothing\n"})
    repo.loose(parent).unlink()


def nested_tags(repo: Repo) -> None:
    plain(repo)
    last, kind = repo.head(), "commit"
    for number in range(60):
        raw = f"object {last}\ntype {kind}\ntag t{number}\ntagger Ben <b@x> 1 +0000\n\nx\n"
        last, kind = repo.blob(raw.encode(), "-t", "tag", "--literally"), "tag"
    write_ref(repo, "refs/tags/t", last)


def write_ref(repo: Repo, name: str, oid: str) -> None:
    file = repo.path / ".git" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{oid}\n")


def send(repo: Repo) -> Streams:
    """Return the refs and a pack of all objects of a repository, as a host sends them."""
    names = {
        str(file.relative_to(repo.path / ".git")).encode(): file.read_text().strip().encode()
        for file in sorted((repo.path / ".git" / "refs").rglob("*"))
        if file.is_file()
    }
    return advertise({b"HEAD": names[b"refs/heads/main"], **names}), [packet(b"NAK\n"), pack_all(repo)]


def advertise(refs: dict[bytes, bytes]) -> list[bytes]:
    lines = [oid + b" " + name for name, oid in refs.items()]
    lines[0] += b"\0symref=HEAD:refs/heads/main"
    return [BEGINNING, *(packet(line + b"\n") for line in lines), b"0000"]


def pack_all(repo: Repo) -> bytes:
    """Return a pack of all objects, also of those that git cannot read; git does not walk them."""
    objects = repo.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    ran = subprocess.run(
        ["git", "pack-objects", "--stdout", "--quiet"],
        cwd=repo.path,
        env=repo.environment(),
        input=os.fsencode(objects) + b"\n",
        capture_output=True,
        check=True,
    )
    return ran.stdout


def with_refs(**more: bytes) -> Callable[[Repo], Streams]:
    """Return a sender of a plain repository with one more ref: its name, and its object or None."""

    def make(repo: Repo) -> Streams:
        plain(repo)
        tip = repo.head().encode()
        oid = more.get("oid", tip)
        refs = {b"HEAD": tip, b"refs/heads/main": tip, more["name"]: oid}
        return advertise(refs), [packet(b"NAK\n"), pack_all(repo)]

    return make


def with_pack(change: Callable[[bytes], bytes]) -> Callable[[Repo], Streams]:
    """Return a sender of a plain repository whose pack was changed."""

    def make(repo: Repo) -> Streams:
        plain(repo)
        refs, (head, pack) = send(repo)
        return refs, [head, change(pack)]

    return make


def sealed(pack: bytes) -> bytes:
    """Return a pack with a right checksum for its content."""
    return pack[:-20] + hashlib.sha1(pack[:-20]).digest()


# What is found anyway, and what git refuses: of that nothing is read, and the command says why.
FOUND: dict[str, Callable[[Repo], Streams | None]] = {
    "plain": plain,
    "names-that-leave-their-folder": names_that_leave_their_folder,
    "hooks-and-configuration": hooks_and_configuration,
    "entries-of-unusual-modes": entries_of_unusual_modes,
    "deep-folders": deep_folders,
    "malformed-author": malformed_author,
    "nested-tags": nested_tags,
    "ref-that-leaves-its-folder": with_refs(name=b"refs/heads/../../../x"),
    "ref-with-an-option": with_refs(name=b"--upload-pack=touch executed"),
}
REFUSED: dict[str, Callable[[Repo], Streams | None]] = {
    "malformed-commit": malformed_commit,
    "file-as-folder": file_as_folder,
    "missing-file": missing_file,
    "missing-parent": missing_parent,
    "ref-with-a-line-break": with_refs(name=b"refs/heads/a\nb"),
    "ref-without-an-object": with_refs(name=b"refs/heads/none", oid=b"1" * 40),
    "truncated-pack": with_pack(lambda pack: pack[:-30]),
    "damaged-pack": with_pack(lambda pack: sealed(pack[:40] + b"\0" * 8 + pack[48:])),
    "wrong-checksum": with_pack(lambda pack: pack[:-1] + bytes([pack[-1] ^ 1])),
    "too-many-objects": with_pack(lambda pack: sealed(pack[:8] + b"\xff\xff\xff\xff" + pack[12:])),
    "no-pack": with_pack(lambda _: b"0008NAK\n" * 100),
}


@pytest.fixture
def host(tmp_path: Path) -> Iterator[GitHost]:
    (tmp_path / "served").mkdir()
    with git_host(tmp_path / "served", tmp_path) as running:
        yield running


@pytest.fixture
def scanned(host: GitHost, tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Scan all hostile repositories with one command."""
    names = {**FOUND, **REFUSED}
    for name, make in names.items():
        repo = Repo(tmp_path / name)
        host.streams[f"/{name}.git"] = make(repo) or send(repo)
    monkeypatch.setenv("OUTCROP_EGRESS_ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("OUTCROP_EGRESS_CONNECT_TO", f"git.example:443=127.0.0.1:{host.port}")
    monkeypatch.setenv("OUTCROP_EGRESS_CA_FILE", str(host.ca))
    addresses = [f"https://git.example/{name}.git" for name in names]
    return run("scan", "--json", "--reveal", "--no-validate", *addresses, folder=tmp_path, cache=cache_home)


def test_hostile_repositories_over_https_are_scanned_or_refused_with_one_line(
    scanned: Ran, tmp_path: Path
) -> None:
    assert scanned.code == 2
    assert "Traceback" not in scanned.err
    found = {
        finding["source_url"].split("/")[3].removesuffix(".git")
        for finding in scanned.json
        if finding["secret"] == VALUE
    }
    assert found == set(FOUND)
    lines = scanned.err.splitlines()
    for name in REFUSED:
        about = [line for line in lines if f"https://git.example/{name}.git: cannot be cloned" in line]
        assert len(about) == 1, (name, scanned.err)
    assert not list(tmp_path.rglob("executed"))
