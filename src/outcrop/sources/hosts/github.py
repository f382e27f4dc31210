"""List the repositories, gists and commits of GitHub or a GitHub Enterprise Server."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Visibility
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import ApiStyle, HostApi, origin, parse_json
from outcrop.sources.code_host.discussion import checked_path, read_present_text, read_time
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.events import EventFeed, PushEvent, read_push
from outcrop.sources.code_host.fields import Fields
from outcrop.sources.code_host.host import CodeHost, HostAccess, HostType, Login
from outcrop.sources.code_host.hosted import HostedCommit, HostedGist, HostedRepository, HostedText
from outcrop.sources.code_host.instance import inner, text_of
from outcrop.sources.code_host.options import API_OPTIONS, ApiOptions, EtagCache
from outcrop.sources.code_host.reviews import ReviewApi
from outcrop.sources.hosts.github_app import parse_app
from outcrop.sources.hosts.github_reviews import github_reviews
from outcrop.sources.hosts.github_style import HEADERS, PER_PAGE, STYLE

if TYPE_CHECKING:
    from outcrop.net.http import HttpClient

_OWNER = regex(r"[A-Za-z0-9_-]{1,100}")
_FULL_NAME = regex(r"[A-Za-z0-9_-]{1,100}/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
_GIST_ID = regex(r"[A-Za-z0-9]{1,64}")
_NUMBER = regex(r"/(?:issues|pull)/([0-9]{1,18})(?=[/?#]|\Z)")  # in the address of a comment
_SHA = regex(r"[0-9a-f]{4,64}", re.IGNORECASE)
_DESCRIPTIONS = {
    _OWNER: "the name of a user or organisation",
    _FULL_NAME: "OWNER/NAME of a repository",
    _GIST_ID: "a gist's id",
    _SHA: "a commit's id",
}

_FIELDS = Fields("GitHub")


class GitHub(CodeHost):
    """A GitHub host. `base_url` is the address of the API; `etags` caches responses.

    `site` begins the names of its sources; None: the addresses that the host gives do.
    """

    name = "github"

    def __init__(
        self,
        http: "HttpClient",
        base_url: str,
        token: Secret | None,
        *,
        etags: EtagCache | None = None,
        options: ApiOptions = API_OPTIONS,
        site: str | None = None,
    ) -> None:
        self._app = parse_app(token)
        self._site = site

        async def auth() -> Mapping[str, str]:
            """Return the headers that send the token."""
            sent = await self._own_token()
            return {} if sent is None else {"Authorization": f"Bearer {sent}"}

        self._api = HostApi(http, base_url, token, auth, STYLE, etags=etags, options=options)
        # What people write may have credentials, so these responses are never stored with their ETags.
        self._texts = HostApi(http, base_url, token, auth, ApiStyle(headers=HEADERS), options=options)
        self._token = token
        self._login: str | None = None

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield all repositories of the organisation or user `owner`, private ones if the token may see them.

        Raise BadInputError if `owner` is not a valid name, and HostError if a request fails.
        """
        user = await self._api.get(f"/users/{_checked(_OWNER, owner)}")
        login = _FIELDS.matching(user, "login", _OWNER)
        if _FIELDS.field(user, "type", str) == "Organization":
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

        Raise BadInputError if the name is not valid, and HostError if the repository cannot be read.
        """
        return await self._hosted_repository(await self._api.get(f"/repos/{_checked(_FULL_NAME, full_name)}"))

    async def gists(self, owner: str) -> AsyncIterator[HostedGist]:
        """Yield the gists of a user; the secret ones only if the token belongs to that user.

        Raise BadInputError if the name is not valid, and HostError if a request fails.
        """
        name = _checked(_OWNER, owner)
        path = "/gists" if await self._is_token_of(name) else f"/users/{name}/gists"
        async for raw in self._api.pages(f"{path}?per_page={PER_PAGE}"):
            yield _parse_gist(raw)

    async def gist(self, id: str) -> HostedGist:  # noqa: A002
        """Return the gist with this id.

        Raise BadInputError if the id is not valid, and HostError if the gist cannot be read.
        """
        return _parse_gist(await self._api.get(f"/gists/{_checked(_GIST_ID, id)}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of the repository OWNER/NAME, with its full id and its repository.

        `sha` is the id of the commit or its first digits. Raise BadInputError if an argument is not valid,
        and HostError if a request fails.
        """
        raw = await self._api.get(_commit_path(full_name, sha))
        return HostedCommit(
            _FIELDS.matching(raw, "sha", _SHA),
            await self.repository(full_name),
            _FIELDS.https_url(raw, "html_url"),
        )

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the host no longer serves the commit `sha` of the repository OWNER/NAME; None if unknown.

        True if the host answers 404 or 422 for the commit and serves the repository: without access to the
        repository it answers 404 for every commit. False if the host serves the commit. Unknown in all other
        cases, also if a request fails. Raise BadInputError if an argument is not valid.
        """
        commit, path = _commit_path(repository, sha), f"/repos/{_checked(_FULL_NAME, repository)}"
        with suppress(HostError):
            status = await self._api.status(commit)
            if status == HTTPStatus.OK:
                return False
            if (
                status in {HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY}
                and await self._api.status(path) == HTTPStatus.OK
            ):
                return True
        return None

    async def discussions(self, repository: str, since: datetime | None = None) -> AsyncIterator[HostedText]:
        """Yield the issues and pull requests of a repository, then all comments, then review comments."""
        path = f"/repos/{_checked(_FULL_NAME, repository)}"
        query = f"sort=created&direction=asc&per_page={PER_PAGE}"
        query += "" if since is None else f"&since={since:%Y-%m-%dT%H:%M:%SZ}"
        try:
            async for raw in self._texts.pages(f"{path}/issues?state=all&{query}"):
                yield _text(raw)
        except HostError as error:
            if error.status != HTTPStatus.GONE:
                raise
            # Issues are turned off: pull requests have a list of their own.
            listing = f"{path}/pulls?state=all&sort=created&direction=asc&per_page={PER_PAGE}"
            async for raw in self._texts.pages(listing):
                yield _text(raw)
        for kind in ("issues", "pulls"):
            async for raw in self._texts.pages(f"{path}/{kind}/comments?{query}"):
                yield _text(raw, kind)

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of an issue, pull request or comment; None if it is gone."""
        kind, number, *comment = checked_path(path).split("/")
        base = f"/repos/{_checked(_FULL_NAME, repository)}/{kind}"
        item = f"{base}/comments/{comment[1]}" if comment else f"{base}/{number}"
        return await read_present_text(self._texts, item, f"{base}?state=all&per_page=1")

    async def reviews(self, repository: str) -> ReviewApi:
        """Return how to mark the pull requests of a repository. Their texts are never stored."""
        return github_reviews(
            self._texts,
            f"/repos/{_checked(_FULL_NAME, repository)}",
            lambda path, sha: f"{path}/commits/{sha}/pulls?per_page=100",
        )

    async def event_feed(self, name: str, *, is_owner: bool, is_own_token: bool) -> EventFeed:
        """Return the list of events. Another's token shows public ones only."""
        if not is_owner:
            repository = await self.repository(name)
            if not is_own_token and repository.visibility is not Visibility.PUBLIC:
                raise HostError("forbidden", "the target needs a credential of its own")
            path = f"/repos/{repository.full_name}/events"
        else:
            user = await self._api.get(f"/users/{_checked(_OWNER, name)}")
            login = _FIELDS.matching(user, "login", _OWNER)
            is_organisation = _FIELDS.field(user, "type", str) == "Organization"
            if not is_own_token:
                path = f"/orgs/{login}/events" if is_organisation else f"/users/{login}/events/public"
            elif not is_organisation:
                path = f"/users/{login}/events"
            else:
                await self._is_token_of(login)
                path = f"/users/{self._login}/events/orgs/{login}" if self._login else f"/orgs/{login}/events"
        return EventFeed(api=self._texts, path=f"{path}?per_page={PER_PAGE}", read=_read_push)

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the user of the token, and the scope that a classic token lacks; others show no scopes."""
        if self._token is None:
            return None, ()
        response = await self._api.response("/user")
        scopes = {scope.strip() for scope in response.headers.get("X-OAuth-Scopes", "").split(",")} - {""}
        is_classic = bool(scopes) or reveal(self._token).startswith("ghp_")
        missing = ("repo",) if is_classic and "repo" not in scopes else ()
        if response.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:  # the token of an app has no user
            return None, missing
        if not response.ok:
            raise self._api.error_from(response)
        return _FIELDS.field(parse_json(response), "login", str), missing

    def site_of(self, html_url: str) -> str:
        """Return the beginning of the names of sources.

        That of a target's own host is its address: the host could name the addresses of another host, and so
        take over or resolve what was found there.
        """
        if self._site is None:
            return super().site_of(html_url)
        is_gist = (urlsplit(html_url).hostname or "") == f"gist.{self._site}"
        return f"gist.{self._site}" if is_gist else self._site

    def is_own_host(self, clone_url: str) -> bool:
        """Whether a clone URL is https and at the web host of this API, which the token is for.

        That is `github.com` for `api.github.com`.
        """
        own = self._api.host
        if own == "api.github.com" or (own.startswith("api.") and own.endswith(".ghe.com")):
            own = own.removeprefix("api.")
        return origin(clone_url) == ("https", own)

    def clone_login(self, token: Secret) -> Login:
        """Return the login that GitHub documents for all its tokens."""
        return "x-access-token", reveal(token)

    async def login(self) -> Login | None:
        """Return the login of this client's token; None without a token."""
        token = await self._own_token()
        return None if token is None else ("x-access-token", token)

    async def _own_token(self) -> str | None:
        """Return the token that is sent: that of an app's installation, or the credential itself."""
        if self._app is not None:
            return await self._app.token(self._api.post, self._api.now())
        return None if self._token is None else reveal(self._token)

    async def _is_token_of(self, login: str) -> bool:
        """Whether the token belongs to the user `login`; False without a token or with the token of an app.

        The first call asks the host for the user of the token and remembers the answer. Raise HostError if
        that request fails for another reason than a missing permission.
        """
        if self._token is None:
            return False
        if self._login is None:
            try:
                token_login = _FIELDS.field(await self._api.get("/user"), "login", str)
            except HostError as error:  # the token of an app may not read /user
                if error.kind not in {"forbidden", "not_found"}:
                    raise
                token_login = ""
            self._login = token_login.lower()
        return self._login == login.lower()

    async def _hosted_repository(self, raw: Any) -> HostedRepository:
        """Return the repository that decoded JSON of the API describes.

        If its size is 0 although something was pushed, ask the host for its commits to find out whether it is
        empty; it counts as not empty if that request fails. Raise HostError if a field is missing or
        malformed.
        """
        repository = _parse_repository(raw)
        if _FIELDS.field(raw, "size", int) or repository.empty:
            return repository
        # The size is in kilobytes and is updated some time after a push, so 0 does not mean empty.
        with suppress(HostError):
            status = await self._api.status(f"/repos/{repository.full_name}/commits?per_page=1")
            return replace(repository, empty=status == HTTPStatus.CONFLICT)
        return repository


def _parse_repository(raw: Any) -> HostedRepository:
    """Return the repository in decoded JSON; raise HostError if a field is missing or malformed.

    An unknown visibility becomes Visibility.UNKNOWN. `empty` is set if nothing was ever pushed and the size
    is 0.
    """
    pushed_at, visibility = _FIELDS.optional_text(raw, "pushed_at"), _FIELDS.optional_text(raw, "visibility")
    if visibility is None:  # older servers have `private` only
        visibility = "private" if _FIELDS.field(raw, "private", bool) else "public"
    return HostedRepository(
        id=_FIELDS.field(raw, "id", int),
        full_name=_FIELDS.matching(raw, "full_name", _FULL_NAME),
        clone_url=_FIELDS.https_url(raw, "clone_url"),
        html_url=_FIELDS.https_url(raw, "html_url"),
        visibility=Visibility(visibility) if visibility in set(Visibility) else Visibility.UNKNOWN,
        fork=_FIELDS.field(raw, "fork", bool),
        archived=_FIELDS.field(raw, "archived", bool),
        empty=pushed_at is None and _FIELDS.field(raw, "size", int) == 0,
        has_wiki=_FIELDS.field(raw, "has_wiki", bool),
        pushed_at=pushed_at,
        default_branch=_FIELDS.field(raw, "default_branch", str),
    )


def _parse_gist(raw: Any) -> HostedGist:
    """Return the gist in decoded JSON; raise HostError if a field is missing or malformed."""
    owner = raw.get("owner") if isinstance(raw, dict) else None  # old anonymous gists have none
    return HostedGist(
        id=_FIELDS.matching(raw, "id", _GIST_ID),
        owner=_FIELDS.matching(owner, "login", _OWNER) if owner else None,
        clone_url=_FIELDS.https_url(raw, "git_pull_url"),
        html_url=_FIELDS.https_url(raw, "html_url"),
        public=_FIELDS.field(raw, "public", bool),
        updated_at=_FIELDS.optional_text(raw, "updated_at"),
    )


def _text(raw: Any, comments_of: str | None = None) -> HostedText:
    """Return an issue or pull request in decoded JSON, or a comment in the list `issues` or `pulls`."""
    url = _FIELDS.https_url(raw, "html_url")
    if comments_of is None:
        path = f"issues/{_FIELDS.field(raw, 'number', int)}"
    elif match := _NUMBER.search(url):
        path = f"{comments_of}/{match[1]}/comments/{_FIELDS.field(raw, 'id', int)}"
    else:
        raise _FIELDS.missing("html_url")
    author = inner(raw, "user", "login")
    return HostedText(
        path,
        url,
        text_of(raw, "title", "body"),
        author if isinstance(author, str) else None,
        read_time(raw, "created_at"),
    )


def _read_push(raw: Any) -> PushEvent | None:
    """Return the push of an event; None for another event."""
    if inner(raw, "type") != "PushEvent":
        return None
    return read_push(
        *(inner(raw, "repo", "id"), inner(raw, "repo", "name"), inner(raw, "payload", "ref")),
        author=inner(raw, "actor", "login"),
        after=inner(raw, "payload", "head"),
    )


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


def _open(access: HostAccess) -> GitHub:
    """Open github.com, the API that the operator has set, or a GitHub Enterprise."""
    base, site = access.api_url or "https://api.github.com", None
    if access.url is not None:
        site = urlsplit(access.url).netloc.lower()
        base = f"https://api.{site}" if site.endswith(".ghe.com") else f"{access.url}/api/v3"
    return GitHub(access.http, base, access.token, etags=access.etags, options=access.options, site=site)


HOST_TYPE = HostType(
    name="github",
    title="GitHub",
    read_name=lambda _name: None,  # `domain/target.py` reads the addresses of GitHub
    read_path=lambda _host, _path: None,
    open=_open,
    public=lambda host: "https://github.com" if host == "github.com" else None,
    default_url="https://github.com",
    advice="a classic token with repo, a fine-grained one with Contents and Metadata (read), or an app",
)
