"""Asking a site politely: what robots.txt forbids is left alone, a host has its pauses, and one that asks to wait is waited for once."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from protego import Protego

from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.sources.web.content_types import is_challenge
from outcrop.sources.web.urls import normalise_url, url_origin

_AGENT = "outcrop"
_SECONDS = 60.0  # for one answer
_LONGEST_DELAY = 10.0
_LONGEST_WAIT = 60.0
_MOST_REDIRECTS = 10
_REDIRECTS = {301, 302, 303, 307, 308}
_ASKS_TO_WAIT = {429, 503}
_ROBOTS_BYTES = 512 << 10


class RobotsDisallowedError(HttpError):
    """The site asks not to be asked for this."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a host's robots.txt says; where it cannot be read, nothing may be fetched."""

    parsed: Protego | None = None
    unread: str | None = None

    def refusal(self, url: str) -> str | None:
        if self.unread:
            return f"robots.txt cannot be read ({self.unread}), so that nothing may be fetched"
        return "robots.txt forbids it" if self.parsed and not self.parsed.can_fetch(url, _AGENT) else None

    @property
    def delay(self) -> float:
        named = self.parsed.crawl_delay(_AGENT) if self.parsed else None
        return (
            min(named, _LONGEST_DELAY) if named and named > 0 else 0.0
        )  # what is not a number is not above zero


class PoliteClient:
    """Who asks. The caller's headers go to one origin and nowhere else, whatever redirects where."""

    def __init__(
        self,
        http: HttpClient,
        home: str,
        *,
        headers: Mapping[str, str],
        robots: bool,
        pause: float,
        most_bytes: int,
        deadline: float,
    ) -> None:
        self._http = http
        self._home = home
        self._headers = headers
        self._robots = robots
        self._pause = pause
        self._most_bytes = most_bytes
        self._deadline = (
            deadline  # after which it makes no sense to wait; whoever calls ends what is under way
        )
        self._rules: dict[str, _Rules] = {}
        self._reading: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._next: dict[str, float] = {}  # host → when it may be asked again
        self._moved: dict[str, str] = {}

    async def get(
        self, url: str, *, within: Callable[[str], bool], claim: Callable[[str], bool]
    ) -> HttpResponse | None:
        """Get an address and what it redirects to, as far as `within` allows; None where somebody else has claimed the target."""
        for _ in range(_MOST_REDIRECTS):
            answer = await self.ask(url)
            target = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or not target:
                return answer
            found = normalise_url(target, url)
            if found is None:
                raise HttpError("redirects to what is not an http address")
            if not within(found):
                raise HttpError(f"redirects to another site, {urlsplit(found).hostname}")
            self._moved[url] = found
            if self._is_circle(url):
                raise HttpError("redirects in a circle")
            if not claim(found):
                return None
            url = found
        raise HttpError(f"more than {_MOST_REDIRECTS} redirects")

    def _is_circle(self, url: str) -> bool:
        """Tell whether the redirects lead back; each of them may have been met on another way."""
        at: str | None = url
        for _ in range(_MOST_REDIRECTS + 1):
            at = self._moved.get(at or "")
            if at is None or at == url:
                break
        return at == url

    async def sitemaps(self, url: str) -> list[str]:
        """Give the sitemaps that robots.txt names."""
        parsed = (await self._rules_of(url)).parsed
        return list(parsed.sitemaps) if parsed else []

    async def ask(self, url: str) -> HttpResponse:
        """Get an address as far as robots.txt allows; a redirect is the answer."""
        rules = await self._rules_of(url)
        if refusal := rules.refusal(url):
            raise RobotsDisallowedError(refusal)
        answer = await self._patient(url, max(self._pause, rules.delay), self._most_bytes)
        if is_challenge(answer):
            raise HttpError("answered with a challenge page")
        return answer

    async def _patient(self, url: str, pause: float, most: int) -> HttpResponse:
        """Ask, and once more after the time that the host asks us to wait."""
        answer = await self._ask(url, pause, most)
        wait = _retry_after(answer) if answer.status in _ASKS_TO_WAIT and not is_challenge(answer) else None
        now = asyncio.get_running_loop().time()
        if wait is None or wait > _LONGEST_WAIT or now + wait > self._deadline:
            return answer
        host = urlsplit(url).hostname or ""
        self._next[host] = max(self._next.get(host, 0.0), now + wait)
        return await self._ask(url, pause, most)

    async def _ask(self, url: str, pause: float, most: int) -> HttpResponse:
        now = asyncio.get_running_loop().time()
        host = urlsplit(url).hostname or ""
        turn = max(now, self._next.get(host, 0.0))
        self._next[host] = turn + pause
        await asyncio.sleep(turn - now)
        headers = self._headers if url_origin(url) == self._home else None
        return await self._http.get(url, headers=headers, max_bytes=most, seconds=_SECONDS)

    async def _rules_of(self, url: str) -> _Rules:
        home = url_origin(url)
        if not self._robots:
            return _Rules()
        async with self._reading[home]:
            if home not in self._rules:
                self._rules[home] = await self._read_rules(f"{home}/robots.txt")
        return self._rules[home]

    async def _read_rules(self, url: str) -> _Rules:
        try:
            for _ in range(_MOST_REDIRECTS):
                answer = await self._patient(url, self._pause, _ROBOTS_BYTES)
                location = answer.headers.get("Location")
                if answer.status not in _REDIRECTS or not location:
                    break
                url = normalise_url(location, url) or url
        except HttpError as error:
            return _Rules(unread=str(error))
        if answer.status >= 500 or answer.status == 429:
            return _Rules(unread=f"answered {answer.status}")
        if not answer.ok:
            return _Rules()  # there is none, or it is not for us to see: then everything is allowed
        return _Rules(Protego.parse(answer.body.decode("utf-8", "replace")))


def _retry_after(answer: HttpResponse) -> float | None:
    """Read after how many seconds, or at which time, we may come again."""
    value = answer.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
