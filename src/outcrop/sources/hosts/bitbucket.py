"""List the repositories, snippets and pull requests of Bitbucket Cloud, or of a Bitbucket Data Center."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from outcrop.domain.finding import Visibility
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind
from outcrop.sources.code_host.api import ApiStyle, HostPage
from outcrop.sources.code_host.discussion import checked_path, read_present_text, read_time
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.fields import Fields, flag
from outcrop.sources.code_host.host import CodeHost, HostAccess, HostType, Login, PathTarget
from outcrop.sources.code_host.hosted import HostedCommit, HostedGist, HostedRepository, HostedText
from outcrop.sources.code_host.instance import (
    InstanceHost,
    basic_auth,
    inner,
    invalid_name,
    split_login,
    text_of,
)

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_PUBLIC, _API = "https://bitbucket.org", "https://api.bitbucket.org/2.0"
_NAME = r"(?!\.{1,2}(?:/|\Z))~?[A-Za-z0-9._-]{1,128}?"
_OWNER = re.compile(_NAME)
_FULL_NAME = re.compile(rf"({_NAME})/({_NAME})(?:\.git)?")
_UUID = re.compile(r"\{[0-9a-fA-F-]{36}\}")
_KEY = re.compile(rf"({_NAME}/{_NAME})/([0-9]{{1,18}})")  # of a Data Center: KEY/SLUG/ID
_SHA = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_COMMIT = re.compile(rf"({_NAME}/{_NAME})/commits?/({_SHA.pattern})", re.IGNORECASE)
_PAGE_OF_REPOSITORY = re.compile(rf"({_NAME}/{_NAME})/(?!commits?/).*")
_SERVER_PATH = re.compile(rf"(?:projects/({_NAME})|users/({_NAME}))(?:/repos/({_NAME})(/.*)?)?")
_NO_OWNERS = {"account", "blog", "dashboard", "product", "repo", "rest", "scm", "site", "support"}
_STATES = "&".join(f"state={state}" for state in ("OPEN", "MERGED", "DECLINED", "SUPERSEDED"))
_SERVER_LIST = "limit=100&start=0"
_FIELDS = Fields("Bitbucket")


class BitbucketCloud(InstanceHost):
    """Bitbucket Cloud. A repository's id is its UUID."""

    name = "bitbucket"

    def __init__(self, access: HostAccess) -> None:
        super().__init__(access, _PUBLIC, _API, _send, _STYLE)

    def clone_login(self, token: Secret) -> Login:
        """Return the login: an API token goes with a fixed name in place of the user's address."""
        user, password = split_login(token)
        if user is None:
            return "x-token-auth", password
        return ("x-bitbucket-api-token-auth" if "@" in user else user), password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of a workspace."""
        if not _OWNER.fullmatch(owner):
            raise invalid_name(owner, "the name of a workspace")
        path = f"/repositories/{quote(owner)}?pagelen=100"
        async for raw in self.api.pages(path, _read_page, id_field="uuid"):
            yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository."""
        match = _FULL_NAME.fullmatch(full_name)
        if match is None:
            raise invalid_name(full_name, "WORKSPACE/NAME of a repository")
        return self._repository(await self.api.get(f"/repositories/{quote(match[1])}/{quote(match[2])}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not _SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        repository = await self.repository(full_name.removesuffix("/commits"))
        raw = await self.api.get(f"/repositories/{quote(repository.key or '')}/commit/{sha}")
        found = _FIELDS.matching(raw, "hash", _SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commits/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository, WORKSPACE/{UUID}, no longer has a commit; None if that is not clear."""
        path = f"/repositories/{quote(repository)}"
        if not _SHA.fullmatch(sha):
            return None
        return await self.is_gone(f"{path}/commit/{sha}", f"{path}/refs/branches?pagelen=1", "values")

    async def gists(self, owner: str) -> AsyncIterator[HostedGist]:
        """Yield the snippets of a workspace."""
        if not _OWNER.fullmatch(owner):
            raise invalid_name(owner, "the name of a workspace")
        async for raw in self.api.pages(f"/snippets/{quote(owner)}?pagelen=100", _read_page):
            id_ = _FIELDS.matching(raw, "id", _OWNER)
            yield HostedGist(
                id=id_,
                owner=owner,
                clone_url=self.clone_url(_clone_href(raw), f"snippets/{owner}/{id_}.git"),
                html_url=f"{_PUBLIC}/{owner}/workspace/snippets/{id_}",
                public=not _FIELDS.field(raw, "is_private", bool),
                updated_at=None,
            )

    async def discussions(
        self,
        repository: str,
        since: datetime | None = None,  # noqa: ARG002 - the host has no such time for comments
    ) -> AsyncIterator[HostedText]:
        """Yield the pull requests and issues of a repository, each followed by its comments."""
        path = f"/repositories/{quote(repository)}"
        async for raw in self.api.pages(f"{path}/pullrequests?pagelen=50&{_STATES}", _read_page):
            own = f"pullrequests/{_FIELDS.field(raw, 'id', int)}"
            yield _text(own, raw, inner(raw, "title"), inner(raw, "description"))
            async for comment in self.api.pages(f"{path}/{own}/comments?pagelen=100", _read_page):
                yield _text(_comment_path(own, comment), comment, inner(comment, "content", "raw"))
        try:
            async for raw in self.api.pages(f"{path}/issues?pagelen=50", _read_page):
                own = f"issues/{_FIELDS.field(raw, 'id', int)}"
                yield _text(own, raw, inner(raw, "title"), inner(raw, "content", "raw"))
                async for comment in self.api.pages(f"{path}/{own}/comments?pagelen=100", _read_page):
                    yield _text(_comment_path(own, comment), comment, inner(comment, "content", "raw"))
        except HostError as error:
            if error.kind != "not_found":  # the repository has no issue tracker
                raise

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of a pull request, issue or comment; None if it is gone."""
        base = f"/repositories/{quote(repository)}"
        listing = f"{base}/{checked_path(path).partition('/')[0]}?pagelen=1"
        return await read_present_text(self.api, f"{base}/{path}", listing)

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the user of the token, and the scopes that it lacks."""
        if self.token is None:
            return None, ()
        response = await self.api.response("/user")
        scopes = {scope.strip() for scope in response.headers.get("X-OAuth-Scopes", "").split(",")} - {""}
        missing = () if not scopes or any("repository" in scope for scope in scopes) else ("repository:read",)
        if not response.ok:  # the token of a workspace or repository belongs to no user
            return None, missing
        return _FIELDS.optional_text(await self.api.get("/user"), "username"), missing

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository in decoded JSON."""
        uuid = _FIELDS.matching(raw, "uuid", _UUID)
        match = _FULL_NAME.fullmatch(_FIELDS.field(raw, "full_name", str)[:300])
        if match is None:
            raise _FIELDS.missing("full_name")
        full_name = f"{match[1]}/{match[2]}"
        clone_url = self.clone_url(_clone_href(raw), f"{full_name}.git")
        branch = inner(raw, "mainbranch", "name")
        return HostedRepository(
            id=uuid.strip("{}").lower(),
            full_name=full_name,
            clone_url=clone_url,
            html_url=f"{_PUBLIC}/{full_name}",
            visibility=Visibility.PRIVATE if _FIELDS.field(raw, "is_private", bool) else Visibility.PUBLIC,
            fork=isinstance(inner(raw, "parent"), dict),
            archived=False,
            empty=branch is None and inner(raw, "size") == 0,
            has_wiki=flag(raw, "has_wiki"),
            pushed_at=None,  # the documented times do not show every push
            default_branch=branch if isinstance(branch, str) else "",
            wiki_url=f"{clone_url}/wiki",
            key=f"{match[1]}/{uuid}",
        )


class BitbucketServer(InstanceHost):
    """A Bitbucket Data Center. Its owners are projects, or users as `~NAME`."""

    name = "bitbucket"

    def __init__(self, access: HostAccess) -> None:
        url = access.url or ""
        super().__init__(access, url, f"{url}/rest/api/1.0", _send, _STYLE)

    def clone_login(self, token: Secret) -> Login:
        """Return the login: a token goes with a fixed name."""
        user, password = split_login(token)
        return user or "x-token-auth", password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of a project."""
        if not _OWNER.fullmatch(owner):
            raise invalid_name(owner, "the key of a project")
        async for raw in self.api.pages(f"/projects/{quote(owner)}/repos?{_SERVER_LIST}", _read_server_page):
            yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository."""
        return self._repository(await self.api.get(_server_path(full_name)))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not _SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        full_name = full_name.removesuffix("/commits")
        repository = await self.repository(full_name)
        raw = await self.api.get(f"{_server_path(full_name)}/commits/{sha}")
        found = _FIELDS.matching(raw, "id", _SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commits/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository KEY/SLUG/ID no longer has a commit; None if that is not clear.

        Its id is asked first: another repository may have the name now.
        """
        match = _KEY.fullmatch(repository)
        if match is None or not _SHA.fullmatch(sha):
            return None
        path = _server_path(match[1])
        try:
            if str(inner(await self.api.get(path), "id")) != match[2]:
                return None
        except HostError:
            return None
        return await self.is_gone(f"{path}/commits/{sha}", f"{path}/branches?limit=1", "values")

    async def discussions(
        self,
        repository: str,
        since: datetime | None = None,  # noqa: ARG002 - the host has no such parameter
    ) -> AsyncIterator[HostedText]:
        """Yield the pull requests of a repository, each followed by its comments."""
        match = _KEY.fullmatch(repository)
        if match is None:
            return
        path = f"{_server_path(match[1])}/pull-requests"
        web = f"{self.url}{_server_path(match[1])}/pull-requests"
        async for raw in self.api.pages(f"{path}?state=ALL&{_SERVER_LIST}", _read_server_page):
            id_ = _FIELDS.field(raw, "id", int)
            own = f"pull-requests/{id_}"
            yield _text_at(own, f"{web}/{id_}", text_of(raw, "title", "description"), raw)
            async for activity in self.api.pages(
                f"{path}/{id_}/activities?{_SERVER_LIST}", _read_server_page
            ):
                if isinstance(comment := inner(activity, "comment"), dict):
                    url = f"{web}/{id_}/overview?commentId={_FIELDS.field(comment, 'id', int)}"
                    yield _text_at(_comment_path(own, comment), url, text_of(comment, "text"), comment)

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of a pull request or comment; None if it is gone."""
        match = _KEY.fullmatch(repository)
        if match is None:
            raise invalid_name(repository, "the key of a repository")
        base = _server_path(match[1])
        listing = f"{base}/pull-requests?state=ALL&limit=1"
        return await read_present_text(self.api, f"{base}/{checked_path(path)}", listing)

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository in decoded JSON."""
        key = _FIELDS.matching(inner(raw, "project"), "key", _OWNER)
        slug, id_ = _FIELDS.matching(raw, "slug", _OWNER), _FIELDS.field(raw, "id", int)
        is_public = flag(raw, "public") or flag(inner(raw, "project"), "public")
        return HostedRepository(
            id=id_,
            full_name=f"{key}/{slug}",
            clone_url=self.clone_url(_clone_href(raw), f"scm/{key.lower()}/{slug}.git"),
            html_url=f"{self.url}{_server_path(f'{key}/{slug}')}",
            visibility=Visibility.PUBLIC if is_public else Visibility.PRIVATE,
            fork=isinstance(inner(raw, "origin"), dict),
            archived=flag(raw, "archived"),
            empty=False,
            has_wiki=False,
            pushed_at=None,  # the host has no time of the last push
            default_branch="",
            key=f"{key}/{slug}/{id_}",
        )


def _server_path(full_name: str) -> str:
    """Return the path of a repository KEY/SLUG, in the API and on the web."""
    match = _FULL_NAME.fullmatch(full_name)
    if match is None:
        raise invalid_name(full_name, "PROJECT/SLUG of a repository")
    return f"/projects/{quote(match[1])}/repos/{quote(match[2])}"


def _clone_href(raw: Any) -> str | None:
    """Return the https clone address in decoded JSON, without the user name that it may have."""
    links = inner(raw, "links", "clone")
    for link in links if isinstance(links, list) else ():
        href = inner(link, "href")
        if inner(link, "name") in {"https", "http"} and isinstance(href, str):
            scheme, separator, rest = href.partition("://")
            host, slash, path = rest.partition("/")
            return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
    return None


def _comment_path(own: str, comment: Any) -> str:
    """Return the path of a comment of the pull request or issue with the path `own`."""
    return f"{own}/comments/{_FIELDS.field(comment, 'id', int)}"


def _text(path: str, raw: Any, *texts: object) -> HostedText:
    """Return a pull request, issue or comment in decoded JSON of Bitbucket Cloud."""
    url = _FIELDS.https_url(inner(raw, "links", "html"), "href")
    return _text_at(path, url, "\n".join(text for text in texts if isinstance(text, str) and text), raw)


def _text_at(path: str, url: str, text: str, raw: Any) -> HostedText:
    """Return a text at an address, with its author."""
    author = (
        inner(raw, "author", "nickname") or inner(raw, "user", "nickname") or inner(raw, "author", "name")
    )
    created_at = read_time(raw, "created_on") or read_time(raw, "createdDate")
    return HostedText(path, url, text, author if isinstance(author, str) else None, created_at)


def _read_page(_response: "HttpResponse", value: Any) -> HostPage:
    """Return a page of Bitbucket Cloud, which names the next one."""
    items, following = inner(value, "values"), inner(value, "next")
    return HostPage(
        items if isinstance(items, list) else None, following if isinstance(following, str) else None
    )


def _read_server_page(response: "HttpResponse", value: Any) -> HostPage:
    """Return a page of a Data Center, which has the start of the next one."""
    items, start = inner(value, "values"), inner(value, "nextPageStart")
    if not isinstance(items, list):
        return HostPage(None)
    if inner(value, "isLastPage") is not False or not isinstance(start, int):
        return HostPage(items)
    parts = urlsplit(response.url)
    query = dict(parse_qsl(parts.query)) | {"start": str(start)}
    return HostPage(items, parts._replace(query=urlencode(query)).geturl())


def _send(token: Secret) -> Mapping[str, str]:
    """Return the header for an access token, or for a user (an e-mail address) with an API token."""
    user, password = split_login(token)
    return {"Authorization": f"Bearer {password}"} if user is None else basic_auth(user, password)


def _read_message(value: Any) -> object:
    """Return the reason in the body of an error."""
    errors = value.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else None
    return inner(value, "error", "message") or inner(first, "message")


_STYLE = ApiStyle(read_message=_read_message)


def _open(access: HostAccess) -> CodeHost:
    """Open Bitbucket Cloud, or the Data Center at the address."""
    return BitbucketCloud(access) if access.url is None else BitbucketServer(access)


def _read_name(name: str) -> PathTarget | None:
    """Read `WORKSPACE` or `WORKSPACE/NAME`; on a Data Center `PROJECT` or `PROJECT/SLUG`."""
    if match := _FULL_NAME.fullmatch(name):
        return PathTarget(TargetKind.REPOSITORY, f"{match[1]}/{match[2]}")
    return PathTarget(TargetKind.OWNER, name) if _OWNER.fullmatch(name) else None


def _read_path(host: str, path: str) -> PathTarget | None:
    """Read the path of a workspace, a project, a repository, a page of one, or a commit."""
    path = path.strip("/")
    if host != "bitbucket.org":
        return _read_server_path(path)
    first, _, rest = path.partition("/")
    if first in _NO_OWNERS:
        return None
    if rest.split("/")[0] == "workspace":
        return _read_name(first)
    if match := _COMMIT.fullmatch(path):
        return PathTarget(TargetKind.COMMIT, f"{match[1]}/commit/{match[2].lower()}")
    match = _PAGE_OF_REPOSITORY.fullmatch(path)
    return _read_name(match[1] if match else path)


def _read_server_path(path: str) -> PathTarget | None:
    """Read the path of a project, a repository, a page of one, or a clone address of a Data Center."""
    if path.startswith("scm/"):
        return _read_name(path.removeprefix("scm/"))
    match = _SERVER_PATH.fullmatch(path)
    if match is None:
        return None
    owner = match[1] or f"~{match[2]}"
    if match[3] is None:
        return PathTarget(TargetKind.OWNER, owner)
    repository = f"{owner}/{match[3]}"
    commit = re.fullmatch(rf"/commits/({_SHA.pattern})", match[4] or "")
    if commit is not None:
        return PathTarget(TargetKind.COMMIT, f"{repository}/commit/{commit[1].lower()}")
    return PathTarget(TargetKind.REPOSITORY, repository)


def _line_url(base: str, commit: str, path: bytes | None, line: int) -> str:
    """Return the address of a line, or of a commit."""
    if path is None:
        return f"{base}/commits/{commit}"
    if "/repos/" in base:
        return f"{base}/browse/{quote(path)}?at={commit}#{line}"
    return f"{base}/src/{commit}/{quote(path)}#lines-{line}"


HOST_TYPE = HostType(
    name="bitbucket",
    title="Bitbucket",
    read_name=_read_name,
    read_path=_read_path,
    open=_open,
    public=lambda host: _PUBLIC if host == "bitbucket.org" else None,
    default_url=_PUBLIC,
    line_url=_line_url,
    owner_form="WORKSPACE",
    advice="an access token, or your e-mail address and an API token as EMAIL:TOKEN, with read access "
    "to repositories",
)
