"""The queue of passwords that wait to be hashed."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from argon2 import PasswordHasher

from outcrop.limits import PASSWORD_LIMITS, PasswordLimits
from outcrop.store.people.passwords import PasswordCaller, PasswordQueueFullError, PasswordThreads

STRANGER, KNOWN = PasswordCaller(is_known=False), PasswordCaller()
LIMITS = replace(PASSWORD_LIMITS, threads=1, waiting=3, seconds=600.0)


class Gate(PasswordHasher):
    """A hasher that waits until it is opened, and keeps the passwords that it hashed."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()
        self.began = threading.Event()
        self.hashed: list[str] = []

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.began.set()
        assert self.opened.wait(600)
        assert isinstance(password, bytes)
        self.hashed.append(password.decode())
        return "a hash"


@contextmanager
def queue(limits: PasswordLimits = LIMITS) -> Iterator[tuple[Gate, PasswordThreads]]:
    """Yield a hasher that waits, and the queue before it."""
    gate = Gate()
    try:
        yield gate, PasswordThreads(gate, limits)
    finally:
        gate.opened.set()


async def begin(
    passwords: PasswordThreads, gate: Gate, *names: str, caller: PasswordCaller
) -> list[asyncio.Task[str]]:
    """Add passwords to the queue; return when a thread has begun and all others are in the queue."""
    tasks = [asyncio.create_task(passwords.hash(name, caller)) for name in names]
    await asyncio.to_thread(gate.began.wait, 600)
    await asyncio.sleep(0)
    return tasks


def test_passwords_of_known_people_are_hashed_before_those_of_strangers() -> None:
    async def work() -> list[str]:
        with queue() as (gate, passwords):
            tasks = await begin(passwords, gate, "first", caller=STRANGER)
            tasks += await begin(passwords, gate, "a", "b", "c", caller=STRANGER)
            with pytest.raises(PasswordQueueFullError):
                await passwords.hash("one too many", STRANGER)
            tasks += await begin(passwords, gate, "member", caller=KNOWN)
            gate.opened.set()
            await asyncio.gather(*tasks)
            return gate.hashed

    assert asyncio.run(work()) == ["first", "member", "a", "b", "c"]


def test_a_password_whose_client_has_gone_is_not_hashed_and_leaves_its_place() -> None:
    async def work() -> list[str]:
        with queue() as (gate, passwords):
            tasks = await begin(passwords, gate, "first", caller=STRANGER)
            gone = await begin(passwords, gate, "a", "b", "c", caller=STRANGER)
            for task in gone:
                task.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            tasks += await begin(passwords, gate, "d", "e", "f", caller=STRANGER)
            gate.opened.set()
            await asyncio.gather(*tasks)
            return gate.hashed

    assert asyncio.run(work()) == ["first", "d", "e", "f"]


def test_one_network_has_a_few_places_of_the_queue() -> None:
    async def work() -> list[str]:
        with queue(replace(LIMITS, waiting=9, waiting_per_key=2)) as (gate, passwords):
            crowd = [PasswordCaller(is_known=False, keys=("network 1", f"member {name}")) for name in "abc"]
            tasks = [asyncio.create_task(passwords.hash("x", caller)) for caller in crowd[:2]]
            await asyncio.to_thread(gate.began.wait, 600)
            with pytest.raises(PasswordQueueFullError):
                await passwords.hash("x", crowd[2])
            other = PasswordCaller(is_known=False, keys=("network 2", "member c"))
            tasks.append(asyncio.create_task(passwords.hash("other", other)))
            await asyncio.sleep(0)
            gate.opened.set()
            await asyncio.gather(*tasks)
            await passwords.hash("later", crowd[2])
            return gate.hashed

    assert asyncio.run(work()) == ["x", "x", "other", "later"]


def test_a_password_that_waits_for_too_long_is_refused() -> None:
    async def work() -> list[str]:
        with queue(replace(LIMITS, seconds=0.01)) as (gate, passwords):
            for name in ("first", "second"):
                with pytest.raises(PasswordQueueFullError):
                    await passwords.hash(name, STRANGER)
            return gate.hashed

    assert "second" not in asyncio.run(work())


def test_a_command_waits_for_its_password_as_long_as_it_takes() -> None:
    async def work() -> str:
        with queue(replace(LIMITS, seconds=0.0, waiting=0)) as (gate, passwords):
            task = asyncio.create_task(passwords.hash_for_command("chosen"))
            await asyncio.to_thread(gate.began.wait, 600)
            gate.opened.set()
            return await task

    assert asyncio.run(work()) == "a hash"
