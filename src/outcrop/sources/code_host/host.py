"""The interface of a code host. A host is one module in `sources/hosts`, which defines `HOST_TYPE`.

The pipeline knows only `CodeHost` (an open connection to one instance) and `HostType` (how its targets are
written and how it is opened).
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from urllib.parse import urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.domain.target import TargetKind
from outcrop.sources.code_host.api import origin
from outcrop.sources.code_host.events import EventFeed
from outcrop.sources.code_host.hosted import (
    HostedCommit,
    HostedGist,
    HostedRepository,
    HostedText,
    TokenAccess,
    repository_source,
)
from outcrop.sources.code_host.options import API_OPTIONS, ApiOptions, EtagCache
from outcrop.sources.code_host.reviews import ReviewApi

if TYPE_CHECKING:
    from outcrop.net.http import HttpClient

_COUNTED = 1_000  # repositories that a test of access lists
Login = tuple[str, str]  # user name and password for git


def ignore_gap(_gap: Gap) -> None:
    """Do nothing with a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAccess:
    """What a host is opened with.

    `url` is the address of a self-hosted instance; None for the public one. `api_url` replaces the address of
    the public instance's API. `on_gap` is called for a part of a list that may not be read.
    """

    http: "HttpClient"
    token: Secret | None = None
    url: str | None = None
    api_url: str | None = None
    etags: EtagCache | None = None
    options: ApiOptions = API_OPTIONS
    on_gap: Callable[[Gap], None] = ignore_gap


class CodeHost(ABC):
    """One instance of a code host, used with one token or none. A few tasks may share it.

    All methods that send requests raise HostError if a request fails or a response is malformed, and
    BadInputError if an argument is not valid.
    """

    name: ClassVar[str]  # such as `gitlab`

    @abstractmethod
    def repositories(self, owner: str) -> AsyncIterator[HostedRepository]:
        """Yield all repositories of an owner: also those of its groups or projects.

        Private ones are listed if the token may see them. `owner` is what follows the prefix of the target.
        """

    @abstractmethod
    async def repository(self, full_name: str) -> HostedRepository:
        """Return the repository with this name, which may be a former name of the repository."""

    @abstractmethod
    async def commit_is_gone(self, repository: str, sha: str) -> bool | None:
        """Whether the host no longer serves a commit of the repository with this key; None if unknown.

        True only if the host answers clearly that it has no such commit, and serves other content of the
        same repository. Unknown in all other cases, also if a request fails.
        """

    @abstractmethod
    def is_own_host(self, clone_url: str) -> bool:
        """Whether a URL is https and at this instance, to which the token may be sent."""

    @abstractmethod
    def clone_login(self, token: Secret) -> Login:
        """Return user name and password with which git sends this token to the host."""

    @abstractmethod
    async def commit(self, full_name: str, sha: str) -> HostedCommit:
        """Return a commit of a repository, with its full id. `sha` is its id or the first digits."""

    async def access(self, owner: str) -> TokenAccess:
        """Return what the token can see of an owner, after at most _COUNTED repositories."""
        login, missing = await self.token_owner()
        count = private = 0
        async for repository in self.repositories(owner):
            count += 1
            private += repository.visibility is not Visibility.PUBLIC
            if count == _COUNTED:
                return TokenAccess(login, count, private, is_complete=False, missing=missing)
        return TokenAccess(login, count, private, missing=missing)

    async def token_owner(self) -> tuple[str | None, tuple[str, ...]]:
        """Return whose the token is, if the host says that, and the scopes that it lacks."""
        return None, ()

    async def login(self) -> Login | None:
        """Return user name and password for clones from this host; None without a token."""
        return None

    async def gists(self, owner: str) -> AsyncIterator[HostedGist]:  # noqa: ARG002 - most hosts have none
        """Yield the gists or snippets of an owner; none if the host has no such thing."""
        nothing: tuple[HostedGist, ...] = ()
        for gist in nothing:
            yield gist

    async def gist(self, id: str) -> HostedGist:  # noqa: A002
        """Return the gist with this id. Raise OperatorError if the host has no gists."""
        raise OperatorError(f"this code host has no gists: {id[:100]!r} cannot be scanned as one")

    @abstractmethod
    def discussions(self, repository: str, since: datetime | None = None) -> AsyncIterator[HostedText]:
        """Yield the issues and merge or pull requests of a repository, and their comments.

        `repository` is its key. Those that were not edited after `since` may be left out.
        """

    @abstractmethod
    async def discussion_text(self, repository: str, path: str) -> str | None:
        """Return the present text of what `discussions` has yielded with this path; None if it is gone.

        It is gone only if the host answers 404 or 410 for it and lists the others. Raise HostError if that is
        not clear.
        """

    async def reviews(self, repository: str) -> ReviewApi | None:  # noqa: ARG002 - not every host has statuses
        """Return how to mark the pull requests of the repository with this key; None if that is not known."""
        return None

    async def event_feed(
        self,
        name: str,  # noqa: ARG002 - not every host has events
        *,
        is_owner: bool,  # noqa: ARG002
        is_own_token: bool,  # noqa: ARG002
    ) -> EventFeed | None:
        """Return the list of events of an owner or a repository; None if the host has none.

        `is_own_token` is whether the token is the target's own: another may see more than the target's
        users, so it is used for public events only.
        """
        return None

    def path_of(self, url: str) -> str:
        """Return what a target's address or `HOST:NAME` says of a repository, as `repository` takes it."""
        path = urlsplit(url).path if "://" in url else url.partition(":")[2]
        return path.strip("/").removesuffix(".git")

    def site_of(self, html_url: str) -> str:
        """Return the beginning of the names of the sources of what the host shows at `html_url`."""
        return origin(html_url)[1]

    def source_of(self, repository: HostedRepository) -> str:
        """Return the name of the source of a repository."""
        return repository_source(self.site_of(repository.html_url), repository.id)

    def source_of_gist(self, gist: HostedGist) -> str:
        """Return the name of the source of a gist or snippet."""
        return f"{self.site_of(gist.html_url)}/gists/{gist.id}"


class PathTarget(NamedTuple):
    """What an address on a code host names: the kind of a target, and the name of it."""

    kind: TargetKind
    name: str  # an owner as it follows the prefix, or the path of a repository on the host


@dataclass(frozen=True, slots=True, kw_only=True)
class HostType:
    """One kind of code host: how its targets are written, and how an instance is opened.

    `read_name` reads what follows the prefix, `read_path` the path of a web address. Both return None for
    what they do not know.
    """

    name: str  # the prefix of its targets
    title: str  # for people
    read_name: Callable[[str], PathTarget | None]
    read_path: Callable[[str, str], PathTarget | None]  # gets host and path
    open: Callable[[HostAccess], CodeHost]
    public: Callable[[str], str | None]  # gets a host name; returns the address of the instance
    default_url: str | None = None  # the public instance that the prefix alone means
    # Gets the repository's address, commit, path (None for the commit itself) and line; None: as on GitHub.
    line_url: Callable[[str, str, bytes | None, int], str] | None = None
    owner_form: str = "ORG"
    advice: str = ""  # which token to use
