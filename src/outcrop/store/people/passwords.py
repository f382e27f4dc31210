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
_HASHER = PasswordHasher()
_executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="password")
_free_places = threading.BoundedSemaphore(_MAX_WAITING)


class PasswordQueueFullError(Exception):
    """Too many passwords are waiting to be hashed."""


async def hash_password(password: str) -> str:
    """Return the argon2id hash of a password."""
    return await _run_in_thread(lambda: _HASHER.hash(_encode(password)))


async def verify_password(password_hash: str | None, password: str) -> bool:
    """Whether the password has this hash.

    Without a hash (an unknown e-mail address) do the same work and return False, so that the time shows
    nothing.
    """
    return await _run_in_thread(lambda: _verify(password_hash, password))


def is_outdated(password_hash: str) -> bool:
    """Whether a hash was made with other parameters than the current ones."""
    return _HASHER.check_needs_rehash(password_hash)


def _verify(password_hash: str | None, password: str) -> bool:
    """Do the work of `verify_password` in the current thread."""
    if password_hash is None:
        _HASHER.hash(_encode(password))
        return False
    try:
        return _HASHER.verify(password_hash, _encode(password))
    except (VerificationError, InvalidHashError):
        return False


async def _run_in_thread(work: Callable[[], T]) -> T:
    """Run `work` in one of the two threads; raise PasswordQueueFullError if too much work waits already."""
    if not _free_places.acquire(blocking=False):
        raise PasswordQueueFullError
    try:
        return await asyncio.get_running_loop().run_in_executor(_executor, work)
    finally:
        _free_places.release()


def _encode(password: str) -> bytes:
    """Encode a password as UTF-8; lone surrogates, which JSON can contain, are encoded too."""
    return password.encode("utf-8", "surrogatepass")
