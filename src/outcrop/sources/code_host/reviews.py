"""Find the open pull requests of a commit, and mark them: a status of the commit, and a comment.

What hosts differ in is data: `ReviewApi` has the paths and the fields of one host.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from outcrop.lazy_regex import regex
from outcrop.limits import PULL_REQUEST_COMMITS, PULL_REQUESTS_LISTED, PULL_REQUESTS_MARKED
from outcrop.sources.code_host.api import HostApi, ReadPage, read_linked_page
from outcrop.sources.code_host.errors import HostError

CONTEXT = "outcrop"  # names our status among those of other programs
_SHA = regex(r"[0-9a-f]{7,64}")  # Bitbucket Cloud shows 12 digits


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """What a code host shows beside a commit."""

    is_clean: bool
    description: str
    url: str

    @property
    def fields(self) -> dict[str, str]:
        """Return the fields that most hosts name alike."""
        return {"context": CONTEXT, "description": self.description, "target_url": self.url}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewApi:
    """How one repository's pull requests are read and marked. Paths are those of its host's API.

    The keys of nested fields are joined by dots.
    """

    api: HostApi
    listing: Callable[[str], str]  # gets a commit; lists open pull requests, maybe also of other commits
    request: str  # the path of the pull requests
    number: str  # the field with the number of a pull request
    head: str  # the field with its newest commit
    state: tuple[str, str]  # the field with its state, and the value of an open one
    commit: str  # the field with the id of a commit
    status_path: Callable[[str], str]  # gets a commit
    status_body: Callable[[CommitStatus], dict[str, str]]
    comment_path: Callable[[int], str]  # gets the number of a pull request
    comment_body: Callable[[str], dict[str, Any]]
    read_page: ReadPage = read_linked_page
    page: str = "per_page=100"  # the query of the first page

    async def find_open(self, sha: str) -> list[int]:
        """Return the numbers of open pull requests whose newest commit is `sha`.

        Return [] if the host does not know the commit, which a forced push may have replaced.
        """
        found: list[int] = []
        listed = 0
        try:
            async for raw in self.api.pages(self.listing(sha), self.read_page, id_field=self.number):
                listed += 1
                number, head = _value_at(raw, self.number), _value_at(raw, self.head)
                is_open = _value_at(raw, self.state[0]) == self.state[1]
                if is_open and isinstance(number, int) and _is_same(head, sha):
                    found.append(number)
                if listed == PULL_REQUESTS_LISTED or len(found) == PULL_REQUESTS_MARKED:
                    break
        except HostError as error:
            if error.kind != "not_found":
                raise
        return found

    async def commits_of(self, number: int) -> list[str]:
        """Return the commits that a pull request adds."""
        found: list[str] = []
        path = _with_query(f"{self.request}/{number}/commits", self.page)
        async for raw in self.api.pages(path, self.read_page, id_field=self.commit):
            if isinstance(sha := _value_at(raw, self.commit), str) and _SHA.fullmatch(sha):
                found.append(sha)
            if len(found) == PULL_REQUEST_COMMITS:
                break
        return found

    async def set_status(self, sha: str, status: CommitStatus) -> None:
        """Set the status of a commit; it replaces an earlier one of ours."""
        await self.api.send(self.status_path(sha), self.status_body(status))

    async def add_comment(self, number: int, text: str) -> None:
        """Add a comment to a pull request."""
        await self.api.send(self.comment_path(number), self.comment_body(text))


def _value_at(raw: Any, path: str) -> Any:
    """Return the value in nested objects of decoded JSON, at keys joined by dots; None if there is none."""
    for name in path.split("."):
        raw = raw.get(name) if isinstance(raw, dict) else None
    return raw


def _is_same(head: object, sha: str) -> bool:
    """Whether a commit that a host names, maybe by its first digits, is `sha`."""
    return isinstance(head, str) and _SHA.fullmatch(head) is not None and sha.startswith(head)


def _with_query(path: str, query: str) -> str:
    """Return a path with a query added."""
    return f"{path}{'&' if urlsplit(path).query else '?'}{query}"
