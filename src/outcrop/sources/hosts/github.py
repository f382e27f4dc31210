"""List the repositories, gists and commits of GitHub or a GitHub Enterprise Server.

The `GitHub` class chooses the API paths and turns the responses into the types of `hosted.py`.
`github_api.py` sends the requests.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Visibility
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret
from outcrop.limits import HOST_PAGES
from outcrop.net.http import HttpClient
from outcrop.sources.hosts.github_api import (
    PER_PAGE,
    RETRY_DELAYS,
    Clock,
    EtagCache,
    GitHubApi,
    GitHubError,
    OnWait,
    RateLimit,
    Sleep,
    origin,
)
from outcrop.sources.hosts.hosted import HostedCommit, HostedGist, HostedRepository

_OWNER = re.compile(r"[A-Za-z0-9_-]{1,100}")
_FULL_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_GIST_ID = re.compile(r"[A-Za-z0-9]{1,64}")
_SHA = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_DESCRIPTIONS = {
    _OWNER: "the name of a user or organisation",
    _FULL_NAME: "OWNER/NAME of a repository",
    _GIST_ID: "a gist's id",
    _SHA: "a commit's id",
}

_T = TypeVar("_T")


class GitHub:
    """A GitHub host, used with one token or none. A few tasks may share an instance.

    `base_url` is the address of the API. `etags` caches responses. `on_wait` is called before each wait for a
    rate limit; a wait of more than `max_wait` seconds is an error instead. All methods that send requests
    raise GitHubError if a request fails or a response is malformed.
    """

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        token: Secret | None,
        *,
        etags: EtagCache | None = None,
        on_wait: OnWait = lambda _seconds, _reason: None,
        max_wait: float = 3_600.0,
        max_pages: int = HOST_PAGES,
        retry_delays: Sequence[float] = RETRY_DELAYS,
        sleep: Sleep = asyncio.sleep,
        clock: Clock = time.time,
    ) -> None:
        limit = RateLimit(origin(base_url)[1], on_wait, max_wait, sleep, clock)
        self._api = GitHubApi(
            http, base_url, token, etags, limit, max_pages=max_pages, retry_delays=retry_delays
        )
        self._token = token
        self._login: str | None = None

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield all repositories of the organisation or user `owner`, private ones if the token may see them.

        Raise BadInputError if `owner` is not a valid name, and GitHubError if a request fails.
        """
        user = await self._api.get(f"/users/{_checked(_OWNER, owner)}")
        login = _matching(user, "login", _OWNER)
        if _field(user, "type", str) == "Organization":
            path = f"/orgs/{login}/repos?type=all"
        elif await self._is_token_of(login):
            path = "/user/repos?affiliation=owner"
        else:
            path = f"/users/{login}/repos?type=owner"
        # Oldest first: new repositories change the last page only, so the cached pages before it stay valid.
        async for raw in self._api.pages(f"{path}&sort=created&direction=asc&per_page={PER_PAGE}"):
            yield await self._hosted_repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return the repository with this OWNER/NAME, which may be a former name of the repository.

        Raise BadInputError if the name is not valid, and GitHubError if the repository cannot be read.
        """
        return await self._hosted_repository(await self._api.get(f"/repos/{_checked(_FULL_NAME, full_name)}"))

    async def gists(self, user: str) -> AsyncIterator[HostedGist]:
        """Yield the gists of this user; the secret ones only if the token belongs to that user.

        Raise BadInputError if the name is not valid, and GitHubError if a request fails.
        """
        name = _checked(_OWNER, user)
        path = "/gists" if await self._is_token_of(name) else f"/users/{name}/gists"
        async for raw in self._api.pages(f"{path}?per_page={PER_PAGE}"):
            yield _parse_gist(raw)

    async def gist(self, id: str) -> HostedGist:  # noqa: A002
        """Return the gist with this id.

        Raise BadInputError if the id is not valid, and GitHubError if the gist cannot be read.
        """
        return _parse_gist(await self._api.get(f"/gists/{_checked(_GIST_ID, id)}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of the repository OWNER/NAME, with its full id and its repository.

        `sha` is the id of the commit or its first digits. Raise BadInputError if an argument is not valid,
        and GitHubError if a request fails.
        """
        raw = await self._api.get(_commit_path(full_name, sha))
        return HostedCommit(
            _matching(raw, "sha", _SHA), await self.repository(full_name), _https_url(raw, "html_url")
        )

    async def commit_is_gone(self, full_name: str, sha: str) -> bool | None:
        """Whether the host no longer serves the commit `sha` of the repository OWNER/NAME; None if unknown.

        True if the host answers 404 or 422 for the commit and serves the repository: without access to the
        repository it answers 404 for every commit. False if the host serves the commit. Unknown in all other
        cases, also if a request fails. Raise BadInputError if an argument is not valid.
        """
        commit, repository = _commit_path(full_name, sha), f"/repos/{_checked(_FULL_NAME, full_name)}"
        with suppress(GitHubError):
            status = await self._api.status(commit)
            if status == HTTPStatus.OK:
                return False
            if (
                status in {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
                and await self._api.status(repository) == HTTPStatus.OK
            ):
                return True
        return None

    def is_own_host(self, clone_url: str) -> bool:
        """Whether a clone URL is https and at the web host of this API, which the token is for.

        That is `github.com` for `api.github.com`.
        """
        own = self._api.host
        if own == "api.github.com" or (own.startswith("api.") and own.endswith(".ghe.com")):
            own = own.removeprefix("api.")
        return origin(clone_url) == ("https", own)

    async def _is_token_of(self, login: str) -> bool:
        """Whether the token belongs to the user `login`; False without a token or with the token of an app.

        The first call asks the host for the user of the token and remembers the answer. Raise GitHubError if
        that request fails for another reason than a missing permission.
        """
        if self._token is None:
            return False
        if self._login is None:
            try:
                token_login = _field(await self._api.get("/user"), "login", str)
            except GitHubError as error:  # the token of an app may not read /user
                if error.kind not in {"forbidden", "not_found"}:
                    raise
                token_login = ""
            self._login = token_login.lower()
        return self._login == login.lower()

    async def _hosted_repository(self, raw: Any) -> HostedRepository:
        """Return the repository that decoded JSON of the API describes.

        If its size is 0 although something was pushed, ask the host for its commits to find out whether it is
        empty; it counts as not empty if that request fails. Raise GitHubError if a field is missing or
        malformed.
        """
        repository = _parse_repository(raw)
        if _field(raw, "size", int) or repository.empty:
            return repository
        # The size is in kilobytes and is updated some time after a push, so 0 does not mean empty.
        with suppress(GitHubError):
            status = await self._api.status(f"/repos/{repository.full_name}/commits?per_page=1")
            return replace(repository, empty=status == HTTPStatus.CONFLICT)
        return repository


def _parse_repository(raw: Any) -> HostedRepository:
    """Return the repository in decoded JSON; raise GitHubError if a field is missing or malformed.

    An unknown visibility becomes Visibility.UNKNOWN. `empty` is set if nothing was ever pushed and the size
    is 0.
    """
    pushed_at, visibility = _optional_text(raw, "pushed_at"), _optional_text(raw, "visibility")
    if visibility is None:  # older servers have `private` only
        visibility = "private" if _field(raw, "private", bool) else "public"
    return HostedRepository(
        id=_field(raw, "id", int),
        full_name=_matching(raw, "full_name", _FULL_NAME),
        clone_url=_https_url(raw, "clone_url"),
        html_url=_https_url(raw, "html_url"),
        visibility=Visibility(visibility) if visibility in set(Visibility) else Visibility.UNKNOWN,
        fork=_field(raw, "fork", bool),
        archived=_field(raw, "archived", bool),
        empty=pushed_at is None and _field(raw, "size", int) == 0,
        has_wiki=_field(raw, "has_wiki", bool),
        pushed_at=pushed_at,
        default_branch=_field(raw, "default_branch", str),
    )


def _parse_gist(raw: Any) -> HostedGist:
    """Return the gist in decoded JSON; raise GitHubError if a field is missing or malformed."""
    owner = raw.get("owner") if isinstance(raw, dict) else None  # old anonymous gists have none
    return HostedGist(
        id=_matching(raw, "id", _GIST_ID),
        owner=_matching(owner, "login", _OWNER) if owner else None,
        clone_url=_https_url(raw, "git_pull_url"),
        html_url=_https_url(raw, "html_url"),
        public=_field(raw, "public", bool),
        updated_at=_optional_text(raw, "updated_at"),
    )


def _field(raw: Any, name: str, kind: type[_T]) -> _T:
    """Return the field `name` of decoded JSON; raise GitHubError if it is missing or not a `kind`.

    `raw` may be anything. A boolean is not an `int` here.
    """
    value = raw.get(name) if isinstance(raw, dict) else None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _missing_field(name)
    return value


def _optional_text(raw: Any, name: str) -> str | None:
    """Return the text field `name`; None if it is missing or null, or if `raw` is not an object.

    Raise GitHubError if the field is not a text.
    """
    return _field(raw, name, str) if isinstance(raw, dict) and raw.get(name) is not None else None


def _matching(raw: Any, name: str, pattern: re.Pattern[str]) -> str:
    """Return the text in the field `name`; raise GitHubError unless the pattern matches all of it."""
    value = _field(raw, name, str)
    if not pattern.fullmatch(value):
        raise _missing_field(name)
    return value


def _https_url(raw: Any, name: str) -> str:
    """Return the https URL in the field `name`, which is safe to clone from and to link to.

    Raise GitHubError if it is not https, or has a user name or characters that cannot be printed.
    """
    value = _field(raw, name, str)
    scheme, host = origin(value)
    if scheme != "https" or not host or "@" in host or not value.isprintable():
        raise _missing_field(name)
    return value


def _missing_field(name: str) -> GitHubError:
    """Return the error for a response whose field `name` is missing or invalid."""
    return GitHubError("malformed", f"a response of GitHub has no valid {name}")


def _commit_path(full_name: str, sha: str) -> str:
    """Return the API path of the commit `sha` of the repository OWNER/NAME.

    Its query limits the response to one of the commit's files, since the files are not used. Raise
    BadInputError if an argument is not valid.
    """
    return f"/repos/{_checked(_FULL_NAME, full_name)}/commits/{_checked(_SHA, sha)}?per_page=1"


def _checked(pattern: re.Pattern[str], text: str) -> str:
    """Return user input quoted for a URL path; raise BadInputError unless the pattern matches all of it.

    The pattern must be a key of _DESCRIPTIONS, which has the text for the error.
    """
    if not pattern.fullmatch(text):
        raise BadInputError(f"{one_line(text[:200])}: is not {_DESCRIPTIONS[pattern]}")
    return quote(text, safe="/")
