"""Wait when a code host says that its rate limit is reached."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from outcrop.lazy_regex import regex
from outcrop.limits import HOST_WAIT_SECONDS, HOST_WAITS, SHARED_WAIT_SECONDS
from outcrop.sources.code_host.errors import HostError

if TYPE_CHECKING:
    from outcrop.net.http import HttpResponse

_LIMIT_STATUSES = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
_LIMIT_TEXT = regex(rb"rate limit|abuse detection", re.IGNORECASE)  # the second on older servers
# For a limit without a time: GitHub's documentation asks for one minute, then for longer waits each time.
_FIRST_WAIT = 60.0
_READ_EVERY = 1.0  # seconds
_HEADER_NUMBER = regex(r"[0-9]{1,12}")
_MAX_DIGITS = 12
_EARLIEST_TIME = 1_000_000_000  # a smaller reset is a number of seconds, not a time

OnWait = Callable[[float, str], None]  # called with the seconds and the reason before each wait
Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]  # returns seconds since 1970


class SharedLimit(Protocol):
    """What all processes know of the rate limit of one token at one host."""

    async def read(self) -> tuple[float, str] | None:
        """Return the seconds for which requests are blocked, and why; None if they are not."""

    async def block(self, seconds: float, reason: str) -> None:
        """Block requests of all processes for so many seconds."""


class RateLimit:
    """The rate limit of one token at one host. All tasks that share the token wait here.

    `on_wait` is called with the seconds and the reason before each wait. A wait of more than `max_wait`
    seconds is an error instead. `shared` is the limit as other processes know it.
    """

    def __init__(
        self,
        host: str,
        on_wait: OnWait,
        max_wait: float,
        sleep: Sleep,
        clock: Clock,
        *,
        shared: SharedLimit | None = None,
    ) -> None:
        self._host = host
        self._on_wait = on_wait
        self._max_wait = max_wait
        self._sleep = sleep
        self._clock = clock
        self._lock = asyncio.Lock()
        self._blocked_until = 0.0
        self._reason = ""
        self._shared = shared
        self._read_at: float | None = None  # when the shared limit was read
        self._is_published = True  # False if the others do not know yet that requests are blocked

    async def wait_until_allowed(self) -> None:
        """Wait until the next request may be sent. One task sleeps, the others wait for its lock.

        Raise HostError, without waiting, if requests are blocked for longer than `max_wait` seconds.
        """
        async with self._lock:
            await self._read_shared()
            while (seconds := (until := self._blocked_until) - self._clock()) > 0:
                if seconds > self._max_wait + 1:  # plus the second that `record` adds
                    raise HostError(
                        "limited", f"{self._reason}: {seconds:.0f} seconds are longer than we wait"
                    )
                await self.pause(seconds, self._reason)
                if self._blocked_until == until:  # another response may have set a later time meanwhile
                    self._blocked_until = 0.0
                await self._read_shared()

    async def _read_shared(self) -> None:
        """Block requests as other processes do, if that was not read in this second."""
        now = self._clock()
        if self._shared is None or (self._read_at is not None and 0 <= now - self._read_at < _READ_EVERY):
            return
        self._read_at = now
        if (found := await self._shared.read()) is not None:
            was_published = self._is_published
            self._block(*found)
            self._is_published = was_published

    async def publish(self) -> None:
        """Publish for other processes how long requests are blocked, if that has changed."""
        if self._shared is not None and not self._is_published:
            seconds = min(self._blocked_until - self._clock(), SHARED_WAIT_SECONDS)
            await self._shared.block(seconds, self._reason)
        self._is_published = True

    async def pause(self, seconds: float, reason: str) -> None:
        """Call `on_wait` with the seconds and the reason, then sleep for that many seconds."""
        self._on_wait(seconds, reason)
        await self._sleep(seconds)

    def record(self, response: "HttpResponse") -> None:
        """Block further requests until the limit is reset, if this response says that it is used up.

        Also if a successful response asks for a pause with Retry-After, as Azure DevOps does.
        """
        reset = _limit_number(response, "Reset")
        if _limit_number(response, "Remaining") == 0 and reset is not None:
            # Compare with the host's clock: our own may be wrong by more than the wait.
            now = response_date(response) or self._clock()
            seconds = reset - now if reset >= _EARLIEST_TIME else reset
            self._block(max(seconds, 0.0) + 1, f"the rate limit of {self._host} is used up")
        elif response.status < HTTPStatus.MULTIPLE_CHOICES and (pause := self._retry_after(response)):
            self._block(pause, f"{self._host} asks for a pause")

    def is_limited(self, response: "HttpResponse", waits: int) -> bool:
        """Whether the host refused the request because of a rate limit. If so, block further requests.

        `waits` is how often this request has been refused before. Raise HostError if that is HOST_WAITS
        times.
        """
        if response.status not in _LIMIT_STATUSES:
            return False
        retry_after = self._retry_after(response)
        is_used_up = _limit_number(response, "Remaining") == 0
        if (
            retry_after is None
            and not is_used_up
            and response.status == HTTPStatus.FORBIDDEN
            and not _LIMIT_TEXT.search(response.body)
        ):
            return False
        if waits == HOST_WAITS:
            raise HostError("limited", f"{self._host} still refuses requests after {HOST_WAITS} waits")
        if retry_after is not None:
            self._block(max(retry_after, 1), f"{self._host} asks for a pause")
        elif not is_used_up or _limit_number(response, "Reset") is None:
            self._block(min(_FIRST_WAIT * 2**waits, HOST_WAIT_SECONDS), f"{self._host} asks for a pause")
        return True

    def _retry_after(self, response: "HttpResponse") -> float | None:
        """Return the seconds in Retry-After, which is a number or a date; None if it is neither."""
        text = response.headers.get("Retry-After", "").strip()
        if text.isascii() and text.isdigit():
            return float(text[:_MAX_DIGITS])  # more digits are longer than any wait
        if (moment := _parse_date(text)) is None:
            return None
        return max(moment - (response_date(response) or self._clock()), 0.0)

    def _block(self, seconds: float, reason: str) -> None:
        """Block requests for so many seconds, for this reason, unless they are blocked for longer already."""
        until = self._clock() + seconds
        if until > self._blocked_until:
            self._blocked_until, self._reason = until, reason
            self._is_published = False


def _limit_number(response: "HttpResponse", name: str) -> int | None:
    """Return the header X-RateLimit-NAME, or RateLimit-NAME; None if it is no number of up to 12 digits."""
    text = response.headers.get(f"X-RateLimit-{name}") or response.headers.get(f"RateLimit-{name}") or ""
    return int(text) if _HEADER_NUMBER.fullmatch(text) else None


def response_date(response: "HttpResponse") -> float | None:
    """Return the Date header in seconds since 1970, or None if it is missing or malformed."""
    return _parse_date(response.headers.get("Date", ""))


def _parse_date(text: str) -> float | None:
    """Return the time in an HTTP date in seconds since 1970, or None if it is no date."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None
