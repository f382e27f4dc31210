"""Hash and verify passwords with argon2id, in two threads, so that other requests are not blocked."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

T = TypeVar("T")

_THREADS = 2  # each hash takes 64 MiB and a core
_MAX_WAITING = 50  # hashes in the queue, a few seconds' work; further requests must try again later


class PasswordQueueFullError(Exception):
    """Too many passwords are waiting to be hashed."""


class PasswordThreads:
    """Two threads that hash and verify passwords; at most `max_waiting` passwords wait for them.

    Every method that needs a thread raises PasswordQueueFullError if too many passwords wait already.
    """

    def __init__(self, hasher: PasswordHasher | None = None, max_waiting: int = _MAX_WAITING) -> None:
        self.hasher = hasher or PasswordHasher()
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="password")
        self._free_places = threading.BoundedSemaphore(max_waiting)

    async def hash(self, password: str) -> str:
        """Return the argon2id hash of a password."""
        return await self._run(lambda: self.hasher.hash(_encode(password)))

    async def verify(self, password_hash: str | None, password: str) -> bool:
        """Whether the password has this hash.

        Without a hash (an unknown e-mail address) do the same work and return False, so that the time shows
        nothing.
        """
        return await self._run(lambda: self._verify(password_hash, password))

    def is_outdated(self, password_hash: str) -> bool:
        """Whether a hash was made with other parameters than the current ones."""
        return self.hasher.check_needs_rehash(password_hash)

    def _verify(self, password_hash: str | None, password: str) -> bool:
        """Do the work of `verify` in the current thread."""
        if password_hash is None:
            self.hasher.hash(_encode(password))
            return False
        try:
            return self.hasher.verify(password_hash, _encode(password))
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, work: Callable[[], T]) -> T:
        """Run `work` in one of the two threads."""
        if not self._free_places.acquire(blocking=False):
            raise PasswordQueueFullError
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._free_places.release()


def _encode(password: str) -> bytes:
    """Encode a password as UTF-8; lone surrogates, which JSON can contain, are encoded too."""
    return password.encode("utf-8", "surrogatepass")


PASSWORDS = PasswordThreads()  # one queue for the process
