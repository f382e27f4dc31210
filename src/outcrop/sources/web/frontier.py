"""The frontier of a crawl: the URLs that are still to be fetched, each once and within the limits."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from outcrop.domain.target import matches_any
from outcrop.limits import WAITING_PAGES
from outcrop.sources.web.urls import WebLink, WebLinkKind, is_same_site, url_origin, url_path


@dataclass(frozen=True, slots=True)
class FrontierEntry:
    """A URL to fetch."""

    url: str
    kind: WebLinkKind
    depth: int = 0  # links from the start
    page: str = ""  # the page that loaded a script: URLs in the script are relative to it
    expected: bool = True  # the URL should exist, so a failure to get it is a gap


@dataclass(slots=True)
class _Queue:
    """Waiting entries that share one limit."""

    entries: deque[FrontierEntry]
    remaining: int | None  # how many more may be fetched; None is no limit
    dropped: int = 0  # entries that were not kept because too many were waiting


class Frontier:
    """The waiting URLs of a crawl that begins at `start`.

    Pages (with embedded documents) and scripts (with source maps) have a limit of `max_pages` each. `depth`
    is the largest number of links from the start to a page. `include` (of pages) and `exclude` are globs over
    the paths of the site.
    """

    def __init__(
        self, start: str, *, depth: int, max_pages: int, include: Sequence[str], exclude: Sequence[str]
    ) -> None:
        self._start = start
        self._depth = depth
        self._max_pages = max_pages
        self._include = include
        self._exclude = exclude
        self._seen: set[str] = set()
        self._pages = _Queue(deque(), max_pages)
        self._scripts = _Queue(deque(), max_pages)
        self._unlimited = _Queue(deque(), None)

    @property
    def waiting(self) -> int:
        """The number of URLs that were added and not taken."""
        return sum(len(queue.entries) for queue in (self._pages, self._scripts, self._unlimited))

    def take_start(self) -> FrontierEntry:
        """Return the entry of the start, mark it as seen and count it as a page. Globs do not apply."""
        self._seen.add(self._start)
        self._pages.remaining = max(0, self._max_pages - 1)
        return FrontierEntry(self._start, WebLinkKind.EMBEDDED, page=self._start)

    def claim(self, url: str) -> bool:
        """Mark a URL as seen, so that it is not added later, and return True.

        Return False, without a change, if the URL was seen before or is excluded: then it must not be
        fetched.
        """
        if url in self._seen or self._is_excluded(url):
            return False
        self._seen.add(url)
        return True

    def add(self, entry: FrontierEntry) -> None:
        """Add an entry and mark its URL as seen, unless the URL was seen before or is not wanted.

        An entry of a queue with too many waiting ones is dropped and counted; `limit_gaps` reports the
        number.
        """
        queue = self._queue_for(entry.kind)
        if entry.url in self._seen or not self._is_wanted(entry):
            return
        if len(queue.entries) >= self._max_pages * WAITING_PAGES and queue.remaining is not None:
            queue.dropped += 1
            return
        self._seen.add(entry.url)
        queue.entries.append(entry)

    def add_links(self, links: Sequence[WebLink], source: FrontierEntry, url: str) -> None:
        """Add the links of a resource that was fetched for the entry `source` from `url`, as `add` does.

        A PAGE link is one step deeper than `source`. Of a resource of another site, only links to scripts of
        its own origin are added.
        """
        is_own_site = is_same_site(url, self._start)
        page = source.page if source.kind is WebLinkKind.SCRIPT else url
        for link in links:
            if is_own_site or (link.kind is WebLinkKind.SCRIPT and url_origin(link.url) == url_origin(url)):
                depth = source.depth + (link.kind is WebLinkKind.PAGE)
                self.add(FrontierEntry(link.url, link.kind, depth, page, link.expected))

    def take(self) -> FrontierEntry | None:
        """Remove and return the next entry, and count it for its limit; None if none is within the limits.

        Leak paths and sitemaps are first, then scripts, then pages.
        """
        for queue in (self._unlimited, self._scripts, self._pages):
            if queue.entries and queue.remaining != 0:
                if queue.remaining is not None:
                    queue.remaining -= 1
                return queue.entries.popleft()
        return None

    def uncount(self, entry: FrontierEntry) -> None:
        """Raise the limit by one for an entry that was taken but not fetched, so that another is taken."""
        queue = self._queue_for(entry.kind)
        if queue.remaining is not None:
            queue.remaining += 1

    def limit_gaps(self) -> list[str]:
        """Return a text for each limit that was reached, with the number of URLs that were skipped.

        [] if no limit was reached. The number is right only at the end of the crawl, when nothing more is
        taken.
        """
        gaps = []
        for queue, name in ((self._pages, "pages"), (self._scripts, "scripts and source maps")):
            if count := len(queue.entries) + queue.dropped:
                gaps.append(f"more than {self._max_pages} {name}: at least {count} were skipped")
        return gaps

    def _queue_for(self, kind: WebLinkKind) -> _Queue:
        """Return the queue for this kind. Leak paths and sitemaps are few and have no limit."""
        if kind in {WebLinkKind.LEAK_PATH, WebLinkKind.SITEMAP}:
            return self._unlimited
        return self._scripts if kind in {WebLinkKind.SCRIPT, WebLinkKind.SOURCE_MAP} else self._pages

    def _is_wanted(self, entry: FrontierEntry) -> bool:
        """Whether globs, site and depth allow an entry.

        Scripts, source maps and leak paths need only not be excluded, and may be of any site. Other entries
        must be of the site of the start.
        """
        if self._is_excluded(entry.url):
            return False
        if entry.kind in {WebLinkKind.SCRIPT, WebLinkKind.SOURCE_MAP, WebLinkKind.LEAK_PATH}:
            return True
        included = not self._include or matches_any(self._include, url_path(entry.url))
        return is_same_site(entry.url, self._start) and included and entry.depth <= self._depth

    def _is_excluded(self, url: str) -> bool:
        """Whether a URL is of the site of the start and a glob of `exclude` matches its path."""
        return matches_any(self._exclude, url_path(url)) and is_same_site(url, self._start)
