"""List the projects, snippets and discussions of GitLab.com or a GitLab instance."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from outcrop.domain.errors import BadInputError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import TargetKind
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import ApiStyle
from outcrop.sources.code_host.discussion import checked_path, read_present_text, read_time
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.events import EventFeed, PushEvent, read_push
from outcrop.sources.code_host.fields import Fields, flag
from outcrop.sources.code_host.host import HostAccess, HostType, Login, PathTarget
from outcrop.sources.code_host.hosted import HostedCommit, HostedGist, HostedRepository, HostedText
from outcrop.sources.code_host.instance import InstanceHost, inner, invalid_name, split_login, text_of
from outcrop.sources.code_host.reviews import ReviewApi

_PUBLIC = "https://gitlab.com"
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}"
_PATH = regex(rf"{_PART}(?:/{_PART}){{0,30}}")
_PROJECT = regex(rf"{_PART}(?:/{_PART}){{1,30}}")
_SHA = regex(r"[0-9a-f]{4,64}", re.IGNORECASE)
_COMMIT = regex(rf"({_PROJECT.pattern})/-/commit/({_SHA.pattern})", re.IGNORECASE)
_NO_GROUPS = {
    "-", "admin", "api", "dashboard", "explore", "help", "profile", "projects", "public", "search",
    "snippets", "unsubscribes", "users", "uploads", "v2",
}  # fmt: skip
# GitLab writes the time of the last activity at most once in an hour. An older time shows every later push.
_SETTLED = 3_900.0
_REPORTER = 20  # the access level from which a member reads confidential issues
_OAUTH_TOKEN = regex(r"[0-9a-f]{64}|ey[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+")
_LIST = "per_page=100&order_by=id&sort=asc"
_FIELDS = Fields("GitLab")


class GitLab(InstanceHost):
    """A GitLab instance."""

    name = "gitlab"

    def __init__(self, access: HostAccess) -> None:
        url = access.url or _PUBLIC
        super().__init__(access, url, f"{url}/api/v4", _send, _STYLE)

    def clone_login(self, token: Secret) -> Login:
        """Return the login: a deploy token has a user name of its own, any other name goes with a token."""
        user, password = split_login(token)
        return user or "oauth2", password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the projects of a group and its subgroups, or of a user; or the one project of this name."""
        async for raw in self._projects(owner):
            if inner(raw, "repository_access_level") != "disabled":
                yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a project; raise BadInputError if the name is that of a group."""
        full_name = full_name.split("/-/", maxsplit=1)[0]
        if not _PROJECT.fullmatch(full_name):
            raise invalid_name(full_name, "GROUP/PROJECT of a project")
        try:
            return self._repository(await self.api.get(f"/projects/{_quoted(full_name)}"))
        except HostError as error:
            if error.kind == "not_found" and await self._has_group(full_name):
                raise BadInputError(f"{full_name} is a group: give it as gitlab:{full_name}") from None
            raise

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a project."""
        if not _SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        repository = await self.repository(full_name)
        raw = await self.api.get(f"/projects/{repository.id}/repository/commits/{sha}")
        found = _FIELDS.matching(raw, "id", _SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/-/commit/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the project with this id no longer has a commit; None if that is not clear."""
        project = f"/projects/{_quoted(repository)}/repository"
        if not _SHA.fullmatch(sha):
            return None
        return await self.is_gone(f"{project}/commits/{sha}", f"{project}/branches?per_page=1")

    async def gists(self, owner: str) -> AsyncIterator[HostedGist]:
        """Yield the snippets of all projects of an owner.

        A project whose snippets may not be listed is a gap; without an API token there is one for all.
        """
        if self.token is None or not _send(self.token):
            self.on_gap(Gap(f"snippets of {owner}", "are listed only with a token for the API"))
            return
        async for project in self._projects(owner):
            if _is_off(project, "snippets"):
                continue
            full_name = _FIELDS.matching(project, "path_with_namespace", _PROJECT)
            id_ = _FIELDS.field(project, "id", int)
            try:
                async for raw in self.api.pages(f"/projects/{id_}/snippets?per_page=100"):
                    yield self._snippet(raw, full_name)
            except HostError as error:
                if error.kind not in {"forbidden", "not_found"}:
                    raise
                self.on_gap(Gap(f"snippets of {full_name}", error.message))

    async def discussions(
        self,
        repository: str,
        since: datetime | None = None,  # noqa: ARG002 - an edited comment need not show in its issue's time
    ) -> AsyncIterator[HostedText]:
        """Yield the issues and merge requests of a project, each followed by its comments."""
        project = f"/projects/{_quoted(repository)}"
        shown = await self.api.get(project)
        for kind in ("issues", "merge_requests"):
            if _is_off(shown, kind):  # the host refuses to list merge requests then
                continue
            async for raw in self.api.pages(f"{project}/{kind}?scope=all&state=all&per_page=100"):
                url, iid = _FIELDS.https_url(raw, "web_url"), _FIELDS.field(raw, "iid", int)
                yield _text(raw, f"{kind}/{iid}", url, "title", "description")
                if inner(raw, "user_notes_count") == 0:
                    continue
                async for note in self.api.pages(f"{project}/{kind}/{iid}/notes?per_page=100"):
                    if not flag(note, "system"):
                        id_ = _FIELDS.field(note, "id", int)
                        yield _text(note, f"{kind}/{iid}/notes/{id_}", f"{url}#note_{id_}", "body")

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of an issue, merge request or comment; None if it is gone.

        The host answers alike for an issue that is gone, for a confidential one that the token may not read,
        and for all issues while they are turned off.
        """
        project, (kind, number, *note) = f"/projects/{_quoted(repository)}", checked_path(path).split("/")
        listing = f"{project}/{kind}?scope=all&state=all&per_page=1"
        text = await read_present_text(self.api, f"{project}/{path}", listing)
        if text is not None or kind != "issues":
            return text
        if note and await self.api.status(f"{project}/{kind}/{number}") == HTTPStatus.OK:
            return None
        shown = await self.api.get(project)
        if _is_off(shown, kind) or _access_level(shown) < _REPORTER:
            raise HostError("forbidden", "the host does not show whether the issue is gone or hidden")
        return None

    async def event_feed(self, name: str, *, is_owner: bool, is_own_token: bool) -> EventFeed:  # noqa: ARG002
        """Return the pushes of a project, or those to all projects of the token's user, below a group."""
        if not is_owner:
            project = await self.repository(name)
            path = f"/projects/{project.id}/events?action=pushed&per_page=100"
        else:
            path = "/events?scope=all&action=pushed&per_page=100"

        async def resolve(push: PushEvent) -> PushEvent | None:
            """Return a push with the path of its project; None if that is not below the wanted name."""
            try:
                raw = await self.api.get(f"/projects/{_quoted(push.repository_id)}")
            except HostError as error:
                if error.kind not in {"not_found", "forbidden"}:
                    raise
                return None
            full_name = _FIELDS.matching(raw, "path_with_namespace", _PROJECT)
            is_wanted = f"{full_name}/".lower().startswith(f"{name}/".lower()) or not is_owner
            return replace(push, full_name=full_name) if is_wanted else None

        return EventFeed(api=self.api, path=path, read=_read_push, resolve=resolve)

    async def reviews(self, repository: str) -> ReviewApi:
        """Return how to mark the merge requests of the project with this id."""
        project = f"/projects/{_quoted(repository)}"
        return ReviewApi(
            api=self.api,
            listing=lambda sha: f"{project}/repository/commits/{sha}/merge_requests?per_page=100",
            request=f"{project}/merge_requests",
            number="iid",
            head="sha",
            state=("state", "opened"),
            commit="id",
            status_path=lambda sha: f"{project}/statuses/{sha}",
            status_body=lambda status: {"state": "success" if status.is_clean else "failed"} | status.fields,
            comment_path=lambda number: f"{project}/merge_requests/{number}/notes",
            comment_body=lambda text: {"body": text},
        )

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the user of the token, and the scopes that it lacks."""
        if self.token is None:
            return None, ()
        user = await self.api.get("/user")
        missing: tuple[str, ...] = ()
        try:
            scopes = inner(await self.api.get("/personal_access_tokens/self"), "scopes")
        except HostError:
            scopes = None  # an OAuth token, or an older server
        if isinstance(scopes, list) and "api" not in scopes:
            missing = tuple(scope for scope in ("read_api", "read_repository") if scope not in scopes)
        return _FIELDS.optional_text(user, "username"), missing

    async def _projects(self, owner: str) -> AsyncIterator[Any]:
        """Yield the projects of a group and its subgroups, of a user, or the one project of this name."""
        if not _PATH.fullmatch(owner):
            raise invalid_name(owner, "GROUP[/SUBGROUP]")
        if await self._has_group(owner):
            path = f"/groups/{_quoted(owner)}/projects?include_subgroups=true&with_shared=false&{_LIST}"
        elif "/" in owner:
            yield await self.api.get(f"/projects/{_quoted(owner)}")
            return
        else:
            users = await self.api.get(f"/users?username={quote(owner)}")
            if not isinstance(users, list) or not users:
                raise HostError("not_found", f"{self.api.host}: there is no group or user {owner}")
            path = f"/users/{_FIELDS.field(users[0], 'id', int)}/projects?{_LIST}"
        try:
            async for raw in self.api.pages(f"{path}&pagination=keyset"):
                yield raw
        except HostError as error:
            if error.status != HTTPStatus.METHOD_NOT_ALLOWED:  # such pages are not available for this list
                raise
            async for raw in self.api.pages(path):
                yield raw

    async def _has_group(self, path: str) -> bool:
        """Whether there is a group with this path that the token may see; raise HostError if not clear."""
        response = await self.api.response(f"/groups/{_quoted(path)}?with_projects=false")
        if response.status == HTTPStatus.NOT_FOUND:
            return False
        if not response.ok:
            raise self.api.error_from(response)
        return True

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository that decoded JSON of a project describes."""
        full_name = _FIELDS.matching(raw, "path_with_namespace", _PROJECT)
        id_ = _FIELDS.field(raw, "id", int)
        branch = _FIELDS.optional_text(raw, "default_branch")
        return HostedRepository(
            id=id_,
            full_name=full_name,
            clone_url=self.clone_url(inner(raw, "http_url_to_repo"), f"{full_name}.git"),
            html_url=f"{self.url}/{full_name}",
            visibility=self._visibility(raw),
            fork=isinstance(inner(raw, "forked_from_project"), dict),
            archived=flag(raw, "archived"),
            empty=flag(raw, "empty_repo"),
            has_wiki=flag(raw, "wiki_enabled") or inner(raw, "wiki_access_level") in {"enabled", "private"},
            pushed_at=self._marker(_FIELDS.optional_text(raw, "last_activity_at")),
            default_branch=branch or "",
            key=str(id_),
        )

    def _visibility(self, raw: Any) -> Visibility:
        """Return the visibility of a project; who asks without a token is shown public ones only."""
        text = _FIELDS.optional_text(raw, "visibility")
        if text is None:
            return Visibility.PUBLIC if self.token is None else Visibility.UNKNOWN
        return Visibility(text) if text in set(Visibility) else Visibility.UNKNOWN

    def _marker(self, last_activity: str | None) -> str | None:
        """Return the time of the last activity if it shows every push since; else None."""
        try:
            moment = datetime.fromisoformat(last_activity or "").timestamp()
        except ValueError:
            return None
        return last_activity if self.api.now() - moment > _SETTLED else None

    def _snippet(self, raw: Any, full_name: str) -> HostedGist:
        """Return the snippet in decoded JSON."""
        id_ = _FIELDS.field(raw, "id", int)
        path = f"{full_name}/snippets/{id_}.git"
        return HostedGist(
            id=str(id_),
            owner=full_name,
            clone_url=self.clone_url(inner(raw, "http_url_to_repo"), path),
            html_url=f"{self.url}/{full_name}/-/snippets/{id_}",
            public=inner(raw, "visibility") == "public",
            updated_at=None,
        )


def _read_push(raw: Any) -> PushEvent | None:
    """Return the push of an event; None for another event."""
    data = inner(raw, "push_data")
    if not isinstance(data, dict):
        return None
    author, after = inner(raw, "author_username"), inner(data, "commit_to")
    return read_push(inner(raw, "project_id"), None, inner(data, "ref"), author, after)


def _is_off(project: Any, feature: str) -> bool:
    """Whether `issues`, `merge_requests` or `snippets` are turned off in a project."""
    level, is_on = inner(project, f"{feature}_access_level"), inner(project, f"{feature}_enabled")
    return level == "disabled" or is_on is False


def _access_level(project: Any) -> int:
    """Return the access level that a project or its groups give to the token's user; 0 for none."""
    levels = (inner(project, "permissions", f"{by}_access", "access_level") for by in ("project", "group"))
    return max(level if isinstance(level, int) else 0 for level in levels)


def _text(raw: Any, path: str, url: str, *fields: str) -> HostedText:
    """Return an issue, merge request or comment in decoded JSON."""
    author = inner(raw, "author", "username")
    return HostedText(
        path,
        url,
        text_of(raw, *fields),
        author if isinstance(author, str) else None,
        read_time(raw, "created_at"),
    )


def _quoted(path: str) -> str:
    """Return the path of a group or project as one part of an API path."""
    return quote(path, safe="")


def _send(token: Secret) -> Mapping[str, str]:
    """Return the header for a token: OAuth tokens are bearers, the others have a header of their own.

    A deploy token, USER:TOKEN, is for git only.
    """
    text = reveal(token)
    if ":" in text:
        return {}
    if _OAUTH_TOKEN.fullmatch(text):
        return {"Authorization": f"Bearer {text}"}
    return {"PRIVATE-TOKEN": text}


def _read_message(value: Any) -> object:
    """Return the reason in the body of an error."""
    return value.get("message") or value.get("error_description") or value.get("error")


_STYLE = ApiStyle(read_message=_read_message)


def _read_name(name: str) -> PathTarget | None:
    """Read `GROUP[/SUBGROUP]`."""
    return PathTarget(TargetKind.OWNER, name) if _PATH.fullmatch(name) else None


def _read_path(_host: str, path: str) -> PathTarget | None:
    """Read the path of a group, a project, a page of one, or a commit."""
    path = path.strip("/").removeprefix("groups/")
    if match := _COMMIT.fullmatch(path):
        return PathTarget(TargetKind.COMMIT, f"{match[1]}/-/commit/{match[2].lower()}")
    path = path.split("/-/")[0].removesuffix("/-").removesuffix(".git")
    if not _PATH.fullmatch(path) or path.split("/")[0] in _NO_GROUPS:
        return None
    return PathTarget(TargetKind.REPOSITORY if "/" in path else TargetKind.OWNER, path)


def _line_url(base: str, commit: str, path: bytes | None, line: int) -> str:
    """Return the address of a line, or of a commit."""
    return f"{base}/-/commit/{commit}" if path is None else f"{base}/-/blob/{commit}/{quote(path)}#L{line}"


HOST_TYPE = HostType(
    name="gitlab",
    title="GitLab",
    read_name=_read_name,
    read_path=_read_path,
    open=GitLab,
    public=lambda host: _PUBLIC if host == "gitlab.com" else None,
    default_url=_PUBLIC,
    line_url=_line_url,
    owner_form="GROUP[/SUBGROUP]",
    advice="a personal, group or project access token with read_api and read_repository",
)
