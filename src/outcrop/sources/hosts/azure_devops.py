"""List the repositories, wikis and pull requests of Azure DevOps Services or an Azure DevOps Server."""

import re
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import TargetKind
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import ApiStyle, HostPage
from outcrop.sources.code_host.discussion import checked_path, read_present_text, read_time
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.fields import Fields, flag
from outcrop.sources.code_host.host import HostAccess, HostType, Login, PathTarget
from outcrop.sources.code_host.hosted import HostedCommit, HostedRepository, HostedText
from outcrop.sources.code_host.instance import InstanceHost, basic_auth, inner, invalid_name, text_of

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_PUBLIC = "https://dev.azure.com"
_ORG = regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NAME = regex(r"(?!\.{1,2}\Z)[^/\\?#\x00-\x1f\x7f:*\"<>|]{1,256}")  # of a project or repository
_GUID = regex(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHA = regex(r"[0-9a-f]{4,64}", re.IGNORECASE)
_LEGACY = regex(r"([a-z0-9][a-z0-9-]{0,62})\.visualstudio\.com")
_BRANCH = "refs/heads/"
# The list of pull requests cuts descriptions off after 400 UTF-16 characters, or before half of a pair.
_CUT_DESCRIPTION = 2 * 399
_VISIBILITY = {
    "public": Visibility.PUBLIC,
    "private": Visibility.PRIVATE,
    "organization": Visibility.INTERNAL,
}
_FIELDS = Fields("Azure DevOps")


class AzureDevOps(InstanceHost):
    """Azure DevOps. Its owners are ORG or ORG/PROJECT; on a server ORG is a collection."""

    name = "azuredevops"

    def __init__(self, access: HostAccess) -> None:
        url = access.url or _PUBLIC
        super().__init__(access, url, url, _send, _STYLE)
        self._version = "api-version=" + ("7.1" if access.url is None else "6.0")

    def clone_login(self, token: Secret) -> Login:
        """Return the login: any name goes with a token."""
        return "outcrop", reveal(token).removeprefix(":")

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories and wikis of an organisation's projects, or of one project.

        A project that the token may not read is a gap.
        """
        organisation, _, only = owner.partition("/")
        org = quote(_checked(_ORG, organisation, "the name of an organisation"), safe="")
        if only:
            name = quote(_checked(_NAME, unquote(only), "the name of a project"), safe="")
            project = await self.api.get(self._path(f"/{org}/_apis/projects/{name}"))
            async for repository in self._of_project(org, project):
                yield repository
            return
        listing = self._path(f"/{org}/_apis/projects", "stateFilter=wellFormed&$top=100")
        async for project in self.api.pages(listing, _read_continued):
            try:
                async for repository in self._of_project(org, project):
                    yield repository
            except HostError as error:
                if error.kind not in {"forbidden", "not_found"}:
                    raise
                self.on_gap(Gap(f"{organisation}/{inner(project, 'name')}", error.message))

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository; `full_name` is ORG/PROJECT/_git/NAME, ORG/_git/NAME or ORG/PROJECT/NAME."""
        parts = [part for part in full_name.split("/") if part != "_git"]
        if len(parts) == 2:  # a project's main repository has its name
            parts.append(parts[1])
        if len(parts) != 3:
            raise invalid_name(full_name, "ORG/PROJECT/_git/NAME of a repository")
        org = quote(_checked(_ORG, parts[0], "the name of an organisation"), safe="")
        project, name = (
            quote(_checked(_NAME, part, "a name on Azure DevOps"), safe="") for part in parts[1:]
        )
        raw = await self.api.get(self._path(f"/{org}/{project}/_apis/git/repositories/{name}"))
        return self._repository(org, inner(raw, "project"), raw)

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not _SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        repository = await self.repository(full_name)
        raw = await self.api.get(self._path(f"{_git_path(repository.key or '')}/commits/{sha}"))
        found = _FIELDS.matching(raw, "commitId", _SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commit/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository, ORG/PROJECT-ID/ID, no longer has a commit; None if that is not clear."""
        if not _SHA.fullmatch(sha):
            return None
        path = _git_path(repository)
        content = self._path(f"{path}/refs", "filter=heads/&$top=1")
        return await self.is_gone(self._path(f"{path}/commits/{sha}"), content, "value")

    async def discussions(
        self,
        repository: str,
        since: datetime | None = None,  # noqa: ARG002 - the host has no such parameter
    ) -> AsyncIterator[HostedText]:
        """Yield the pull requests of a repository, each followed by its comments."""
        path = f"{_git_path(repository)}/pullrequests"
        web = inner(await self.api.get(self._path(_git_path(repository))), "webUrl")
        base = web if isinstance(web, str) and self.is_own_host(web) else self.url
        listing = self._path(path, "searchCriteria.status=all&$top=100&$skip=0")
        async for raw in self.api.pages(listing, _read_skipped, id_field="pullRequestId"):
            id_ = _FIELDS.field(raw, "pullRequestId", int)
            url = f"{base}/pullrequest/{id_}"
            own, author = f"pullrequests/{id_}", inner(raw, "createdBy", "uniqueName")
            created_at = read_time(raw, "creationDate")
            is_cut = len(text_of(raw, "description").encode("utf-16-le")) >= _CUT_DESCRIPTION
            complete = await self.api.get(self._path(f"{path}/{id_}")) if is_cut else raw
            yield _text(own, url, text_of(complete, "title", "description"), author, created_at)
            threads = inner(await self.api.get(self._path(f"{path}/{id_}/threads")), "value")
            for thread in threads if isinstance(threads, list) else ():
                comments = inner(thread, "comments")
                for comment in comments if isinstance(comments, list) else ():
                    place = f"{url}?discussionId={inner(thread, 'id')}&commentId={inner(comment, 'id')}"
                    author = inner(comment, "author", "uniqueName")
                    thread_id, comment_id = (_FIELDS.field(part, "id", int) for part in (thread, comment))
                    comment_path = f"{own}/threads/{thread_id}/comments/{comment_id}"
                    written_at = read_time(comment, "publishedDate")
                    yield _text(comment_path, place, text_of(comment, "content"), author, written_at)

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of a pull request or comment; None if it is gone."""
        base = _git_path(repository)
        listing = self._path(f"{base}/pullrequests", "searchCriteria.status=all&$top=1")
        return await read_present_text(self.api, self._path(f"{base}/{checked_path(path)}"), listing)

    async def _of_project(self, org: str, project: Any) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of a project, and its wiki."""
        id_ = _FIELDS.matching(project, "id", _GUID)
        value = await self.api.get(self._path(f"/{org}/{id_}/_apis/git/repositories"))
        listed = inner(value, "value")
        if not isinstance(listed, list):
            raise _FIELDS.missing("value")
        for raw in listed:
            repository = self._repository(org, inner(raw, "project") or project, raw)
            if flag(raw, "isDisabled"):
                self.on_gap(Gap(repository.full_name, "is disabled on the host, so it cannot be cloned"))
            else:
                yield repository
        async for wiki in self._wikis(org, id_, project):
            yield wiki

    async def _wikis(self, org: str, project_id: str, project: Any) -> AsyncIterator[HostedRepository]:
        """Yield the project's wiki, which is a repository that the list does not have."""
        try:
            value = await self.api.get(self._path(f"/{org}/{project_id}/_apis/wiki/wikis"))
        except HostError as error:
            if error.kind not in {"forbidden", "not_found"}:
                raise
            return
        wikis = inner(value, "value")
        for raw in wikis if isinstance(wikis, list) else ():
            if inner(raw, "type") == "projectWiki":
                yield self._repository(org, project, raw | {"id": inner(raw, "repositoryId")}, is_wiki=True)

    def _repository(self, org: str, project: Any, raw: Any, *, is_wiki: bool = False) -> HostedRepository:
        """Return the repository in decoded JSON; `project` is that of its project."""
        id_ = _FIELDS.matching(raw, "id", _GUID).lower()
        name, project_name = _FIELDS.matching(raw, "name", _NAME), _FIELDS.matching(project, "name", _NAME)
        project_id = _FIELDS.matching(project, "id", _GUID)
        path = f"{unquote(org)}/{project_name}/_git/{name}"
        branch = inner(raw, "defaultBranch")
        return HostedRepository(
            id=id_,
            full_name=f"{unquote(org)}/{project_name}/{name}",
            clone_url=self.clone_url(None, path),
            html_url=f"{self.url}/{quote(path)}",
            visibility=_VISIBILITY.get(str(inner(project, "visibility")).lower(), Visibility.UNKNOWN),
            fork=flag(raw, "isFork"),
            archived=False,
            empty=not is_wiki and branch is None and inner(raw, "size") == 0,
            has_wiki=False,
            pushed_at=None,  # the host has no time of the last push
            default_branch=branch.removeprefix(_BRANCH) if isinstance(branch, str) else "",
            key=f"{unquote(org)}/{project_id}/{id_}",
            is_wiki=is_wiki,
        )

    def _path(self, path: str, query: str = "") -> str:
        """Return an API path with its query and the version of the API."""
        return f"{path}?{query}{'&' if query else ''}{self._version}"


def _git_path(key: str) -> str:
    """Return the API path of a repository from its key ORG/PROJECT-ID/ID."""
    org, _, rest = key.partition("/")
    project, _, id_ = rest.partition("/")
    if not (_ORG.fullmatch(org) and _GUID.fullmatch(project) and _GUID.fullmatch(id_)):
        raise invalid_name(key, "a repository on Azure DevOps")
    return f"/{org}/{project}/_apis/git/repositories/{id_}"


def _checked(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return a name; raise BadInputError unless the pattern matches all of it."""
    if not pattern.fullmatch(text):
        raise invalid_name(text, what)
    return text


def _text(path: str, url: str, text: str, author: object, created_at: datetime | None) -> HostedText:
    """Return a pull request or comment at an address."""
    return HostedText(path, url, text, author if isinstance(author, str) else None, created_at)


def _read_continued(response: "HttpResponse", value: Any) -> HostPage:
    """Return a page; a header has the token of the next one."""
    items, token = inner(value, "value"), response.headers.get("x-ms-continuationtoken")
    if not isinstance(items, list):
        return HostPage(None)
    return HostPage(items, _with_query(response.url, "continuationToken", token) if token else None)


def _read_skipped(response: "HttpResponse", value: Any) -> HostPage:
    """Return a page; the next one begins behind its items, and the last one is not full."""
    items = inner(value, "value")
    if not isinstance(items, list) or len(items) < 100:
        return HostPage(items if isinstance(items, list) else None)
    skipped = dict(parse_qsl(urlsplit(response.url).query)).get("$skip", "0")
    return HostPage(items, _with_query(response.url, "$skip", str(int(skipped) + len(items))))


def _with_query(url: str, name: str, value: str) -> str:
    """Return a URL with another value of one parameter of its query."""
    parts = urlsplit(url)
    return parts._replace(query=urlencode(dict(parse_qsl(parts.query)) | {name: value})).geturl()


def _send(token: Secret) -> Mapping[str, str]:
    """Return the header: a personal access token is a password without a user, one of Entra ID a bearer."""
    text = reveal(token)
    is_bearer = text.startswith("ey") and text.count(".") == 2
    return {"Authorization": f"Bearer {text}"} if is_bearer else basic_auth("", text.removeprefix(":"))


# The host answers a token that it does not accept with the page of the sign-in.
_STYLE = ApiStyle(refused=frozenset({203, 302}))


def _read_name(name: str) -> PathTarget | None:
    """Read `ORG`, `ORG/PROJECT` or `ORG/PROJECT/NAME`; other characters in names are percent-encoded."""
    org, *rest = name.split("/")
    if len(rest) > 2 or not _ORG.fullmatch(org) or not all(_NAME.fullmatch(unquote(part)) for part in rest):
        return None
    if len(rest) == 2:
        return PathTarget(TargetKind.REPOSITORY, f"{org}/{rest[0]}/_git/{rest[1]}")
    return PathTarget(TargetKind.OWNER, name)


def _read_path(host: str, path: str) -> PathTarget | None:
    """Read the path of an organisation, a project, a repository, a page of one, or a commit."""
    parts = path.strip("/").split("/")
    if legacy := _LEGACY.fullmatch(host):
        parts = [legacy[1], *(part for part in parts if part and part.lower() != "defaultcollection")]
    if "_git" not in parts:
        return _read_name("/".join(parts)) if len(parts) <= 2 else None
    at = parts.index("_git")
    if at not in {1, 2} or len(parts) < at + 2:
        return None
    name = parts[at + 1]
    project = parts[1] if at == 2 else name
    found = _read_name(f"{parts[0]}/{project}/{name}")
    rest = parts[at + 2 :]
    if found is not None and len(rest) == 2 and rest[0] == "commit" and _SHA.fullmatch(rest[1]):
        return PathTarget(TargetKind.COMMIT, f"{found.name}/commit/{rest[1].lower()}")
    return found


def _line_url(base: str, commit: str, path: bytes | None, line: int) -> str:
    """Return the address of a line, or of a commit."""
    if path is None:
        return f"{base}/commit/{commit}"
    place = f"line={line}&lineEnd={line + 1}&lineStartColumn=1&lineEndColumn=1"
    return f"{base}?path=/{quote(path)}&version=GC{commit}&{place}"


HOST_TYPE = HostType(
    name="azuredevops",
    title="Azure DevOps",
    read_name=_read_name,
    read_path=_read_path,
    open=AzureDevOps,
    public=lambda host: _PUBLIC if host == "dev.azure.com" or _LEGACY.fullmatch(host) else None,
    default_url=_PUBLIC,
    line_url=_line_url,
    owner_form="ORG[/PROJECT]",
    advice="a personal access token with Code (read), Wiki (read) and Project and Team (read)",
)
