"""What every code host does, on stand-ins of their APIs: lists, tokens, lost commits and bad input."""

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost, HostAccess
from outcrop.sources.code_host.hosted import HostedGist
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.code_host.registry import host_types, open_host
from outcrop.sources.resolve_target import ScanSource, resolve_target
from tests.support.code_hosts import azure_devops, bitbucket, gitea, gitlab
from tests.support.code_hosts.stand_in import StandIn, answer_json, run_stand_in
from tests.support.fake_https import FakeResponse

SHA = "a" * 40
GONE = "b" * 40


@dataclass(frozen=True)
class Kind:
    """A kind of host with its stand-in."""

    name: str
    make: Callable[[], StandIn]
    owner: str  # as a target names it
    project: str  # the owner of repositories
    token: str
    url: str | None = None  # of a self-hosted instance
    list_path: str = ""  # part of the path of the first list

    def __str__(self) -> str:
        return self.name + ("" if self.url is None else " self-hosted")


KINDS = [
    Kind("gitlab", gitlab.gitlab, "acme", "acme", "glpat-made-up", None, "/projects?"),
    Kind(
        "gitlab",
        lambda: gitlab.gitlab("gl.example", "/git"),
        *("acme", "acme/team", "glpat-made-up", "https://gl.example/git", "/projects?"),
    ),
    Kind("gitea", gitea.gitea, "acme", "acme", "made-up-gitea-token", "https://git.example", "/repos?"),
    Kind("bitbucket", bitbucket.bitbucket_cloud, "acme", "acme", "made-up-bitbucket-token", None, "/acme?"),
    Kind(
        "bitbucket",
        lambda: bitbucket.bitbucket_server("bb.example", "/bb"),
        *("ACME", "ACME", "made-up-bitbucket-token", "https://bb.example/bb", "/repos?"),
    ),
    Kind(
        "azuredevops",
        azure_devops.azure_devops,
        *("acme", "acme/Shop", azure_devops.TOKEN, None, "/_apis/projects?"),
    ),
    Kind(
        "azuredevops",
        lambda: azure_devops.azure_devops("tfs.example", "/tfs"),
        *("Coll/Shop", "Coll/Shop", azure_devops.TOKEN, "https://tfs.example/tfs", "/git/repositories?"),
    ),
]


@dataclass
class Running:
    """A running stand-in, and calls of the host's client."""

    kind: Kind
    stand_in: StandIn
    gaps: list[Gap] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def call(self, method: Callable[[CodeHost], Any], token: str | None = None, **options: Any) -> Any:
        """Call a method of a new client; the items of an async iterator are returned as a list."""

        async def main() -> Any:
            assert self.stand_in.server is not None
            egress = options.pop("egress", self.stand_in.server.egress)
            async with open_http(egress) as http:
                host = open_host(self.kind.name, self.access(http, token, options))
                result = method(host)
                return [item async for item in result] if isinstance(result, AsyncIterator) else await result

        return asyncio.run(main())

    def access(self, http: Any, token: str | None, options: dict[str, Any]) -> HostAccess:
        async def sleep(seconds: float) -> None:
            self.waits.append(seconds)

        secret = Secret(token, mask_all=True) if token else None
        patience = ApiOptions(sleep=sleep, retry_delays=(0.0,), max_wait=600, **options)
        return HostAccess(
            http=http, token=secret, url=self.kind.url, options=patience, on_gap=self.gaps.append
        )

    def names(self, token: str | None = None) -> list[str]:
        listed = self.call(lambda host: host.repositories(self.kind.owner), token)
        return sorted(repository.full_name.rpartition("/")[2] for repository in listed)

    def failure(
        self, method: Callable[[CodeHost], Any], token: str | None = None, **options: Any
    ) -> HostError:
        with pytest.raises(HostError) as caught:
            self.call(method, token, **options)
        assert "\n" not in caught.value.message
        assert self.kind.token not in caught.value.message
        return caught.value

    def list_failure(self, token: str | None = None, **options: Any) -> HostError:
        return self.failure(lambda host: host.repositories(self.kind.owner), token, **options)


@pytest.fixture(params=KINDS, ids=str)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    kind: Kind = request.param
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/shop")
        stand_in.add(f"{kind.project}/vault", private=True)
        yield Running(kind, stand_in)


def test_every_kind_of_host_has_a_stand_in() -> None:
    assert {kind.name for kind in KINDS} | {"github"} == {type_.name for type_ in host_types()}


def test_private_repositories_are_listed_with_the_token_only(running: Running) -> None:
    assert running.names() == ["shop"]
    assert running.names(running.kind.token) == ["shop", "vault"]
    listed = running.call(lambda host: host.repositories(running.kind.owner), running.kind.token)
    by_name = {repository.full_name.rpartition("/")[2]: repository for repository in listed}
    assert by_name["shop"].visibility is Visibility.PUBLIC
    assert by_name["vault"].visibility is Visibility.PRIVATE


def test_the_token_is_in_no_url_and_is_sent_to_its_own_host_only(running: Running) -> None:
    running.names(running.kind.token)
    for request in running.stand_in.requests:
        assert running.kind.token not in f"{request.path}?{request.query}"
        assert request.host in running.stand_in.hosts
    own = running.call(_login, running.kind.token)
    assert own[1] == running.kind.token
    assert running.call(_login) is None


async def _login(host: CodeHost) -> Any:
    return await host.login()


def test_clones_are_from_the_own_host_without_a_user_name(running: Running) -> None:
    async def check(host: CodeHost) -> None:
        async for repository in host.repositories(running.kind.owner):
            assert host.is_own_host(repository.clone_url)
            assert "@" not in repository.clone_url
            assert host.source_of(repository).endswith(f"/repositories/{repository.id}")
        assert not host.is_own_host("https://evil.example/a/b.git")

    running.call(check, running.kind.token)


def test_all_pages_are_read(running: Running) -> None:
    running.stand_in.page_size = 2
    for number in range(5):
        running.stand_in.add(f"{running.kind.project}/repo{number}")
        if running.kind.name == "azuredevops" and running.kind.owner == "acme":
            running.stand_in.add(f"acme/Project{number}/other{number}")
    names = running.names()
    assert {"shop", *(f"repo{number}" for number in range(5))} <= set(names)
    assert len(names) == len(set(names))


def test_a_repository_is_found_by_the_name_that_its_list_has(running: Running) -> None:
    (listed,) = running.call(lambda host: host.repositories(running.kind.owner))
    assert running.call(lambda host: host.repository(listed.full_name)) == listed


def test_fork_and_id_are_read(running: Running) -> None:
    running.stand_in.repositories[0].fork = True
    (before,) = running.call(lambda host: host.repositories(running.kind.owner))
    running.stand_in.repositories[0].name = "renamed"
    (after,) = running.call(lambda host: host.repositories(running.kind.owner))
    assert before.fork
    assert after.fork
    assert (before.id, before.full_name) != (after.id, after.full_name)
    assert before.id == after.id


# --- is a commit gone


def _key(running: Running) -> str:
    repository = running.call(lambda host: host.repositories(running.kind.owner), running.kind.token)[0]
    return repository.key or repository.full_name


def test_a_commit_that_the_host_serves_is_not_gone(running: Running) -> None:
    key = _key(running)
    assert running.call(lambda host: host.commit_is_gone(key, SHA)) is False


def test_a_commit_that_the_host_does_not_have_is_gone(running: Running) -> None:
    key = _key(running)
    assert running.call(lambda host: host.commit_is_gone(key, GONE)) is True


def test_no_commit_of_an_unreadable_or_empty_repository_is_gone(running: Running) -> None:
    key = _key(running)
    running.stand_in.repositories[0].commits = []
    assert running.call(lambda host: host.commit_is_gone(key, GONE)) is None
    running.stand_in.repositories[0].private = True
    assert running.call(lambda host: host.commit_is_gone(key, GONE)) is None
    running.stand_in.repositories.clear()
    assert running.call(lambda host: host.commit_is_gone(key, GONE)) is None


@pytest.mark.parametrize("status", [301, 400, 401, 403, 410, 429, 451, 500, 503])
def test_other_answers_do_not_mean_that_a_commit_is_gone(running: Running, status: int) -> None:
    key = _key(running)
    running.stand_in.always[GONE] = answer_json({"message": "no"}, status)
    assert running.call(lambda host: host.commit_is_gone(key, GONE)) is None


@pytest.mark.parametrize("sha", ["", "x" * 40, "../branches", "a" * 40 + "?x=1"])
def test_what_is_no_commit_is_never_gone(running: Running, sha: str) -> None:
    key = _key(running)
    before = len(running.stand_in.requests)
    with contextlib.suppress(BadInputError):
        assert running.call(lambda host: host.commit_is_gone(key, sha)) is None
    assert not any(sha and sha in path for path in running.stand_in.paths[before:])


# --- bad input


def test_a_group_that_vanished_is_an_error(running: Running) -> None:
    running.stand_in.repositories.clear()
    if running.kind.name == "azuredevops" and running.kind.owner == "acme":
        assert running.names() == []
        return
    assert running.list_failure().kind == "not_found"


def test_a_token_that_expires_in_the_middle_ends_the_list(running: Running) -> None:
    running.stand_in.page_size = 1
    for number in range(4):
        running.stand_in.add(f"{running.kind.project}/repo{number}", private=True)
    running.stand_in.expires_after = 1
    assert running.list_failure(running.kind.token).kind == "unauthorised"


def test_a_wrong_token_is_an_error_and_not_an_empty_list(running: Running) -> None:
    assert running.list_failure("wrong").kind == "unauthorised"


@pytest.mark.parametrize("body", [b"", b"null", b"[", b"<html>", b'"text"', b'{"a": 1}', b"[[]]", b"[1]"])
def test_a_malformed_response_is_an_error(running: Running, body: bytes) -> None:
    running.stand_in.always[running.kind.list_path] = FakeResponse(200, {}, body)
    assert running.list_failure().kind == "malformed"


def test_an_absurd_wait_is_an_error_at_once(running: Running) -> None:
    for text in ("99999999", "9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"):
        running.stand_in.always[running.kind.list_path] = answer_json({}, 429, {"Retry-After": text})
        assert running.list_failure().kind == "limited"
    assert running.waits == []


@pytest.mark.parametrize("text", ["-5", "soon", "", "1e9"])
def test_a_malformed_wait_is_waited_for_a_bounded_time(running: Running, text: str) -> None:
    running.stand_in.always[running.kind.list_path] = answer_json({}, 429, {"Retry-After": text})
    failure = running.list_failure(clock=lambda: float(sum(running.waits)))
    assert failure.kind in {"limited", "malformed"}
    assert sum(running.waits) < 3_600


def test_a_redirect_to_another_host_is_not_followed(running: Running) -> None:
    for address in ("https://evil.example/", "http://127.0.0.1/", "http://169.254.169.254/latest"):
        response = FakeResponse(301, {"Location": address})
        running.stand_in.always[running.kind.list_path] = response
        assert running.list_failure(running.kind.token).kind in {"malformed", "unauthorised"}
    assert {request.host for request in running.stand_in.requests} <= set(running.stand_in.hosts)


def test_an_instance_at_an_address_that_is_not_public_gets_no_request(running: Running) -> None:
    closed = Egress.parse([], [f"{host}:443=127.0.0.1:{1}" for host in running.stand_in.hosts], None)
    assert running.list_failure(egress=closed).kind == "unavailable"
    assert running.stand_in.requests == []


@pytest.mark.parametrize("name", ["", "..", "a/../b", "a b", "a?b", "a#b", "a\nb", "%2e%2e", "x" * 3_000])
def test_an_invalid_name_is_refused_without_a_request(running: Running, name: str) -> None:
    with pytest.raises(BadInputError):
        running.call(lambda host: host.repositories(name))
    with pytest.raises(BadInputError):
        running.call(lambda host: host.repository(name))
    assert running.stand_in.requests == []


def test_a_password_that_the_host_repeats_is_masked_in_every_form(tmp_path: Path) -> None:
    kind, password = KINDS[3], "made-up-api-token"
    login = f"ada@example.com:{password}"
    encoded = base64.b64encode(login.encode()).decode()
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        refused = {"error": {"message": f"no right: {password}, {encoded}"}}
        stand_in.always["/acme?"] = answer_json(refused, 403)
        failure = Running(kind, stand_in).list_failure(login)
    assert "no right" in failure.message
    assert password not in failure.message
    assert encoded not in failure.message


# --- snippets


@pytest.fixture
def of_gitlab(tmp_path: Path) -> Iterator[Running]:
    with run_stand_in(KINDS[1].make(), tmp_path / "tls") as stand_in:
        for name in ("closed", "shop", "off"):
            stand_in.add(f"{KINDS[1].project}/{name}").features["snippets"] = name != "off"
        yield Running(KINDS[1], stand_in)


def list_snippets(host: CodeHost) -> AsyncIterator[HostedGist]:
    return host.gists("acme")


def test_a_project_whose_snippets_may_not_be_listed_is_a_gap(of_gitlab: Running) -> None:
    of_gitlab.stand_in.always["/projects/100/snippets"] = answer_json({"message": "403 Forbidden"}, 403)
    (snippet,) = of_gitlab.call(list_snippets, of_gitlab.kind.token)
    assert snippet.clone_url == "https://gl.example/git/acme/team/shop/snippets/1101.git"
    assert snippet.html_url == "https://gl.example/git/acme/team/shop/-/snippets/1101"
    assert [gap.what for gap in of_gitlab.gaps] == ["snippets of acme/team/closed"]
    assert not any("/projects/102/snippets" in path for path in of_gitlab.stand_in.paths)


@pytest.mark.parametrize("token", [None, "deploy-user:made-up"])
def test_snippets_of_gitlab_need_a_token_for_the_api(of_gitlab: Running, token: str | None) -> None:
    assert of_gitlab.call(list_snippets, token) == []
    assert [gap.what for gap in of_gitlab.gaps] == ["snippets of acme"]


def test_a_failure_of_the_host_ends_the_list_of_snippets(of_gitlab: Running) -> None:
    of_gitlab.stand_in.always["/projects/100/snippets"] = answer_json({"message": "oh"}, 500)
    assert of_gitlab.failure(list_snippets, of_gitlab.kind.token).kind == "unavailable"


def test_snippets_of_a_workspace_are_listed(tmp_path: Path) -> None:
    kind = KINDS[3]
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        clone = {"name": "https", "href": "https://robot@bitbucket.org/snippets/acme/Ab1/made-up.git"}
        stand_in.snippets = [
            {"id": "Ab1", "is_private": False, "links": {"clone": [clone]}},
            {"id": "Ab2", "is_private": True},
        ]
        snippets = Running(kind, stand_in).call(list_snippets, kind.token)
    assert [(snippet.clone_url, snippet.public) for snippet in snippets] == [
        ("https://bitbucket.org/snippets/acme/Ab1/made-up.git", True),
        ("https://bitbucket.org/snippets/acme/Ab2.git", False),
    ]


# --- wikis


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2], KINDS[3]], ids=str)
def test_a_repository_without_code_may_have_a_wiki(kind: Kind, tmp_path: Path) -> None:
    with run_stand_in(kind.make(), tmp_path / "tls") as stand_in:
        stand_in.add(f"{kind.project}/docs", wiki=True, commits=[])
        stand_in.add(f"{kind.project}/nothing", commits=[])
        spec = TargetSpec(TargetKind.OWNER, f"{kind.name}:{kind.owner}", host_url=kind.url)
        without = replace(spec, options={"wikis": False})

        def sources(chosen: TargetSpec) -> list[ScanSource]:
            running = Running(kind, stand_in)
            found: list[ScanSource] = running.call(
                lambda host: resolve_target(chosen, host, has_credential=True, gaps=[])
            )
            return found

        assert [source.options.get("wiki") for source in sources(spec)] == [True]
        assert sources(without) == []
