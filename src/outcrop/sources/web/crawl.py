"""Everything that a web site serves: its pages, the scripts they load from anywhere, and the files those scripts were made from."""

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

from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.sources.web.frontier import Frontier, FrontierEntry
from outcrop.sources.web.leak_paths import LEAK_PATHS, is_leaked_file
from outcrop.sources.web.link import LinkKind
from outcrop.sources.web.links import sitemap_links
from outcrop.sources.web.polite_client import PoliteClient, RobotsDisallowedError
from outcrop.sources.web.response_reader import ParsedResponse, Resource, everything, read
from outcrop.sources.web.urls import is_same_site, normalise_url, redact_url, url_origin, url_path

__all__ = ["CrawlOptions", "RefetchResult", "Resource", "crawl", "refetch", "refetch_client"]

_MOST_SITEMAPS = 20
_GONE = {404, 410}
_SERVER_ERROR = 500

Gap = Callable[[str, str], None]  # what, why


@dataclass(frozen=True, slots=True)
class CrawlOptions:
    """What is asked for."""

    start: str
    depth: int = 3  # links away from the start; 0 is this one address and what it loads
    most_pages: int = 500  # scripts and their maps have a limit of their own, of the same size
    leak_places: bool = False
    robots: bool = True
    include: tuple[str, ...] = ()  # globs over the path of pages; none means all
    exclude: tuple[str, ...] = ()  # globs over the path of whatever the site serves
    headers: Mapping[str, str] = field(default_factory=dict)  # for the start's own origin only
    at_once: int = 4
    pause: float = 0.0  # seconds between two requests to one host
    most_bytes: int = 32 << 20
    seconds: float = 1_800.0

    @classmethod
    def from_target(
        cls,
        start: str,
        options: Mapping[str, Any],
        include: Sequence[str],
        exclude: Sequence[str],
        headers: Mapping[str, str] | None = None,
    ) -> "CrawlOptions":
        """Give a site as a target names it: the options of `domain.target`, by their names."""
        return cls(
            start,
            depth=int(options.get("depth", 3)),
            most_pages=int(options.get("pages", 500)),
            leak_places=bool(options.get("leak_places")),
            robots=bool(options.get("robots", True)),
            include=tuple(include),
            exclude=tuple(exclude),
            headers=headers or {},
        )


async def crawl(http: HttpClient, site: CrawlOptions, gap: Gap) -> AsyncGenerator[Resource, None]:
    """Give what a site serves, one by one; tell what could not be looked at. Closing the iterator ends all requests."""
    start = normalise_url(site.start)
    if start is None:
        gap(redact_url(site.start), "is not an http address")
        return
    work = _Crawl(http, site, start, gap)
    try:
        async for resource in work.run():
            yield resource
    finally:
        await work.stop()


class _Crawl:
    """One crawl. No more answers are held than are asked for at once; what waits is addresses."""

    def __init__(self, http: HttpClient, site: CrawlOptions, start: str, gap: Gap) -> None:
        self._site = site
        self._start = start
        self._home = start  # where the start redirects to
        self._tell = gap
        self._told: set[tuple[str, str]] = set()
        self._deadline = asyncio.get_running_loop().time() + site.seconds
        self._visitor = PoliteClient(
            http,
            url_origin(start),
            headers=_with_login(site),
            robots=site.robots,
            pause=site.pause,
            most_bytes=site.most_bytes,
            deadline=self._deadline,
        )
        self._frontier = Frontier(
            start, depth=site.depth, most=site.most_pages, include=site.include, exclude=site.exclude
        )
        self._pending: set[asyncio.Task[list[Resource] | None]] = set()
        self._originals: set[bytes] = set()  # digests: bundles share many files
        self._probe: tuple[str, HttpResponse] | None = (
            None  # what the site answers for a name that nobody has
        )

    async def run(self) -> AsyncIterator[Resource]:
        try:
            async with asyncio.timeout_at(self._deadline):
                found = await self._visit(self._frontier.first())
        except TimeoutError:
            found = None
            self._gap(self._start, f"no whole answer within {self._site.seconds:g} seconds")
        for resource in found or ():
            yield resource
        if found is not None:
            async for resource in self._rest():
                yield resource

    async def _rest(self) -> AsyncIterator[Resource]:
        """Go on from a start that could be read."""
        if self._site.depth:
            self._launch(self._read_sitemaps())
        if self._site.leak_places:
            self._launch(self._prepare_places())
        while self._fill():
            left = self._deadline - asyncio.get_running_loop().time()
            done, self._pending = await asyncio.wait(
                self._pending, timeout=max(left, 0.0), return_when=asyncio.FIRST_COMPLETED
            )
            for resource in chain.from_iterable(task.result() or () for task in done):
                yield resource
            ahead = len(self._pending) + self._frontier.waiting
            if ahead and asyncio.get_running_loop().time() >= self._deadline:
                self._gap(
                    self._start,
                    f"{self._site.seconds:g} seconds are over: {ahead} known addresses were not looked at",
                )
                return
        for why in self._frontier.left_out():
            self._gap(self._start, why)

    def _fill(self) -> bool:
        """Begin as much as may be under way at once; False when all is done."""
        while len(self._pending) < max(1, self._site.at_once) and (target := self._frontier.take()):
            self._launch(self._visit(target))
        return bool(self._pending)

    async def stop(self) -> None:
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)

    def _launch(self, work: Coroutine[Any, Any, list[Resource] | None]) -> None:
        self._pending.add(asyncio.create_task(work))

    def _gap(self, url: str, why: str) -> None:
        """Tell a gap, each once."""
        if (entry := (redact_url(url), why)) not in self._told:
            self._told.add(entry)
            self._tell(*entry)

    async def _visit(self, target: FrontierEntry) -> list[Resource] | None:
        """Fetch and read one address; None where it could not be read."""
        answer = await self._get(target)
        if answer is None:
            return None
        if target.url == self._start:
            self._home = answer.url
        if target.kind is LinkKind.PLACE and not (
            self._probe and is_leaked_file(url_path(target.url), answer, *self._probe)
        ):
            return []
        if answer.truncated:
            self._gap(
                answer.url, f"is larger than {self._site.most_bytes} bytes: only its beginning was looked at"
            )
        reading = await asyncio.to_thread(read, answer, target.kind, target.page)
        if reading.problem and (target.sure or reading.resources):
            self._gap(answer.url, reading.problem)
        self._follow(reading, target, answer.url)
        return [resource for resource in reading.resources if self._is_new(resource)]

    async def _get(self, target: FrontierEntry) -> HttpResponse | None:
        try:
            answer = await self._visitor.get(
                target.url, within=lambda url: self._is_within(target, url), claim=self._frontier.claim
            )
        except HttpError as error:
            if isinstance(error, RobotsDisallowedError):
                self._frontier.give_back(target)
            if target.kind is not LinkKind.PLACE or isinstance(error, RobotsDisallowedError):
                self._gap(target.url, str(error))
            return None
        if answer is None and target.url == self._start:
            self._gap(target.url, "redirects to what is excluded")
        if answer is None or 200 <= answer.status < 300:
            return answer
        if self._is_worth_telling(target, answer.status):
            self._gap(target.url, f"answered {answer.status}")
        return None

    def _is_within(self, target: FrontierEntry, url: str) -> bool:
        """Tell whether a redirect may be followed; of a place that is tried, none says anything."""
        return target.kind in {LinkKind.SCRIPT, LinkKind.MAP} or (
            target.kind is not LinkKind.PLACE and is_same_site(url, self._start)
        )

    def _is_worth_telling(self, target: FrontierEntry, status: int) -> bool:
        """Tell whether an answer that holds nothing is a gap: a dead link is none, nor is a map that was never published."""
        if target.url == self._start or (target.kind is LinkKind.SCRIPT and target.sure):
            return True
        if target.kind is LinkKind.MAP or not target.sure:
            return status >= _SERVER_ERROR
        return target.kind is not LinkKind.PLACE and status not in _GONE

    def _follow(self, reading: ParsedResponse, target: FrontierEntry, url: str) -> None:
        self._frontier.follow(reading.links, target, url)
        if reading.map_url:
            self._frontier.add(FrontierEntry(reading.map_url, LinkKind.MAP, target.depth, target.page))
        elif reading.is_script and self._site.leak_places and is_same_site(url, self._start):
            self._frontier.add(
                FrontierEntry(
                    f"{url_origin(url)}{url_path(url)}.map",
                    LinkKind.MAP,
                    target.depth,
                    target.page,
                    sure=False,
                )
            )

    def _is_new(self, resource: Resource) -> bool:
        """Tell whether an original file was not given before; what has a path of its own was fetched once."""
        if resource.file_path.startswith("/"):
            return True
        key = f"{resource.origin}\n{resource.path}\n".encode("utf-8", "surrogatepass")
        digest = blake2b(key + resource.body, digest_size=16).digest()
        new = digest not in self._originals
        self._originals.add(digest)
        return new

    async def _read_sitemaps(self) -> list[Resource]:
        """Add the pages that the site itself lists."""
        named = [
            url
            for text in await self._visitor.sitemaps(self._home)
            if (url := normalise_url(text, self._home))
        ]
        ahead = named or [f"{url_origin(self._home)}/sitemap.xml"]
        for number, url in enumerate(ahead):
            if number >= _MOST_SITEMAPS:
                self._gap(self._start, f"more than {_MOST_SITEMAPS} sitemaps: the rest was not looked at")
                break
            if not is_same_site(url, self._start) or not self._frontier.claim(url):
                continue
            answer = await self._get(FrontierEntry(url, LinkKind.SITEMAP, sure=bool(named)))
            if answer is not None:
                pages, further = await asyncio.to_thread(
                    sitemap_links, _unzipped(answer.body, self._site.most_bytes), answer.url
                )
                ahead += further
                for page in pages:
                    self._frontier.add(FrontierEntry(page, LinkKind.PAGE, depth=1))
        return []

    async def _prepare_places(self) -> list[Resource]:
        """Ask for a name that nobody has, then put the places in the queue."""
        path = f"/{token_hex(8)}.txt"
        try:
            # A redirect says that there is no such file as well as 404 does.
            answer = await self._visitor.get(
                f"{url_origin(self._home)}{path}", within=lambda _: True, claim=lambda _: False
            )
        except HttpError as error:
            self._gap(self._home, f"places where files are left were not tried: {error}")
            return []
        self._probe = (path, answer or HttpResponse(path, 404, {}, b""))
        for place in LEAK_PATHS:
            self._frontier.add(FrontierEntry(f"{url_origin(self._home)}{place}", LinkKind.PLACE))
        return []


@dataclass(frozen=True, slots=True)
class RefetchResult:
    """What stands at a finding's address now. Only a look that has not failed tells that something is gone."""

    status: int | None = None
    media_type: str = ""
    body: bytes = b""  # with the original files of a source map in it
    failed: str | None = None


def refetch_client(http: HttpClient, site: CrawlOptions, *, authenticated: bool) -> PoliteClient:
    """Give who comes to a site again, with what proves who we are or as a stranger; as long and as politely as a crawl."""
    deadline = asyncio.get_running_loop().time() + site.seconds
    headers = _with_login(site) if authenticated else {}
    home = url_origin(normalise_url(site.start) or site.start)
    return PoliteClient(
        http,
        home,
        headers=headers,
        robots=site.robots,
        pause=site.pause,
        most_bytes=site.most_bytes,
        deadline=deadline,
    )


async def refetch(visitor: PoliteClient, url: str) -> RefetchResult:
    """Ask once for a finding's own address. A redirect is an answer: what stands elsewhere says nothing about it."""
    try:
        answer = await visitor.ask(url)
    except HttpError as error:
        return RefetchResult(failed=str(error))
    failed = "the answer is larger than what is read of one" if answer.truncated else None
    body = await asyncio.to_thread(everything, answer)
    return RefetchResult(answer.status, answer.media_type, body, failed)


def _with_login(site: CrawlOptions) -> Mapping[str, str]:
    """Turn a name and password in the start's address into the header that they mean."""
    parts = urlsplit(site.start)
    if not parts.username or any(name.lower() == "authorization" for name in site.headers):
        return site.headers
    login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {**site.headers, "Authorization": "Basic " + base64.b64encode(login.encode()).decode()}


def _unzipped(body: bytes, most: int) -> bytes:
    """Unpack a sitemap that is a gzip file, as far as it goes."""
    if not body.startswith(b"\x1f\x8b"):
        return body
    try:
        return zlib.decompressobj(wbits=31).decompress(body, most)
    except zlib.error:
        return b""
