"""Limit the requests to one issuer.

- At most ISSUER_CHECKS checks run at once (`slots`).
- Requests are spaced to stay below a rate, and wait while the issuer asks for a pause (`wait_turn`, `pause`).
- After several failures to connect in a row no requests are sent for a while (`record_outcome`, `is_down`),
  so that an issuer that is down does not slow down the rest of a run.
"""

import asyncio
import time
from dataclasses import dataclass, field

from outcrop.limits import ISSUER_CHECKS, ISSUER_DOWN_SECONDS, ISSUER_FAILURES

_RATE_MARGIN = (
    1.1  # the issuer counts arrivals, and requests that take different times arrive closer together
)


class IssuerPausedError(TimeoutError):
    """The issuer wants no requests for longer than the check may take."""


@dataclass(slots=True)
class IssuerLimiter:
    """The rate limit and the failure count of one issuer."""

    requests_per_second: float
    max_wait: float  # seconds; a longer pause fails the check at once
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(ISSUER_CHECKS))
    _queue: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_at: float = 0.0  # time.monotonic() of the next allowed request
    _failures: int = 0
    _down_until: float = 0.0

    async def wait_turn(self) -> None:
        """Wait until a request may be sent, and reserve that time: later calls wait until after it.

        Raise IssuerPausedError at once if the wait is longer than `max_wait` seconds. The next turn is
        counted from when this request is sent, so a late request is not followed by a burst.
        """
        async with self._queue:
            while (wait := self._next_at - time.monotonic()) > 0:  # `pause` may extend the wait meanwhile
                if wait > self.max_wait:
                    raise IssuerPausedError
                await asyncio.sleep(wait)
            self._next_at = time.monotonic() + _RATE_MARGIN / self.requests_per_second

    def pause(self, seconds: float) -> None:
        """Allow no request for this many seconds from now, as the issuer asked with Retry-After."""
        self._next_at = max(self._next_at, time.monotonic() + seconds)

    def record_outcome(self, *, responded: bool) -> None:
        """Add one to the count of failures in a row, or set it to 0 if the issuer `responded`.

        `is_down` counts its ISSUER_DOWN_SECONDS from the last call.
        """
        self._failures = 0 if responded else self._failures + 1
        self._down_until = time.monotonic() + ISSUER_DOWN_SECONDS

    @property
    def is_down(self) -> bool:
        """Whether ISSUER_FAILURES requests in a row failed, the last one within ISSUER_DOWN_SECONDS."""
        return self._failures >= ISSUER_FAILURES and time.monotonic() < self._down_until
