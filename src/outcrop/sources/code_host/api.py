"""Send requests to the REST API of a code host: authentication, pages, ETags, rate limits and retries.

`HostApi` gets single resources and lists. All hosts use it; `ApiStyle` says how their APIs differ. Every
failure is a `HostError`.
"""

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import orjson

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_regex import regex
from outcrop.limits import HOST_IDLE_PAGES
from outcrop.sources.code_host.errors import ERROR_KINDS, HostError, mask_sent
from outcrop.sources.code_host.options import API_OPTIONS, ApiOptions, EtagCache
from outcrop.sources.code_host.rate_limit import RateLimit, response_date

if TYPE_CHECKING:
    from outcrop.net.http import HttpClient, HttpResponse

_MAX_MESSAGE = 300  # characters of an error message: it repeats text from the host
_OUTDATED_PAGE = {
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.GONE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
}
_LOOPBACK = regex(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]+)?")
_NEXT_LINK = regex(r'<([^<>]*)>[^<,]*;\s*rel="?next\b')

Auth = Callable[[], Awaitable[Mapping[str, str]]]  # returns the headers that authenticate a request


@dataclass(frozen=True, slots=True)
class HostPage:
    """The items of one page of a list, and the URL of the next page."""

    items: list[Any] | None  # None if the response is not a page
    next: str | None = None


ReadPage = Callable[["HttpResponse", Any], HostPage]  # gets the response and its decoded body


def read_linked_page(response: "HttpResponse", value: Any) -> HostPage:
    """Return the page of a list whose body is a JSON list and whose Link header names the next page."""
    return HostPage(value if isinstance(value, list) else None, next_link(response))


def next_link(response: "HttpResponse") -> str | None:
    """Return the URL of the next page from the Link header; None if there is no next page."""
    match = _NEXT_LINK.search(response.headers.get("Link", ""))
    return urljoin(response.url, match[1]) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiStyle:
    """What distinguishes the API of one kind of host from those of others.

    `refused` are statuses below 400 by which a host asks for a sign-in instead of answering. `next_after_304`
    returns the URL that follows an unchanged page.
    """

    headers: Mapping[str, str] = field(default_factory=lambda: {"Accept": "application/json"})
    read_message: Callable[[Any], object] = lambda value: value.get("message")
    reduce: Callable[[Any], Any] = lambda value: value  # drops fields that are not used
    refused: frozenset[int] = frozenset()
    next_after_304: Callable[[str, Any], str | None] = lambda _url, _value: None


@dataclass(frozen=True, slots=True)
class _Reply:
    """A response with its decoded body, and the URL of the page that follows it by its Link header."""

    response: "HttpResponse"
    value: Any
    next: str | None
    etag: str | None = None  # set if the value is from the cache


class HostApi:
    """Get resources from the API of one host, with one token or none.

    `base_url` is the address of the API; paths are appended to it. Raise OperatorError if the token may not
    be sent to it. `etags` caches responses. Those of one `token` are not used with another; `auth` sends it.
    """

    def __init__(
        self,
        http: "HttpClient",
        base_url: str,
        token: Secret | None,
        auth: Auth,
        style: ApiStyle,
        *,
        etags: EtagCache | None = None,
        options: ApiOptions = API_OPTIONS,
    ) -> None:
        self._http = http
        self._base = base_url.rstrip("/")
        if not may_send_token(self._base):
            raise OperatorError(
                "the address of a code host must be an https address without a name, password or query"
            )
        self._origin = origin(self._base)
        self.host = self._origin[1]
        self._sent: Mapping[str, str] = {}  # headers that authenticated the last request
        self._auth = auth
        self._style = style
        self._etags = etags
        # One token may see what another may not, so each has its own cache keys.
        self._cache_prefix = hashlib.sha256(reveal(token).encode()).hexdigest()[:16] if token else "-"
        self._retry_delays = options.retry_delays
        self._limit = RateLimit(
            *(self.host, options.on_wait, options.max_wait, options.sleep, options.clock),
            shared=options.shared_limit,
        )
        self._start = options.start
        self._max_pages = options.max_pages
        self._clock = options.clock
        self._last_date: float | None = None  # of a response

    def now(self) -> float:
        """Return the time in seconds since 1970, by the host's clock if it has shown it."""
        return self._last_date or self._clock()

    async def get(self, path: str) -> Any:
        """Return the decoded JSON of the resource at `path`, reduced to the fields that are used.

        Raise HostError if the request fails or the response is not a JSON object or list.
        """
        return (await self._get(self._base + path)).value

    async def response(self, path: str, *, etag: str | None = None) -> "HttpResponse":
        """Return the response to a GET request for `path`, also one with a failure status below 500.

        With an `etag`, the host answers 304 if the response has not changed.

        Raise HostError if the host cannot be reached, keeps answering 5xx, or has us wait too long.
        """
        return await self._request("GET", self._base + path, etag=etag)

    def next_path(self, response: "HttpResponse") -> str | None:
        """Return the path of the page after a response; None if there is none. Raise if it is elsewhere."""
        url = next_link(response)
        if url is not None and not url.startswith(f"{self._base}/"):
            raise HostError("malformed", f"{self.host}: the next page is at another host")
        return None if url is None else url.removeprefix(self._base)

    async def status(self, path: str) -> int:
        """Return only the HTTP status, below 500, of a GET request for `path`; raise as `response` does."""
        return (await self.response(path)).status

    async def post(self, path: str, headers: Mapping[str, str]) -> Any:
        """Send a POST request without a body, with these headers in place of the token's.

        Return the decoded JSON. Raise HostError if the request fails.
        """
        response = await self._request("POST", self._base + path, auth=headers)
        value = parse_json(response)
        if response.status >= HTTPStatus.MULTIPLE_CHOICES or not isinstance(value, dict):
            raise self.error_from(response)
        return value

    async def send(self, path: str, value: Mapping[str, Any]) -> None:
        """Send a POST request with a JSON body. Raise HostError if the request fails.

        A request whose answer is lost is sent again, so the host may get it twice.
        """
        response = await self._request("POST", self._base + path, body=orjson.dumps(value))
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise self.error_from(response)

    async def pages(
        self, path: str, read: ReadPage = read_linked_page, *, id_field: str = "id"
    ) -> AsyncIterator[Any]:
        """Yield the items of all pages of the list at `path`, each id once; all items without an id too.

        An item appears on two pages if something is created or deleted between the requests. An item that is
        not an object is None. Raise HostError if a request fails, a page is not a list, or the pages do not
        end.
        """
        first = self._base + path
        url: str | None = self._page_to_begin(first)
        requested: set[str] = set()
        seen_ids: set[object] = set()
        idle_pages = 0
        while url is not None:
            if url in requested or len(requested) == self._max_pages or idle_pages == HOST_IDLE_PAGES:
                raise HostError("malformed", f"{_printable_url(url)}: the pages do not end")
            requested.add(url)
            reply = await self._get_page(url, first)
            page = read(reply.response, reply.value)
            if page.items is None:
                raise HostError("malformed", f"{_printable_url(url)}: the response is not a list")
            known = len(seen_ids)
            for item in page.items:
                item_id = _item_id(item, id_field)
                if item_id is None or item_id not in seen_ids:
                    if item_id is not None:
                        seen_ids.add(item_id)
                    yield item if isinstance(item, dict) else None
            idle_pages = idle_pages + 1 if page.items and len(seen_ids) == known else 0
            url = reply.next if reply.etag else page.next
            url = urljoin(self._base, url) if url else None

    def _page_to_begin(self, first: str) -> str:
        """Return the page of a list to begin with: the first one, or that of an interrupted plan."""
        return first if self._start is None else self._start.begin(first)

    async def _get_page(self, url: str, first: str) -> _Reply:
        """Return a page of the list whose first page is `first`.

        Return the first one if the host no longer knows the page from which a plan goes on.
        """
        if self._start is None:
            return await self._get(url)
        is_start = url != first and self._start.is_page(first, url)
        self._start.reach(first, url)
        try:
            return await self._get(url)
        except HostError as error:
            if not is_start or error.status not in _OUTDATED_PAGE:
                raise
            return await self._get(first)

    async def _get(self, url: str) -> _Reply:
        """Return the response at a URL, reduced to the fields that are used, with the URL of the next page.

        The cached response is returned if the host answers that it is unchanged; a new one is cached. Raise
        HostError for a failure status, and for a body that is not a complete JSON object or list.
        """
        key = f"{self._cache_prefix} {url}"
        cached = await self._read_cache(key)
        response = await self._request("GET", url, etag=cached[2] if cached else None)
        if response.status == HTTPStatus.NOT_MODIFIED and cached:
            value, following, etag = cached
            # The page is unchanged, but more pages may follow now.
            if "Link" in response.headers:
                following = next_link(response)
            else:
                following = following or self._style.next_after_304(url, value)
            return _Reply(response, value, following, etag)
        if not response.ok:
            raise self.error_from(response)
        value = parse_json(response)
        if not isinstance(value, dict | list):
            problem = "too large" if response.truncated else "not JSON"
            raise HostError("malformed", f"{_printable_url(url)}: the response is {problem}")
        reply = _Reply(response, self._style.reduce(value), next_link(response))
        if self._etags and (new := response.headers.get("ETag")):
            await self._etags.put(key, new, orjson.dumps({"next": reply.next, "value": reply.value}))
        return reply

    async def _read_cache(self, key: str) -> tuple[Any, str | None, str] | None:
        """Return value, next URL and ETag of the cached page with this key; None if there is no valid one."""
        cached = await self._etags.get(key) if self._etags else None
        if cached is None:
            return None
        try:
            raw = orjson.loads(cached[1])
            return raw["value"], raw["next"], cached[0]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None

    async def _request(
        self,
        method: str,
        url: str,
        *,
        etag: str | None = None,
        auth: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> "HttpResponse":
        """Send a request; wait for rate limits, and retry failures of the connection or the server.

        With an `etag` the host answers 304 if the response has not changed. `auth` replaces the headers of
        the token. Return the response, also with a failure status below 500. Raise HostError if the retries
        are used up, a wait is too long, or the URL is of another host.
        """
        from outcrop.net.http import HttpError  # noqa: PLC0415 - the API and the portal read targets only

        if not self._is_same_host(url):
            raise HostError("malformed", f"{self.host}: the next page is at another host")
        retries = waits = 0
        while True:
            await self._limit.wait_until_allowed()
            self._sent = await self._auth() if auth is None else auth
            headers = {**self._style.headers, **self._sent}
            if etag:
                headers["If-None-Match"] = etag
            if body:
                headers["Content-Type"] = "application/json"
            try:
                response = await self._send(method, url, headers, body)
            except HttpError as error:
                problem = f"{self.host}: {error}"
            else:
                self._limit.record(response)
                self._last_date = response_date(response) or self._last_date
                is_limited = self._limit.is_limited(response, waits)
                await self._limit.publish()
                if is_limited:
                    waits += 1
                    continue
                if response.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return self._refused(response)
                problem = f"{self.host} answered {response.status}"
            if retries == len(self._retry_delays):
                raise HostError("unavailable", problem)
            await self._limit.pause(self._retry_delays[retries], problem)
            retries += 1

    async def _send(self, method: str, url: str, headers: dict[str, str], body: bytes) -> "HttpResponse":
        """Send one request; only a GET request follows redirects, and only on the same host."""
        if method == "GET":
            return await self._http.get(url, headers=headers, may_follow=self._is_same_host)
        return await self._http.request(
            method, url, headers=headers, body=body, max_bytes=1 << 20, seconds=60.0
        )

    def _refused(self, response: "HttpResponse") -> "HttpResponse":
        """Return the response, as one with status 401 if the host has answered with a sign-in page."""
        if response.status in self._style.refused:
            return replace(response, status=HTTPStatus.UNAUTHORIZED, body=b"", headers={})
        return response

    def error_from(self, response: "HttpResponse") -> HostError:
        """Return the error for a response with a failure status, with the reason in its body; mask the token.

        A response with a Location header is a redirect to another host, which was not followed: that is the
        error.
        """
        if "Location" in response.headers:
            return HostError("malformed", f"{self.host}: the response redirects to another host")
        value = parse_json(response)
        text = self._style.read_message(value) if isinstance(value, dict) else None
        reason = one_line(text) if isinstance(text, str) and text else "no reason given"
        message = f"{_printable_url(response.url)}: answered {response.status}: {reason}"
        message = mask_sent(message, self._sent)
        kind = ERROR_KINDS.get(response.status, "malformed")
        return HostError(kind, message[:_MAX_MESSAGE], response.status)

    def _is_same_host(self, url: str) -> bool:
        """Whether the URL has the scheme and host of the API, so that the token may be sent to it."""
        return origin(url) == self._origin


def _item_id(item: Any, name: str) -> object:
    """Return the id of an item of a list; None if it has none that can be compared."""
    value = item.get(name) if isinstance(item, dict) else None
    return value if isinstance(value, str | int) else None


def origin(url: str) -> tuple[str, str]:
    """Return scheme and host of a URL, with the port if it has one; two empty strings if it is malformed.

    A user name and password in the URL are part of the host here.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return "", ""
    return parts.scheme, parts.netloc.lower()


def may_send_token(url: str) -> bool:
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


def parse_json(response: "HttpResponse") -> Any:
    """Return the decoded body of a response; None if it is not JSON or was cut off."""
    try:
        return None if response.truncated else orjson.loads(response.body)
    except orjson.JSONDecodeError:
        return None
