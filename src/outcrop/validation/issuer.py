"""How one issuer is treated: not asked too often, not while it wants to be left alone, and left alone for a while when it is silent."""

import asyncio
import time
from dataclasses import dataclass, field

MAX_CONCURRENT_CHECKS = 10  # requests of ours that one issuer has before it
MAX_CONNECTIONS = 200  # to all issuers together
_SLACK = 1.1  # the issuer counts when requests arrive, and some are under way for longer than others
_SILENT = 5  # times in a row without an answer
_LEFT_ALONE = 60.0  # seconds, then it is tried again


class PausedError(TimeoutError):
    """The issuer wants to be left alone for longer than anyone here waits."""


@dataclass(slots=True)
class Issuer:
    requests_per_second: float
    patience: float  # seconds that a turn is waited for
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT_CHECKS))
    _line: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next_at: float = 0.0
    _unanswered: int = 0
    _silent_until: float = 0.0

    async def turn(self) -> None:
        """Wait until a request may be sent. Each is counted from when it goes, so that a late one is not made up for."""
        async with self._line:
            while (wait := self._next_at - time.monotonic()) > 0:  # it may be told to wait while it waits
                if wait > self.patience:
                    raise PausedError
                await asyncio.sleep(wait)
            self._next_at = time.monotonic() + _SLACK / self.requests_per_second

    def pause(self, seconds: float) -> None:
        self._next_at = max(self._next_at, time.monotonic() + seconds)

    def heard(self, *, answered: bool) -> None:
        """Count how often it has not answered; whoever asked before knows."""
        self._unanswered = 0 if answered else self._unanswered + 1
        self._silent_until = time.monotonic() + _LEFT_ALONE

    @property
    def is_silent(self) -> bool:
        return self._unanswered >= _SILENT and time.monotonic() < self._silent_until
