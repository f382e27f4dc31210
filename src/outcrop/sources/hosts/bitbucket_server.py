"""List the repositories and pull requests of a Bitbucket Data Center."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from outcrop.domain.finding import Visibility
from outcrop.domain.secret import Secret
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import HostPage
from outcrop.sources.code_host.discussion import checked_path, read_present_text
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.fields import flag
from outcrop.sources.code_host.host import HostAccess, Login
from outcrop.sources.code_host.hosted import HostedCommit, HostedRepository, HostedText
from outcrop.sources.code_host.instance import InstanceHost, inner, invalid_name, split_login, text_of
from outcrop.sources.code_host.reviews import ReviewApi
from outcrop.sources.hosts.bitbucket_fields import (
    FIELDS,
    FULL_NAME,
    NAME,
    OWNER,
    SHA,
    STYLE,
    build_status,
    clone_href,
    comment_path,
    send_token,
    text_at,
)

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_KEY = regex(rf"({NAME}/{NAME})/([0-9]{{1,18}})")  # KEY/SLUG/ID
_LIST = "limit=100&start=0"


class BitbucketServer(InstanceHost):
    """A Bitbucket Data Center. Its owners are projects, or users as `~NAME`."""

    name = "bitbucket"

    def __init__(self, access: HostAccess) -> None:
        url = access.url or ""
        super().__init__(access, url, f"{url}/rest/api/1.0", send_token, STYLE)

    def clone_login(self, token: Secret) -> Login:
        """Return the login: a token goes with a fixed name."""
        user, password = split_login(token)
        return user or "x-token-auth", password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of a project."""
        if not OWNER.fullmatch(owner):
            raise invalid_name(owner, "the key of a project")
        async for raw in self.api.pages(f"/projects/{quote(owner)}/repos?{_LIST}", _read_page):
            yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository."""
        return self._repository(await self.api.get(_path_of(full_name)))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        full_name = full_name.removesuffix("/commits")
        repository = await self.repository(full_name)
        raw = await self.api.get(f"{_path_of(full_name)}/commits/{sha}")
        found = FIELDS.matching(raw, "id", SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commits/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository KEY/SLUG/ID no longer has a commit; None if that is not clear.

        Its id is asked first: another repository may have the name now.
        """
        match = _KEY.fullmatch(repository)
        if match is None or not SHA.fullmatch(sha):
            return None
        path = _path_of(match[1])
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
        path = f"{_path_of(match[1])}/pull-requests"
        web = f"{self.url}{_path_of(match[1])}/pull-requests"
        async for raw in self.api.pages(f"{path}?state=ALL&{_LIST}", _read_page):
            id_ = FIELDS.field(raw, "id", int)
            own = f"pull-requests/{id_}"
            yield text_at(own, f"{web}/{id_}", text_of(raw, "title", "description"), raw)
            seen: set[int] = set()
            async for activity in self.api.pages(f"{path}/{id_}/activities?{_LIST}", _read_page):
                for comment in _with_replies(inner(activity, "comment")):
                    comment_id = FIELDS.field(comment, "id", int)
                    if comment_id not in seen:
                        seen.add(comment_id)
                        url = f"{web}/{id_}/overview?commentId={comment_id}"
                        yield text_at(comment_path(own, comment), url, text_of(comment, "text"), comment)

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of a pull request or comment; None if it is gone."""
        match = _KEY.fullmatch(repository)
        if match is None:
            raise invalid_name(repository, "the key of a repository")
        base = _path_of(match[1])
        listing = f"{base}/pull-requests?state=ALL&limit=1"
        return await read_present_text(self.api, f"{base}/{checked_path(path)}", listing)

    async def reviews(self, repository: str) -> ReviewApi | None:
        """Return how to mark the pull requests of the repository KEY/SLUG/ID."""
        match = _KEY.fullmatch(repository)
        if match is None:
            return None
        path = _path_of(match[1])
        return ReviewApi(
            api=self.api,
            listing=lambda sha: f"{path}/commits/{sha}/pull-requests?{_LIST}",
            request=f"{path}/pull-requests",
            number="id",
            head="fromRef.latestCommit",
            state=("state", "OPEN"),
            commit="id",
            status_path=lambda sha: f"{path}/commits/{sha}/builds",
            status_body=build_status,
            comment_path=lambda number: f"{path}/pull-requests/{number}/comments",
            comment_body=lambda text: {"text": text},
            read_page=_read_page,
            page=_LIST,
        )

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository in decoded JSON."""
        key = FIELDS.matching(inner(raw, "project"), "key", OWNER)
        slug, id_ = FIELDS.matching(raw, "slug", OWNER), FIELDS.field(raw, "id", int)
        is_public = flag(raw, "public") or flag(inner(raw, "project"), "public")
        return HostedRepository(
            id=id_,
            full_name=f"{key}/{slug}",
            clone_url=self.clone_url(clone_href(raw), f"scm/{key.lower()}/{slug}.git"),
            html_url=f"{self.url}{_path_of(f'{key}/{slug}')}",
            visibility=Visibility.PUBLIC if is_public else Visibility.PRIVATE,
            fork=isinstance(inner(raw, "origin"), dict),
            archived=flag(raw, "archived"),
            empty=False,
            has_wiki=False,
            pushed_at=None,  # the host has no time of the last push
            default_branch="",
            key=f"{key}/{slug}/{id_}",
        )


def _with_replies(comment: Any) -> Iterator[Any]:
    """Yield a comment, the replies to it, and the replies to those; nothing if it is no comment."""
    waiting = [comment]
    while waiting:
        comment = waiting.pop()
        if isinstance(comment, dict):
            yield comment
            replies = comment.get("comments")
            waiting += reversed(replies) if isinstance(replies, list) else ()


def _path_of(full_name: str) -> str:
    """Return the path of a repository KEY/SLUG, in the API and on the web."""
    match = FULL_NAME.fullmatch(full_name)
    if match is None:
        raise invalid_name(full_name, "PROJECT/SLUG of a repository")
    return f"/projects/{quote(match[1])}/repos/{quote(match[2])}"


def _read_page(response: "HttpResponse", value: Any) -> HostPage:
    """Return a page of a Data Center, which has the start of the next one."""
    items, start = inner(value, "values"), inner(value, "nextPageStart")
    if not isinstance(items, list):
        return HostPage(None)
    if inner(value, "isLastPage") is not False or not isinstance(start, int):
        return HostPage(items)
    parts = urlsplit(response.url)
    query = dict(parse_qsl(parts.query)) | {"start": str(start)}
    return HostPage(items, parts._replace(query=urlencode(query)).geturl())
