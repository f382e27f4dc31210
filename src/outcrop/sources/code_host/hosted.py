"""Repositories, gists, commits and discussions as a code host lists them: the same types for every host."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from outcrop.domain.finding import Visibility


@dataclass(frozen=True, slots=True)
class HostedRepository:
    """A repository of a code host."""

    id: int | str  # stays the same when the repository is renamed or transferred
    full_name: str  # OWNER/NAME, with more parts on some hosts
    clone_url: str
    html_url: str
    visibility: Visibility
    fork: bool
    archived: bool
    empty: bool  # it has no commits
    has_wiki: bool
    pushed_at: str | None  # the time of the last push: unchanged means nothing new to scan; None if unknown
    default_branch: str
    wiki_url: str | None = None  # the clone URL of the wiki; None if it follows from `clone_url`
    is_wiki: bool = False  # a wiki that the host lists as a repository of its own
    key: str | None = None  # names the repository in later requests; None for `full_name`

    @property
    def change_marker(self) -> str | None:
        """Return a text that differs after a push; None if the host has none."""
        return self.pushed_at and f"{self.pushed_at} {self.default_branch}"


@dataclass(frozen=True, slots=True)
class HostedGist:
    """A gist or snippet: a small repository that has no name."""

    id: str
    owner: str | None  # None for an anonymous gist
    clone_url: str
    html_url: str
    public: bool
    updated_at: str | None  # the time of the last change; None if it does not show every push


@dataclass(frozen=True, slots=True)
class HostedCommit:
    """A commit with the repository that contains it."""

    sha: str
    repository: HostedRepository
    html_url: str


@dataclass(frozen=True, slots=True)
class HostedText:
    """An issue, a merge or pull request, or a comment of one, as somebody wrote it."""

    path: str  # such as `issues/12/comments/345`, of the host's numbers: the same when the text is edited
    html_url: str
    text: str
    author: str | None = None
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class TokenAccess:
    """What a token can see: whose it is, the number of repositories, and scopes that are missing."""

    login: str | None  # None if the host does not say, or there is no token
    repositories: int
    private: int  # of these repositories: the ones that are not public
    is_complete: bool = True  # False if counting stopped at a limit
    missing: tuple[str, ...] = ()  # scopes that the token lacks, in the host's own words


def site_of(url: str) -> str:
    """Return the host of a web address with the path below which it is installed, in lower case.

    It is the beginning of the names of the host's sources: `github.com`, `example.com/gitlab`.
    """
    parts = urlsplit(url)
    return f"{parts.netloc}{parts.path.rstrip('/')}".lower()


def repository_source(site: str, id_: int | str) -> str:
    """Return the name of the source of a repository: `github.com/repositories/42`.

    A push hook finds the source of a push by this name, as the host's web address and numeric id give it.
    """
    return f"{site}/repositories/{id_}"
