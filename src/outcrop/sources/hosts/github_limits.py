"""When GitHub may be asked again: its limits stop everyone who shares the token, and are waited for once."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

from outcrop.net.http import HttpResponse

_LIMITED = {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
_TRIES = 5
_FIRST_WAIT, _LONGEST_DOUBLED = (
    60.0,
    900.0,
)  # for a limit that does not say how long: GitHub asks for a minute, then more each time
_SAYS_LIMIT = re.compile(
    rb"rate limit|abuse detection", re.IGNORECASE
)  # the second is what older servers call it
_NUMBER = re.compile(r"[0-9]{1,12}")

GitHubErrorKind = Literal["unauthorised", "not_found", "forbidden", "limited", "unavailable", "malformed"]
OnWait = Callable[[float, str], None]
Sleep = Callable[[float], Awaitable[object]]
Clock = Callable[[], float]


class GitHubError(Exception):
    """No usable answer: what kind of failure it is, and one line for people, which never holds the token."""

    def __init__(self, kind: GitHubErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class RateLimit:
    """What one token may still ask of one host."""

    def __init__(self, host: str, waiting: OnWait, max_wait: float, sleep: Sleep, clock: Clock) -> None:
        self._host = host
        self._waiting = waiting
        self._longest = max_wait
        self._sleep = sleep
        self._clock = clock
        self._turn = asyncio.Lock()
        self._until = 0.0
        self._reason = ""

    async def turn(self) -> None:
        """Wait until the host may be asked. One task waits, the others wait for it."""
        async with self._turn:
            while (seconds := (until := self._until) - self._clock()) > 0:
                if seconds > self._longest + 1:  # the second that we add to a limit is not held against it
                    raise GitHubError(
                        "limited", f"{self._reason}, and {seconds:.0f} seconds are longer than we wait"
                    )
                await self.pause(seconds, self._reason)
                if self._until == until:  # another answer may have moved it meanwhile
                    self._until = 0.0

    async def pause(self, seconds: float, reason: str) -> None:
        self._waiting(seconds, reason)
        await self._sleep(seconds)

    def note(self, answer: HttpResponse) -> None:
        """Remember that an answer was the last one for now."""
        reset = _number(answer, "X-RateLimit-Reset")
        if _number(answer, "X-RateLimit-Remaining") == 0 and reset is not None:
            # By the host's own clock where it tells it: ours may be wrong by more than the wait is long.
            self._stop(
                max(reset - (_date(answer) or self._clock()), 0.0) + 1,
                f"the rate limit of {self._host} is used up",
            )

    def refuses(self, answer: HttpResponse, tries: int) -> bool:
        """Tell whether an answer is a limit's, after so many that were; the next turn then comes when it is over."""
        if answer.status not in _LIMITED:
            return False
        after = _number(answer, "Retry-After")
        primary = _number(answer, "X-RateLimit-Remaining") == 0
        if (
            after is None
            and not primary
            and answer.status == HTTPStatus.FORBIDDEN
            and not _SAYS_LIMIT.search(answer.body)
        ):
            return False
        if tries == _TRIES:
            raise GitHubError("limited", f"{self._host} still refuses more requests after {_TRIES} waits")
        if after is not None:
            self._stop(max(after, 1), f"{self._host} asks for a pause")
        elif not primary or _number(answer, "X-RateLimit-Reset") is None:
            self._stop(min(_FIRST_WAIT * 2**tries, _LONGEST_DOUBLED), f"{self._host} asks for a pause")
        return True

    def _stop(self, seconds: float, reason: str) -> None:
        until = self._clock() + seconds
        if until > self._until:
            self._until, self._reason = until, reason


def _number(answer: HttpResponse, name: str) -> int | None:
    text = answer.headers.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def _date(answer: HttpResponse) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
