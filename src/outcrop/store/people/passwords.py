"""Hash and verify passwords with argon2id, in a few threads, so that other requests are not blocked.

Passwords of people that are known already (a session, a one-time link, a browser that signed in before) are
hashed before those of strangers. So strangers cannot keep them from signing in.
"""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from outcrop.limits import PASSWORD_LIMITS, PasswordLimits

T = TypeVar("T")


class PasswordQueueFullError(Exception):
    """Too many passwords are waiting to be hashed, or this one has waited for too long."""


@dataclass(frozen=True, slots=True)
class PasswordCaller:
    """Who has a password hashed. Only a few passwords with the same key are in the queue at once."""

    is_known: bool = True
    keys: tuple[str, ...] = ()


_KNOWN = PasswordCaller()


@dataclass(frozen=True, slots=True)
class _Job:
    """A password that waits to be hashed."""

    work: Callable[[], Any]
    result: "Future[Any]"


class PasswordThreads:
    """Threads that hash and verify passwords, within limits.

    Every method that needs a thread raises PasswordQueueFullError if too many passwords wait already. A
    password whose caller is cancelled while it waits is dropped.
    """

    def __init__(
        self, hasher: PasswordHasher | None = None, limits: PasswordLimits = PASSWORD_LIMITS
    ) -> None:
        self.hasher = hasher or PasswordHasher()
        self._limits = limits
        self._executor = ThreadPoolExecutor(limits.threads, thread_name_prefix="password")
        self._lock = threading.Lock()  # for the attributes below
        self._known, self._strangers = deque[_Job](), deque[_Job]()
        self._keys: Counter[str] = Counter()

    async def hash(self, password: str, caller: PasswordCaller = _KNOWN) -> str:
        """Return the argon2id hash of a password."""
        return await self._run(lambda: self.hasher.hash(_encode(password)), caller)

    async def hash_for_command(self, password: str) -> str:
        """Return the argon2id hash of a password however long that takes: a command has no queue."""
        return await asyncio.to_thread(self.hasher.hash, _encode(password))

    async def verify(self, password_hash: str | None, password: str, caller: PasswordCaller = _KNOWN) -> bool:
        """Whether the password has this hash.

        Without a hash (an unknown e-mail address) do the same work and return False, so that the time shows
        nothing.
        """
        return await self._run(lambda: self._verify(password_hash, password), caller)

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

    async def _run(self, work: Callable[[], T], caller: PasswordCaller) -> T:
        """Run `work` in one of the threads."""
        job = _Job(work, Future())
        self._enqueue(job, caller)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.result), self._limits.seconds)
        except TimeoutError:
            raise PasswordQueueFullError from None
        finally:
            with self._lock:
                self._keys.subtract(caller.keys)
                self._keys += Counter()  # forget the keys that have none left

    def _enqueue(self, job: _Job, caller: PasswordCaller) -> None:
        """Add a job to its queue; raise PasswordQueueFullError if too many wait."""
        with self._lock:
            queue = self._known if caller.is_known else self._strangers
            waiting = sum(not job.result.done() for job in queue)
            if waiting >= self._limits.waiting or any(
                self._keys[key] >= self._limits.waiting_per_key for key in caller.keys
            ):
                raise PasswordQueueFullError
            queue.append(job)
            self._keys.update(caller.keys)
        self._executor.submit(self._run_next)

    def _run_next(self) -> None:
        """Run the job that is next: of the known callers first. It is called once for each job."""
        with self._lock:
            job = (self._known or self._strangers).popleft()
        if not job.result.set_running_or_notify_cancel():
            return  # its caller is gone
        try:
            job.result.set_result(job.work())
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            job.result.set_exception(error)


def _encode(password: str) -> bytes:
    """Encode a password as UTF-8; lone surrogates, which JSON can contain, are encoded too."""
    return password.encode("utf-8", "surrogatepass")


PASSWORDS = PasswordThreads()  # one queue for the process
