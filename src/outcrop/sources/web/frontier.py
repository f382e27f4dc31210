"""Which addresses of a crawl are still to be visited: each once, the near ones first, and never more of them than are worth keeping."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from outcrop.sources.web.link import LinkKind, WebLink
from outcrop.sources.web.urls import is_same_site, url_origin, url_path

_KEPT = 10  # times as many addresses are remembered as may be visited: robots.txt may forbid most


@dataclass(frozen=True, slots=True)
class FrontierEntry:
    url: str
    kind: LinkKind
    depth: int = 0
    page: str = ""  # where it was met first: a script's addresses count from there
    sure: bool = True


@dataclass(slots=True)
class _Queue:
    """Addresses that share a limit."""

    targets: deque[FrontierEntry]
    left: int | None  # how many more may be visited
    dropped: int = 0


class Frontier:
    """Addresses that wait. Pages with what they hold, and scripts with their maps, have limits of the same size."""

    def __init__(
        self, start: str, *, depth: int, most: int, include: Sequence[str], exclude: Sequence[str]
    ) -> None:
        self._start = start
        self._depth = depth
        self._most = most
        self._include = include
        self._exclude = exclude
        self._seen: set[str] = set()
        self._pages = _Queue(deque(), most)
        self._scripts = _Queue(deque(), most)
        self._places = _Queue(deque(), None)

    @property
    def waiting(self) -> int:
        return sum(len(queue.targets) for queue in (self._pages, self._scripts, self._places))

    def first(self) -> FrontierEntry:
        """Give the start, which is fetched whatever the globs say."""
        self._seen.add(self._start)
        self._pages.left = max(0, self._most - 1)
        return FrontierEntry(self._start, LinkKind.PART, page=self._start)

    def claim(self, url: str) -> bool:
        """Take an address for oneself; False where it has been taken, waits for its turn, or is not wanted."""
        if url in self._seen or self._is_excluded(url):
            return False
        self._seen.add(url)
        return True

    def add(self, target: FrontierEntry) -> None:
        queue = self._queue(target.kind)
        if target.url in self._seen or not self._is_wanted(target):
            return
        if len(queue.targets) >= self._most * _KEPT and queue.left is not None:
            queue.dropped += 1
            return
        self._seen.add(target.url)
        queue.targets.append(target)

    def follow(self, links: Sequence[WebLink], source: FrontierEntry, url: str) -> None:
        """Add what something refers to; a script from elsewhere leads only to scripts beside it."""
        at_home = is_same_site(url, self._start)
        page = source.page if source.kind is LinkKind.SCRIPT else url
        for link in links:
            if at_home or (link.kind is LinkKind.SCRIPT and url_origin(link.url) == url_origin(url)):
                self.add(
                    FrontierEntry(
                        link.url, link.kind, source.depth + (link.kind is LinkKind.PAGE), page, link.sure
                    )
                )

    def take(self) -> FrontierEntry | None:
        """Give the next address: what a page loads comes before the next page."""
        for queue in (self._places, self._scripts, self._pages):
            if queue.targets and queue.left != 0:
                if queue.left is not None:
                    queue.left -= 1
                return queue.targets.popleft()
        return None

    def give_back(self, target: FrontierEntry) -> None:
        """Do not count an address that was not fetched."""
        queue = self._queue(target.kind)
        if queue.left is not None:
            queue.left += 1

    def left_out(self) -> list[str]:
        """Say which limits have kept us from how many addresses."""
        found = []
        for queue, words in ((self._pages, "pages"), (self._scripts, "scripts and source maps")):
            if count := len(queue.targets) + queue.dropped:
                found.append(f"more than {self._most} {words}: at least {count} were not looked at")
        return found

    def _queue(self, kind: LinkKind) -> _Queue:
        if kind in {LinkKind.PLACE, LinkKind.SITEMAP}:  # few, and not counted
            return self._places
        return self._scripts if kind in {LinkKind.SCRIPT, LinkKind.MAP} else self._pages

    def _is_wanted(self, target: FrontierEntry) -> bool:
        if self._is_excluded(target.url):
            return False
        if target.kind in {LinkKind.SCRIPT, LinkKind.MAP, LinkKind.PLACE}:
            return True
        included = not self._include or any(fnmatchcase(url_path(target.url), glob) for glob in self._include)
        return is_same_site(target.url, self._start) and included and target.depth <= self._depth

    def _is_excluded(self, url: str) -> bool:
        return any(fnmatchcase(url_path(url), glob) for glob in self._exclude) and is_same_site(
            url, self._start
        )
