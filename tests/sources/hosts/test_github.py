"""GitHub's REST API, asked of a stand-in on loopback that keeps to its published shapes and limits."""

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
from outcrop.domain.secret import Secret
from outcrop.net.guard import Egress
from outcrop.net.http import HttpResponse, open_http
from outcrop.sources.git.clone import Remote, clone
from outcrop.sources.hosts.github import GitHub
from outcrop.sources.hosts.github_api import GitHubError, RateLimit
from outcrop.sources.hosts.hosted import HostedGist, HostedRepository
from tests.support.git_host import ENV, git_host
from tests.support.github_host import (
    FIRST_DAY,
    Fault,
    GitHubHost,
    error,
    github_host,
    merge_egress,
    secondary_limit,
)

TOKEN = "ghp_made-up-for-the-tests-no-real-one"
SHA = "5b1ea7ed" * 5


class Time:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = float(FIRST_DAY)
        self.waits: list[tuple[float, str]] = []

    def __call__(self) -> float:
        return self.now

    def waiting(self, seconds: float, reason: str) -> None:
        self.waits.append((seconds, reason))

    async def sleep(self, seconds: float) -> None:
        assert self.waits[-1][0] == seconds, "a wait was not told"
        await asyncio.sleep(0)
        self.now += seconds

    @property
    def seconds(self) -> list[float]:
        return [seconds for seconds, _ in self.waits]


class Kept:
    """Etags in memory."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}

    async def get(self, key: str) -> tuple[str, bytes] | None:
        return self.answers.get(key)

    async def put(self, key: str, etag: str, body: bytes) -> None:
        self.answers[key] = (etag, body)


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def host(clock: Time) -> Iterator[GitHubHost]:
    with github_host(clock=clock) as running:
        yield running


Ask = Callable[..., Any]


@pytest.fixture
def ask(host: GitHubHost, clock: Time) -> Ask:
    """Ask the stand-in something; a list where the answer is many."""

    def run(
        question: Callable[[GitHub], Any],
        *,
        token: str | None = None,
        base_url: str = "",
        egress: Egress | None = None,
        **options: Any,
    ):
        async def main() -> Any:
            async with open_http(egress or host.egress) as http:
                given = {"on_wait": clock.waiting, "sleep": clock.sleep, "clock": clock} | options
                answer = question(
                    GitHub(http, base_url or host.base_url, Secret(token) if token else None, **given)
                )
                return [one async for one in answer] if isinstance(answer, AsyncIterator) else await answer

        return asyncio.run(main())

    return run


@pytest.fixture
def refused(ask: Ask) -> Callable[..., GitHubError]:
    """Ask something that must fail, and see that the failure is one line without the token."""

    def run(question: Callable[[GitHub], Any], **options: Any) -> GitHubError:
        with pytest.raises(GitHubError) as caught:
            ask(question, **options)
        failure = caught.value
        assert TOKEN not in repr(failure) + failure.message
        assert failure.message.isprintable()
        return failure

    return run


def repository(hub: GitHub) -> Any:
    return hub.repository("acme/web")


def names(found: list[HostedRepository]) -> list[str]:
    return [one.full_name for one in found]


# What there is


def test_repository_is_told_in_our_words(host, ask):
    raw = host.add_repo("acme/web", visibility="internal", archived=True, fork=True, has_wiki=False)
    host.members["acme"].add("ada")
    host.tokens[TOKEN] = "ada"
    assert ask(repository, token=TOKEN) == HostedRepository(
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


def test_requests_say_what_they_want_and_who_asks(host, ask):
    host.add_repo("acme/web")
    host.tokens[TOKEN] = "acme"
    ask(repository, token=TOKEN)
    ask(repository)
    with_token, without = (asked.headers for asked in host.requests)
    assert with_token["Accept"] == without["Accept"] == "application/vnd.github+json"
    assert with_token["X-GitHub-Api-Version"] == without["X-GitHub-Api-Version"] == "2022-11-28"
    assert with_token["Authorization"] == f"Bearer {TOKEN}"
    assert "Authorization" not in without
    assert TOKEN not in "".join(host.paths)


def test_enterprise_server_is_asked_under_its_prefix(host, ask):
    host.prefix = "/api/v3"
    host.add_user("acme", organisation=True)
    for number in range(101):
        host.add_repo(f"acme/r{number:03}")
    assert len(ask(lambda hub: hub.repositories("acme"), base_url=host.base_url + "/")) == 101
    assert all(path.startswith("/api/v3/") for path in host.paths)


def test_all_pages_of_an_organisation_are_read_oldest_first(host, ask):
    host.add_user("acme", organisation=True)
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    found = ask(lambda hub: hub.repositories("ACME"))
    assert names(found) == [f"acme/r{number:03}" for number in range(250)]
    assert len(host.requests) == 4  # who it is, and three pages
    assert "/organizations/" in host.paths[-1]  # the host's own links were followed


def test_private_repositories_of_an_organisation_are_seen_by_members(host, ask):
    host.add_user("acme", organisation=True, members=("ada",))
    host.add_repo("acme/open")
    host.add_repo("acme/closed", visibility="private")
    host.add_user("ada")
    host.tokens[TOKEN] = "ada"
    assert names(ask(lambda hub: hub.repositories("acme"))) == ["acme/open"]
    found = ask(lambda hub: hub.repositories("acme"), token=TOKEN)
    assert [(one.full_name, one.visibility) for one in found] == [
        ("acme/open", "public"),
        ("acme/closed", "private"),
    ]


def test_own_private_repositories_are_seen_with_the_users_token(host, ask):
    host.add_repo("ada/open")
    host.add_repo("ada/closed", visibility="private")
    host.add_user("ben")
    host.tokens |= {TOKEN: "ada", "ben's": "ben"}
    assert names(ask(lambda hub: hub.repositories("Ada"), token=TOKEN)) == ["ada/open", "ada/closed"]
    assert names(ask(lambda hub: hub.repositories("ada"), token="ben's")) == ["ada/open"]
    assert names(ask(lambda hub: hub.repositories("ada"))) == ["ada/open"]


def test_token_of_an_app_belongs_to_no_user(host, ask):
    host.add_repo("ada/open")
    host.add_gist("ada")
    host.tokens[TOKEN] = None
    assert names(ask(lambda hub: hub.repositories("ada"), token=TOKEN)) == ["ada/open"]
    assert len(ask(lambda hub: hub.gists("ada"), token=TOKEN)) == 1


def test_repository_that_moves_between_pages_is_given_once(host, ask):
    for number in range(150):
        host.add_repo(f"ada/r{number:03}")

    async def first_page_then_a_new_one(hub: GitHub) -> list[str]:
        found = []
        async for one in hub.repositories("ada"):
            if not found:
                host.add_repo(
                    "ada/first", created_at="2001-01-01T00:00:00Z"
                )  # so that the last of page 1 comes on page 2 again
            found.append(one.full_name)
        return found

    found = ask(first_page_then_a_new_one)
    assert found == [f"ada/r{number:03}" for number in range(150)]


def test_renamed_repository_is_found_by_its_old_name_and_its_id(host, ask):
    number = host.add_repo("acme/web")["id"]
    host.rename("acme/web", "acme/site")
    for status in (301, 302, 307):
        host.moved_status = status
        found = ask(repository)
        assert (found.id, found.full_name, found.clone_url) == (
            number,
            "acme/site",
            "https://git.example/acme/site.git",
        )
    assert ask(lambda hub: hub.repository_by_id(number)).full_name == "acme/site"
    assert ask(lambda hub: hub.commit("acme/web", host.commits["acme/site"][0])).repository.id == number


def test_gists_of_a_user_secret_ones_with_their_own_token(host, ask):
    shown = host.add_gist("Ada")
    hidden = host.add_gist("Ada", public=False)
    host.add_gist("ben")
    host.tokens |= {TOKEN: "Ada", "ben's": "ben"}
    assert [one.id for one in ask(lambda hub: hub.gists("aDA"), token=TOKEN)] == [hidden["id"], shown["id"]]
    found = ask(lambda hub: hub.gists("Ada"), token="ben's")
    assert found == ask(lambda hub: hub.gists("Ada"))
    clone_url = f"https://git.example/gist/{shown['id']}.git"
    assert found == [
        HostedGist(
            shown["id"], "Ada", clone_url, shown["html_url"], public=True, updated_at=shown["updated_at"]
        )
    ]


def test_gist_by_its_id_also_without_an_owner(host, ask):
    made = host.add_gist(None)
    found = ask(lambda hub: hub.gist(made["id"]))
    assert (found.id, found.owner, found.public) == (made["id"], None, True)


def test_commit_with_its_repository(host, ask):
    host.add_repo("acme/web", commits=(SHA,))
    found = ask(lambda hub: hub.commit("acme/web", SHA[:10]))
    assert (found.sha, found.repository.full_name, found.html_url) == (
        SHA,
        "acme/web",
        f"https://github.example/acme/web/commit/{SHA}",
    )


@pytest.mark.parametrize(
    ("fields", "commits", "empty"),
    [
        ({"size": 0, "pushed_at": None}, (), True),
        ({"size": 0}, (), True),  # as GitHub has it: pushed when it was made
        ({"size": 0}, (SHA,), False),  # smaller than a kilobyte, or just pushed
        ({"size": 4}, (SHA,), False),
    ],
)
def test_repository_is_empty_when_the_host_says_so(host, ask, fields, commits, empty):
    host.add_repo("acme/web", commits=commits, **fields)
    assert ask(repository).empty is empty


@pytest.mark.parametrize("fault", [error(451, "Repository access blocked"), error(500, "oops")])
def test_repository_that_does_not_say_whether_it_is_empty_stops_no_listing(host, ask, fault):
    host.add_repo("ada/one", size=0, commits=())
    host.add_repo("ada/two")
    host.faults += [replace(fault, path="/commits")] * 4
    assert [(one.full_name, one.empty) for one in ask(lambda hub: hub.repositories("ada"))] == [
        ("ada/one", False),
        ("ada/two", False),
    ]


def test_visibility_of_older_servers_and_newer_ones(host, ask):
    raw = host.add_repo("acme/web")
    del raw["visibility"]
    assert ask(repository).visibility is Visibility.PUBLIC
    raw["visibility"] = "secretive"
    assert ask(repository).visibility is Visibility.UNKNOWN


# Whether a commit is gone


def test_commit_that_the_host_has_is_not_gone(host, ask):
    host.add_repo("acme/web", commits=(SHA,))
    assert ask(lambda hub: hub.commit_is_gone("acme/web", SHA)) is False


@pytest.mark.parametrize("status", [404, 422])
def test_commit_that_the_host_does_not_have_is_gone(host, ask, status):
    host.add_repo("acme/web")
    host.faults.append(error(status, "No commit found"))
    assert ask(lambda hub: hub.commit_is_gone("acme/web", SHA)) is True


def test_commit_of_a_repository_that_is_not_shown_is_not_called_gone(host, ask):
    host.add_repo("acme/web", visibility="private", commits=(SHA,))
    assert ask(lambda hub: hub.commit_is_gone("acme/web", SHA)) is None
    assert ask(lambda hub: hub.commit_is_gone("acme/none", SHA)) is None


@pytest.mark.parametrize("status", [401, 403, 409, 451, 500])
def test_other_answers_do_not_say_that_a_commit_is_gone(host, ask, status):
    host.add_repo("acme/web")
    host.faults += [error(status, "no")] * 4
    assert ask(lambda hub: hub.commit_is_gone("acme/web", SHA)) is None


# What has not changed


def test_unchanged_pages_cost_nothing_and_are_whole(host, ask):
    host.add_user("acme", organisation=True, members=("ada",))
    host.add_user("ada")
    host.tokens[TOKEN] = "ada"
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    kept = Kept()
    first = ask(lambda hub: hub.repositories("acme"), token=TOKEN, etags=kept)
    used = host.used
    for host.link_on_304 in (True, False):
        assert ask(lambda hub: hub.repositories("acme"), token=TOKEN, etags=kept) == first
    assert host.used == used
    assert [asked.status for asked in host.requests[4:]] == [304] * 8


@pytest.mark.parametrize("link", [True, False])
def test_page_that_is_no_longer_the_last_one_leads_on(host, ask, link):
    """Its etag is the same as before: it covers the items only."""
    host.link_on_304 = link
    host.add_user("acme", organisation=True)
    for number in range(100):
        host.add_repo(f"acme/r{number:03}")
    kept = Kept()
    assert len(ask(lambda hub: hub.repositories("acme"), etags=kept)) == 100
    host.add_repo("acme/new")
    assert names(ask(lambda hub: hub.repositories("acme"), etags=kept))[100:] == ["acme/new"]
    assert 304 in [asked.status for asked in host.requests]


def test_link_of_an_unchanged_page_is_the_new_one(host, ask, refused):
    """A page before the last one need not be full."""
    host.add_repo("ada/one")
    kept = Kept()
    ask(lambda hub: hub.repositories("ada"), etags=kept)
    host.next_link = f"{host.base_url}/users/ada/repos?page=2"
    assert "do not end" in refused(lambda hub: hub.repositories("ada"), etags=kept).message
    assert (host.requests[-2].status, host.paths[-1]) == (304, "/users/ada/repos?page=2")


def test_changed_answer_replaces_the_kept_one(host, ask):
    raw = host.add_repo("acme/web")
    kept = Kept()
    ask(repository, etags=kept)
    raw["pushed_at"] = "2031-01-01T00:00:00Z"
    assert ask(repository, etags=kept).pushed_at == "2031-01-01T00:00:00Z"
    assert ask(repository, etags=kept).pushed_at == "2031-01-01T00:00:00Z"
    assert [asked.status for asked in host.requests] == [200, 200, 304]


def test_kept_answers_of_one_token_are_not_anothers(host, ask, refused):
    host.add_repo("ada/closed", visibility="private")
    host.add_user("ben")
    host.tokens |= {TOKEN: "ada", "ben's": "ben"}
    kept = Kept()
    ask(lambda hub: hub.repository("ada/closed"), token=TOKEN, etags=kept)
    assert refused(lambda hub: hub.repository("ada/closed"), token="ben's", etags=kept).kind == "not_found"
    assert "If-None-Match" not in host.requests[-1].headers
    assert TOKEN not in repr(kept.answers)


def test_content_of_gists_and_patches_are_not_kept(host, ask):
    made = host.add_gist("ada", files={"a": "hunter2"})
    host.add_repo("acme/web", commits=(SHA,), description="hunter2")
    kept = Kept()
    ask(lambda hub: hub.gist(made["id"]), etags=kept)
    ask(lambda hub: hub.commit("acme/web", SHA), etags=kept)
    assert len(kept.answers) == 3
    assert all(b"hunter2" not in body and b"patch" not in body for _, body in kept.answers.values())
    assert ask(lambda hub: hub.gist(made["id"]), etags=kept).owner == "ada"
    assert host.requests[-1].status == 304


def test_kept_answer_that_cannot_be_read_is_asked_for_anew(host, ask):
    host.add_repo("acme/web")
    kept = Kept()
    for broken in (b"", b"[]", b'{"value": 1}'):
        ask(repository, etags=kept)
        key, (etag, _) = next(iter(kept.answers.items()))
        kept.answers[key] = (etag, broken)
        assert ask(repository, etags=kept).full_name == "acme/web"


# Limits


@pytest.mark.parametrize("status", [403, 429])
def test_used_up_rate_is_waited_for(host, ask, clock, status):
    host.limit, host.limit_status, host.window = 3, status, 1_000
    for number in range(250):
        host.add_repo(f"ada/r{number:03}")
    assert len(ask(lambda hub: hub.repositories("ada"))) == 250
    assert clock.seconds == [1_001]  # told by the third answer: the fourth question was not asked in vain
    assert {asked.status for asked in host.requests} == {200}
    host.used = host.limit
    ask(lambda hub: hub.repositories("ada"))
    assert status in [asked.status for asked in host.requests]
    assert clock.waits[-1][1] == f"the rate limit of 127.0.0.1:{host.port} is used up"


@pytest.mark.parametrize("ahead", [5_000, -5_000])
def test_wait_is_by_the_hosts_clock(host, ask, clock, ahead):
    host.add_repo("ada/one")
    host.clock = lambda: clock.now + ahead
    host.limit, host.window = 1, 100
    ask(lambda hub: hub.repositories("ada"))
    assert clock.seconds == [101]


@pytest.mark.parametrize("status", [403, 429])
def test_secondary_limit_is_waited_for_as_long_as_it_says(host, ask, clock, status):
    host.add_repo("acme/web")
    host.faults += [secondary_limit(status, retry_after=17), secondary_limit(status, retry_after=0)]
    assert ask(repository).full_name == "acme/web"
    assert clock.seconds == [17, 1]


def test_secondary_limit_that_does_not_say_is_waited_for_longer_each_time(host, refused, clock):
    host.add_repo("acme/web")
    host.faults += [secondary_limit()] * 6
    assert refused(repository).kind == "limited"
    assert clock.seconds == [60, 120, 240, 480, 900]
    assert len(host.requests) == 6


def test_limit_that_lasts_too_long_is_told_at_once(host, refused, clock):
    host.add_repo("acme/web")
    host.faults.append(secondary_limit(retry_after=3_700))
    assert refused(repository).kind == "limited"
    assert (clock.waits, len(host.requests)) == ([], 1)


def test_full_hour_is_not_too_long(host, ask, clock):
    host.add_repo("ada/one")
    host.limit = 1
    ask(lambda hub: hub.repositories("ada"))
    assert clock.seconds == [3_601]


def test_limit_stops_all_tasks_and_is_told_once(host, ask, clock):
    for number in range(6):
        host.add_repo(f"acme/r{number}")
    host.faults.append(secondary_limit(retry_after=40))
    waits, over = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.set()
        await over.wait()
        clock.now += seconds

    async def question(hub: GitHub) -> int:
        first = asyncio.create_task(hub.repository("acme/r0"))
        await waits.wait()
        others = [asyncio.create_task(hub.repository(f"acme/r{number}")) for number in range(1, 6)]
        await asyncio.sleep(0.05)
        meanwhile = len(host.requests)
        over.set()
        await asyncio.gather(first, *others)
        return meanwhile

    assert ask(question, sleep=sleep) == 1
    assert clock.seconds == [40]
    assert len(host.requests) == 7


def test_longest_of_several_limits_counts(clock):
    """Those of requests that were under way come in any order, and also while one is waited for."""

    def refused(seconds: int) -> None:
        assert limits.is_limited(HttpResponse("", 429, {"Retry-After": str(seconds)}, b""), 0)

    async def sleep(seconds: float) -> None:
        clock.now += seconds
        if seconds == 100:
            refused(50)

    limits = RateLimit("host", clock.waiting, 3_600, sleep, clock)
    for seconds in (10, 100, 20):
        refused(seconds)
    asyncio.run(limits.wait_until_allowed())
    assert clock.seconds == [100, 50]
    asyncio.run(limits.wait_until_allowed())
    assert clock.seconds == [100, 50]


# Failures


def test_refused_token_is_told_at_once(host, refused, clock):
    failure = refused(repository, token=TOKEN)
    assert (failure.kind, clock.waits, len(host.requests)) == ("unauthorised", [], 1)
    assert "Bad credentials" in failure.message


def test_token_that_is_revoked_half_way(host, ask):
    for number in range(250):
        host.add_repo(f"acme/r{number:03}")
    host.users["acme"]["type"] = "Organization"
    host.tokens[TOKEN] = None
    host.lifetimes[TOKEN] = 2
    found: list[str] = []

    async def read(hub: GitHub) -> None:
        async for one in hub.repositories("acme"):
            found.append(one.full_name)

    with pytest.raises(GitHubError) as caught:
        ask(read, token=TOKEN)
    assert (caught.value.kind, len(found)) == ("unauthorised", 100)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(403, "forbidden"), (451, "forbidden"), (404, "not_found"), (410, "not_found"), (400, "malformed")],
)
def test_refusals_by_kind(host, refused, clock, status, kind):
    host.faults.append(error(status, "no, and here are\ntwo lines"))
    failure = refused(repository)
    assert (failure.kind, clock.waits) == (kind, [])
    assert f"/repos/acme/web: answered {status}: no, and here are" in failure.message


@pytest.mark.parametrize("status", [451, 403])
def test_blocked_repository_is_forbidden(host, refused, status):
    host.add_repo("acme/web")
    host.blocked["acme/web"] = status
    failure = refused(repository)
    assert failure.kind == "forbidden"
    assert "Repository access blocked" in failure.message


@pytest.mark.parametrize("commits", [(), (SHA[::-1],)])
def test_commit_that_is_not_there(host, refused, commits):
    host.add_repo("acme/web", commits=commits)
    assert refused(lambda hub: hub.commit("acme/web", SHA)).kind == "not_found"


def test_token_that_the_host_repeats_is_masked(host, refused):
    host.tokens[TOKEN] = None
    for padding in (0, 270):
        host.faults.append(error(403, "x" * padding + f"who is {TOKEN}?"))
        assert TOKEN[:10] not in refused(repository, token=TOKEN).message


@pytest.mark.parametrize("fault", [error(502, "Bad Gateway"), Fault(503), Fault(200, b'{"id": 1', cut=True)])
def test_passing_failure_is_tried_again(host, ask, refused, clock, fault):
    host.add_repo("acme/web")
    host.faults += [fault] * 3
    assert ask(repository).full_name == "acme/web"
    assert clock.seconds == [1, 2, 4]
    host.faults += [fault] * 4
    assert refused(repository).kind == "unavailable"
    assert len(host.requests) == 8


def test_host_that_cannot_be_reached_is_unavailable(refused, clock):
    assert refused(repository, base_url="http://127.0.0.1:1").kind == "unavailable"
    assert clock.seconds == [1, 2, 4]


def test_address_that_is_not_public_is_not_asked(host, refused):
    assert refused(repository, egress=Egress()).kind == "unavailable"
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
def test_answer_of_another_shape_is_malformed(host, refused, body):
    host.faults.append(Fault(200, body))
    assert refused(repository).kind == "malformed"


@pytest.mark.parametrize("body", [b"{}", b"[null]", b"[1]", b'[{"id": 1}]', b"[[]]"])
def test_list_of_another_shape_is_malformed(host, refused, body):
    host.add_user("ada")
    host.faults.append(Fault(200, body, path="/repos"))
    assert refused(lambda hub: hub.repositories("ada")).kind == "malformed"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "7"), ("id", True), ("id", None), ("full_name", "acme"), ("full_name", "acme/.."), ("full_name", "a/b/c"), ("fork", None),
        ("clone_url", "http://git.example/a.git"), ("clone_url", "https://me:pass@git.example/a"), ("clone_url", "ext::sh"),
        ("clone_url", "https://git.example/a\n"), ("clone_url", "https://[git/a"), ("html_url", "javascript:alert(1)"), ("size", "0"),
        ("pushed_at", 5), ("default_branch", None), ("archived", 0), ("has_wiki", "yes"),
    ],
)  # fmt: skip
def test_repository_with_an_unusable_field_is_malformed(host, refused, field, value):
    host.add_repo("acme/web")[field] = value
    failure = refused(repository)
    assert failure.kind == "malformed"
    assert field in failure.message


async def _all_refused(questions: list[Any]) -> None:
    for question in questions:
        with pytest.raises(BadInputError, match=": is not "):
            await (anext(question) if isinstance(question, AsyncIterator) else question)


def test_name_that_cannot_be_a_repositorys_is_not_asked_for(host, ask):
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
    ask(lambda hub: _all_refused([hub.repository(name) for name in wrong]))
    ask(lambda hub: _all_refused([hub.commit(name, SHA) for name in wrong]))
    ask(lambda hub: _all_refused([hub.commit_is_gone(name, SHA) for name in wrong]))
    assert host.requests == []


def test_other_names_that_cannot_be_are_not_asked_for(host, ask):
    wrong = ["", "..", "a/b", "a%2fb", "a b", "a\n", "a" * 101]
    ask(
        lambda hub: _all_refused(
            [question(name) for name in wrong for question in (hub.repositories, hub.gists, hub.gist)]
        )
    )
    ask(lambda hub: _all_refused([hub.commit("acme/web", name) for name in [*wrong, "main", "abc"]]))
    assert host.requests == []


# Nothing goes elsewhere


def test_redirect_to_another_origin_is_not_followed(host, refused, clock):
    with github_host(clock=clock) as other:
        other.add_repo("acme/web")
        host.faults.append(Fault(301, headers={"Location": f"{other.base_url}/repos/acme/web"}))
        host.tokens[TOKEN] = None
        failure = refused(repository, token=TOKEN)
        assert (failure.kind, "redirects to another host" in failure.message) == ("malformed", True)
        assert other.requests == []


def test_next_page_at_another_origin_is_not_asked_for(host, refused, clock):
    with github_host(clock=clock) as other:
        host.add_repo("ada/one")
        host.next_link = f"{other.base_url}/user/repos?page=2"
        assert refused(lambda hub: hub.repositories("ada")).kind == "malformed"
        assert other.requests == []


def test_pages_that_lead_back_end(host, refused):
    host.add_repo("ada/one")
    host.next_link = f"{host.base_url}/users/ada/repos?page=7"
    assert refused(lambda hub: hub.repositories("ada")).kind == "malformed"
    assert len(host.requests) == 3


def test_pages_without_an_end_end(host, refused, monkeypatch):
    monkeypatch.setattr("outcrop.sources.hosts.github_api._MAX_PAGES", 5)
    host.add_repo("ada/one")
    made = host._page

    def endless(request: Any, items: Any, path: str) -> Fault:
        host.next_link = f"{host.base_url}/users/ada/repos?page={len(host.requests)}"
        return made(request, items, path)

    host._page = endless
    assert refused(lambda hub: hub.repositories("ada")).kind == "malformed"
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
def test_api_is_asked_over_https_only(ask, base_url):
    with pytest.raises(OperatorError) as caught:
        ask(repository, base_url=base_url or "https://")
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
def test_own_host_of_a_clone_address(ask, base_url, clone_url, own):
    async def question(hub: GitHub) -> bool:
        return hub.is_own_host(clone_url)

    assert ask(question, base_url=base_url) is own


# The whole way


def test_what_the_host_lists_can_be_cloned(tmp_path: Path, ask):
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
        found = ask(lambda hub: hub.repositories("acme"), base_url=host.base_url, egress=egress)
        found += ask(lambda hub: hub.gists("ada"), base_url=host.base_url, egress=egress)
        for number, one in enumerate(found):
            place = tmp_path / str(number)
            place.mkdir()
            assert set(clone(Remote.parse(one.clone_url), place, egress).refs) == {b"refs/heads/main"}
        assert {asked.headers["Host"] for asked in host.requests} == {"api.git.example"}


def test_stand_in_answers_in_githubs_shapes(host, ask):
    """The fields that GitHub's description requires of what we read, and its form of an error."""
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
