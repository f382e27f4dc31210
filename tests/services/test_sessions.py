"""Test signing in and out, rate limits and the end of sessions on a real database."""

import asyncio
import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from argon2 import PasswordHasher

from outcrop.domain.account import Account, Plan, Role
from outcrop.domain.errors import NotFoundError, SignInError
from outcrop.limits import PASSWORD_LIMITS
from outcrop.services import accounts, sessions
from outcrop.store.db import Connection, Pool
from outcrop.store.people.passwords import PASSWORDS, PasswordCaller, PasswordThreads
from tests.support.backend import Backend
from tests.support.hashes import PASSWORD, QUICK
from tests.support.members import (
    NOW,
    add_member,
    count_statements,
    everything_stored,
    resume,
    sign_in,
    trail,
    with_pool,
)

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
WRONG = "another pass phrase"
ANYBODY = PasswordCaller()


pytestmark = pytest.mark.usefixtures("no_failed_sign_ins")


@pytest.fixture
def account(backend: Backend) -> Account:
    return backend.tenant().account


def refusal(backend: Backend, email: str, password: str = WRONG, **options: Any) -> SignInError:
    with pytest.raises(SignInError) as refused:
        sign_in(backend, email, password, **options)
    return refused.value


class CountedHasher(PasswordHasher):
    """A real hasher that keeps the names of the methods that are called."""

    def __init__(self) -> None:
        super().__init__(**QUICK)
        self.calls: list[str] = []

    def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
        self.calls.append("hash")
        return super().hash(password, salt=salt)

    def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]  # noqa: A002
        self.calls.append("verify")
        return super().verify(hash, password)


# --- signing in and out


def test_a_signed_in_member_is_identified_by_the_token_alone(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email.upper(), agent="Firefox\n\0 on Linux" + "x" * 999)
    signed = resume(backend, token)
    assert signed is not None
    assert (signed.member, signed.account) == (member, account)
    (line,) = backend.run(lambda db: sessions.list_sessions(db, account.id, member.id))
    assert (line.id, line.created_at, line.last_used_at, line.address) == (
        signed.session_id,
        NOW,
        NOW,
        "192.0.2.1",
    )
    assert line.agent.startswith("Firefox on Linux")
    assert len(line.agent) == 300
    for other in ("", token[:-1], token + "A", token.swapcase(), str(line.id), "\0", "\udc80" * 43):
        assert resume(backend, other) is None
    stored = everything_stored(backend)
    assert token not in stored
    assert PASSWORD not in stored
    ((actor, action, target, outcome, detail),) = trail(backend, account)
    assert (actor, action, target, outcome) == (member.email, "session.sign_in", member.email, "ok")
    assert detail["session"] == str(line.id)


def test_every_sign_in_creates_a_new_token_and_ends_the_replaced_session(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    first = sign_in(backend, member.email)
    second = sign_in(backend, member.email, replaces=first)
    assert first != second
    assert resume(backend, first) is None
    assert resume(backend, second) is not None


def test_a_member_created_on_the_command_line_can_sign_in_with_the_shown_password(
    backend: Backend, account: Account
) -> None:
    email, password = backend.run(
        lambda db: accounts.create_member(
            db,
            account,
            email=f"{uuid4().hex}@example.com",
            role=Role.ADMIN,
            password=None,
            by="test",
            now=NOW,
        )
    )
    assert password is not None
    token = sign_in(backend, email, password)
    _, other = backend.run(lambda db: accounts.reset_password(db, email, None, by="test", now=NOW))
    assert other is not None
    assert resume(backend, token) is None, "a reset password ends every session"
    assert refusal(backend, email, password).code == "wrong"
    assert resume(backend, sign_in(backend, email, other)) is not None


def test_signing_out_ends_one_session_and_signing_out_everywhere_all_others(
    backend: Backend, account: Account
) -> None:
    member, other = add_member(backend, account), add_member(backend, account, Role.MEMBER)
    tokens = [sign_in(backend, member.email) for _ in range(4)]
    other_token = sign_in(backend, other.email)
    backend.run(lambda db: sessions.sign_out(db, tokens[0], now=NOW))
    backend.run(lambda db: sessions.sign_out(db, tokens[0], now=NOW))
    assert [resume(backend, token) is not None for token in tokens] == [False, True, True, True]
    kept = resume(backend, tokens[1])
    assert kept is not None
    other_session = resume(backend, other_token)
    assert other_session is not None
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: sessions.end_session(
                db, account.id, member.id, other_session.session_id, by=member.email, now=NOW
            )
        )
    ended = resume(backend, tokens[2])
    assert ended is not None
    backend.run(
        lambda db: sessions.end_session(db, account.id, member.id, ended.session_id, by=member.email, now=NOW)
    )
    assert resume(backend, tokens[2]) is None
    everywhere = {"keep": kept.session_id, "by": member.email, "now": NOW}
    assert backend.run(lambda db: sessions.sign_out_everywhere(db, member.id, account.id, **everywhere)) == 1
    assert backend.run(lambda db: sessions.sign_out_everywhere(db, member.id, account.id, **everywhere)) == 0
    assert [resume(backend, token) is not None for token in [*tokens, other_token]] == [
        False,
        True,
        False,
        False,
        True,
    ]
    actions = [action for _, action, *_ in trail(backend, account)]
    assert actions == ["session.sign_in"] * 5 + ["session.sign_out"] * 2 + ["session.sign_out_everywhere"]


def test_another_account_cannot_list_or_end_sessions(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email)
    other_token = backend.tenant().account
    assert backend.run(lambda db: sessions.list_sessions(db, other_token.id, member.id)) == []
    assert (
        backend.run(
            lambda db: sessions.sign_out_everywhere(db, member.id, other_token.id, keep=None, by="x", now=NOW)
        )
        == 0
    )
    signed = resume(backend, token)
    assert signed is not None
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: sessions.end_session(db, other_token.id, member.id, signed.session_id, by="x", now=NOW)
        )


def test_changes_of_role_and_plan_and_a_removal_take_effect_at_once(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email)
    backend.sql("UPDATE members SET role = 'member' WHERE id = %s", member.id)
    backend.sql("UPDATE accounts SET plan = 'starter' WHERE id = %s", account.id)
    signed = resume(backend, token)
    assert signed is not None
    assert (signed.member.role, signed.account.plan) == (Role.MEMBER, Plan.STARTER)
    backend.run(lambda db: accounts.remove_member(db, member.email, by="test", now=NOW))
    assert resume(backend, token) is None
    assert backend.sql("SELECT count(*) FROM sessions WHERE member_id = %s", member.id) == [(0,)]


# --- expiry


def test_a_session_ends_after_14_idle_days_and_after_30_days_in_any_case(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    idle, busy = sign_in(backend, member.email), sign_in(backend, member.email)
    assert resume(backend, idle, NOW + 14 * DAY) is None
    for day in range(13, 30, 8):
        assert resume(backend, busy, NOW + day * DAY) is not None
    assert resume(backend, busy, NOW + 30 * DAY - MINUTE) is not None
    assert resume(backend, busy, NOW + 30 * DAY) is None


def test_the_last_use_is_saved_once_a_minute_and_a_request_takes_one_statement(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email)

    async def calls(db: Connection) -> list[int]:
        times = [timedelta(), timedelta(seconds=59), MINUTE, MINUTE, 2 * MINUTE - timedelta(seconds=1)]
        execute, counts = db.execute, []
        for after in times:
            counts.append(
                await count_statements(
                    db, lambda after=after: sessions.resume_session(db, token, now=NOW + after)
                )
            )
            db.execute = execute  # type: ignore[method-assign]
        return counts

    assert backend.run(calls) == [1, 1, 2, 1, 1]
    (line,) = backend.run(lambda db: sessions.list_sessions(db, account.id, member.id))
    assert line.last_used_at == NOW + MINUTE


def test_a_request_does_not_wait_for_another_that_saves_the_last_use(
    backend: Backend, account: Account
) -> None:
    token = sign_in(backend, add_member(backend, account).email)

    async def work(pool: Pool) -> object:
        async with pool.connection() as first, first.transaction():
            assert await sessions.resume_session(first, token, now=NOW + MINUTE)
            async with pool.connection() as second:
                return await asyncio.wait_for(sessions.resume_session(second, token, now=NOW + MINUTE), 60)

    assert with_pool(backend, work, size=2) is not None


def test_expired_sessions_and_attempts_are_deleted(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    sign_in(backend, member.email)
    later = sign_in(backend, member.email, now=NOW + DAY)
    refusal(backend, member.email)
    backend.run(lambda db: sessions.delete_expired(db, now=NOW + 14 * DAY))
    assert backend.sql("SELECT count(*) FROM sessions WHERE member_id = %s", member.id) == [(1,)]
    assert backend.sql("SELECT count(*) FROM sign_in_attempts") == [(0,)]
    assert resume(backend, later, NOW + 14 * DAY) is not None


# --- refusals


def test_an_unknown_address_gets_the_same_error_after_the_same_work(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    passwords = PasswordThreads(hasher := CountedHasher())
    known = refusal(backend, member.email, passwords=passwords)
    assert hasher.calls == ["verify"]
    unknown = [
        refusal(backend, email, passwords=passwords)
        for email in ("nobody@example.com", "", "a\0b@example.com", "\udc80", "x" * 999)
    ]
    assert hasher.calls == ["verify"] + ["hash"] * 5, "one computation each, with the same amount of work"
    assert {(type(error), str(error), error.code, error.retry_after) for error in [known, *unknown]} == {
        (SignInError, known.message, "wrong", 0)
    }
    ((_, action, target, outcome, detail),) = trail(backend, account)
    assert (action, target, outcome, detail["wrong"]) == (
        "session.sign_in",
        member.email,
        "failed",
        "password",
    )
    assert WRONG not in everything_stored(backend)


@pytest.mark.parametrize(
    "password", ["", PASSWORD + "\0", PASSWORD[:-1], PASSWORD.upper(), "x" * 100_000, "\udc80"]
)
def test_similar_passwords_are_wrong(backend: Backend, account: Account, password: str) -> None:
    assert refusal(backend, add_member(backend, account).email, password).code == "wrong"


def test_an_outdated_hash_is_replaced_after_a_correct_password_only(
    backend: Backend, account: Account
) -> None:
    old = PasswordHasher(**QUICK | {"memory_cost": 16}).hash(PASSWORD)
    member = add_member(backend, account, stored_hash=old)
    kept = "SELECT password_hash FROM members WHERE id = %s"
    refusal(backend, member.email)
    assert backend.sql(kept, member.id) == [(old,)]
    sign_in(backend, member.email)
    ((new,),) = backend.sql(kept, member.id)
    assert new != old
    assert not PASSWORDS.is_outdated(new)
    sign_in(backend, member.email)
    assert backend.sql(kept, member.id) == [(new,)]


def test_a_password_that_is_changed_during_the_sign_in_is_refused(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)

    class ChangedMeanwhile(PasswordThreads):
        async def verify(
            self, password_hash: str | None, password: str, caller: PasswordCaller = ANYBODY
        ) -> bool:
            right = await super().verify(password_hash, password, caller)
            backend.sql("UPDATE members SET password_hash = %s WHERE id = %s", other, member.id)
            return right

    other = PasswordHasher(**QUICK).hash(WRONG)
    meanwhile = ChangedMeanwhile(PasswordHasher(**QUICK))
    assert refusal(backend, member.email, PASSWORD, passwords=meanwhile).code == "wrong"


def test_no_connection_is_held_while_a_password_is_verified(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    free = []

    async def work(pool: Pool) -> str:
        class UsesConnection(PasswordThreads):
            async def verify(
                self, password_hash: str | None, password: str, caller: PasswordCaller = ANYBODY
            ) -> bool:
                async with pool.connection(timeout=60):  # the only connection
                    free.append(True)
                return await super().verify(password_hash, password, caller)

        options = {
            "email": member.email,
            "password": PASSWORD,
            "code": None,
            "address": "192.0.2.1",
            "agent": "",
            "now": NOW,
            "passwords": UsesConnection(PasswordHasher(**QUICK)),
        }
        return await sessions.sign_in(pool, backend.keys, **options)  # type: ignore[arg-type]

    assert with_pool(backend, work)
    assert free == [True]


def test_two_passwords_are_verified_at_once_and_the_event_loop_is_not_blocked() -> None:
    running, most = 0, 0

    class Slow(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # type: ignore[override]  # noqa: A002
            nonlocal running, most
            running += 1
            most = max(most, running)
            time.sleep(0.05)
            running -= 1
            return True

    async def work() -> int:
        passwords = PasswordThreads(Slow())
        waiting = asyncio.gather(*(passwords.verify("x", PASSWORD) for _ in range(6)))
        ticks = 0
        while not waiting.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    assert asyncio.run(work()) > 2
    assert most == 2


def test_the_hash_parameters_are_those_of_rfc_9106() -> None:
    passwords = PasswordThreads()
    hashed = asyncio.run(passwords.hash(PASSWORD))
    assert hashed.startswith("$argon2id$v=19$m=65536,t=3,p=4$"), "RFC 9106, for machines with less memory"
    assert asyncio.run(passwords.verify(hashed, PASSWORD))


def test_a_sign_in_is_refused_while_too_many_passwords_wait(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    full = PasswordThreads(PasswordHasher(**QUICK), replace(PASSWORD_LIMITS, waiting=0))
    for _ in range(9):
        assert (
            refusal(backend, member.email, PASSWORD, passwords=full).code,
            refusal(backend, member.email, passwords=full).retry_after,
        ) == ("limited", 5)
    assert resume(backend, sign_in(backend, member.email)) is not None, (
        "the refusals did not count as failures"
    )


# --- limits


def wait_after(backend: Backend, email: str, at: datetime, **options: Any) -> int:
    """Make an attempt that must be refused; return the seconds that it asks to wait."""
    error = refusal(backend, email, PASSWORD, now=at, **options)
    assert error.code == "limited"
    return error.retry_after


@pytest.mark.parametrize("known", [True, False])
def test_failures_slow_a_network_down_for_the_member_and_for_nobody_else(
    backend: Backend, account: Account, known: bool
) -> None:
    email = add_member(backend, account).email if known else f"{uuid4().hex}@example.com"
    at, waits = NOW, []
    for _ in range(5):
        assert refusal(backend, email, now=at).code == "wrong"
    for _ in range(7):
        passwords = PasswordThreads(hasher := CountedHasher())
        waits.append(wait_after(backend, email.upper(), at, passwords=passwords))
        assert hasher.calls == []
        at += timedelta(seconds=waits[-1])
        assert refusal(backend, email, now=at).code == "wrong"
    assert waits == [2, 4, 8, 16, 32, 60, 60]
    if known:
        assert sign_in(backend, email, now=at, address="198.51.100.7"), "another network is not slowed down"
        assert wait_after(backend, email, at) == 60, "the success was not this network's"
        assert sign_in(backend, email, now=at + timedelta(seconds=60)), "the member is never locked out"
        assert [outcome for *_, outcome, _ in trail(backend, account)] == ["failed"] * 12 + ["ok"] * 2, (
            "a refused attempt adds no audit line"
        )


def test_failures_from_many_networks_slow_strangers_down_and_no_known_browser(
    backend: Backend, account: Account
) -> None:
    email = add_member(backend, account).email
    cookie = sessions.remember_browser(backend.keys, "", email)
    at = NOW
    for n in range(30):
        assert refusal(backend, email, address=f"198.51.{n}.1", now=at).code == "wrong"
    for wait in (2, 4, 4):
        assert wait_after(backend, email, at, address="203.0.113.9") == wait
        at += timedelta(seconds=wait)
        assert refusal(backend, email, address="203.0.113.9", now=at).code == "wrong"
    stranger = sessions.remember_browser(backend.keys, "", f"another-{email}")
    assert wait_after(backend, email, at, address="203.0.113.8", browser=stranger) == 4
    for n in range(3):
        assert sign_in(backend, email, address=f"198.51.{n}.1", now=at, browser=cookie)


def test_a_known_browser_is_slowed_down_by_its_own_failures_alone(backend: Backend, account: Account) -> None:
    email = add_member(backend, account).email
    cookie = sessions.remember_browser(backend.keys, "", email)
    for n in range(5):
        assert refusal(backend, email, address=f"192.0.2.{n}", browser=cookie).code == "wrong"
    assert wait_after(backend, email, NOW, address="192.0.2.9", browser=cookie) == 2
    assert sign_in(backend, email, address="192.0.2.9")
    assert sign_in(backend, email, browser=cookie, now=NOW + timedelta(seconds=2))
    assert [refusal(backend, email, browser=cookie).code for _ in range(4)] == ["wrong"] * 4


def test_a_wrong_sign_in_is_answered_after_a_multiple_of_the_step(backend: Backend, account: Account) -> None:
    email = add_member(backend, account).email
    slept = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    def answer(email: str, took: float, password: str = WRONG) -> float:
        times = iter((1.0, 1.0 + took))
        before = len(slept)
        refusal(backend, email, password, clock=lambda: next(times), sleep=sleep)
        assert len(slept) == before + 1
        return round(took + slept[-1], 6)

    assert answer(email, 0.19) == answer("nobody@example.com", 0.07) == 0.25
    assert answer(email, 0.3) == answer("nobody@example.com", 0.26) == 0.5


def test_a_success_resets_the_count_of_failures(backend: Backend, account: Account) -> None:
    email = add_member(backend, account).email
    for _ in range(3):
        assert [refusal(backend, email).code for _ in range(4)] == ["wrong"] * 4
        sign_in(backend, email)


@pytest.mark.parametrize(
    ("addresses", "together"),
    [
        (["192.0.2.1"], True),
        (["2001:db8::1", "2001:db8::ffff:2"], True),
        (["192.0.2.1", "::ffff:192.0.2.1"], True),
        (["2001:db8::1", "2001:db8:0:1::1"], False),
        (["192.0.2.1", "192.0.2.2"], False),
    ],
)
def test_a_network_is_limited_to_thirty_failures_of_any_addresses(
    backend: Backend, account: Account, addresses: list[str], together: bool
) -> None:
    for n in range(30):
        assert refusal(backend, f"{n}@example.com", address=addresses[n % len(addresses)]).code == "wrong"
    email = add_member(backend, account).email
    if together:
        assert wait_after(backend, email, NOW, address=addresses[0]) == 2
    assert sign_in(backend, email, address="198.51.100.9" if together else addresses[0])


def test_concurrent_attempts_do_not_exceed_the_limit(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)

    async def work(pool: Pool) -> list[str]:
        async def attempt() -> str:
            options: dict[str, Any] = {
                "password": WRONG,
                "code": None,
                "address": "192.0.2.1",
                "agent": "",
                "now": NOW,
            }
            with pytest.raises(SignInError) as refused:
                await sessions.sign_in(pool, backend.keys, email=member.email, **options)
            return refused.value.code

        return await asyncio.gather(*(attempt() for _ in range(12)))

    assert sorted(with_pool(backend, work, size=8)) == ["limited"] * 7 + ["wrong"] * 5
