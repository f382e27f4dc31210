"""`outcrop scan` of remote targets without an account: GitHub, gists, a commit, git over https, a site."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Ran, run
from tests.support.git_host import git_host
from tests.support.github_host import GitHubHost, github_host, merge_egress
from tests.support.pipeline import Repo, token
from tests.support.rulesets import cached_in
from tests.support.web_host import page, script, web_host

FIRST, SECOND, THIRD = token("elsewhere 1"), token("elsewhere 2"), token("elsewhere 3")


class Elsewhere:
    """Hosts on loopback, and the command with the settings that lead to them."""

    def __init__(self, folder: Path, cache: Path, github: GitHubHost, repo: Repo) -> None:
        self.folder = folder
        self.cache = cache
        self.github = github
        self.repo = repo

    def scan(self, *arguments: str) -> Ran:
        return run(
            "scan", "--json", "--reveal", "--jobs", "1", *arguments, folder=self.folder, cache=self.cache
        )

    def found(self, *arguments: str) -> list[tuple[str, str, str]]:
        return sorted(
            (finding["secret"], finding["source_type"], finding["source_url"])
            for finding in self.scan(*arguments).json
        )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def elsewhere(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    served = tmp_path / "served"
    repo = Repo(served / "acme" / "shop.git")
    repo.commit({"a.py": f"x = '{FIRST}'\n"})
    site = {"/": page('<script src="/app.js"></script>'), "/app.js": script(f'const t = "{THIRD}";')}
    with (
        git_host(served, tmp_path) as git,
        github_host(tmp_path) as github,
        web_host(site, "site.example") as web,
    ):
        github.add_user("acme", organisation=True)
        github.add_repo("acme/shop", has_wiki=False, commits=(repo.git("rev-parse", "main"),))
        Repo(served / "gist" / f"{github.add_gist('jo')['id']}.git").commit({"notes.txt": f"{SECOND}\n"})
        out = merge_egress(tmp_path, git.egress, github.egress)
        pairs = [
            f"{host}:{port}={address}:{to}"
            for host, port, address, to in [*out.connect_to, *web.egress.connect_to]
        ]
        monkeypatch.setenv("OUTCROP_EGRESS_ALLOW", "127.0.0.0/8")
        monkeypatch.setenv("OUTCROP_EGRESS_CONNECT_TO", ",".join(pairs))
        monkeypatch.setenv("OUTCROP_EGRESS_CA_FILE", str(out.ca_file))
        monkeypatch.setenv("OUTCROP_GITHUB_API_URL", github.base_url)
        yield Elsewhere(tmp_path, cache, github, repo)


def test_an_owner_is_every_public_repository(elsewhere):
    ran = elsewhere.scan("github:acme")
    assert [
        (finding["secret"], finding["source_type"], finding["repo_full_name"], finding["source_visibility"])
        for finding in ran.json
    ] == [(FIRST, "repo", "acme/shop", "public")]
    assert ran.code == 1


def test_gists_are_of_their_own_type(elsewhere):
    assert [(secret, kind) for secret, kind, _ in elsewhere.found("gists:jo")] == [(SECOND, "gist")]


def test_a_commit_is_what_it_changed(elsewhere):
    elsewhere.repo.commit({"b.py": f"y = '{SECOND}'\n"})
    sha = elsewhere.repo.git("rev-parse", "main")
    elsewhere.github.commits["acme/shop"].append(sha)
    ran = elsewhere.scan(f"https://api.git.example/acme/shop/commit/{sha}")
    assert [finding["secret"] for finding in ran.json] == [SECOND], ran.err


def test_a_repository_elsewhere_is_cloned(elsewhere):
    (found,) = elsewhere.found("https://git.example/acme/shop.git")
    assert found[:2] == (FIRST, "repo")


def test_a_web_page_is_crawled(elsewhere):
    assert elsewhere.found("http://site.example/") == [(THIRD, "js_bundle", "http://site.example/app.js")]


def test_what_is_not_there_is_one_line_and_the_rest_is_scanned(elsewhere):
    ran = elsewhere.scan("github:nobody", "http://site.example/")
    assert ran.code == 2
    assert [finding["secret"] for finding in ran.json] == [THIRD]
    assert "github:nobody" in ran.err
    assert "Traceback" not in ran.err
