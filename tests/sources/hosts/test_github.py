"""Repositories, gists and commits of GitHub, listed from a fake of its API on loopback."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.net.guard import Egress
from outcrop.net.http import HttpResponse, open_http
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import HostAccess
from outcrop.sources.code_host.hosted import HostedGist, HostedRepository
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.code_host.rate_limit import RateLimit
from outcrop.sources.git.clone import Remote, clone
from outcrop.sources.hosts.github import HOST_TYPE, GitHub
from outcrop.sources.resolve_target import resolve_target
from tests.support.git_host import ENV, git_host
from tests.support.github_host import (
    FIRST_DAY,
    NAME,
    Fault,
    GitHubHost,
    error,
    github_host,
    merge_egress,
    secondary_limit,
)

TOKEN = "ghp_made-up-for-the-tests-no-real-one"
SHA = "5b1ea7ed" * 5


class FakeClock:
    """A clock that moves only during `sleep`."""

    def __init__(self) -> None:
        self.now = float(FIRST_DAY)
        self.waits: list[tuple[float, str]] = []

    def __call__(self) -> float:
        return self.now

    def on_wait(self, seconds: float, reason: str) -> None:
        self.waits.append((seconds, reason))

    async def sleep(self, seconds: float) -> None:
        assert self.waits[-1][0] == seconds, "a wait was not reported"
        await asyncio.sleep(0)
        self.now += seconds

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.waits]


class MemoryEtagCache:
    """An EtagCache in memory."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}

    async def get(self, key: str) -> tuple[str, bytes] | None:
        return self.pages.get(key)

    async def put(self, key: str, etag: str, body: bytes) -> None:
        self.pages[key] = (etag, body)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def host(clock: FakeClock) -> Iterator[GitHubHost]:
    with github_host(clock=clock) as running:
        yield running


Call = Callable[..., Any]


@pytest.fixture
def call(host: GitHubHost, clock: FakeClock) -> Call:
    """Call a method of a GitHub client; the items of an async iterator are returned as a list."""

    def run(
        method: Callable[[GitHub], Any],
        *,
        token: str | None = None,
        base_url: str = "",
        egress: Egress | None = None,
        **options: Any,
    ):
        async def main() -> Any:
            async with open_http(egress or host.egress) as http:
                settings = {"on_wait": clock.on_wait, "sleep": clock.sleep, "clock": clock} | options
                etags = settings.pop("etags", None)
                result = method(
                    GitHub(
                        http,
                        base_url or host.base_url,
                        Secret(token) if token else None,
                        etags=etags,
                        options=ApiOptions(**settings),
                    )
                )
                return [item async for item in result] if isinstance(result, AsyncIterator) else await result

        return asyncio.run(main())

    return run


@pytest.fixture
def call_failing(call: Call) -> Callable[..., HostError]:
    """Make a call that must fail, check that the message is one line without the token, return the error."""

    def run(method: Callable[[GitHub], Any], **options: Any) -> HostError:
        with pytest.raises(HostError) as caught:
            call(method, **options)
        failure = caught.value
        assert TOKEN not in repr(failure) + failure.message
        assert failure.message.isprintable()
        return failure

    return run


def repository(github: GitHub) -> Any:
    return github.repository("acme/web")


def names(found: list[HostedRepository]) -> list[str]:
    return [repository.full_name for repository in found]


# Repositories, gists and commits


def test_repository_has_the_fields_of_the_api(host, call):
    raw = host.add_repo("acme/web", visibility="internal", archived=True, fork=True, has_wiki=False)
    host.members["acme"].add("ada")
    host.tokens[TOKEN] = "ada"
    assert call(repository, token=TOKEN) == HostedRepository(
        id=raw["id"],
        full_name="acme/web",
        clone_url="https://git.example/acme/web.git",
        html_url="https://github.example/acme/web",
        visibility=Visibility.INTERNAL,
        fork=True,
        archived=True,
        empty=False,
        has_wiki=False,
        pushed_at=raw["pushed_at"],
        default_branch="main",
    )


def test_requests_have_the_api_version_and_the_token(host, call):
    host.add_repo("acme/web")
    host.tokens[TOKEN] = "acme"
    call(repository, token=TOKEN)
    call(repository)
    with_token, without = (request.headers for request in host.requests)
    assert with_token["Accept"] == without["Accept"] == "application/vnd.github+json"
    assert with_token["X-GitHub-Api-Version"] == without["X-GitHub-Api-Version"] == "2022-11-28"
    assert with_token["Authorization"] == f"Bearer {TOKEN}"
    assert "Authorization" not in without
    assert TOKEN not in "".join(host.paths)


def test_requests_to_an_enterprise_server_have_its_prefix(host, call):
    host.prefix = "/api/v3"
    host.add_user("acme", organisation=True)
    for number in range(101):
        host.add_repo(f"acme/r{number:03}")
    assert len(call(lambda github: github.repositories("acme"), base_url=host.base_url + "/")) == 101
    assert all(path.startswith("/api/v3/") for path in host.paths)


def test_all_pages_of_an_organisation_are_read_oldest_first(host, call):
    host.add_user("acme", organisation=True)
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    found = call(lambda github: github.repositories("ACME"))
    assert names(found) == [f"acme/r{number:03}" for number in range(250)]
    assert len(host.requests) == 4  # the owner, and three pages
    assert "/organizations/" in host.paths[-1]  # the host's own links were followed


def test_members_see_the_private_repositories_of_an_organisation(host, call):
    host.add_user("acme", organisation=True, members=("ada",))
    host.add_repo("acme/open")
    host.add_repo("acme/closed", visibility="private")
    host.add_user("ada")
    host.tokens[TOKEN] = "ada"
    assert names(call(lambda github: github.repositories("acme"))) == ["acme/open"]
    found = call(lambda github: github.repositories("acme"), token=TOKEN)
    assert [(repository.full_name, repository.visibility) for repository in found] == [
        ("acme/open", "public"),
        ("acme/closed", "private"),
    ]


def test_a_users_token_sees_their_private_repositories(host, call):
    host.add_repo("ada/open")
    host.add_repo("ada/closed", visibility="private")
    host.add_user("ben")
    host.tokens |= {TOKEN: "ada", "ben's": "ben"}
    assert names(call(lambda github: github.repositories("Ada"), token=TOKEN)) == ["ada/open", "ada/closed"]
    assert names(call(lambda github: github.repositories("ada"), token="ben's")) == ["ada/open"]
    assert names(call(lambda github: github.repositories("ada"))) == ["ada/open"]


def test_token_of_an_app_belongs_to_no_user(host, call):
    host.add_repo("ada/open")
    host.add_gist("ada")
    host.tokens[TOKEN] = None
    assert names(call(lambda github: github.repositories("ada"), token=TOKEN)) == ["ada/open"]
    assert len(call(lambda github: github.gists("ada"), token=TOKEN)) == 1


@pytest.mark.parametrize(
    ("token", "scopes", "expected"),
    [
        ("ghp_made-up", "repo, read:org", ("jo", ())),
        ("ghp_made-up", "public_repo, read:org", ("jo", ("repo",))),
        ("ghp_made-up", "", ("jo", ("repo",))),
        ("made-up-of-an-older-form", "gist", ("jo", ("repo",))),
        ("github_pat_made-up", None, ("jo", ())),  # a fine-grained token does not show its permissions
        ("ghs_made-up", None, (None, ())),  # an app belongs to no user
    ],
)
def test_the_user_and_the_missing_scope_of_a_token_are_named(host, call, token, scopes, expected):
    host.add_user("jo")
    host.tokens[token] = expected[0]
    if scopes is not None:
        host.scopes[token] = scopes
    assert call(lambda github: github.token_owner(), token=token) == expected
    assert call(lambda github: github.token_owner()) == (None, ())


def test_a_refused_token_has_no_user(host, call_failing):
    assert call_failing(lambda github: github.token_owner(), token=TOKEN).kind == "unauthorised"


def test_repository_that_moves_between_pages_is_listed_once(host, call):
    for number in range(150):
        host.add_repo(f"ada/r{number:03}")

    async def first_page_then_a_new_one(github: GitHub) -> list[str]:
        found = []
        async for repository in github.repositories("ada"):
            if not found:  # the older repository moves the last one of page 1 to page 2
                host.add_repo("ada/first", created_at="2001-01-01T00:00:00Z")
            found.append(repository.full_name)
        return found

    found = call(first_page_then_a_new_one)
    assert found == [f"ada/r{number:03}" for number in range(150)]


def test_renamed_repository_is_found_by_its_old_name(host, call):
    number = host.add_repo("acme/web")["id"]
    host.rename("acme/web", "acme/site")
    for status in (301, 302, 307):
        host.moved_status = status
        found = call(repository)
        assert (found.id, found.full_name, found.clone_url) == (
            number,
            "acme/site",
            "https://git.example/acme/site.git",
        )
    assert (
        call(lambda github: github.commit("acme/web", host.commits["acme/site"][0])).repository.id == number
    )


def test_secret_gists_are_listed_with_the_users_own_token(host, call):
    public = host.add_gist("Ada")
    secret = host.add_gist("Ada", public=False)
    host.add_gist("ben")
    host.tokens |= {TOKEN: "Ada", "ben's": "ben"}
    found = call(lambda github: github.gists("aDA"), token=TOKEN)
    assert [gist.id for gist in found] == [secret["id"], public["id"]]
    found = call(lambda github: github.gists("Ada"), token="ben's")
    assert found == call(lambda github: github.gists("Ada"))
    clone_url = f"https://git.example/gist/{public['id']}.git"
    assert found == [
        HostedGist(
            public["id"], "Ada", clone_url, public["html_url"], public=True, updated_at=public["updated_at"]
        )
    ]


def test_gist_without_an_owner_is_found_by_its_id(host, call):
    gist = host.add_gist(None)
    found = call(lambda github: github.gist(gist["id"]))
    assert (found.id, found.owner, found.public) == (gist["id"], None, True)


def test_commit_is_returned_with_its_repository(host, call):
    host.add_repo("acme/web", commits=(SHA,))
    found = call(lambda github: github.commit("acme/web", SHA[:10]))
    assert (found.sha, found.repository.full_name, found.html_url) == (
        SHA,
        "acme/web",
        f"https://github.example/acme/web/commit/{SHA}",
    )


@pytest.mark.parametrize(
    ("fields", "commits", "empty"),
    [
        ({"size": 0, "pushed_at": None}, (), True),
        ({"size": 0}, (), True),  # GitHub sets pushed_at when a repository is created
        ({"size": 0}, (SHA,), False),  # smaller than a kilobyte, or just pushed
        ({"size": 4}, (SHA,), False),
    ],
)
def test_repository_is_empty_when_the_host_says_so(host, call, fields, commits, empty):
    host.add_repo("acme/web", commits=commits, **fields)
    assert call(repository).empty is empty


@pytest.mark.parametrize("fault", [error(451, "Repository access blocked"), error(500, "oops")])
def test_repository_whose_commits_cannot_be_read_does_not_end_the_listing(host, call, fault):
    host.add_repo("ada/one", size=0, commits=())
    host.add_repo("ada/two")
    host.faults += [replace(fault, path="/commits")] * 4
    assert [
        (repository.full_name, repository.empty)
        for repository in call(lambda github: github.repositories("ada"))
    ] == [
        ("ada/one", False),
        ("ada/two", False),
    ]


def test_missing_and_unknown_visibility_are_handled(host, call):
    raw = host.add_repo("acme/web")
    del raw["visibility"]
    assert call(repository).visibility is Visibility.PUBLIC
    raw["visibility"] = "secretive"
    assert call(repository).visibility is Visibility.UNKNOWN


# Whether a commit is gone


def test_commit_that_the_host_has_is_not_gone(host, call):
    host.add_repo("acme/web", commits=(SHA,))
    assert call(lambda github: github.commit_is_gone("acme/web", SHA)) is False


@pytest.mark.parametrize("status", [404, 422])
def test_commit_that_the_host_does_not_have_is_gone(host, call, status):
    host.add_repo("acme/web")
    host.faults.append(error(status, "No commit found"))
    assert call(lambda github: github.commit_is_gone("acme/web", SHA)) is True


def test_commit_of_a_hidden_repository_is_not_called_gone(host, call):
    host.add_repo("acme/web", visibility="private", commits=(SHA,))
    assert call(lambda github: github.commit_is_gone("acme/web", SHA)) is None
    assert call(lambda github: github.commit_is_gone("acme/none", SHA)) is None


@pytest.mark.parametrize("status", [401, 403, 409, 451, 500])
def test_other_failures_do_not_mean_that_a_commit_is_gone(host, call, status):
    host.add_repo("acme/web")
    host.faults += [error(status, "no")] * 4
    assert call(lambda github: github.commit_is_gone("acme/web", SHA)) is None


# The ETag cache


def test_unchanged_pages_are_complete_and_do_not_count_for_the_limit(host, call):
    host.add_user("acme", organisation=True, members=("ada",))
    host.add_user("ada")
    host.tokens[TOKEN] = "ada"
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    cache = MemoryEtagCache()
    first = call(lambda github: github.repositories("acme"), token=TOKEN, etags=cache)
    used = host.used
    for host.link_on_304 in (True, False):
        assert call(lambda github: github.repositories("acme"), token=TOKEN, etags=cache) == first
    assert host.used == used
    assert [request.status for request in host.requests[4:]] == [304] * 8


@pytest.mark.parametrize("link", [True, False])
def test_page_that_is_no_longer_the_last_one_is_followed_by_the_next(host, call, link):
    """The ETag of the page has not changed, because it covers the items only."""
    host.link_on_304 = link
    host.add_user("acme", organisation=True)
    for number in range(100):
        host.add_repo(f"acme/r{number:03}")
    cache = MemoryEtagCache()
    assert len(call(lambda github: github.repositories("acme"), etags=cache)) == 100
    host.add_repo("acme/new")
    assert names(call(lambda github: github.repositories("acme"), etags=cache))[100:] == ["acme/new"]
    assert 304 in [request.status for request in host.requests]


def test_new_link_of_an_unchanged_page_is_used(host, call, call_failing):
    """A page before the last one need not be full."""
    host.add_repo("ada/one")
    cache = MemoryEtagCache()
    call(lambda github: github.repositories("ada"), etags=cache)
    host.next_link = f"{host.base_url}/users/ada/repos?page=2"
    assert "do not end" in call_failing(lambda github: github.repositories("ada"), etags=cache).message
    assert (host.requests[-2].status, host.paths[-1]) == (304, "/users/ada/repos?page=2")


def test_changed_response_replaces_the_cached_one(host, call):
    raw = host.add_repo("acme/web")
    cache = MemoryEtagCache()
    call(repository, etags=cache)
    raw["pushed_at"] = "2031-01-01T00:00:00Z"
    assert call(repository, etags=cache).pushed_at == "2031-01-01T00:00:00Z"
    assert call(repository, etags=cache).pushed_at == "2031-01-01T00:00:00Z"
    assert [request.status for request in host.requests] == [200, 200, 304]


def test_cached_responses_of_one_token_are_not_used_with_another(host, call, call_failing):
    host.add_repo("ada/closed", visibility="private")
    host.add_user("ben")
    host.tokens |= {TOKEN: "ada", "ben's": "ben"}
    cache = MemoryEtagCache()
    call(lambda github: github.repository("ada/closed"), token=TOKEN, etags=cache)
    assert (
        call_failing(lambda github: github.repository("ada/closed"), token="ben's", etags=cache).kind
        == "not_found"
    )
    assert "If-None-Match" not in host.requests[-1].headers
    assert TOKEN not in repr(cache.pages)


def test_contents_of_gists_and_patches_are_not_cached(host, call):
    gist = host.add_gist("ada", files={"a": "hunter2"})
    host.add_repo("acme/web", commits=(SHA,), description="hunter2")
    cache = MemoryEtagCache()
    call(lambda github: github.gist(gist["id"]), etags=cache)
    call(lambda github: github.commit("acme/web", SHA), etags=cache)
    assert len(cache.pages) == 3
    assert all(b"hunter2" not in body and b"patch" not in body for _, body in cache.pages.values())
    assert call(lambda github: github.gist(gist["id"]), etags=cache).owner == "ada"
    assert host.requests[-1].status == 304


def test_damaged_cache_entry_is_fetched_again(host, call):
    host.add_repo("acme/web")
    cache = MemoryEtagCache()
    for broken in (b"", b"[]", b'{"value": 1}'):
        call(repository, etags=cache)
        key, (etag, _) = next(iter(cache.pages.items()))
        cache.pages[key] = (etag, broken)
        assert call(repository, etags=cache).full_name == "acme/web"


# Rate limits


@pytest.mark.parametrize("status", [403, 429])
def test_request_waits_while_the_limit_is_used_up(host, call, clock, status):
    host.limit, host.limit_status, host.window = 3, status, 1_000
    for number in range(250):
        host.add_repo(f"ada/r{number:03}")
    assert len(call(lambda github: github.repositories("ada"))) == 250
    assert clock.seconds == [1_001]  # the third response used up the limit
    assert {request.status for request in host.requests} == {200}
    host.used = host.limit
    call(lambda github: github.repositories("ada"))
    assert status in [request.status for request in host.requests]
    assert clock.waits[-1][1] == f"the rate limit of 127.0.0.1:{host.port} is used up"


@pytest.mark.parametrize("ahead", [5_000, -5_000])
def test_wait_is_computed_with_the_clock_of_the_host(host, call, clock, ahead):
    host.add_repo("ada/one")
    host.clock = lambda: clock.now + ahead
    host.limit, host.window = 1, 100
    call(lambda github: github.repositories("ada"))
    assert clock.seconds == [101]


@pytest.mark.parametrize("status", [403, 429])
def test_secondary_limit_is_waited_for_as_long_as_retry_after_says(host, call, clock, status):
    host.add_repo("acme/web")
    host.faults += [secondary_limit(status, retry_after=17), secondary_limit(status, retry_after=0)]
    assert call(repository).full_name == "acme/web"
    assert clock.seconds == [17, 1]


def test_secondary_limit_without_retry_after_is_waited_for_longer_each_time(host, call_failing, clock):
    host.add_repo("acme/web")
    host.faults += [secondary_limit()] * 6
    assert call_failing(repository).kind == "limited"
    assert clock.seconds == [60, 120, 240, 480, 900]
    assert len(host.requests) == 6


def test_limit_that_lasts_too_long_fails_at_once(host, call_failing, clock):
    host.add_repo("acme/web")
    host.faults.append(secondary_limit(retry_after=3_700))
    assert call_failing(repository).kind == "limited"
    assert (clock.waits, len(host.requests)) == ([], 1)


def test_limit_of_a_full_hour_is_waited_for(host, call, clock):
    host.add_repo("ada/one")
    host.limit = 1
    call(lambda github: github.repositories("ada"))
    assert clock.seconds == [3_601]


def test_limit_stops_all_tasks_and_is_reported_once(host, call, clock):
    for number in range(6):
        host.add_repo(f"acme/r{number}")
    host.faults.append(secondary_limit(retry_after=40))
    waits, over = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.set()
        await over.wait()
        clock.now += seconds

    async def get_all(github: GitHub) -> int:
        first = asyncio.create_task(github.repository("acme/r0"))
        await waits.wait()
        others = [asyncio.create_task(github.repository(f"acme/r{number}")) for number in range(1, 6)]
        await asyncio.sleep(0.05)
        meanwhile = len(host.requests)
        over.set()
        await asyncio.gather(first, *others)
        return meanwhile

    assert call(get_all, sleep=sleep) == 1
    assert clock.seconds == [40]
    assert len(host.requests) == 7


def test_longest_of_several_limits_counts(clock):
    """The limits of concurrent requests arrive in any order, and also during a wait."""

    def limit_for(seconds: int) -> None:
        assert limits.is_limited(HttpResponse("", 429, {"Retry-After": str(seconds)}, b""), 0)

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if seconds == 100:
            limit_for(50)

    limits = RateLimit("host", clock.on_wait, 3_600, sleep, clock)
    for seconds in (10, 100, 20):
        limit_for(seconds)
    asyncio.run(limits.wait_until_allowed())
    assert clock.seconds == [100, 50]
    asyncio.run(limits.wait_until_allowed())
    assert clock.seconds == [100, 50]


# Failures


def test_refused_token_fails_at_once(host, call_failing, clock):
    failure = call_failing(repository, token=TOKEN)
    assert (failure.kind, clock.waits, len(host.requests)) == ("unauthorised", [], 1)
    assert "Bad credentials" in failure.message


def test_token_that_is_revoked_between_pages_ends_the_listing(host, call):
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    host.users["acme"]["type"] = "Organization"
    host.tokens[TOKEN] = None
    host.lifetimes[TOKEN] = 2
    found: list[str] = []

    async def read(github: GitHub) -> None:
        async for repository in github.repositories("acme"):
            found.append(repository.full_name)

    with pytest.raises(HostError) as caught:
        call(read, token=TOKEN)
    assert (caught.value.kind, len(found)) == ("unauthorised", 100)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, "forbidden"), (451, "forbidden"), (404, "not_found"), (410, "not_found"), (400, "malformed")],
)
def test_status_decides_the_kind_of_the_error(host, call_failing, clock, status, kind):
    host.faults.append(error(status, "no, and here are\ntwo lines"))
    failure = call_failing(repository)
    assert (failure.kind, clock.waits) == (kind, [])
    assert f"/repos/acme/web: answered {status}: no, and here are" in failure.message


@pytest.mark.parametrize("status", [451, 403])
def test_blocked_repository_is_forbidden(host, call_failing, status):
    host.add_repo("acme/web")
    host.blocked["acme/web"] = status
    failure = call_failing(repository)
    assert failure.kind == "forbidden"
    assert "Repository access blocked" in failure.message


@pytest.mark.parametrize("commits", [(), (SHA[::-1],)])
def test_missing_commit_is_not_found(host, call_failing, commits):
    host.add_repo("acme/web", commits=commits)
    assert call_failing(lambda github: github.commit("acme/web", SHA)).kind == "not_found"


def test_token_that_the_host_repeats_is_masked(host, call_failing):
    host.tokens[TOKEN] = None
    for padding in (0, 270):
        host.faults.append(error(403, "x" * padding + f"who is {TOKEN}?"))
        assert TOKEN[:10] not in call_failing(repository, token=TOKEN).message


@pytest.mark.parametrize("fault", [error(502, "Bad Gateway"), Fault(503), Fault(200, b'{"id": 1', cut=True)])
def test_temporary_failure_is_retried(host, call, call_failing, clock, fault):
    host.add_repo("acme/web")
    host.faults += [fault] * 3
    assert call(repository).full_name == "acme/web"
    assert clock.seconds == [1, 2, 4]
    host.faults += [fault] * 4
    assert call_failing(repository).kind == "unavailable"
    assert len(host.requests) == 8


def test_host_that_cannot_be_reached_is_unavailable(call_failing, clock):
    assert call_failing(repository, base_url="http://127.0.0.1:1").kind == "unavailable"
    assert clock.seconds == [1, 2, 4]


def test_address_that_is_not_public_gets_no_request(host, call_failing):
    assert call_failing(repository, egress=Egress()).kind == "unavailable"
    assert host.requests == []


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"",
        b"1",
        b'{"id": 1}',
        b"[]",
        b"\xff",
        b"[" * 5_000,
        b'{"owner":' * 900 + b"1" + b"}" * 900,
    ],
)
def test_response_of_another_shape_is_malformed(host, call_failing, body):
    host.faults.append(Fault(200, body))
    assert call_failing(repository).kind == "malformed"


@pytest.mark.parametrize("body", [b"{}", b"[null]", b"[1]", b'[{"id": 1}]', b"[[]]"])
def test_list_of_another_shape_is_malformed(host, call_failing, body):
    host.add_user("ada")
    host.faults.append(Fault(200, body, path="/repos"))
    assert call_failing(lambda github: github.repositories("ada")).kind == "malformed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "7"), ("id", True), ("id", None), ("full_name", "acme"), ("full_name", "acme/.."),
        ("full_name", "a/b/c"), ("fork", None), ("clone_url", "http://git.example/a.git"),
        ("clone_url", "https://me:pass@git.example/a"), ("clone_url", "ext::sh"),
        ("clone_url", "https://git.example/a\n"), ("clone_url", "https://[git/a"),
        ("html_url", "javascript:alert(1)"), ("size", "0"),
        ("pushed_at", 5), ("pushed_at", "a\0b"), ("default_branch", "a\x1b[2J"), ("default_branch", "a" * 2_001),
        ("html_url", "https://github.example/" + "a" * 2_000), ("default_branch", None), ("archived", 0), ("has_wiki", "yes"),
    ],
)  # fmt: skip
def test_repository_with_an_invalid_field_is_malformed(host, call_failing, field, value):
    host.add_repo("acme/web")[field] = value
    failure = call_failing(repository)
    assert failure.kind == "malformed"
    assert field in failure.message


@pytest.mark.parametrize(
    ("field", "address"),
    [
        ("html_url", "https://github.com/acme/web"),
        ("clone_url", "https://gitlab.com/acme/web.git"),
        ("git_pull_url", "https://gist.github.com/1234567890abcdef1234.git"),
    ],
)
def test_a_host_that_names_addresses_of_another_host_takes_nothing_over(host, call, field, address):
    host.add_repo("acme/web")
    host.add_repo("acme/true", has_wiki=False)
    gist = host.add_gist("acme")
    raw = gist if field == "git_pull_url" else host.repos["acme/web"]
    raw[field] = address
    spec = TargetSpec(TargetKind.OWNER, "github:acme", options={"gists": True, "wikis": True})
    gaps: list[Gap] = []
    found = call(lambda github: resolve_target(spec, github, has_credential=True, gaps=gaps))
    assert address not in {url for source in found for url in (source.url, source.html_url)}
    assert "acme/true" in {source.full_name for source in found}
    name = address.split("/")[2].removeprefix("gist.")
    assert [gap.why for gap in gaps] == [f"the host says that this is at {name}, which is another host"]


def test_sources_of_a_self_hosted_instance_are_named_by_its_address_and_not_by_what_it_says(tmp_path):
    """Otherwise it could give the number and the address of a repository at another host of the account."""
    with github_host(tmp_path, prefix="/api/v3") as host:
        repo, gist = host.add_repo("acme/web", has_wiki=False), host.add_gist("acme")
        repo["html_url"] = gist["html_url"] = "https://git.other.example/acme/web"
        spec = TargetSpec(
            TargetKind.OWNER, "github:acme", options={"gists": True}, host_url=f"https://{NAME}"
        )

        async def list_sources() -> list[str]:
            async with open_http(host.egress) as http:
                github = HOST_TYPE.open(HostAccess(http=http, url=spec.host_url))
                found = resolve_target(spec, github, has_credential=True, gaps=[])
                return [source.source async for source in found]

        assert asyncio.run(list_sources()) == [
            f"{NAME}/repositories/{repo['id']}",
            f"{NAME}/gists/{gist['id']}",
        ]


async def _all_refused(calls: list[Any]) -> None:
    for awaitable in calls:
        with pytest.raises(BadInputError, match=": is not "):
            await (anext(awaitable) if isinstance(awaitable, AsyncIterator) else awaitable)


def test_invalid_repository_name_is_refused_without_a_request(host, call):
    wrong = [
        "acme",
        "acme/",
        "/web",
        "a/b/c",
        "acme/..",
        "acme/.",
        "../user",
        "acme/we b",
        "acme/web?x",
        "acme/w\u00e9b",
        "a\n/b",
        "a/b\n",
        "",
    ]
    call(lambda github: _all_refused([github.repository(name) for name in wrong]))
    call(lambda github: _all_refused([github.commit(name, SHA) for name in wrong]))
    call(lambda github: _all_refused([github.commit_is_gone(name, SHA) for name in wrong]))
    assert host.requests == []


def test_other_invalid_names_are_refused_without_a_request(host, call):
    wrong = ["", "..", "a/b", "a%2fb", "a b", "a\n", "a" * 101]
    call(
        lambda github: _all_refused(
            [method(name) for name in wrong for method in (github.repositories, github.gists, github.gist)]
        )
    )
    call(lambda github: _all_refused([github.commit("acme/web", name) for name in [*wrong, "main", "abc"]]))
    assert host.requests == []


# Other hosts


def test_redirect_to_another_origin_is_not_followed(host, call_failing, clock):
    with github_host(clock=clock) as other:
        other.add_repo("acme/web")
        host.faults.append(Fault(301, headers={"Location": f"{other.base_url}/repos/acme/web"}))
        host.tokens[TOKEN] = None
        failure = call_failing(repository, token=TOKEN)
        assert (failure.kind, "redirects to another host" in failure.message) == ("malformed", True)
        assert other.requests == []


def test_next_page_at_another_origin_is_not_requested(host, call_failing, clock):
    with github_host(clock=clock) as other:
        host.add_repo("ada/one")
        host.next_link = f"{other.base_url}/user/repos?page=2"
        assert call_failing(lambda github: github.repositories("ada")).kind == "malformed"
        assert other.requests == []


def test_pages_that_link_back_are_an_error(host, call_failing):
    host.add_repo("ada/one")
    host.next_link = f"{host.base_url}/users/ada/repos?page=7"
    assert call_failing(lambda github: github.repositories("ada")).kind == "malformed"
    assert len(host.requests) == 3


def test_endless_pages_are_an_error(host, call_failing):
    host.add_repo("ada/one")
    correct_page = host._page

    def endless(request: Any, items: Any, path: str) -> Fault:
        host.next_link = f"{host.base_url}/users/ada/repos?page={len(host.requests)}"
        return correct_page(request, items, path)

    host._page = endless
    assert call_failing(lambda github: github.repositories("ada"), max_pages=5).kind == "malformed"
    assert len(host.requests) == 6


@pytest.mark.parametrize(
    "base_url",
    [
        "http://api.github.com",
        "ftp://127.0.0.1",
        "api.github.com",
        "https://me:pass@host/api/v3",
        "https://h/?a=b",
        "",
    ],
)
def test_api_must_be_an_https_address(call, base_url):
    with pytest.raises(OperatorError) as caught:
        call(repository, base_url=base_url or "https://")
    assert "pass@" not in caught.value.message


@pytest.mark.parametrize(
    ("base_url", "clone_url", "own"),
    [
        ("https://api.github.com", "https://github.com/a/b.git", True),
        ("https://api.github.com", "https://GitHub.com/a/b.git", True),
        ("https://api.github.com", "http://github.com/a/b.git", False),
        ("https://api.github.com", "https://github.com.example/a/b.git", False),
        ("https://api.github.com", "https://github.com@example.org/a/b.git", False),
        ("https://api.github.com", "https://example.org/github.com", False),
        ("https://api.github.com", "https://[", False),
        ("https://api.acme.ghe.com", "https://acme.ghe.com/a/b.git", True),
        ("https://api.acme.ghe.com", "https://github.com/a/b.git", False),
        ("https://git.acme.example/api/v3", "https://git.acme.example/a/b.git", True),
        ("https://git.acme.example/api/v3", "https://git.acme.example:8443/a/b.git", False),
        ("https://api.acme.example/api/v3", "https://acme.example/a/b.git", False),
    ],
)
def test_clone_url_is_recognised_as_of_the_own_host(call, base_url, clone_url, own):
    async def is_own_host(github: GitHub) -> bool:
        return github.is_own_host(clone_url)

    assert call(is_own_host, base_url=base_url) is own


# With a git server


def test_listed_repositories_and_gists_can_be_cloned(tmp_path: Path, call):
    work = tmp_path / "work"
    for arguments in (
        ["init", "-q", "-b", "main", "work"],
        ["-C", "work", "commit", "-q", "--allow-empty", "-m", "one"],
    ):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, cwd=tmp_path, env=ENV, check=True, capture_output=True)
    served = tmp_path / "served"
    with git_host(served, tmp_path) as git, github_host(tmp_path) as host:
        host.add_user("acme", organisation=True)
        host.add_repo("acme/web")
        gist = host.add_gist("ada")
        for name in ("acme/web.git", f"gist/{gist['id']}.git"):
            subprocess.run(
                ["git", "clone", "-q", "--mirror", work, served / name],
                env=ENV,
                check=True,
                capture_output=True,
            )
        egress = merge_egress(tmp_path, host.egress, git.egress)
        found = call(lambda github: github.repositories("acme"), base_url=host.base_url, egress=egress)
        found += call(lambda github: github.gists("ada"), base_url=host.base_url, egress=egress)
        for number, listed in enumerate(found):
            folder = tmp_path / str(number)
            folder.mkdir()
            assert set(clone(Remote.parse(listed.clone_url), folder, egress).refs) == {b"refs/heads/main"}
        assert {request.headers["Host"] for request in host.requests} == {"api.git.example"}


def test_fake_host_responds_in_the_shapes_of_github(host, call):
    """The fake has the fields that GitHub's description requires, and GitHub's form of an error."""
    repo = host.add_repo("acme/web")
    assert {
        "id",
        "node_id",
        "name",
        "full_name",
        "private",
        "owner",
        "html_url",
        "description",
        "fork",
        "url",
    } <= set(repo)
    assert {"login", "id", "node_id", "type", "site_admin", "html_url"} == set(repo["owner"])
    gist = host.add_gist("ada")
    assert {
        "id",
        "node_id",
        "git_pull_url",
        "git_push_url",
        "html_url",
        "files",
        "public",
        "created_at",
        "updated_at",
    } <= set(gist)
    assert set(json.loads(error(404, "Not Found").body)) == {"message", "documentation_url", "status"}
