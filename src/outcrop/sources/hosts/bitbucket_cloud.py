"""List the repositories, snippets and pull requests of Bitbucket Cloud."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from outcrop.domain.finding import Visibility
from outcrop.domain.secret import Secret
from outcrop.lazy_regex import regex
from outcrop.sources.code_host.api import HostPage
from outcrop.sources.code_host.discussion import checked_path, read_present_text
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.fields import flag
from outcrop.sources.code_host.host import HostAccess, Login
from outcrop.sources.code_host.hosted import HostedCommit, HostedGist, HostedRepository, HostedText
from outcrop.sources.code_host.instance import InstanceHost, inner, invalid_name, split_login
from outcrop.sources.code_host.reviews import ReviewApi
from outcrop.sources.hosts.bitbucket_fields import (
    FIELDS,
    FULL_NAME,
    OWNER,
    PUBLIC,
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

_API = "https://api.bitbucket.org/2.0"
_UUID = regex(r"\{[0-9a-fA-F-]{36}\}")
_STATES = "&".join(f"state={state}" for state in ("OPEN", "MERGED", "DECLINED", "SUPERSEDED"))


class BitbucketCloud(InstanceHost):
    """Bitbucket Cloud. A repository's id is its UUID."""

    name = "bitbucket"

    def __init__(self, access: HostAccess) -> None:
        super().__init__(access, PUBLIC, _API, send_token, STYLE)

    def clone_login(self, token: Secret) -> Login:
        """Return the login: an API token goes with a fixed name in place of the user's address."""
        user, password = split_login(token)
        if user is None:
            return "x-token-auth", password
        return ("x-bitbucket-api-token-auth" if "@" in user else user), password

    async def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield the repositories of a workspace."""
        if not OWNER.fullmatch(owner):
            raise invalid_name(owner, "the name of a workspace")
        path = f"/repositories/{quote(owner)}?pagelen=100"
        async for raw in self.api.pages(path, _read_page, id_field="uuid"):
            yield self._repository(raw)

    async def repository(self, full_name: str) -> HostedRepository:
        """Return a repository."""
        match = FULL_NAME.fullmatch(full_name)
        if match is None:
            raise invalid_name(full_name, "WORKSPACE/NAME of a repository")
        return self._repository(await self.api.get(f"/repositories/{quote(match[1])}/{quote(match[2])}"))

    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository."""
        if not SHA.fullmatch(sha):
            raise invalid_name(sha, "a commit's id")
        repository = await self.repository(full_name.removesuffix("/commits"))
        raw = await self.api.get(f"/repositories/{quote(repository.key or '')}/commit/{sha}")
        found = FIELDS.matching(raw, "hash", SHA)
        return HostedCommit(found, repository, f"{repository.html_url}/commits/{found}")

    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the repository, WORKSPACE/{UUID}, no longer has a commit; None if that is not clear."""
        path = f"/repositories/{quote(repository)}"
        if not SHA.fullmatch(sha):
            return None
        return await self.is_gone(f"{path}/commit/{sha}", f"{path}/refs/branches?pagelen=1", "values")

    async def gists(self, owner: str) -> AsyncIterator[HostedGist]:
        """Yield the snippets of a workspace."""
        if not OWNER.fullmatch(owner):
            raise invalid_name(owner, "the name of a workspace")
        async for raw in self.api.pages(f"/snippets/{quote(owner)}?pagelen=100", _read_page):
            id_ = FIELDS.matching(raw, "id", OWNER)
            yield HostedGist(
                id=id_,
                owner=owner,
                clone_url=self.clone_url(clone_href(raw), f"snippets/{owner}/{id_}.git"),
                html_url=f"{PUBLIC}/{owner}/workspace/snippets/{id_}",
                public=not FIELDS.field(raw, "is_private", bool),
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
            own = f"pullrequests/{FIELDS.field(raw, 'id', int)}"
            description = inner(raw, "description") or inner(raw, "summary", "raw")
            yield _text(own, raw, inner(raw, "title"), description)
            async for comment in self.api.pages(f"{path}/{own}/comments?pagelen=100", _read_page):
                yield _text(comment_path(own, comment), comment, inner(comment, "content", "raw"))
        try:
            async for raw in self.api.pages(f"{path}/issues?pagelen=50", _read_page):
                own = f"issues/{FIELDS.field(raw, 'id', int)}"
                yield _text(own, raw, inner(raw, "title"), inner(raw, "content", "raw"))
                async for comment in self.api.pages(f"{path}/{own}/comments?pagelen=100", _read_page):
                    yield _text(comment_path(own, comment), comment, inner(comment, "content", "raw"))
        except HostError as error:
            if error.kind != "not_found":  # the repository has no issue tracker
                raise

    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of a pull request, issue or comment; None if it is gone."""
        base = f"/repositories/{quote(repository)}"
        listing = f"{base}/{checked_path(path).partition('/')[0]}?pagelen=1"
        return await read_present_text(self.api, f"{base}/{path}", listing)

    async def reviews(self, repository: str) -> ReviewApi:
        """Return how to mark the pull requests of the repository WORKSPACE/{UUID}."""
        path = f"/repositories/{quote(repository)}"
        return ReviewApi(
            api=self.api,
            listing=lambda _sha: f"{path}/pullrequests?state=OPEN&pagelen=50",
            request=f"{path}/pullrequests",
            number="id",
            head="source.commit.hash",
            state=("state", "OPEN"),
            commit="hash",
            status_path=lambda sha: f"{path}/commit/{sha}/statuses/build",
            status_body=build_status,
            comment_path=lambda number: f"{path}/pullrequests/{number}/comments",
            comment_body=lambda text: {"content": {"raw": text}},
            read_page=_read_page,
            page="pagelen=100",
        )

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return the user of the token, and the scopes that it lacks."""
        if self.token is None:
            return None, ()
        response = await self.api.response("/user")
        scopes = {scope.strip() for scope in response.headers.get("X-OAuth-Scopes", "").split(",")} - {""}
        missing = () if not scopes or any("repository" in scope for scope in scopes) else ("repository:read",)
        if not response.ok:  # the token of a workspace or repository belongs to no user
            return None, missing
        return FIELDS.optional_text(await self.api.get("/user"), "username"), missing

    def _repository(self, raw: Any) -> HostedRepository:
        """Return the repository in decoded JSON."""
        uuid = FIELDS.matching(raw, "uuid", _UUID)
        match = FULL_NAME.fullmatch(FIELDS.field(raw, "full_name", str)[:300])
        if match is None:
            raise FIELDS.missing("full_name")
        full_name = f"{match[1]}/{match[2]}"
        clone_url = self.clone_url(clone_href(raw), f"{full_name}.git")
        branch = inner(raw, "mainbranch", "name")
        return HostedRepository(
            id=uuid.strip("{}").lower(),
            full_name=full_name,
            clone_url=clone_url,
            html_url=f"{PUBLIC}/{full_name}",
            visibility=Visibility.PRIVATE if FIELDS.field(raw, "is_private", bool) else Visibility.PUBLIC,
            fork=isinstance(inner(raw, "parent"), dict),
            archived=False,
            empty=branch is None and inner(raw, "size") == 0,
            has_wiki=flag(raw, "has_wiki"),
            pushed_at=None,  # the documented times do not show every push
            default_branch=branch if isinstance(branch, str) else "",
            wiki_url=f"{clone_url}/wiki",
            key=f"{match[1]}/{uuid}",
        )


def _text(path: str, raw: Any, *texts: object) -> HostedText:
    """Return a pull request, issue or comment in decoded JSON of Bitbucket Cloud."""
    url = FIELDS.https_url(inner(raw, "links", "html"), "href")
    return text_at(path, url, "\n".join(text for text in texts if isinstance(text, str) and text), raw)


def _read_page(_response: "HttpResponse", value: Any) -> HostPage:
    """Return a page of Bitbucket Cloud, which names the next one."""
    items, following = inner(value, "values"), inner(value, "next")
    return HostPage(
        items if isinstance(items, list) else None, following if isinstance(following, str) else None
    )
