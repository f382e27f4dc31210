"""An HTTP client that obeys robots.txt, the crawl delay of each host, and Retry-After."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from protego import Protego

from outcrop.domain import clock
from outcrop.limits import CRAWL_DELAY_SECONDS, ROBOTS_BYTES, SITE_REDIRECTS, SITE_RETRY_SECONDS
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.sources.web.content_types import is_challenge
from outcrop.sources.web.urls import normalise_url, url_origin

_USER_AGENT = "outcrop"  # as robots.txt files name it
_REDIRECTS = {301, 302, 303, 307, 308}
_RETRY_STATUSES = {429, 503}


class RobotsDisallowedError(HttpError):
    """The robots.txt of the host does not allow to fetch the URL."""


@dataclass(frozen=True, slots=True)
class _Robots:
    """The rules of a host's robots.txt. Without rules everything is allowed, after an `error` nothing is."""

    rules: Protego | None = None
    error: str | None = None

    def refusal(self, url: str) -> str | None:
        """Return why the URL may not be fetched, or None if it may."""
        if self.error:
            return f"robots.txt cannot be read ({self.error}), so nothing may be fetched"
        return (
            "disallowed by robots.txt" if self.rules and not self.rules.can_fetch(url, _USER_AGENT) else None
        )

    @property
    def crawl_delay(self) -> float:
        """The seconds between two requests by robots.txt, at most CRAWL_DELAY_SECONDS; 0 if it has none."""
        delay = self.rules.crawl_delay(_USER_AGENT) if self.rules else None
        return min(delay, CRAWL_DELAY_SECONDS) if delay and delay > 0 else 0.0  # NaN is not above zero


class PoliteClient:
    """Gets URLs of a site and of the hosts that serve its scripts.

    `headers` are sent to the origin `home` only, also after redirects. `robots` is whether to obey
    robots.txt. `pause` is the least number of seconds between two requests to one host. A response is
    truncated at `max_bytes`, and a request fails after `request_seconds`. A retry that would be later than
    `deadline` (on the event loop's clock) is not made; the caller cancels running requests.
    """

    def __init__(
        self,
        http: HttpClient,
        home: str,
        *,
        headers: Mapping[str, str],
        robots: bool,
        pause: float,
        max_bytes: int,
        request_seconds: float,
        deadline: float,
    ) -> None:
        self._http = http
        self._home = home
        self._headers = headers
        self._obeys_robots = robots
        self._pause = pause
        self._max_bytes = max_bytes
        self._request_seconds = request_seconds
        self._deadline = deadline
        self._robots: dict[str, _Robots] = {}  # by origin
        self._robots_locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next_request: dict[str, float] = {}  # host -> the earliest time of the next request
        self._redirects: dict[str, str] = {}  # URL -> the URL that it redirects to

    async def get(
        self, url: str, *, may_follow: Callable[[str], bool], claim: Callable[[str], bool]
    ) -> HttpResponse | None:
        """Get a URL, follow its redirects, and return the last response, whatever its status.

        `may_follow` and `claim` are called with the target of each redirect. Raise HttpError if `may_follow`
        returns False, and for redirects that are malformed, too many or in a circle. Return None if `claim`
        returns False, because another request fetches that URL. Also raise the errors of `get_once`.
        """
        for _ in range(SITE_REDIRECTS):
            response = await self.get_once(url)
            location = response.headers.get("Location")
            if response.status not in _REDIRECTS or not location:
                return response
            target = normalise_url(location, url)
            if target is None:
                raise HttpError("redirects to an address that is not an http or https URL")
            if not may_follow(target):
                raise HttpError(f"redirects to another site, {urlsplit(target).hostname}")
            self._redirects[url] = target
            if self._is_redirect_loop(url):
                raise HttpError("redirects in a circle")
            if not claim(target):
                return None
            url = target
        raise HttpError(f"more than {SITE_REDIRECTS} redirects")

    def _is_redirect_loop(self, url: str) -> bool:
        """Whether the recorded redirects from `url`, also those of other requests, lead back to it."""
        target: str | None = url
        for _ in range(SITE_REDIRECTS + 1):
            target = self._redirects.get(target or "")
            if target is None or target == url:
                break
        return target == url

    async def sitemaps(self, url: str) -> list[str]:
        """Return the sitemaps that the robots.txt of the URL's origin names.

        Return [] if robots.txt names none, cannot be read, or is not obeyed.
        """
        rules = (await self._robots_of(url)).rules
        return list(rules.sitemaps) if rules else []

    async def get_once(self, url: str) -> HttpResponse:
        """Get a URL if robots.txt allows it, and return the response. A redirect is returned as it is.

        Raise RobotsDisallowedError if robots.txt does not allow it, and HttpError if the request fails or a
        bot challenge answers it.
        """
        robots = await self._robots_of(url)
        if refusal := robots.refusal(url):
            raise RobotsDisallowedError(refusal)
        response = await self._get_with_retry(url, max(self._pause, robots.crawl_delay), self._max_bytes)
        if is_challenge(response):
            raise HttpError("answered with a bot challenge page")
        return response

    async def _get_with_retry(self, url: str, pause: float, max_bytes: int) -> HttpResponse:
        """Send a request, and a second one if the response asks for a retry that is soon enough.

        `pause` and `max_bytes` are as in `_send`. Return the last response. Other requests to the host wait
        for the retry too. Raise HttpError if a request fails.
        """
        response = await self._send(url, pause, max_bytes)
        may_retry = response.status in _RETRY_STATUSES and not is_challenge(response)
        wait = _retry_after(response) if may_retry else None
        now = asyncio.get_running_loop().time()
        if wait is None or wait > SITE_RETRY_SECONDS or now + wait > self._deadline:
            return response
        host = urlsplit(url).hostname or ""
        self._next_request[host] = max(self._next_request.get(host, 0.0), now + wait)
        return await self._send(url, pause, max_bytes)

    async def _send(self, url: str, pause: float, max_bytes: int) -> HttpResponse:
        """Wait for the turn of the URL's host and send one request; truncate the response at `max_bytes`.

        The next request to the host waits until `pause` seconds after this one. Raise HttpError if the
        request fails.
        """
        now = asyncio.get_running_loop().time()
        host = urlsplit(url).hostname or ""
        turn = max(now, self._next_request.get(host, 0.0))
        self._next_request[host] = turn + pause
        await asyncio.sleep(turn - now)
        headers = self._headers if url_origin(url) == self._home else None
        return await self._http.get(url, headers=headers, max_bytes=max_bytes, seconds=self._request_seconds)

    async def _robots_of(self, url: str) -> _Robots:
        """Return the robots.txt of the URL's origin, fetched once per origin.

        It has no rules if robots.txt is not obeyed.
        """
        if not self._obeys_robots:
            return _Robots()
        origin = url_origin(url)
        async with self._robots_locks[origin]:
            if origin not in self._robots:
                self._robots[origin] = await self._fetch_robots(f"{origin}/robots.txt")
        return self._robots[origin]

    async def _fetch_robots(self, url: str) -> _Robots:
        """Fetch the robots.txt at `url`, following redirects, and return its rules.

        The result has an `error` if the request fails or the server answers 429 or 500 and above; it has no
        rules for another failure status, or after SITE_REDIRECTS.
        """
        try:
            for _ in range(SITE_REDIRECTS):
                response = await self._get_with_retry(url, self._pause, ROBOTS_BYTES)
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location:
                    break
                url = normalise_url(location, url) or url
        except HttpError as error:
            return _Robots(error=str(error))
        if response.status >= 500 or response.status == 429:
            return _Robots(error=f"answered {response.status}")
        if not response.ok:
            return _Robots()  # as crawlers agree, everything is allowed if there is none or access is denied
        return _Robots(Protego.parse(response.body.decode("utf-8", "replace")))


def _retry_after(response: HttpResponse) -> float | None:
    """Return the seconds until the time in Retry-After, a number or a date; None without a valid header.

    0.0 for a date in the past.
    """
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (date - clock.now()).total_seconds())
