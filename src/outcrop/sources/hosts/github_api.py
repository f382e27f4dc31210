"""One resource of GitHub's REST API at a time: who is asked, what is kept of the answer, and what a failure means."""

import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import orjson

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.sources.hosts.github_limits import GitHubError, GitHubErrorKind, RateLimit

PER_PAGE = 100
_MOST_PAGES = 10_000
_PAUSES = (1.0, 2.0, 4.0)  # before a failure that may pass is tried again
_LONGEST = 300  # an error that repeats the host's words
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]+)?")
_NEXT = re.compile(r'<([^<>]*)>[^<,]*;\s*rel="?next\b')

_KINDS: dict[int, GitHubErrorKind] = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.GONE: "not_found",
    HTTPStatus.CONFLICT: "not_found",  # a commit of a repository that has none
    HTTPStatus.UNPROCESSABLE_ENTITY: "not_found",  # a commit that the repository does not have
}
# All that is read of an answer, and so all that is kept of it: patches and the content of gists hold credentials.
_READ = {
    "id", "full_name", "clone_url", "html_url", "private", "visibility", "fork", "archived", "has_wiki", "size", "pushed_at",
    "default_branch", "login", "type", "git_pull_url", "public", "updated_at", "sha",
}  # fmt: skip


class EtagCache(Protocol):
    """Answers of earlier runs, so that what has not changed costs nothing."""

    async def get(self, key: str) -> tuple[str, bytes] | None: ...
    async def put(self, key: str, etag: str, body: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class _Page:
    value: Any
    next: str | None = None
    etag: str | None = None


class GitHubApi:
    """The API of one host, asked with one token or none."""

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        token: Secret | None,
        etags: EtagCache | None,
        limits: RateLimit,
    ) -> None:
        self._http = http
        self._base = base_url.rstrip("/")
        if not _is_secure(self._base):
            raise OperatorError(
                "the address of GitHub's API must be an https address without a name, password or query"
            )
        self._origin = origin(self._base)
        self.host = self._origin[1]
        self._token = token
        self._etags = etags
        # A host shows one token what another may not see, so what is kept is kept apart.
        self._whose = hashlib.sha256(reveal(token).encode()).hexdigest()[:16] if token else "-"
        self._limits = limits

    async def get(self, path: str) -> Any:
        return (await self._page(self._base + path)).value

    async def status(self, path: str) -> int:
        """Ask for nothing but the status of the answer."""
        return (await self._ask(self._base + path)).status

    async def pages(self, path: str) -> AsyncIterator[Any]:
        """Give the items of all pages, each once: a page moves when something is made or deleted meanwhile."""
        url: str | None = self._base + path
        asked: set[str] = set()
        given: set[object] = set()
        while url is not None:
            if url in asked or len(asked) == _MOST_PAGES:
                raise GitHubError("malformed", f"{_where(url)}: the pages do not end")
            asked.add(url)
            page = await self._page(url)
            if not isinstance(page.value, list):
                raise GitHubError("malformed", f"{_where(url)}: the answer is not a list")
            for item in page.value:
                number = item.get("id") if item else None
                if number is None or number not in given:
                    given.add(number)
                    yield item
            url = page.next

    async def _page(self, url: str) -> _Page:
        """Get a resource, as it was kept where it has not changed since."""
        key = f"{self._whose} {url}"
        kept = await self._kept(key)
        answer = await self._ask(url, kept.etag if kept else None)
        if answer.status == HTTPStatus.NOT_MODIFIED and kept:
            # A page can be the same as before and yet no longer be the last one.
            return replace(
                kept,
                next=_next(answer) if "Link" in answer.headers else kept.next or _following(url, kept.value),
            )
        if not answer.ok:
            raise self._failure(answer)
        value = _json(answer)
        if not isinstance(value, dict | list):
            raise GitHubError(
                "malformed", f"{_where(url)}: the answer is {'too large' if answer.truncated else 'not JSON'}"
            )
        page = _Page(_read(value), _next(answer))
        if self._etags and (new := answer.headers.get("ETag")):
            await self._etags.put(key, new, orjson.dumps({"next": page.next, "value": page.value}))
        return page

    async def _kept(self, key: str) -> _Page | None:
        found = await self._etags.get(key) if self._etags else None
        if found is None:
            return None
        try:
            raw = orjson.loads(found[1])
            return _Page(raw["value"], raw["next"], found[0])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None  # of another version: asked for anew

    async def _ask(self, url: str, etag: str | None = None) -> HttpResponse:
        """Ask until the answer is one to the question: a limit is waited for, and what may pass is tried again."""
        if not self._is_ours(url):
            raise GitHubError("malformed", f"{self.host}: the next page is said to be at another host")
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        if self._token:
            headers["Authorization"] = f"Bearer {reveal(self._token)}"
        if etag:
            headers["If-None-Match"] = etag
        failed = limited = 0
        while True:
            await self._limits.turn()
            try:
                answer = await self._http.get(url, headers=headers, may_follow=self._is_ours)
            except HttpError as error:
                problem = f"{self.host}: {error}"
            else:
                self._limits.note(answer)
                if self._limits.refuses(answer, limited):
                    limited += 1
                    continue
                if answer.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return answer
                problem = f"{self.host} answered {answer.status}"
            if failed == len(_PAUSES):
                raise GitHubError("unavailable", problem)
            await self._limits.pause(_PAUSES[failed], problem)
            failed += 1

    def _failure(self, answer: HttpResponse) -> GitHubError:
        if "Location" in answer.headers:
            return GitHubError("malformed", f"{self.host}: the answer leads to another host")
        value = _json(answer)
        said = value.get("message") if isinstance(value, dict) else None
        words = f"{_where(answer.url)}: answered {answer.status}: {one_line(said) if isinstance(said, str) else 'no reason given'}"
        if self._token:  # a host may repeat what it was sent
            words = self._token.masked_within(words)
        return GitHubError(_KINDS.get(answer.status, "malformed"), words[:_LONGEST])

    def _is_ours(self, url: str) -> bool:
        return origin(url) == self._origin


def origin(url: str) -> tuple[str, str]:
    """Give scheme and host, with the port where one is written; empty for what is no address."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc.lower()


def _is_secure(url: str) -> bool:
    """Tell whether a token may be sent there: over TLS, or without leaving the machine."""
    scheme, host = origin(url)
    if not host or any(sign in url for sign in "@?#"):
        return False
    return scheme == "https" or (scheme == "http" and _LOOPBACK.fullmatch(host) is not None)


def _where(url: str) -> str:
    parts = urlsplit(url)
    return one_line(parts.netloc + parts.path)


def _json(answer: HttpResponse) -> Any:
    try:
        return None if answer.truncated else orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        return None


def _read(value: Any) -> Any:
    """Leave out of an answer what nobody reads."""
    if isinstance(value, list):
        return [_read(item) if isinstance(item, dict) else None for item in value]
    owner = value.get("owner")
    return _flat(value) | ({"owner": _flat(owner)} if isinstance(owner, dict) else {})


def _flat(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in raw.items() if name in _READ and not isinstance(part, dict | list)}


def _next(answer: HttpResponse) -> str | None:
    found = _NEXT.search(answer.headers.get("Link", ""))
    return urljoin(answer.url, found[1]) if found else None


def _following(url: str, value: Any) -> str | None:
    """Give the address of the page after a full one."""
    if not isinstance(value, list) or len(value) < PER_PAGE:
        return None
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    return parts._replace(query=urlencode(query | {"page": str(int(query.get("page", "1")) + 1)})).geturl()
