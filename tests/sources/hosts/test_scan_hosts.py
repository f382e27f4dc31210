"""Scan a group on each code host with real git over https, from a stand-in of the host."""

from dataclasses import replace
from pathlib import Path

import pytest

from outcrop.domain.secret import Secret
from outcrop.sources.remote import RemoteAccess
from tests.sources.conftest import Repo, Scan, token
from tests.sources.hosts.test_every_host import KINDS, Kind
from tests.support.code_hosts.stand_in import run_stand_in

LINES = {
    "gitlab": "https://gitlab.com/acme/vault/-/blob/{sha}/a.env#L1",
    "gitlab self-hosted": "https://gl.example/git/acme/team/vault/-/blob/{sha}/a.env#L1",
    "gitea self-hosted": "https://git.example/acme/vault/src/commit/{sha}/a.env#L1",
    "bitbucket": "https://bitbucket.org/acme/vault/src/{sha}/a.env#lines-1",
    "bitbucket self-hosted": "https://bb.example/bb/projects/ACME/repos/vault/browse/a.env?at={sha}#1",
    "azuredevops": "https://dev.azure.com/acme/Shop/_git/vault?path=/a.env&version=GC{sha}",
    "azuredevops self-hosted": "https://tfs.example/tfs/Coll/Shop/_git/vault?path=/a.env&version=GC{sha}",
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_group_is_cloned_with_the_token_of_its_host(kind: Kind, tmp_path: Path, scan: Scan) -> None:
    served = tmp_path / "served"
    secret = token(f"{kind}")
    repo = Repo(tmp_path / "work")
    sha = repo.commit({"a.env": f"TOKEN={secret}\n"})
    (served / kind.project).mkdir(parents=True)
    repo.git("clone", "--quiet", "--bare", ".", str(served / f"{kind.project}/vault.git"))
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/vault", private=True, commits=[sha])
        stand_in.served = served
        assert stand_in.server is not None
        tokens = {stand_in.hosts[0]: Secret(kind.token, mask_all=True)}
        access = RemoteAccess(stand_in.server.egress, "https://api.github.com", None, tokens)
        scanned = scan(f"{kind.name}:{kind.owner}", access=access, host_url=kind.url)
        without = replace(access, tokens={})
        anonymous = scan(f"{kind.name}:{kind.owner}", access=without, host_url=kind.url)
    assert scanned.report.failures == []
    assert scanned.gaps == []
    assert scanned.secrets == [secret]
    assert scanned.findings[0]["source_url"].startswith(LINES[str(kind)].format(sha=sha))
    assert scanned.findings[0]["source_visibility"] == "private"
    assert anonymous.secrets == []
    assert all(kind.token not in f"{request.path}{request.query}" for request in stand_in.requests)


def test_discussions_are_scanned_without_an_account(tmp_path: Path, scan: Scan) -> None:
    kind = next(kind for kind in KINDS if kind.name == "gitlab" and kind.url is None)
    issue = {"id": 9, "iid": 1, "title": "help", "description": token("talk"), "user_notes_count": 0}
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        repository = stand_in.add(f"{kind.project}/vault", commits=[])
        url = f"https://gitlab.com/{repository.path}/-/issues/1"
        stand_in.texts = {
            f"projects/{repository.id}/issues": [issue | {"web_url": url}],
            f"projects/{repository.id}/merge_requests": [],
        }
        assert stand_in.server is not None
        access = RemoteAccess(stand_in.server.egress, "https://api.github.com")
        target = f"gitlab:{kind.owner}"
        assert scan(target, access=access).secrets == []
        scanned = scan(target, access=access, discussions=True)
        stand_in.texts.clear()
        failed = scan(target, access=access, discussions=True)
    assert scanned.secrets == [token("talk")]
    (finding,) = scanned.findings
    assert (finding["source_type"], finding["source_url"], finding["file_path"]) == (
        "endpoint",
        url,
        "issues/1",
    )
    assert any("404" in str(gap) for gap in failed.gaps)
