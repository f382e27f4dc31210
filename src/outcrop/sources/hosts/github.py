"""What GitHub tells over its REST API: which repositories and gists there are, and whether a commit is still held."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Visibility
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret
from outcrop.net.http import HttpClient
from outcrop.sources.hosts.github_api import PER_PAGE, EtagCache, GitHubApi, origin
from outcrop.sources.hosts.github_limits import Clock, GitHubError, OnWait, RateLimit, Sleep

__all__ = ["EtagCache", "GitHub", "GitHubError", "HostedCommit", "HostedGist", "HostedRepository"]

_OWNER = re.compile(r"[A-Za-z0-9_-]{1,100}")
_FULL_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_GIST = re.compile(r"[A-Za-z0-9]{1,64}")
_SHA = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_WHAT = {
    _OWNER: "the name of a user or organisation",
    _FULL_NAME: "OWNER/NAME of a repository",
    _GIST: "a gist's id",
    _SHA: "a commit's id",
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HostedRepository:
    id: int  # stays the same when the repository is renamed
    full_name: str
    clone_url: str
    html_url: str
    visibility: Visibility
    fork: bool
    archived: bool
    empty: bool
    has_wiki: bool
    pushed_at: str | None  # changes when there may be something new
    default_branch: str


@dataclass(frozen=True, slots=True)
class HostedGist:
    id: str
    owner: str | None
    clone_url: str
    html_url: str
    public: bool
    updated_at: str | None


@dataclass(frozen=True, slots=True)
class HostedCommit:
    sha: str
    repository: HostedRepository
    html_url: str


class GitHub:
    """GitHub or a GitHub Enterprise Server, asked with one token or none; a handful of tasks may share it."""

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        token: Secret | None,
        *,
        etags: EtagCache | None = None,
        on_wait: OnWait = lambda _seconds, _reason: None,
        max_wait: float = 3_600.0,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.time,
    ) -> None:
        self._api = GitHubApi(
            http, base_url, token, etags, RateLimit(origin(base_url)[1], on_wait, max_wait, sleep, clock)
        )
        self._token = token
        self._login: str | None = None

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Give all repositories of an organisation or a user, the private ones as far as the token may see them."""
        about = await self._api.get(f"/users/{_fitting(_OWNER, owner)}")
        login = _matching(about, "login", _OWNER)
        if _take(about, "type", str) == "Organization":
            path = f"/orgs/{login}/repos?type=all"
        elif await self._is_own(login):
            path = "/user/repos?affiliation=owner"
        else:
            path = f"/users/{login}/repos?type=owner"
        # Oldest first: what is new comes on the last page, and the others stay as they were.
        async for raw in self._api.pages(f"{path}&sort=created&direction=asc&per_page={PER_PAGE}"):
            yield await self._hosted(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Give a repository by its name or a name that it had."""
        return await self._hosted(await self._api.get(f"/repos/{_fitting(_FULL_NAME, full_name)}"))

    async def repository_by_id(self, id: int) -> HostedRepository:  # noqa: A002
        return await self._hosted(await self._api.get(f"/repositories/{id:d}"))

    async def gists(self, user: str) -> AsyncIterator[HostedGist]:
        """Give a user's gists; the secret ones where the token is that user's."""
        name = _fitting(_OWNER, user)
        path = "/gists" if await self._is_own(name) else f"/users/{name}/gists"
        async for raw in self._api.pages(f"{path}?per_page={PER_PAGE}"):
            yield _gist(raw)

    async def gist(self, id: str) -> HostedGist:  # noqa: A002
        return _gist(await self._api.get(f"/gists/{_fitting(_GIST, id)}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        found = await self._api.get(_commit_path(full_name, sha))
        return HostedCommit(
            _matching(found, "sha", _SHA), await self.repository(full_name), _https(found, "html_url")
        )

    async def commit_is_gone(self, full_name: str, sha: str) -> bool | None:
        """Tell whether the host no longer gives a commit; None where it does not say."""
        commit, repository = _commit_path(full_name, sha), f"/repos/{_fitting(_FULL_NAME, full_name)}"
        with suppress(GitHubError):
            status = await self._api.status(commit)
            if status == HTTPStatus.OK:
                return False
            # A repository that is hidden from us answers 404 for every commit, which says nothing about this one.
            if (
                status in {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
                and await self._api.status(repository) == HTTPStatus.OK
            ):
                return True
        return None

    def is_own_host(self, clone_url: str) -> bool:
        """Tell whether repositories at this address are of the host that the token is for."""
        own = self._api.host
        if own == "api.github.com" or (own.startswith("api.") and own.endswith(".ghe.com")):
            own = own.removeprefix("api.")
        return origin(clone_url) == ("https", own)

    async def _is_own(self, login: str) -> bool:
        """Tell whether the token is this user's. Tokens of apps belong to no user, and are refused here."""
        if self._token is None:
            return False
        if self._login is None:
            try:
                found = _take(await self._api.get("/user"), "login", str)
            except GitHubError as error:
                if error.kind not in {"forbidden", "not_found"}:
                    raise
                found = ""
            self._login = found.lower()
        return self._login == login.lower()

    async def _hosted(self, raw: Any) -> HostedRepository:
        found = _repository(raw)
        if _take(raw, "size", int) or found.empty:
            return found
        # The size is in kilobytes and lags behind a push, so the host is asked whether there is a commit.
        with suppress(GitHubError):
            return replace(
                found,
                empty=await self._api.status(f"/repos/{found.full_name}/commits?per_page=1")
                == HTTPStatus.CONFLICT,
            )
        return found


def _repository(raw: Any) -> HostedRepository:
    pushed_at, told = _optional(raw, "pushed_at"), _optional(raw, "visibility")
    if told is None:  # older servers know only private or not
        told = "private" if _take(raw, "private", bool) else "public"
    return HostedRepository(
        id=_take(raw, "id", int),
        full_name=_matching(raw, "full_name", _FULL_NAME),
        clone_url=_https(raw, "clone_url"),
        html_url=_https(raw, "html_url"),
        visibility=Visibility(told) if told in set(Visibility) else Visibility.UNKNOWN,
        fork=_take(raw, "fork", bool),
        archived=_take(raw, "archived", bool),
        empty=pushed_at is None and _take(raw, "size", int) == 0,
        has_wiki=_take(raw, "has_wiki", bool),
        pushed_at=pushed_at,
        default_branch=_take(raw, "default_branch", str),
    )


def _gist(raw: Any) -> HostedGist:
    owner = (
        raw.get("owner") if isinstance(raw, dict) else None
    )  # none: an anonymous one, of the days when there were such
    return HostedGist(
        id=_matching(raw, "id", _GIST),
        owner=_matching(owner, "login", _OWNER) if owner else None,
        clone_url=_https(raw, "git_pull_url"),
        html_url=_https(raw, "html_url"),
        public=_take(raw, "public", bool),
        updated_at=_optional(raw, "updated_at"),
    )


def _take(raw: Any, name: str, kind: type[_T]) -> _T:
    value = raw.get(name) if isinstance(raw, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _unusable(name)
    return value


def _optional(raw: Any, name: str) -> str | None:
    return _take(raw, name, str) if isinstance(raw, dict) and raw.get(name) is not None else None


def _matching(raw: Any, name: str, pattern: re.Pattern[str]) -> str:
    value = _take(raw, name, str)
    if not pattern.fullmatch(value):
        raise _unusable(name)
    return value


def _https(raw: Any, name: str) -> str:
    """Take an address that is safe to clone from and to link to."""
    value = _take(raw, name, str)
    scheme, host = origin(value)
    if scheme != "https" or not host or "@" in host or not value.isprintable():
        raise _unusable(name)
    return value


def _unusable(name: str) -> GitHubError:
    return GitHubError("malformed", f"an answer of GitHub has no {name} that can be used")


def _commit_path(full_name: str, sha: str) -> str:
    # A commit's files come in pages too, and nobody reads them.
    return f"/repos/{_fitting(_FULL_NAME, full_name)}/commits/{_fitting(_SHA, sha)}?per_page=1"


def _fitting(pattern: re.Pattern[str], given: str) -> str:
    """Check what a person gave before it becomes part of an address."""
    if not pattern.fullmatch(given):
        raise BadInputError(f"{one_line(given[:200])}: is not {_WHAT[pattern]}")
    return quote(given, safe="/")
