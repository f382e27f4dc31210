"""Clone repositories over https from a git server with TLS on the loopback interface."""

import hashlib
import random
import struct
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.limits import SOURCE_LIMITS, SourceLimits
from outcrop.net.guard import Egress
from outcrop.sources.budget import SourceBudget
from outcrop.sources.git.clone import Remote, clone
from tests.sources.git.test_pack import entry, varint
from tests.support.git_host import ENV, GitHost, git_host


def git(*arguments: str, cwd: Path) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        cwd=cwd,
        env=ENV,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitHost]:
    work = tmp_path / "work-tree"
    work.mkdir()
    git("init", "-q", "-b", "main", cwd=work)
    (work / "a.txt").write_text("first\n")
    git("add", ".", cwd=work)
    git("commit", "-qm", "one", cwd=work)
    git("branch", "other", cwd=work)
    git("tag", "v1", cwd=work)
    git("update-ref", "refs/pull/1/head", "HEAD", cwd=work)
    git("clone", "-q", "--mirror", str(work), str(tmp_path / "served" / "repo.git"), cwd=tmp_path)
    with git_host(tmp_path / "served", tmp_path) as running:
        yield running


def folder(tmp_path: Path) -> Path:
    work = tmp_path / "clone"
    work.mkdir()
    return work


def test_every_ref_is_cloned_from_the_checked_address(server, tmp_path):
    found = clone(Remote.parse("https://git.example/repo.git"), folder(tmp_path), server.egress)
    assert set(found.refs) == {b"refs/heads/main", b"refs/heads/other", b"refs/tags/v1", b"refs/pull/1/head"}
    assert found.head == found.refs[b"refs/heads/main"]
    assert {host for _, host, _ in server.requests} == {f"git.example:{server.port}"}


def test_user_name_and_password_are_sent_as_a_header(server, tmp_path):
    clone(Remote.parse("https://me:p%40ss@git.example/repo.git"), folder(tmp_path), server.egress)
    assert {auth for _, _, auth in server.requests} == {"Basic bWU6cEBzcw=="}


def test_redirect_is_not_followed(server, tmp_path):
    with pytest.raises(OperatorError, match="cannot be cloned"):
        clone(Remote.parse("https://git.example/moved.git"), folder(tmp_path), server.egress)
    assert all(path.startswith("/moved") for path, _, _ in server.requests)


def test_certificate_of_another_authority_is_refused(server, tmp_path):
    with pytest.raises(OperatorError, match="cannot be cloned"):
        clone(
            Remote.parse("https://git.example/repo.git"),
            folder(tmp_path),
            Egress(server.egress.allow, server.egress.connect_to),
        )
    assert server.requests == []


def test_private_address_is_refused_before_anything_is_sent(server, tmp_path):
    with pytest.raises(OperatorError, match="not public"):
        clone(
            Remote.parse(f"https://127.0.0.1:{server.port}/repo.git"),
            folder(tmp_path),
            Egress(ca_file=server.ca),
        )
    assert server.requests == []


def test_error_for_a_missing_repository_is_one_line_without_the_password(server, tmp_path):
    with pytest.raises(OperatorError) as error:
        clone(Remote.parse("https://me:hunter2hunter2@git.example/none.git"), folder(tmp_path), server.egress)
    assert "hunter2" not in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    "address",
    [
        "http://git.example/r",
        "ssh://git@git.example/r",
        "file:///etc",
        "ext::sh -c id",
        "https:///r",
        "https://h:99999/r",
        "https://h/r?x=1",
        "https://[",
        "https://[::1",
    ],
)
def test_addresses_that_are_not_https_are_refused(address, tmp_path):
    with pytest.raises(OperatorError):
        clone(Remote.parse(address), folder(tmp_path), Egress())
    with pytest.raises(OperatorError):
        clone(Remote(address), tmp_path, Egress())


def test_a_malformed_address_is_not_in_the_error():
    with pytest.raises(OperatorError) as error:
        Remote.parse("https://me:hunter2hunter2@[::1")
    assert "hunter2" not in error.value.message
    assert error.value.__suppress_context__


def test_credentials_do_not_stay_in_the_mirror(server, tmp_path):
    work = folder(tmp_path)
    clone(Remote.parse("https://me:hunter2hunter2@git.example/repo.git"), work, server.egress)
    assert all(b"hunter2" not in file.read_bytes() for file in work.rglob("*") if file.is_file())


# Hostile hosts


OID = b"1" * 40


def packet(text: bytes) -> bytes:
    return b"%04x" % (len(text) + 4) + text


BEGINNING = packet(b"# service=git-upload-pack\n") + b"0000"
ONE_REF = [BEGINNING, packet(OID + b" refs/heads/main\0shallow\n"), b"0000"]


def pack_of(count: int, *entries: bytes) -> list[bytes]:
    return [packet(b"NAK\n"), b"PACK" + struct.pack(">II", 2, count), *entries]


def failure(host: GitHost, work: Path, limits: SourceLimits = SOURCE_LIMITS) -> str:
    """Clone from a hostile host, and return the reason why that fails."""
    with SourceBudget(limits).watch(work) as budget, pytest.raises(OperatorError) as raised:
        clone(Remote.parse("https://git.example/repo.git"), work, host.egress, budget)
    return raised.value.message


def test_a_pack_whose_objects_do_not_fit_in_the_memory_is_refused(server, tmp_path):
    """A delta that copies its base again and again: a few kilobytes become two gigabytes."""
    base = zlib.compress(bytes(1 << 20), 9)
    copies = 2_000
    copy = b"\xc0\x10"  # a megabyte from offset 0: the third byte of the size
    delta = varint(1 << 20) + varint(copies << 20) + copy * copies
    head = entry(3, 1 << 20, b"")[: -len(zlib.compress(b""))]
    first = head + base
    distance = len(first)
    encoded = bytes([0x80 | (distance >> 7) - 1, distance & 0x7F])
    server.refs, server.pack = ONE_REF, pack_of(2, first, entry(6, len(delta), delta, encoded))
    body = b"".join(server.pack)
    server.pack = [body, hashlib.sha1(body[8:]).digest()]
    assert len(body) < 16_000
    assert "memory" in failure(server, folder(tmp_path)).lower()


def test_an_endless_list_of_refs_ends_at_the_memory_of_git(server, tmp_path):
    def refs() -> Iterator[bytes]:
        yield BEGINNING
        for number in range(100_000_000):
            yield b"".join(
                packet(b"%040x refs/heads/%0100d\n" % (at + 1, at))
                for at in range(number * 500, number * 500 + 500)
            )

    server.refs = refs()
    limits = replace(SOURCE_LIMITS, git_memory=40 << 20)
    assert "memory" in failure(server, folder(tmp_path), limits).lower()


def test_an_endless_pack_ends_at_the_quota_of_the_working_folder(server, tmp_path):
    def pack() -> Iterator[bytes]:
        deflate, noise = zlib.compressobj(0), random.Random(1).randbytes(1 << 20)
        yield b"".join(pack_of(1_000, entry(3, 1 << 44, b"")[: -len(zlib.compress(b""))]))
        while True:
            yield deflate.compress(noise)

    server.refs, server.pack = ONE_REF, pack()
    limits = replace(SOURCE_LIMITS, disk=30_000_000)
    assert "working folder has reached its limit of 30 MB" in failure(server, folder(tmp_path), limits)
