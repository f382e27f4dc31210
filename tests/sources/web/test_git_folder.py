"""Downloading a `.git` folder that a site serves by mistake."""

import asyncio
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest

from outcrop.limits import GIT_FOLDER_LIMITS, GitFolderLimits
from outcrop.net.http import open_http
from outcrop.sources.git import command
from outcrop.sources.git.repository import Repository
from outcrop.sources.web.git_folder import fetch_repository
from outcrop.sources.web.git_objects import index_ids, inflate_object
from tests.sources.conftest import Repo, read_objects
from tests.support.web_host import WebHost, page, text, web_host


class ServedGitFolder:
    """A route that serves every file of a folder's `.git`, without a listing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hidden: set[str] = set()
        self.changed: dict[str, bytes] = {}

    def __call__(self, handler: Any) -> Any:
        name = handler.path.removeprefix("/.git/")
        file = self.folder / ".git" / name
        if name in self.changed:
            return text(self.changed[name], "application/octet-stream")
        return (
            text(file.read_bytes(), "application/octet-stream")
            if file.is_file() and name not in self.hidden
            else page("<h1>no</h1>")
        )


def fetch(host: WebHost, work: Path, limits: GitFolderLimits = GIT_FOLDER_LIMITS) -> Repository | None:
    """Download the git folder of a host into `work`."""

    async def run() -> Repository | None:
        async with open_http(host.egress) as http:
            return await fetch_repository(
                http, "http://site.example/.git/HEAD", work, headers={"X-Key": "k"}, limits=limits
            )

    return asyncio.run(asyncio.wait_for(run(), 60))


def contents(repository: Repository) -> set[bytes]:
    """Return the contents of all blobs of a repository."""
    return {content for kind, content in read_objects(repository.folder).values() if kind == "blob"}


@pytest.fixture
def filled(repo: Repo) -> Repo:
    repo.commit({"a.txt": "first\n", "deep/b.txt": "b\n"})
    repo.commit({"a.txt": "second\n"})
    repo.git("branch", "feature/x")
    repo.git("tag", "-a", "v1", "-m", "tag")
    return repo


def test_loose_objects_are_fetched_from_the_branch_on(filled, tmp_path):
    with web_host({}, fallback=ServedGitFolder(filled.path)) as host:
        found = fetch(host, tmp_path / "work")
        assert {request.headers["X-Key"] for request in host.requests} == {"k"}
        assert not any(request.path.endswith("/config") for request in host.requests)
    assert contents(found) == {b"first\n", b"second\n", b"b\n"}
    assert found.head == found.refs[b"refs/heads/main"] == filled.git("rev-parse", "HEAD").encode()
    assert found.gaps == []
    assert command.run(found.folder, "fsck", "--strict")[0] == 0


def test_packs_are_indexed_by_our_git(filled, tmp_path):
    filled.git("gc", "--quiet")
    filled.git("update-server-info")
    filled.commit({"late.txt": "late\n"})
    with web_host({}, fallback=ServedGitFolder(filled.path)) as host:
        found = fetch(host, tmp_path / "work")
        assert not any(request.path.endswith(".idx") for request in host.requests)
    assert contents(found) == {b"first\n", b"second\n", b"b\n", b"late\n"}
    assert {b"refs/heads/main", b"refs/heads/feature/x", b"refs/tags/v1"} <= set(found.refs)
    assert found.gaps == []


def test_loose_objects_that_packed_objects_refer_to_are_found(filled, tmp_path):
    """After a pull the pack refers to objects that were there before."""
    old = filled.git("rev-parse", "HEAD")
    new = filled.commit({"new.txt": "new\n"})
    filled.git("pack-objects", ".git/objects/pack/pack", "--revs", given=f"{new}\n^{old}\n".encode())
    filled.git("prune-packed")
    filled.git("update-server-info")
    (filled.path / ".git/logs/HEAD").unlink()
    (filled.path / ".git/index").unlink()
    (filled.path / ".git/info/refs").unlink()
    with web_host({}, fallback=ServedGitFolder(filled.path)) as host:
        found = fetch(host, tmp_path / "work")
    assert {b"first\n", b"second\n", b"new\n"} <= contents(found)


def test_objects_that_only_the_reflog_and_the_index_name_are_found(filled, tmp_path):
    filled.commit({"gone.txt": "gone\n"})
    filled.git("reset", "--quiet", "--hard", "HEAD~1")
    filled.write("staged.txt", "staged\n")
    filled.git("add", "staged.txt")
    filled.git("checkout", "--quiet", "-b", "odd-name")
    filled.commit({"odd.txt": "odd\n"})
    filled.git("checkout", "--quiet", "main")
    with web_host({}, fallback=ServedGitFolder(filled.path)) as host:
        found = fetch(host, tmp_path / "work")
    assert {b"gone\n", b"staged\n", b"odd\n"} <= contents(found)
    assert b"refs/heads/odd-name" in found.refs


def test_missing_objects_are_a_gap(filled, tmp_path):
    served = ServedGitFolder(filled.path)
    oid = filled.git("rev-parse", "HEAD:a.txt")
    served.hidden.add(f"objects/{oid[:2]}/{oid[2:]}")
    with web_host({}, fallback=served) as host:
        found = fetch(host, tmp_path / "work")
    assert contents(found) == {b"first\n", b"b\n"}
    assert found.gaps == ["1 objects of the git folder are not served"]


def test_an_object_whose_content_has_another_id_is_not_stored(filled, tmp_path):
    served = ServedGitFolder(filled.path)
    oid = filled.git("rev-parse", "HEAD:a.txt")
    served.changed[f"objects/{oid[:2]}/{oid[2:]}"] = zlib.compress(b"blob 5\0wrong")
    with web_host({}, fallback=served) as host:
        found = fetch(host, tmp_path / "work")
    assert contents(found) == {b"first\n", b"b\n"}
    assert found.gaps == ["1 objects of the git folder are not served"]


def test_a_damaged_pack_is_a_gap_and_is_removed(filled, tmp_path):
    filled.git("gc", "--quiet")
    filled.git("update-server-info")
    (pack,) = (filled.path / ".git/objects/pack").glob("*.pack")
    served = ServedGitFolder(filled.path)
    served.changed[f"objects/pack/{pack.name}"] = pack.read_bytes()[:-30] + b"x" * 30
    with web_host({}, fallback=served) as host:
        found = fetch(host, tmp_path / "work")
    assert "a pack is damaged: its objects cannot be read" in found.gaps
    assert list((found.folder / "objects/pack").iterdir()) == []
    assert found.refs == {}


def test_a_shallow_clone_is_a_gap(filled, tmp_path):
    subprocess.run(
        ["git", "clone", "-q", "--depth=1", f"file://{filled.path}", str(tmp_path / "shallow")],
        env=filled.environment(),
        check=True,
    )
    subprocess.run(
        ["git", "update-server-info"], cwd=tmp_path / "shallow", env=filled.environment(), check=True
    )
    with web_host({}, fallback=ServedGitFolder(tmp_path / "shallow")) as host:
        found = fetch(host, tmp_path / "work")
    assert contents(found) == {b"second\n", b"b\n"}
    assert "the clone is shallow: older history is missing" in found.gaps
    assert command.run(found.folder, "rev-list", "--all")[1].count(b"\n") == 1


def test_served_files_change_neither_our_configuration_nor_our_paths(filled, tmp_path):
    served = ServedGitFolder(filled.path)
    head = filled.git("rev-parse", "HEAD").encode()
    evil = [
        b"../../../escape",
        b"refs/heads/../../config",
        b"refs/heads/a b",
        b"refs/heads/x.lock",
        b"refs/heads/ok",
    ]
    served.changed["packed-refs"] = b"".join(head + b" " + name + b"\n" for name in evil)
    served.changed["objects/info/packs"] = b"P ../../evil.pack\nP pack-x.pack\n"
    with web_host({}, fallback=served) as host:
        found = fetch(host, tmp_path / "work")
        assert not any("evil" in request.path or ".." in request.path for request in host.requests)
    assert set(found.refs) == {b"refs/heads/ok", b"refs/heads/main"}
    assert (found.folder / "config").read_text() == "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
    assert {entry.name for entry in (tmp_path / "work").iterdir()} == {"site.git"}


@pytest.mark.parametrize(
    "head", [b"<html>", b"", b"ref: somewhere", b"ref: refs/heads/a refs/heads/b", b"f" * 39]
)
def test_without_a_valid_head_there_is_no_repository(head, tmp_path):
    with web_host({"/.git/HEAD": text(head)}) as host:
        assert fetch(host, tmp_path / "work") is None
        assert len(host.requests) == 1
    assert not (tmp_path / "work").exists()


def test_a_head_without_objects_is_an_empty_repository(tmp_path):
    with web_host({"/.git/HEAD": text("ref: refs/heads/main\n")}) as host:
        found = fetch(host, tmp_path / "work")
    assert (found.refs, found.head) == ({}, None)
    assert found.gaps == ["the git folder serves no readable object"]


def test_limits_are_obeyed_and_are_gaps(filled, tmp_path):
    with web_host({}, fallback=ServedGitFolder(filled.path)) as host:
        few = fetch(host, tmp_path / "few", GitFolderLimits(objects=3))
        assert "more than 3 objects: the rest was not fetched" in few.gaps
        assert (
            sum("/objects/" in request.path and "info" not in request.path for request in host.requests) == 3
        )
        assert (
            "more than 600 bytes: the rest was not fetched"
            in fetch(host, tmp_path / "small", GitFolderLimits(total_bytes=600)).gaps
        )
        for name, seconds in (("short", 0.01), ("none", 0.0)):
            found = fetch(host, tmp_path / name, GitFolderLimits(seconds=seconds, concurrency=1))
            assert any("time limit of" in gap for gap in found.gaps)


def test_a_zlib_bomb_is_not_decompressed():
    assert inflate_object(zlib.compress(b"blob 100000000\0" + b"a" * 100_000_000), 1_000_000) is None
    assert inflate_object(zlib.compress(b"blob 3\0abc"), 1_000) == b"blob 3\0abc"
    assert inflate_object(zlib.compress(b"blob 4\0abc"), 1_000) is None
    assert inflate_object(zlib.compress(b"blob 3\0abc")[:-2], 1_000) is None
    assert inflate_object(b"junk", 1_000) is None


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_every_version_of_the_index_is_read(repo, version):
    names = [f"folder/name-{'x' * n}" for n in range(20)]
    repo.commit({name: name for name in names})
    repo.write("later", "later")
    if version == "3":
        repo.git("add", "--intent-to-add", "later")
    repo.git("update-index", "--index-version", "4" if version == "4" else "2")
    raw = (repo.path / ".git/index").read_bytes()
    assert raw[7] == int(version)
    expected = {repo.git("hash-object", name).encode() for name in names}
    assert expected <= index_ids(raw)
    for cut in range(0, len(raw), 7):
        index_ids(raw[:cut])
