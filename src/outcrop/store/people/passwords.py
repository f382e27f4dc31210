"""Password hashes: argon2id, made and compared in two threads of their own, so that requests go on meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

T = TypeVar("T")

_AT_ONCE = 2  # each takes 64 MiB and a core
_WAITING = 50  # a few seconds' work; whoever comes then is told to come again
_HASHER = PasswordHasher()
_threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="password")
_room = threading.BoundedSemaphore(_WAITING)


class PasswordQueueFullError(Exception):
    """More passwords are waiting to be looked at than can be in good time."""


async def hash_password(password: str) -> str:
    return await _apart(lambda: _HASHER.hash(_bytes(password)))


async def verify_password(password_hash: str | None, password: str) -> bool:
    """Compare; without a hash, as for an unknown e-mail address, do the same work and say no."""
    return await _apart(lambda: _matches(password_hash, password))


def is_outdated(password_hash: str) -> bool:
    """Tell whether a hash was made with weaker parameters than today's."""
    return _HASHER.check_needs_rehash(password_hash)


def _matches(password_hash: str | None, password: str) -> bool:
    if password_hash is None:
        _HASHER.hash(_bytes(password))
        return False
    try:
        return _HASHER.verify(password_hash, _bytes(password))
    except (VerificationError, InvalidHashError):
        return False


async def _apart(work: Callable[[], T]) -> T:
    if not _room.acquire(blocking=False):
        raise PasswordQueueFullError
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads, work)
    finally:
        _room.release()


def _bytes(password: str) -> bytes:
    return password.encode("utf-8", "surrogatepass")
