"""Limit concurrent deliveries per account, so that a slow receiver delays only its own events."""

from collections import Counter
from collections.abc import Sequence

INITIAL_SLOTS, MAX_SLOTS = 4, 32  # concurrent deliveries of one account
SLOW_SECONDS = 2.0  # a slower delivery halves the account's limit; a faster one raises it by one


class DeliverySlots:
    """Delivery slots of one worker: how many each account uses, and may use."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._held: Counter[int] = Counter()
        self._windows: dict[
            int, int
        ] = {}  # account -> limit, for accounts with at least one finished delivery

    @property
    def free(self) -> int:
        return self._total - self._held.total()

    def take(self, account: int) -> None:
        """Mark one slot as used by the account."""
        self._held[account] += 1

    def release(self, account: int, seconds: float) -> None:
        """Free one slot of the account and adapt its limit to the duration of the delivery."""
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]
        window = self._windows.get(account, INITIAL_SLOTS)
        window = max(1, window // 2) if seconds > SLOW_SECONDS else min(MAX_SLOTS, window + 1)
        self._windows[account] = window
        if len(self._windows) > 10 * self._total:  # drop the oldest entry, to bound memory
            del self._windows[next(iter(self._windows))]

    def share_free_slots(self, waiting: Sequence[int]) -> dict[int, int]:
        """Divide the free slots among the waiting accounts: account -> number of slots.

        An account gets at most an eighth of the free slots, but at least one if it has none.
        """
        free = self.free
        wanted: dict[int, int] = {}
        for account in waiting:
            most = min(self._windows.get(account, INITIAL_SLOTS), max(1, free // 8))
            if (room := most - self._held[account]) > 0:
                wanted[account] = room
        share = max(1, free // max(1, len(wanted)))
        return {account: min(room, share) for account, room in list(wanted.items())[:free]}
