"""How many deliveries each account may have under way, so that a receiver that hangs is nobody's trouble but its own."""

from collections import Counter
from collections.abc import Sequence

AT_FIRST, AT_MOST = 4, 32  # slots of one account
SLOW = 2.0  # seconds: whoever takes longer gets half as many, whoever is quicker one more


class Slots:
    """The slots of one worker: who holds how many, and may hold."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: Counter[int] = Counter()
        self._windows: dict[int, int] = {}  # of accounts that have shown how quick they are

    @property
    def free(self) -> int:
        return self._total - self._held.total()

    def take(self, account: int) -> None:
        self._held[account] += 1

    def give_back(self, account: int, seconds: float) -> None:
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]
        window = self._windows.get(account, AT_FIRST)
        window = max(1, window // 2) if seconds > SLOW else min(AT_MOST, window + 1)
        self._windows[account] = window
        if len(self._windows) > 10 * self._total:  # long ago is forgotten
            del self._windows[next(iter(self._windows))]

    def rooms(self, waiting: Sequence[int]) -> dict[int, int]:
        """Share what is free among the accounts that wait; nobody gets more than a part of it, unless it has none."""
        free = self.free
        wanted: dict[int, int] = {}
        for account in waiting:
            most = min(self._windows.get(account, AT_FIRST), max(1, free // 8))
            if (room := most - self._held[account]) > 0:
                wanted[account] = room
        share = max(1, free // max(1, len(wanted)))
        return {account: min(room, share) for account, room in list(wanted.items())[:free]}
