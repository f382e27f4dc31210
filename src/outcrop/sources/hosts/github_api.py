"""Send requests to GitHub's REST API: authentication, pagination, ETags, rate limits and retries.

`GitHubApi` gets single resources and lists. `RateLimit` makes all requests with one token wait when GitHub's
limit is reached. Every failure is a `GitHubError`.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Literal, Protocol
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import orjson

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.limits import HOST_PAGES
from outcrop.net.http import HttpClient, HttpError, HttpResponse

PER_PAGE = 100  # the most that GitHub allows
RETRY_DELAYS = (1.0, 2.0, 4.0)  # seconds before each retry of a failure that may be temporary
_MAX_MESSAGE = 300  # characters of an error message: it repeats text from the host
_LOOPBACK = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]+)?")
_NEXT_LINK = re.compile(r'<([^<>]*)>[^<,]*;\s*rel="?next\b')

_RATE_LIMIT_STATUSES = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
_RATE_LIMIT_TEXT = re.compile(rb"rate limit|abuse detection", re.IGNORECASE)  # the second on older servers
_MAX_RATE_LIMIT_WAITS = 5
# For a limit without a time: GitHub's documentation asks for one minute, then for longer waits each time.
_FIRST_WAIT = 60.0
_MAX_DOUBLED_WAIT = 900.0
_HEADER_NUMBER = re.compile(r"[0-9]{1,12}")

GitHubErrorKind = Literal["unauthorised", "not_found", "forbidden", "limited", "unavailable", "malformed"]
OnWait = Callable[[float, str], None]  # called with the seconds and the reason before each wait
Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]  # returns seconds since 1970

_ERROR_KINDS: dict[int, GitHubErrorKind] = {
    HTTPStatus.UNAUTHORIZED: "unauthorised",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS: "forbidden",
    HTTPStatus.NOT_FOUND: "not_found",
    HTTPStatus.GONE: "not_found",
    HTTPStatus.CONFLICT: "not_found",  # a commit was requested from an empty repository
    HTTPStatus.UNPROCESSABLE_ENTITY: "not_found",  # the repository does not have the commit
}
# Only these fields are used and cached: patches and contents of gists can contain credentials.
_USED_FIELDS = {
    "id", "full_name", "clone_url", "html_url", "private", "visibility", "fork", "archived", "has_wiki",
    "size", "pushed_at", "default_branch", "login", "type", "git_pull_url", "public", "updated_at", "sha",
}  # fmt: skip


class GitHubError(Exception):
    """A request failed. `message` is one line for users and never contains the token.

    `kind` is the reason in a form that callers can compare.
    """

    def __init__(self, kind: GitHubErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class EtagCache(Protocol):
    """Responses of earlier runs by key. GitHub does not count a request whose response has not changed."""

    async def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the ETag and the body that were stored for this key; None if nothing is stored."""

    async def put(self, key: str, etag: str, body: bytes) -> None:
        """Store a response body with its ETag for this key."""


class RateLimit:
    """The rate limit of one token at one host. All tasks that share the token wait here.

    `on_wait` is called with the seconds and the reason before each wait. A wait of more than `max_wait`
    seconds is an error instead.
    """

    def __init__(self, host: str, on_wait: OnWait, max_wait: float, sleep: Sleep, clock: Clock) -> None:
        self._host = host
        self._on_wait = on_wait
        self._max_wait = max_wait
        self._sleep = sleep
        self._clock = clock
        self._lock = asyncio.Lock()
        self._blocked_until = 0.0
        self._reason = ""

    async def wait_until_allowed(self) -> None:
        """Wait until the next request may be sent. One task sleeps, the others wait for its lock.

        Raise GitHubError, without waiting, if requests are blocked for longer than `max_wait` seconds.
        """
        async with self._lock:
            while (seconds := (until := self._blocked_until) - self._clock()) > 0:
                if seconds > self._max_wait + 1:  # plus the second that `record` adds
                    raise GitHubError(
                        "limited", f"{self._reason}: {seconds:.0f} seconds are longer than we wait"
                    )
                await self.pause(seconds, self._reason)
                if self._blocked_until == until:  # another response may have set a later time meanwhile
                    self._blocked_until = 0.0

    async def pause(self, seconds: float, reason: str) -> None:
        """Call `on_wait` with the seconds and the reason, then sleep for that many seconds."""
        self._on_wait(seconds, reason)
        await self._sleep(seconds)

    def record(self, response: HttpResponse) -> None:
        """Block further requests until the limit is reset, if this response says that it is used up."""
        reset = _header_number(response, "X-RateLimit-Reset")
        if _header_number(response, "X-RateLimit-Remaining") == 0 and reset is not None:
            # Compare with the host's clock: our own may be wrong by more than the wait.
            self._block(
                max(reset - (_response_date(response) or self._clock()), 0.0) + 1,
                f"the rate limit of {self._host} is used up",
            )

    def is_limited(self, response: HttpResponse, waits: int) -> bool:
        """Whether the host refused the request because of a rate limit. If so, block further requests.

        `waits` is how often this request has been refused before. Raise GitHubError if that is
        _MAX_RATE_LIMIT_WAITS times.
        """
        if response.status not in _RATE_LIMIT_STATUSES:
            return False
        retry_after = _header_number(response, "Retry-After")
        is_used_up = _header_number(response, "X-RateLimit-Remaining") == 0
        if (
            retry_after is None
            and not is_used_up
            and response.status == HTTPStatus.FORBIDDEN
            and not _RATE_LIMIT_TEXT.search(response.body)
        ):
            return False
        if waits == _MAX_RATE_LIMIT_WAITS:
            raise GitHubError(
                "limited", f"{self._host} still refuses requests after {_MAX_RATE_LIMIT_WAITS} waits"
            )
        if retry_after is not None:
            self._block(max(retry_after, 1), f"{self._host} asks for a pause")
        elif not is_used_up or _header_number(response, "X-RateLimit-Reset") is None:
            self._block(min(_FIRST_WAIT * 2**waits, _MAX_DOUBLED_WAIT), f"{self._host} asks for a pause")
        return True

    def _block(self, seconds: float, reason: str) -> None:
        """Block requests for so many seconds, for this reason, unless they are blocked for longer already."""
        until = self._clock() + seconds
        if until > self._blocked_until:
            self._blocked_until, self._reason = until, reason


@dataclass(frozen=True, slots=True)
class _Page:
    """A decoded response, the URL of the next page of a list, and the ETag if the page is from the cache."""

    value: Any
    next: str | None = None
    etag: str | None = None


class GitHubApi:
    """Get resources from the API of one host, with one token or none.

    `base_url` is the address of the API; paths are appended to it. Raise OperatorError if the token may not
    be sent to it. `etags` caches responses, and `limit` makes requests wait.
    """

    def __init__(
        self,
        http: HttpClient,
        base_url: str,
        token: Secret | None,
        etags: EtagCache | None,
        limit: RateLimit,
        *,
        max_pages: int = HOST_PAGES,
        retry_delays: Sequence[float] = RETRY_DELAYS,
    ) -> None:
        self._http = http
        self._retry_delays = retry_delays
        self._base = base_url.rstrip("/")
        if not _may_send_token(self._base):
            raise OperatorError(
                "the address of GitHub's API must be an https address without a name, password or query"
            )
        self._origin = origin(self._base)
        self.host = self._origin[1]
        self._token = token
        self._etags = etags
        # One token may see what another may not, so each has its own cache keys.
        self._cache_prefix = hashlib.sha256(reveal(token).encode()).hexdigest()[:16] if token else "-"
        self._limit = limit
        self._max_pages = max_pages

    async def get(self, path: str) -> Any:
        """Return the decoded JSON of the resource at `path`, reduced to the fields that are used.

        Raise GitHubError if the request fails or the response is not a JSON object or list.
        """
        return (await self._get_page(self._base + path)).value

    async def status(self, path: str) -> int:
        """Return only the HTTP status, below 500, of a GET request for `path`.

        Raise GitHubError if the host cannot be reached, keeps answering 5xx, or has us wait too long.
        """
        return (await self._request(self._base + path)).status

    async def pages(self, path: str) -> AsyncIterator[Any]:
        """Yield the items of all pages of the list at `path`, each id once; all items without an id too.

        An item appears on two pages if something is created or deleted between the requests. An item that is
        not an object is None. Raise GitHubError if a request fails, a page is not a list, or the pages do not
        end.
        """
        url: str | None = self._base + path
        requested: set[str] = set()
        seen_ids: set[object] = set()
        while url is not None:
            if url in requested or len(requested) == self._max_pages:
                raise GitHubError("malformed", f"{_printable_url(url)}: the pages do not end")
            requested.add(url)
            page = await self._get_page(url)
            if not isinstance(page.value, list):
                raise GitHubError("malformed", f"{_printable_url(url)}: the response is not a list")
            for item in page.value:
                item_id = item.get("id") if item else None
                if item_id is None or item_id not in seen_ids:
                    seen_ids.add(item_id)
                    yield item
            url = page.next

    async def _get_page(self, url: str) -> _Page:
        """Return the page at a URL, reduced to the fields that are used, with the URL of the next page.

        The cached page is returned if the host answers that it is unchanged; a new one is cached. Raise
        GitHubError for a failure status, and for a body that is not a complete JSON object or list.
        """
        key = f"{self._cache_prefix} {url}"
        cached = await self._read_cache(key)
        response = await self._request(url, cached.etag if cached else None)
        if response.status == HTTPStatus.NOT_MODIFIED and cached:
            # The page is unchanged, but more pages may follow now.
            has_link = "Link" in response.headers
            next_url = (
                _next_url(response) if has_link else cached.next or _url_after_full_page(url, cached.value)
            )
            return replace(cached, next=next_url)
        if not response.ok:
            raise self._error_from(response)
        value = _parse_json(response)
        if not isinstance(value, dict | list):
            problem = "too large" if response.truncated else "not JSON"
            raise GitHubError("malformed", f"{_printable_url(url)}: the response is {problem}")
        page = _Page(_keep_used_fields(value), _next_url(response))
        if self._etags and (new := response.headers.get("ETag")):
            await self._etags.put(key, new, orjson.dumps({"next": page.next, "value": page.value}))
        return page

    async def _read_cache(self, key: str) -> _Page | None:
        """Return the cached page with this key; None if there is none, or if it cannot be parsed."""
        cached = await self._etags.get(key) if self._etags else None
        if cached is None:
            return None
        try:
            raw = orjson.loads(cached[1])
            return _Page(raw["value"], raw["next"], cached[0])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None

    async def _request(self, url: str, etag: str | None = None) -> HttpResponse:
        """Send a GET request; wait for rate limits, and retry failures of the connection or the server.

        With an `etag` the host answers 304 if the response has not changed. Return the response, also with a
        failure status below 500. Raise GitHubError if the retries are used up, a wait is too long, or the URL
        is of another host.
        """
        if not self._is_same_host(url):
            raise GitHubError("malformed", f"{self.host}: the next page is at another host")
        headers = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        if self._token:
            headers["Authorization"] = f"Bearer {reveal(self._token)}"
        if etag:
            headers["If-None-Match"] = etag
        retries = rate_limit_waits = 0
        while True:
            await self._limit.wait_until_allowed()
            try:
                response = await self._http.get(url, headers=headers, may_follow=self._is_same_host)
            except HttpError as error:
                problem = f"{self.host}: {error}"
            else:
                self._limit.record(response)
                if self._limit.is_limited(response, rate_limit_waits):
                    rate_limit_waits += 1
                    continue
                if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return response
                problem = f"{self.host} answered {response.status}"
            if retries == len(self._retry_delays):
                raise GitHubError("unavailable", problem)
            await self._limit.pause(self._retry_delays[retries], problem)
            retries += 1

    def _error_from(self, response: HttpResponse) -> GitHubError:
        """Return the error for a response with a failure status, with the reason in its body; mask the token.

        A response with a Location header is a redirect to another host, which was not followed: that is the
        error.
        """
        if "Location" in response.headers:
            return GitHubError("malformed", f"{self.host}: the response redirects to another host")
        value = _parse_json(response)
        text = value.get("message") if isinstance(value, dict) else None
        reason = one_line(text) if isinstance(text, str) else "no reason given"
        message = f"{_printable_url(response.url)}: answered {response.status}: {reason}"
        if self._token:  # a host may repeat what it was sent
            message = self._token.masked_within(message)
        return GitHubError(_ERROR_KINDS.get(response.status, "malformed"), message[:_MAX_MESSAGE])

    def _is_same_host(self, url: str) -> bool:
        """Whether the URL has the scheme and host of the API, so that the token may be sent to it."""
        return origin(url) == self._origin


def origin(url: str) -> tuple[str, str]:
    """Return scheme and host of a URL, with the port if it has one; two empty strings if it is malformed.

    A user name and password in the URL are part of the host here.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc.lower()


def _may_send_token(url: str) -> bool:
    """Whether a token may be sent to the API at `url`: over https, or over http to this machine.

    False if the URL is malformed or has a user name, query or fragment.
    """
    scheme, host = origin(url)
    if not host or any(sign in url for sign in "@?#"):
        return False
    return scheme == "https" or (scheme == "http" and _LOOPBACK.fullmatch(host) is not None)


def _printable_url(url: str) -> str:
    """Return host and path of a URL on one line, without its query."""
    parts = urlsplit(url)
    return one_line(parts.netloc + parts.path)


def _parse_json(response: HttpResponse) -> Any:
    """Return the decoded body of a response; None if it is not JSON or was cut off."""
    try:
        return None if response.truncated else orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None


def _keep_used_fields(value: Any) -> Any:
    """Reduce a decoded resource, or each resource of a list, to _USED_FIELDS; an owner in it likewise.

    Fields whose value is an object or a list are dropped, except `owner`. Items of a list that are not
    objects become None.
    """
    if isinstance(value, list):
        return [_keep_used_fields(item) if isinstance(item, dict) else None for item in value]
    owner = value.get("owner")
    return _scalar_fields(value) | ({"owner": _scalar_fields(owner)} if isinstance(owner, dict) else {})


def _scalar_fields(raw: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of `raw` that are in _USED_FIELDS and whose value is no object and no list."""
    return {
        name: value
        for name, value in raw.items()
        if name in _USED_FIELDS and not isinstance(value, dict | list)
    }


def _next_url(response: HttpResponse) -> str | None:
    """Return the URL of the next page from the Link header; None if there is no next page."""
    match = _NEXT_LINK.search(response.headers.get("Link", ""))
    return urljoin(response.url, match[1]) if match else None


def _url_after_full_page(url: str, value: Any) -> str | None:
    """Return the URL of the page after the one at `url`; None if the page at `url` is not full.

    `value` is the decoded page at `url`. The page is full if it is a list of PER_PAGE items.
    """
    if not isinstance(value, list) or len(value) < PER_PAGE:
        return None
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    return parts._replace(query=urlencode(query | {"page": str(int(query.get("page", "1")) + 1)})).geturl()


def _header_number(response: HttpResponse, name: str) -> int | None:
    """Return the header `name` as a number; None if it is missing or not a number of up to 12 digits."""
    text = response.headers.get(name, "")
    return int(text) if _HEADER_NUMBER.fullmatch(text) else None


def _response_date(response: HttpResponse) -> float | None:
    """Return the Date header in seconds since 1970, or None if it is missing or malformed."""
    try:
        return parsedate_to_datetime(response.headers["Date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
