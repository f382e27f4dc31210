"""Share a process between accounts: few requests of one account use the database at once."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TypeVar

from outcrop.domain.errors import BusyError
from outcrop.limits import ACCOUNT_REQUESTS, ACCOUNT_WAIT_SECONDS
from outcrop.store.db import Connection, Pool, acquire_connection, current_time

T = TypeVar("T")


class AccountBusyError(BusyError):
    """Too many requests of the account are running, also after a wait."""

    def __init__(self) -> None:
        super().__init__("too many requests of this account are running; nothing was changed, try again")


class AccountShares:
    """The shares of the accounts in one process: `most` requests of each run at once, in order of arrival."""

    def __init__(self, most: int = ACCOUNT_REQUESTS) -> None:
        self._most = most
        self._shares: dict[int, asyncio.Semaphore] = {}  # of the accounts with requests
        self._users: dict[int, int] = {}  # account -> running and waiting requests

    def is_free(self, account_id: int) -> bool:
        """Whether a request of the account need not wait."""
        return account_id not in self._shares or not self._shares[account_id].locked()

    @asynccontextmanager
    async def hold(self, account_id: int, wait: float | None = None) -> AsyncIterator[None]:
        """Count as a running request of the account during the body; wait until it may run.

        Raise AccountBusyError after `wait` seconds; without `wait` there is no limit.
        """
        share = self._shares.setdefault(account_id, asyncio.Semaphore(self._most))
        self._users[account_id] = self._users.get(account_id, 0) + 1
        try:
            try:
                async with asyncio.timeout(wait):
                    await share.acquire()
            except TimeoutError:
                raise AccountBusyError from None
            try:
                yield
            finally:
                share.release()
        finally:
            self._users[account_id] -= 1
            if not self._users[account_id]:
                del self._users[account_id], self._shares[account_id]

    @asynccontextmanager
    async def connect(
        self, pool: Pool, account_id: int, wait: float | None = None
    ) -> AsyncIterator[Connection]:
        """Yield a connection, and count as a running request of the account during the body.

        This is for work that is done in parts, such as a download or an upload: between the parts it holds
        neither.
        """
        async with self.hold(account_id, wait), pool.connection() as db:
            yield db


class Deadline:
    """Calls `expire` after so many seconds, without the time in which the request waits for others."""

    def __init__(self, seconds: float, expire: Callable[[], None]) -> None:
        self._seconds, self._expire = seconds, expire
        self._timer: asyncio.TimerHandle | None = None
        self.start()

    def start(self) -> None:
        """Begin to count, from zero."""
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._seconds, self._expire)

    def extend(self, seconds: float) -> None:
        """Begin to count again, to another number of seconds."""
        self._seconds = seconds
        self.start()

    def stop(self) -> None:
        """Stop counting."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop counting during the body, then begin again."""
        self.stop()
        try:
            yield
        finally:
            self.start()


@asynccontextmanager
async def admit(
    pool: Pool,
    shares: AccountShares,
    deadline: Deadline,
    first_statement: Callable[[Connection], Awaitable[T]],
    account_of: Callable[[T], int | None],
) -> AsyncIterator[tuple[Connection, T]]:
    """Yield a connection on which `first_statement` has run, and its result, in the share of an account.

    `account_of` returns the account of a result, or None if the request has none. If too many requests of the
    account are running, the connection is given back while the request waits, and the one that is yielded is
    another. Raise AccountBusyError after ACCOUNT_WAIT_SECONDS.
    """
    async with AsyncExitStack() as stack:
        db, result = await stack.enter_async_context(acquire_connection(pool, first_statement))
        if (account_id := account_of(result)) is not None:
            if not shares.is_free(account_id):
                await stack.aclose()
                with deadline.stopped():
                    await stack.enter_async_context(shares.hold(account_id, ACCOUNT_WAIT_SECONDS))
                db, _ = await stack.enter_async_context(acquire_connection(pool, current_time))
            else:
                await stack.enter_async_context(shares.hold(account_id))
        yield db, result


@asynccontextmanager
async def connect_in_time(
    pool: Pool, shares: AccountShares, deadline: Deadline, account_id: int
) -> AsyncIterator[Connection]:
    """Yield a connection in the share of an account, for a request that was admitted without one.

    Raise AccountBusyError if too many requests of the account run for ACCOUNT_WAIT_SECONDS.
    """
    async with AsyncExitStack() as stack:
        if shares.is_free(account_id):
            await stack.enter_async_context(shares.hold(account_id))
        else:
            with deadline.stopped():
                await stack.enter_async_context(shares.hold(account_id, ACCOUNT_WAIT_SECONDS))
        db, _ = await stack.enter_async_context(acquire_connection(pool, current_time))
        yield db
