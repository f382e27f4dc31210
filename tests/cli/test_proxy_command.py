"""Commands through `OUTCROP_EGRESS_PROXY`: scans, git and validation, and a proxy that refuses."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import Ran, run
from tests.support.fake_https import FakeResponse, FakeServer, serve_https
from tests.support.git_host import GitHost, git_host
from tests.support.pipeline import Repo, token
from tests.support.proxy import run_proxy
from tests.support.rulesets import cached_in, github_token
from tests.support.web_host import WebHost, page, script, web_host

IN_GIT, IN_SITE, IN_FOLDER = token("proxy 1"), token("proxy 2"), github_token("through a proxy")
LOGIN = "robot:hidden-pa55word"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cached_in(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[GitHost, WebHost, FakeServer]]:
    """Run a git host, a site and an issuer, and write a folder with a credential."""
    for name in ("served", "git", "issuer", "place"):
        (tmp_path / name).mkdir()
    Repo(tmp_path / "served" / "repo.git").commit({"a.py": f"x = '{IN_GIT}'\n"})
    (tmp_path / "place" / "a.py").write_text(f"x = '{IN_FOLDER}'\n")
    routes = {"/": page('<script src="/app.js"></script>'), "/app.js": script(f'const t = "{IN_SITE}";')}
    live = FakeResponse(
        200, {"Content-Type": "application/json", "X-OAuth-Scopes": "gist"}, b'{"login": "o"}'
    )
    with (
        git_host(tmp_path / "served", tmp_path / "git") as git,
        web_host(routes, "site.example") as site,
        serve_https(tmp_path / "issuer", ("api.github.com",), lambda _: live) as issuer,
    ):
        trusted = tmp_path / "trusted.pem"
        trusted.write_bytes(git.ca.read_bytes() + issuer.ca.read_bytes())
        pairs = [
            f"git.example:443=127.0.0.1:{git.port}",
            f"site.example:80=127.0.0.1:{site.port}",
            f"api.github.com:443=127.0.0.1:{issuer.port}",
        ]
        monkeypatch.setenv("OUTCROP_VALIDATE", "safe")
        monkeypatch.setenv("OUTCROP_EGRESS_CONNECT_TO", ",".join(pairs))
        monkeypatch.setenv("OUTCROP_EGRESS_CA_FILE", str(trusted))
        yield git, site, issuer


def scan(*arguments: str, folder: Path, cache: Path) -> Ran:
    return run("scan", "--json", "--reveal", "--jobs", "1", *arguments, folder=folder, cache=cache)


TARGETS = ("https://git.example/repo.git", "http://site.example/", "place")


def test_a_scan_and_its_validation_use_only_the_proxy(hosts, tmp_path, cache, monkeypatch):
    with run_proxy(login=LOGIN) as proxy:
        (tmp_path / "proxy").write_text(f"http://{LOGIN}@127.0.0.1:{proxy.port}\n")
        monkeypatch.setenv("OUTCROP_EGRESS_PROXY_FILE", str(tmp_path / "proxy"))
        ran = scan(*TARGETS, folder=tmp_path, cache=cache)
        verdicts = {finding["secret"]: finding["validation_status"] for finding in ran.json}
        assert verdicts.keys() == {IN_GIT, IN_SITE, IN_FOLDER}, ran.err
        assert verdicts[IN_FOLDER] == "valid"
        assert {host.rpartition(":")[0] for host in proxy.asked} == {"127.0.0.1"}
        assert {int(host.rpartition(":")[2]) for host in proxy.asked} == {host.port for host in hosts}
        shown = run("settings", folder=tmp_path, cache=cache)
        assert "OUTCROP_EGRESS_PROXY" in shown.out
        assert "hidden" not in shown.out + ran.out + ran.err


def test_a_proxy_that_refuses_is_a_line_for_each_target_and_unreachable(hosts, tmp_path, cache, monkeypatch):
    with run_proxy(kind="wants a password") as proxy:
        monkeypatch.setenv("OUTCROP_EGRESS_PROXY", f"http://127.0.0.1:{proxy.port}")
        ran = scan(*TARGETS, folder=tmp_path, cache=cache)
    assert ran.code == 2
    assert [(finding["secret"], finding["validation_status"]) for finding in ran.json] == [
        (IN_FOLDER, "unreachable")
    ]
    reason = "the proxy requires a user name and password in OUTCROP_EGRESS_PROXY"
    lines = [line for line in ran.err.splitlines() if reason in line]
    assert len(lines) == 2, ran.err
    assert "Traceback" not in ran.err
    git, site, issuer = hosts
    assert (git.requests, site.requests, issuer.requests) == ([], [], [])


def test_a_wrong_proxy_is_one_line_without_its_text(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("OUTCROP_EGRESS_PROXY", "socks5://me:hidden@proxy.example")
    (tmp_path / "a.py").write_text("x = 1\n")
    ran = scan("https://git.example/x.git", folder=tmp_path, cache=cache)
    assert ran.code == 2
    assert "OUTCROP_EGRESS_PROXY: must be an address such as http://" in ran.err
    assert "hidden" not in ran.err
    assert len(ran.err.splitlines()) == 1
