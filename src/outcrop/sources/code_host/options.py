"""What a client of a code host is given: patience, caches, and what it shares with other processes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outcrop.limits import HOST_PAGES
from outcrop.sources.code_host.rate_limit import Clock, OnWait, SharedLimit, Sleep

RETRY_DELAYS = (1.0, 2.0, 4.0)  # seconds before each retry of a failure that may be temporary


class EtagCache(Protocol):
    """Responses of earlier runs by key. GitHub does not count a request whose response has not changed."""

    async def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the ETag and the body that were stored for this key; None if nothing is stored."""

    async def put(self, key: str, etag: str, body: bytes) -> None:
        """Store a response body with its ETag for this key."""


@dataclass(slots=True)
class PlanStart:
    """The page of a plan's first list from which an interrupted plan goes on.

    `list_url` and `page_url` are None at the first attempt. While the list is read, `page_url` is the page
    whose items are being yielded.
    """

    list_url: str | None = None
    page_url: str | None = None

    def begin(self, list_url: str) -> str:
        """Return the page to begin with, for a list that is read now."""
        if self.list_url is None:
            self.list_url, self.page_url = list_url, list_url
        return self.page_url or list_url if self.list_url == list_url else list_url

    def is_page(self, list_url: str, page_url: str) -> bool:
        """Whether this is the page of the list at which the plan began or has arrived."""
        return (self.list_url, self.page_url) == (list_url, page_url)

    def reach(self, list_url: str, page_url: str) -> None:
        """Note that the items of a page are yielded now."""
        if self.list_url == list_url:
            self.page_url = page_url


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiOptions:
    """How patient a client is, and what it reports. `on_wait` is called before each wait for a rate limit.

    A wait of more than `max_wait` seconds is an error instead.
    """

    on_wait: OnWait = lambda _seconds, _reason: None
    max_wait: float = 3_600.0
    max_pages: int = HOST_PAGES
    retry_delays: Sequence[float] = RETRY_DELAYS
    shared_limit: SharedLimit | None = None
    start: PlanStart | None = None  # of the first list of a plan that is made again
    sleep: Sleep = asyncio.sleep
    clock: Clock = time.time


API_OPTIONS = ApiOptions()
