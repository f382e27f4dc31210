"""List the repositories and discussions of a Gitea or Forgejo instance."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from outcrop.domain.finding import Visibility
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import ApiStyle, HostPage, next_link
from outcrop.sources.code_host.discussion import checked_path, read_present_text, read_time
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.events import EventFeed, PushEvent, read_push
from outcrop.sources.code_host.fields import Fields, flag
from outcrop.sources.code_host.host import HostAccess, HostType, Login, PathTarget
from outcrop.sources.code_host.hosted import HostedCommit, HostedRepository, HostedText
from outcrop.sources.code_host.instance import (
    InstanceHost,
    basic_auth,
    inner,
    invalid_name,
    split_login,
    text_of,
)
from outcrop.sources.code_host.reviews import ReviewApi
from outcrop.sources.hosts.github_reviews import github_reviews

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_NAME = r"(?!\.{1,2}(?:/|\Z))[A-Za-z0-9._-]{1,100}?"
_OWNER = regex(_NAME)
_FULL_NAME = regex(rf"({_NAME}/{_NAME})(?:\.git)?")
_NUMBER = regex(r"/(?:issues|pulls)/([0-9]{1,18})(?=[/?#]|\Z)")  # in an address
_SHA = regex(r"[0-9a-f]{4,64}", re.IGNORECASE)
_COMMIT = regex(rf"({_NAME}/{_NAME})/commit/({_SHA.pattern})", re.IGNORECASE)
_PAGE_OF_REPOSITORY = regex(rf"({_NAME}/{_NAME})/(?:src|commits|issues|pulls|wiki|releases|branches)(?:/.*)?")
_NO_OWNERS = {"admin", "api", "assets", "attachments", "avatars", "explore", "org", "repo", "user", "-"}
_INSTANCES = {"codeberg.org": "https://codeberg.org", "gitea.com": "https://gitea.com"}
_LIMIT = "limit=50"  # the most that an instance allows unless its operator says otherwise
_HIDDEN_OWNERS = {"private": Visibility.PRIVATE, "limited": Visibility.INTERNAL}
_FIELDS = Fields("Gitea")


class Gitea(InstanceHost):
    """A Gitea or Forgejo instance."""

    name = "gitea"

    def __init__(self, access: HostAccess) -> None:
        if access.url is None:
            raise invalid_name("gitea", "an instance: it needs an address")
        super().__init__(access, access.url, f"{access.url}/api/v1", _send, ApiStyle())

    def clone_login(self, token: Secret) -> Login:
        """Return the login: any name goes with a token."""
        user, password = split_login(token)
        return user or "oauth2", password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of an organisation or a user."""
        if not _OWNER.fullmatch(owner):
            raise invalid_name(owner, "the name of an organisation or user")
        name = quote(owner)
        status = await self.api.status(f"/orgs/{name}")
        if status not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            await self.api.get(f"/orgs/{name}")  # raises the error with its reason
        kind = "orgs" if status == HTTPStatus.OK else "users"
        async for raw in self.api.pages(f"/{kind}/{name}/repos?{_LIMIT}&page=1", _read_page):
            yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository."""
        match = _FULL_NAME.fullmatch(full_name)
        if match is None:
            raise invalid_name(full_name, "OWNER/NAME of a repository")
        return self._repository(await self.api.get(f"/repos/{quote(match[1])}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not _SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        repository = await self.repository(full_name)
        raw = await self.api.get(f"/repos/{quote(repository.full_name)}/git/commits/{sha}")
        found = _FIELDS.matching(raw, "sha", _SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commit/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository with this id no longer has a commit; None if that is not clear.

        Its name is asked first: another repository may have it now.
        """
        if not _SHA.fullmatch(sha):
            return None
        try:
            full_name = self._repository(await self.api.get(f"/repositories/{quote(repository)}")).full_name
        except HostError:
            return None
        path = f"/repos/{quote(full_name)}"
        return await self.is_gone(f"{path}/git/commits/{sha}", f"{path}/branches?limit=1")

    async def discussions(self, repository: str, since: datetime | None = None) -> AsyncIterator[HostedText]:
        """Yield the issues and pull requests of a repository, then all comments."""
        after = "" if since is None else f"&since={since:%Y-%m-%dT%H:%M:%SZ}"
        full_name = self._repository(await self.api.get(f"/repositories/{quote(repository)}")).full_name
        path = f"/repos/{quote(full_name)}/issues"
        async for raw in self.api.pages(f"{path}?state=all{after}&{_LIMIT}&page=1", _read_page):
            yield _text(raw, "title", "body")
        async for raw in self.api.pages(f"{path}/comments?{_LIMIT}{after}&page=1", _read_page):
            yield _text(raw, "body")

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of an issue, pull request or comment; None if it is gone."""
        full_name = self._repository(await self.api.get(f"/repositories/{quote(repository)}")).full_name
        issues = f"/repos/{quote(full_name)}/issues"
        _, number, *comment = checked_path(path).split("/")
        item = f"{issues}/comments/{comment[1]}" if comment else f"{issues}/{number}"
        return await read_present_text(self.api, item, f"{issues}?state=all&limit=1")

    async def event_feed(self, name: str, *, is_owner: bool, is_own_token: bool) -> EventFeed:  # noqa: ARG002
        """Return the list of activities of an organisation, a user or a repository."""
        if not is_owner:
            path = f"/repos/{quote((await self.repository(name)).full_name)}"
        else:
            is_org = await self.api.status(f"/orgs/{quote(name)}") == HTTPStatus.OK
            path = f"/{'orgs' if is_org else 'users'}/{quote(name)}"
        return EventFeed(api=self.api, path=f"{path}/activities/feeds?{_LIMIT}", read=_read_push)

    async def reviews(self, repository: str) -> ReviewApi:
        """Return how to mark the pull requests of the repository with this id."""
        full_name = self._repository(await self.api.get(f"/repositories/{quote(repository)}")).full_name
        return github_reviews(
            self.api,
            f"/repos/{quote(full_name)}",
            lambda path, _sha: f"{path}/pulls?state=open&{_LIMIT}&page=1",
            read_page=_read_page,
            page=f"{_LIMIT}&page=1",
        )

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the user of the token; a token without the scope read:user does not show it."""
        if self.token is None:
            return None, ()
        try:
            return _FIELDS.optional_text(await self.api.get("/user"), "login"), ()
        except HostError as error:
            if error.kind != "forbidden":
                raise
            return None, ()

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository in decoded JSON."""
        match = _FULL_NAME.fullmatch(_FIELDS.field(raw, "full_name", str)[:300])
        if match is None:
            raise _FIELDS.missing("full_name")
        full_name, id_ = match[1], _FIELDS.field(raw, "id", int)
        # The update time of a mirror is that of its newest commit, which need not change with a push.
        updated_at = None if flag(raw, "mirror") else _FIELDS.optional_text(raw, "updated_at")
        return HostedRepository(
            id=id_,
            full_name=full_name,
            clone_url=self.clone_url(inner(raw, "clone_url"), f"{full_name}.git"),
            html_url=f"{self.url}/{full_name}",
            visibility=_visibility(raw),
            fork=flag(raw, "fork"),
            archived=flag(raw, "archived"),
            empty=flag(raw, "empty"),
            has_wiki=flag(raw, "has_wiki"),
            pushed_at=updated_at,
            default_branch=_FIELDS.optional_text(raw, "default_branch") or "",
            key=str(id_),
        )


def _read_push(raw: Any) -> PushEvent | None:
    """Return the push of an activity; None for another one."""
    if inner(raw, "op_type") not in {"commit_repo", "push_tag", "mirror_sync_push"}:
        return None
    return read_push(
        *(inner(raw, "repo", "id"), inner(raw, "repo", "full_name"), inner(raw, "ref_name")),
        author=inner(raw, "act_user", "login"),
        after=None,
    )


def _visibility(raw: Any) -> Visibility:
    """Return the visibility of a repository; that of its owner may hide it."""
    if _FIELDS.field(raw, "private", bool):
        return Visibility.PRIVATE
    hidden = _HIDDEN_OWNERS.get(str(inner(raw, "owner", "visibility")))
    return hidden or (Visibility.INTERNAL if flag(raw, "internal") else Visibility.PUBLIC)


def _text(raw: Any, *fields: str) -> HostedText:
    """Return an issue, pull request or comment in decoded JSON."""
    url = _FIELDS.https_url(raw, "html_url")
    author = inner(raw, "user", "login")
    match = _NUMBER.search(url)
    if match is None:
        raise _FIELDS.missing("html_url")
    path = f"issues/{match[1]}"
    if "title" not in fields:
        path += f"/comments/{_FIELDS.field(raw, 'id', int)}"
    return HostedText(
        path,
        url,
        text_of(raw, *fields),
        author if isinstance(author, str) else None,
        read_time(raw, "created_at"),
    )


def _read_page(response: "HttpResponse", value: Any) -> HostPage:
    """Return a page; without a Link header another page follows while there are more items in total."""
    items = value if isinstance(value, list) else None
    if "Link" in response.headers or not items:
        return HostPage(items, next_link(response))
    parts = urlsplit(response.url)
    query = dict(parse_qsl(parts.query))
    page, total = int(query.get("page", "1")), response.headers.get("X-Total-Count", "")
    if not (total.isascii() and total.isdigit()) or int(total[:12]) <= page * len(items):
        return HostPage(items)
    return HostPage(items, parts._replace(query=urlencode(query | {"page": str(page + 1)})).geturl())


def _send(token: Secret) -> Mapping[str, str]:
    """Return the header for a token, or for a user name and password."""
    user, password = split_login(token)
    return {"Authorization": f"token {password}"} if user is None else basic_auth(user, password)


def _read_name(name: str) -> PathTarget | None:
    """Read `ORG` or `ORG/NAME`."""
    if match := _FULL_NAME.fullmatch(name):
        return PathTarget(TargetKind.REPOSITORY, match[1])
    return PathTarget(TargetKind.OWNER, name) if _OWNER.fullmatch(name) else None


def _read_path(_host: str, path: str) -> PathTarget | None:
    """Read the path of an owner, a repository, a page of one, or a commit."""
    path = path.strip("/")
    if path.split("/")[0] in _NO_OWNERS:
        return None
    if match := _COMMIT.fullmatch(path):
        return PathTarget(TargetKind.COMMIT, f"{match[1]}/commit/{match[2].lower()}")
    if match := _PAGE_OF_REPOSITORY.fullmatch(path):
        return PathTarget(TargetKind.REPOSITORY, match[1])
    return _read_name(path)


def _line_url(base: str, commit: str, path: bytes | None, line: int) -> str:
    """Return the address of a line, or of a commit."""
    return f"{base}/commit/{commit}" if path is None else f"{base}/src/commit/{commit}/{quote(path)}#L{line}"


HOST_TYPE = HostType(
    name="gitea",
    title="Gitea or Forgejo",
    read_name=_read_name,
    read_path=_read_path,
    open=Gitea,
    public=_INSTANCES.get,
    line_url=_line_url,
    owner_form="ORG",
    advice="an access token with read:repository, read:organization and read:user",
)
