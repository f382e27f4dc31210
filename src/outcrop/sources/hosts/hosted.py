"""Repositories, gists and commits as a code host lists them. The types are the same for every host."""

from dataclasses import dataclass

from outcrop.domain.finding import Visibility


@dataclass(frozen=True, slots=True)
class HostedRepository:
    """A repository of a code host."""

    id: int  # stays the same when the repository is renamed
    full_name: str  # OWNER/NAME
    clone_url: str
    html_url: str
    visibility: Visibility
    fork: bool
    archived: bool
    empty: bool  # it has no commits
    has_wiki: bool
    pushed_at: str | None  # the time of the last push: unchanged means nothing new to scan
    default_branch: str


@dataclass(frozen=True, slots=True)
class HostedGist:
    """A gist: a small repository of a user that has no name."""

    id: str
    owner: str | None  # None for an anonymous gist
    clone_url: str
    html_url: str
    public: bool
    updated_at: str | None  # the time of the last change


@dataclass(frozen=True, slots=True)
class HostedCommit:
    """A commit with the repository that contains it."""

    sha: str
    repository: HostedRepository
    html_url: str
