"""Share the places of a process pool between scheduled scans and urgent ones, such as those of a push."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class PoolSlots:
    """The slots of a pool. Urgent jobs come first and take at most three quarters of them.

    Other jobs leave `reserved` slots free, so that an urgent one need not wait for the end of a long scan.
    """

    def __init__(self, size: int, reserved: int = 0) -> None:
        self._size = size
        self._most = {True: max(1, size * 3 // 4), False: max(1, size - reserved)}  # by urgency
        self._used = {True: 0, False: 0}
        self._waiting: dict[bool, deque[asyncio.Future[None]]] = {True: deque(), False: deque()}

    @asynccontextmanager
    async def hold(self, *, urgent: bool) -> AsyncIterator[None]:
        """Wait for a free slot and hold it while the `with` block runs."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting[urgent].append(turn)
        self._assign()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release(urgent=urgent)
            raise
        try:
            yield
        finally:
            self._release(urgent=urgent)

    def _release(self, *, urgent: bool) -> None:
        self._used[urgent] -= 1
        self._assign()

    def _assign(self) -> None:
        """Assign the free slots to those who wait, the urgent ones first."""
        for urgent in (True, False):
            waiting = self._waiting[urgent]
            while waiting and self._has_room(urgent=urgent):
                turn = waiting.popleft()
                if not turn.cancelled():
                    self._used[urgent] += 1
                    turn.set_result(None)

    def _has_room(self, *, urgent: bool) -> bool:
        return self._used[urgent] < self._most[urgent] and sum(self._used.values()) < self._size
