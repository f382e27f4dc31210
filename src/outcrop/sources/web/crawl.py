"""Crawl a web site: its pages, the scripts that they load from any host, and the files in source maps.

1. The start is fetched. If that fails, the crawl ends.
2. Pages from sitemaps and, as an option, leak paths are added to the frontier.
3. URLs of the frontier are fetched, several at a time. The links of each response are added to the frontier,
   and its texts are yielded as resources.
"""

import asyncio
import base64
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit

from outcrop.limits import CRAWL_LIMITS, SITEMAPS, CrawlLimits
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.sources.web.frontier import Frontier, FrontierEntry
from outcrop.sources.web.leak_paths import LEAK_PATHS, is_leaked_file
from outcrop.sources.web.links import sitemap_links
from outcrop.sources.web.polite_client import PoliteClient, RobotsDisallowedError
from outcrop.sources.web.response_reader import ParsedResponse, Resource, parse_response
from outcrop.sources.web.urls import (
    WebLinkKind,
    is_same_site,
    normalise_url,
    redact_url,
    url_origin,
    url_path,
)

_GONE_STATUSES = {404, 410}
_SERVER_ERROR = 500

GapCallback = Callable[[str, str], None]  # called with the URL that was skipped and the reason


@dataclass(frozen=True, slots=True)
class CrawlOptions:
    """The start of a crawl and its limits."""

    start: str
    depth: int = 3  # links from the start; 0 is the start and what it loads
    max_pages: int = 500  # scripts and source maps have their own limit of the same size
    leak_paths: bool = False  # also request paths at which private files are often served
    robots: bool = True  # obey robots.txt
    include: tuple[str, ...] = ()  # globs over the paths of pages; none means all
    exclude: tuple[str, ...] = ()  # globs over all paths of the site
    headers: Mapping[str, str] = field(default_factory=dict)  # sent to the origin of the start only
    concurrency: int = 4  # requests at a time
    pause: float = 0.0  # seconds between two requests to one host
    max_bytes: int = CRAWL_LIMITS.max_bytes
    request_seconds: float = CRAWL_LIMITS.request_seconds
    seconds: float = CRAWL_LIMITS.seconds

    @classmethod
    def from_target(
        cls,
        start: str,
        options: Mapping[str, Any],
        include: Sequence[str],
        exclude: Sequence[str],
        headers: Mapping[str, str] | None = None,
        *,
        limits: CrawlLimits = CRAWL_LIMITS,
    ) -> "CrawlOptions":
        """Return the options of a crawl from the start URL and the options of a target.

        `options` has the keys of `domain.target.OPTIONS`; a missing key has its default. `include` and
        `exclude` are globs over paths; `headers` are sent to the origin of `start` only.
        """
        return cls(
            start,
            depth=int(options.get("depth", 3)),
            max_pages=int(options.get("pages", 500)),
            leak_paths=bool(options.get("leak_places")),
            robots=bool(options.get("robots", True)),
            include=tuple(include),
            exclude=tuple(exclude),
            headers=headers or {},
            max_bytes=limits.max_bytes,
            request_seconds=limits.request_seconds,
            seconds=limits.seconds,
        )

    def open_client(self, http: HttpClient, *, deadline: float, authenticated: bool = True) -> PoliteClient:
        """Return a client with these limits, which sends `headers` and the login only if `authenticated`.

        The login is the user name and password in the start URL. The client makes no retry after `deadline`,
        a time of the event loop's clock.
        """
        return PoliteClient(
            http,
            url_origin(normalise_url(self.start) or self.start),
            headers=self._headers_with_login() if authenticated else {},
            robots=self.robots,
            pause=self.pause,
            max_bytes=self.max_bytes,
            request_seconds=self.request_seconds,
            deadline=deadline,
        )

    def _headers_with_login(self) -> Mapping[str, str]:
        """Return the headers, with basic authorization if the start URL has a user name.

        An Authorization header in `headers` is kept.
        """
        parts = urlsplit(self.start)
        if not parts.username or any(name.lower() == "authorization" for name in self.headers):
            return self.headers
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {**self.headers, "Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


async def crawl(http: HttpClient, options: CrawlOptions, gap: GapCallback) -> AsyncGenerator[Resource, None]:
    """Yield the resources of a site; call `gap` with the redacted URL and the reason of each gap.

    Failures of requests are gaps and not raised. Closing the iterator ends all requests.
    """
    start = normalise_url(options.start)
    if start is None:
        gap(redact_url(options.start), "not an http or https URL")
        return
    crawler = _Crawler(http, options, start, gap)
    try:
        async for resource in crawler.run():
            yield resource
    finally:
        await crawler.stop()


class _Crawler:
    """The state of one crawl. At most `concurrency` responses are in memory; the frontier holds URLs only."""

    def __init__(self, http: HttpClient, options: CrawlOptions, start: str, gap: GapCallback) -> None:
        self._options = options
        self._start = start
        self._home = start  # the URL after redirects of the start
        self._gap_callback = gap
        self._reported_gaps: set[tuple[str, str]] = set()
        self._deadline = asyncio.get_running_loop().time() + options.seconds
        self._client = options.open_client(http, deadline=self._deadline)
        self._frontier = Frontier(
            start,
            depth=options.depth,
            max_pages=options.max_pages,
            include=options.include,
            exclude=options.exclude,
        )
        self._tasks: set[asyncio.Task[list[Resource] | None]] = set()
        self._original_digests: set[bytes] = set()  # of original files: bundles share many
        self._probe: tuple[str, HttpResponse] | None = None  # a random path and the response for it

    async def run(self) -> AsyncIterator[Resource]:
        """Fetch the start and yield its resources, then those of all other URLs; end if the start fails."""
        try:
            async with asyncio.timeout_at(self._deadline):
                resources = await self._fetch(self._frontier.take_start())
        except TimeoutError:
            resources = None
            self._report_gap(self._start, f"no complete response within {self._options.seconds:g} seconds")
        if resources is None:
            return
        for resource in resources:
            yield resource
        async for resource in self._crawl_frontier():
            yield resource

    async def _crawl_frontier(self) -> AsyncIterator[Resource]:
        """Fetch all other URLs and yield their resources, until none is left or the time is over.

        URLs that were skipped because of a limit are reported as gaps.
        """
        if self._options.depth:
            self._start_task(self._read_sitemaps())
        if self._options.leak_paths:
            self._start_task(self._add_leak_paths())
        while self._start_fetches():
            remaining = self._deadline - asyncio.get_running_loop().time()
            done, self._tasks = await asyncio.wait(
                self._tasks, timeout=max(remaining, 0.0), return_when=asyncio.FIRST_COMPLETED
            )
            for resource in chain.from_iterable(task.result() or () for task in done):
                yield resource
            skipped = len(self._tasks) + self._frontier.waiting
            if skipped and asyncio.get_running_loop().time() >= self._deadline:
                limit = f"time limit of {self._options.seconds:g} seconds"
                self._report_gap(self._start, f"{limit}: {skipped} known addresses were skipped")
                return
        for reason in self._frontier.limit_gaps():
            self._report_gap(self._start, reason)

    def _start_fetches(self) -> bool:
        """Start tasks for URLs of the frontier, up to the concurrency limit; False if no task runs then."""
        concurrency = max(1, self._options.concurrency)
        while len(self._tasks) < concurrency and (entry := self._frontier.take()):
            self._start_task(self._fetch(entry))
        return bool(self._tasks)

    def _start_task(self, work: Coroutine[Any, Any, list[Resource] | None]) -> None:
        """Run a coroutine as a task of this crawl; `_crawl_frontier` yields the resources that it returns."""
        self._tasks.add(asyncio.create_task(work))

    async def stop(self) -> None:
        """Cancel all running tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _report_gap(self, url: str, reason: str) -> None:
        """Pass a gap to the callback, with a redacted URL, unless the same gap was passed before."""
        gap = (redact_url(url), reason)
        if gap not in self._reported_gaps:
            self._reported_gaps.add(gap)
            self._gap_callback(*gap)

    # --- One URL

    async def _fetch(self, entry: FrontierEntry) -> list[Resource] | None:
        """Fetch the URL of an entry, add its links to the frontier, and return its new resources.

        Return None if it cannot be read, and [] for a leak path at which the site has no file. Gaps are
        reported. For the start, also store the URL after redirects.
        """
        response = await self._get(entry)
        if response is None:
            return None
        if entry.url == self._start:
            self._home = response.url
        if entry.kind is WebLinkKind.LEAK_PATH and not (
            self._probe and is_leaked_file(url_path(entry.url), response, *self._probe)
        ):
            return []
        if response.truncated:
            limit = self._options.max_bytes
            self._report_gap(response.url, f"larger than {limit} bytes: only the beginning was scanned")
        parsed = await asyncio.to_thread(parse_response, response, entry.kind, entry.page)
        if parsed.problem and (entry.expected or parsed.resources):
            self._report_gap(response.url, parsed.problem)
        self._add_links(parsed, entry, response.url)
        return [resource for resource in parsed.resources if self._is_new(resource)]

    async def _get(self, entry: FrontierEntry) -> HttpResponse | None:
        """Get the URL of an entry and return its response, which has a status of 200 to 299.

        Return None if that fails, or if the URL redirects to one that is seen or excluded. A failure is
        reported as a gap, unless it is that of a leak path or `_is_gap` returns False for the status. A URL
        that robots.txt disallows is always a gap, and does not count for the limit of pages.
        """
        try:
            response = await self._client.get(
                entry.url, may_follow=lambda url: self._may_follow(entry, url), claim=self._frontier.claim
            )
        except HttpError as error:
            is_disallowed = isinstance(error, RobotsDisallowedError)
            if is_disallowed:
                self._frontier.uncount(entry)
            if entry.kind is not WebLinkKind.LEAK_PATH or is_disallowed:
                self._report_gap(entry.url, str(error))
            return None
        if response is None and entry.url == self._start:
            self._report_gap(entry.url, "redirects to an excluded address")
        if response is None or 200 <= response.status < 300:
            return response
        if self._is_gap(entry, response.status):
            self._report_gap(entry.url, f"answered {response.status}")
        return None

    def _may_follow(self, entry: FrontierEntry, url: str) -> bool:
        """Whether a redirect of the entry's URL to `url` may be followed.

        Scripts and source maps may redirect anywhere, all others within the site only. A leak path may not:
        if it redirects, it is not a file.
        """
        return entry.kind in {WebLinkKind.SCRIPT, WebLinkKind.SOURCE_MAP} or (
            entry.kind is not WebLinkKind.LEAK_PATH and is_same_site(url, self._start)
        )

    def _is_gap(self, entry: FrontierEntry, status: int) -> bool:
        """Whether a failure status for an entry is a gap.

        For the start and for scripts that should exist, every failure status is a gap. For source maps and
        for URLs that need not exist, only a status from 500 on is a gap. For leak paths none is. For all
        others, every status but 404 and 410 is a gap.
        """
        if entry.url == self._start or (entry.kind is WebLinkKind.SCRIPT and entry.expected):
            return True
        if entry.kind is WebLinkKind.SOURCE_MAP or not entry.expected:
            return status >= _SERVER_ERROR
        return entry.kind is not WebLinkKind.LEAK_PATH and status not in _GONE_STATUSES

    def _add_links(self, parsed: ParsedResponse, entry: FrontierEntry, url: str) -> None:
        """Add the links of a response and its source map to the frontier.

        The response was fetched for `entry` from `url`. If leak paths are tried, `.map` is appended to the
        URL of a script of the site that names no map.
        """
        self._frontier.add_links(parsed.links, entry, url)
        if parsed.map_url:
            self._frontier.add(FrontierEntry(parsed.map_url, WebLinkKind.SOURCE_MAP, entry.depth, entry.page))
        elif parsed.is_script and self._options.leak_paths and is_same_site(url, self._start):
            guess = f"{url_origin(url)}{url_path(url)}.map"
            self._frontier.add(
                FrontierEntry(guess, WebLinkKind.SOURCE_MAP, entry.depth, entry.page, expected=False)
            )

    def _is_new(self, resource: Resource) -> bool:
        """Whether a resource was not yielded before; an original file is remembered as yielded.

        A resource that is a whole response is always new, since each URL is fetched once. An original file of
        a source map is compared by origin, path and content.
        """
        is_original_file = not resource.file_path.startswith("/")
        if not is_original_file:
            return True
        key = f"{resource.origin}\n{resource.path}\n".encode("utf-8", "surrogatepass")
        digest = blake2b(key + resource.body, digest_size=16).digest()
        is_new = digest not in self._original_digests
        self._original_digests.add(digest)
        return is_new

    # --- URLs that no page links to

    async def _read_sitemaps(self) -> list[Resource]:
        """Add the pages of the sitemaps that robots.txt names, or of /sitemap.xml, to the frontier.

        Return []. At most SITEMAPS are read, and only those of the site; a gap reports that there are
        more.
        """
        named = [
            url
            for text in await self._client.sitemaps(self._home)
            if (url := normalise_url(text, self._home))
        ]
        sitemaps = named or [f"{url_origin(self._home)}/sitemap.xml"]
        for number, url in enumerate(sitemaps):  # sitemaps that an index lists are appended meanwhile
            if number >= SITEMAPS:
                self._report_gap(self._start, f"more than {SITEMAPS} sitemaps: the rest was skipped")
                break
            if not is_same_site(url, self._start) or not self._frontier.claim(url):
                continue
            response = await self._get(FrontierEntry(url, WebLinkKind.SITEMAP, expected=bool(named)))
            if response is not None:
                body = _gunzip(response.body, self._options.max_bytes)
                pages, further = await asyncio.to_thread(sitemap_links, body, response.url)
                sitemaps += further
                for page in pages:
                    self._frontier.add(FrontierEntry(page, WebLinkKind.PAGE, depth=1))
        return []

    async def _add_leak_paths(self) -> list[Resource]:
        """Request a random path to learn how the site answers for missing files, then add the leak paths.

        The path and its response are stored in `_probe`; if it redirects, a made-up response with status 404
        takes the place of the redirect. If the request fails, report a gap and add nothing. Return [].
        """
        path = f"/{token_hex(8)}.txt"
        try:
            response = await self._client.get(
                f"{url_origin(self._home)}{path}", may_follow=lambda _: True, claim=lambda _: False
            )
        except HttpError as error:
            self._report_gap(self._home, f"paths of commonly leaked files were not tried: {error}")
            return []
        # A redirect, for which the client returns None, means as much as 404.
        self._probe = (path, response or HttpResponse(path, 404, {}, b""))
        for leak_path in LEAK_PATHS:
            self._frontier.add(FrontierEntry(f"{url_origin(self._home)}{leak_path}", WebLinkKind.LEAK_PATH))
        return []


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    """Decompress a gzip file, up to `max_bytes`; return a body that is no gzip file unchanged.

    Of a gzip file that is cut off, the beginning is returned; for a damaged one b"".
    """
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(wbits=31).decompress(body, max_bytes)
    except zlib.error:
        return b""
