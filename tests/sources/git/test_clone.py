"""Clone repositories over https from a git server with TLS on the loopback interface."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from outcrop.domain.errors import OperatorError
from outcrop.net.guard import Egress
from outcrop.sources.git.clone import Remote, clone
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
    with pytest.raises(OperatorError, match="not a public address"):
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
