"""Signing in and out on a real database: who gets in, who is told to wait, and when a session is over."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from argon2 import PasswordHasher

from outcrop.domain.account import Account, Plan, Role
from outcrop.domain.errors import NotFoundError, SignInError
from outcrop.services import accounts, sessions
from outcrop.store.db import Connection, Pool
from outcrop.store.people import passwords
from tests.conftest import REAL_HASHER
from tests.support.backend import Backend
from tests.support.members import (
    NOW,
    PASSWORD,
    QUICK,
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


pytestmark = pytest.mark.usefixtures("nobody_has_tried")


@pytest.fixture
def account(backend: Backend) -> Account:
    return backend.tenant().account


def refusal(backend: Backend, email: str, password: str = WRONG, **given: Any) -> SignInError:
    with pytest.raises(SignInError) as refused:
        sign_in(backend, email, password, **given)
    return refused.value


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch, nobody_has_tried: None) -> list[str]:
    """What the hasher is asked to do, in order."""
    asked: list[str] = []

    class Counted(PasswordHasher):
        def hash(self, password: str | bytes, *, salt: bytes | None = None) -> str:
            asked.append("hash")
            return super().hash(password, salt=salt)

        def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # noqa: A002
            asked.append("verify")
            return super().verify(hash, password)

    monkeypatch.setattr(passwords, "_HASHER", Counted(**QUICK))
    return asked


# --- in and out


def test_a_member_signs_in_and_is_known_by_the_token_alone(backend: Backend, account: Account) -> None:
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


def test_every_sign_in_makes_another_token_and_the_one_it_replaces_ends(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    first = sign_in(backend, member.email)
    second = sign_in(backend, member.email, replaces=first)
    assert first != second
    assert resume(backend, first) is None
    assert resume(backend, second) is not None


def test_a_member_made_on_the_command_line_signs_in_by_the_shown_password(
    backend: Backend, account: Account
) -> None:
    email, shown = backend.run(
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
    assert shown is not None
    token = sign_in(backend, email, shown)
    _, other = backend.run(lambda db: accounts.reset_password(db, email, None, by="test", now=NOW))
    assert other is not None
    assert resume(backend, token) is None, "a reset password ends every session"
    assert refusal(backend, email, shown).code == "wrong"
    assert resume(backend, sign_in(backend, email, other)) is not None


def test_signing_out_ends_one_session_and_everywhere_all_but_one(backend: Backend, account: Account) -> None:
    member, other = add_member(backend, account), add_member(backend, account, Role.MEMBER)
    tokens = [sign_in(backend, member.email) for _ in range(4)]
    stranger = sign_in(backend, other.email)
    backend.run(lambda db: sessions.sign_out(db, tokens[0], now=NOW))
    backend.run(lambda db: sessions.sign_out(db, tokens[0], now=NOW))
    assert [resume(backend, token) is not None for token in tokens] == [False, True, True, True]
    kept = resume(backend, tokens[1])
    assert kept is not None
    theirs = resume(backend, stranger)
    assert theirs is not None
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: sessions.end_session(
                db, account.id, member.id, theirs.session_id, by=member.email, now=NOW
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
    assert [resume(backend, token) is not None for token in [*tokens, stranger]] == [
        False,
        True,
        False,
        False,
        True,
    ]
    actions = [action for _, action, *_ in trail(backend, account)]
    assert actions == ["session.sign_in"] * 5 + ["session.sign_out"] * 2 + ["session.sign_out_everywhere"]


def test_another_account_ends_and_lists_nothing_here(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email)
    stranger = backend.tenant().account
    assert backend.run(lambda db: sessions.list_sessions(db, stranger.id, member.id)) == []
    assert (
        backend.run(
            lambda db: sessions.sign_out_everywhere(db, member.id, stranger.id, keep=None, by="x", now=NOW)
        )
        == 0
    )
    signed = resume(backend, token)
    assert signed is not None
    with pytest.raises(NotFoundError):
        backend.run(
            lambda db: sessions.end_session(db, stranger.id, member.id, signed.session_id, by="x", now=NOW)
        )


def test_role_plan_and_removal_hold_at_once(backend: Backend, account: Account) -> None:
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


# --- how long


def test_a_session_is_over_after_14_idle_days_and_after_30_in_any_case(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    idle, busy = sign_in(backend, member.email), sign_in(backend, member.email)
    assert resume(backend, idle, NOW + 14 * DAY) is None
    for day in range(13, 30, 8):
        assert resume(backend, busy, NOW + day * DAY) is not None
    assert resume(backend, busy, NOW + 30 * DAY - MINUTE) is not None
    assert resume(backend, busy, NOW + 30 * DAY) is None


def test_the_use_is_noted_once_a_minute_and_a_request_costs_one_statement(
    backend: Backend, account: Account
) -> None:
    member = add_member(backend, account)
    token = sign_in(backend, member.email)

    async def asked(db: Connection) -> list[int]:
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

    assert backend.run(asked) == [1, 1, 2, 1, 1]
    (line,) = backend.run(lambda db: sessions.list_sessions(db, account.id, member.id))
    assert line.last_used_at == NOW + MINUTE


def test_nobody_waits_for_another_request_that_notes_the_use(backend: Backend, account: Account) -> None:
    token = sign_in(backend, add_member(backend, account).email)

    async def work(pool: Pool) -> object:
        async with pool.connection() as one, one.transaction():
            assert await sessions.resume_session(one, token, now=NOW + MINUTE)
            async with pool.connection() as two:
                return await asyncio.wait_for(sessions.resume_session(two, token, now=NOW + MINUTE), 20)

    assert with_pool(backend, work, size=2) is not None


def test_what_is_over_is_swept(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)
    sign_in(backend, member.email)
    late = sign_in(backend, member.email, now=NOW + DAY)
    refusal(backend, member.email)
    backend.run(lambda db: sessions.delete_expired(db, now=NOW + 14 * DAY))
    assert backend.sql("SELECT count(*) FROM sessions WHERE member_id = %s", member.id) == [(1,)]
    assert backend.sql("SELECT count(*) FROM sign_in_attempts") == [(0,)]
    assert resume(backend, late, NOW + 14 * DAY) is not None


# --- who does not get in


def test_an_unknown_address_gets_the_same_answer_after_the_same_work(
    backend: Backend, account: Account, hashes: list[str]
) -> None:
    member = add_member(backend, account)
    known = refusal(backend, member.email)
    assert hashes == ["verify"]
    unknown = [
        refusal(backend, email)
        for email in ("nobody@example.com", "", "a\0b@example.com", "\udc80", "x" * 999)
    ]
    assert hashes == ["verify"] + ["hash"] * 5, "one computation each, and one is as much work as the other"
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
def test_no_other_password_is_right(backend: Backend, account: Account, password: str) -> None:
    assert refusal(backend, add_member(backend, account).email, password).code == "wrong"


def test_an_outdated_hash_is_made_anew_by_a_right_password_only(backend: Backend, account: Account) -> None:
    old = PasswordHasher(**QUICK | {"memory_cost": 16}).hash(PASSWORD)
    member = add_member(backend, account, hashed=old)
    kept = "SELECT password_hash FROM members WHERE id = %s"
    refusal(backend, member.email)
    assert backend.sql(kept, member.id) == [(old,)]
    sign_in(backend, member.email)
    ((new,),) = backend.sql(kept, member.id)
    assert new != old
    assert not passwords.is_outdated(new)
    sign_in(backend, member.email)
    assert backend.sql(kept, member.id) == [(new,)]


def test_a_password_that_is_changed_while_it_is_compared_opens_nothing(
    backend: Backend, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = add_member(backend, account)
    compare = passwords.verify_password

    async def slowly(password_hash: str | None, password: str) -> bool:
        right = await compare(password_hash, password)
        backend.sql("UPDATE members SET password_hash = %s WHERE id = %s", other, member.id)
        return right

    other = PasswordHasher(**QUICK).hash(WRONG)
    monkeypatch.setattr(passwords, "verify_password", slowly)
    assert refusal(backend, member.email, PASSWORD).code == "wrong"


def test_no_connection_is_held_while_a_password_is_compared(
    backend: Backend, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = add_member(backend, account)
    compare, free = passwords.verify_password, []

    async def work(pool: Pool) -> str:
        async def watched(password_hash: str | None, password: str) -> bool:
            async with pool.connection(timeout=1):  # the only one
                free.append(True)
            return await compare(password_hash, password)

        monkeypatch.setattr(passwords, "verify_password", watched)
        given = {
            "email": member.email,
            "password": PASSWORD,
            "code": None,
            "address": "192.0.2.1",
            "agent": "",
            "now": NOW,
        }
        return await sessions.sign_in(pool, backend.keys, **given)  # type: ignore[arg-type]

    assert with_pool(backend, work)
    assert free == [True]


def test_two_passwords_are_compared_at_once_and_the_loop_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now_at_it, most = 0, 0

    class Slow(PasswordHasher):
        def verify(self, hash: str | bytes, password: str | bytes) -> bool:  # noqa: A002
            nonlocal now_at_it, most
            now_at_it += 1
            most = max(most, now_at_it)
            time.sleep(0.05)
            now_at_it -= 1
            return True

    async def work() -> int:
        waiting = asyncio.gather(*(passwords.verify_password("x", PASSWORD) for _ in range(6)))
        ticks = 0
        while not waiting.done():
            await asyncio.sleep(0.001)
            ticks += 1
        return ticks

    monkeypatch.setattr(passwords, "_HASHER", Slow())
    assert asyncio.run(work()) > 2
    assert most == 2


def test_the_parameters_are_those_that_the_standard_recommends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "_HASHER", REAL_HASHER)
    made = asyncio.run(passwords.hash_password(PASSWORD))
    assert made.startswith("$argon2id$v=19$m=65536,t=3,p=4$"), "RFC 9106, for machines with less memory"
    assert asyncio.run(passwords.verify_password(made, PASSWORD))


def test_where_too_many_passwords_wait_one_is_told_to_come_again(
    backend: Backend, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = add_member(backend, account)
    with monkeypatch.context() as full:
        full.setattr(passwords, "_free_places", threading.BoundedSemaphore(1))
        passwords._free_places.acquire()
        for _ in range(9):
            assert (
                refusal(backend, member.email, PASSWORD).code,
                refusal(backend, member.email).retry_after,
            ) == ("limited", 5)
    assert resume(backend, sign_in(backend, member.email)) is not None, "and that was no failure"


# --- limits


@pytest.mark.parametrize("known", [True, False])
def test_after_five_failures_not_even_the_right_password_is_looked_at(
    backend: Backend, account: Account, hashes: list[str], known: bool
) -> None:
    email = add_member(backend, account).email if known else f"{uuid4().hex}@example.com"
    assert [refusal(backend, email, address=f"192.0.2.{n}", now=NOW + n * MINUTE).code for n in range(5)] == [
        "wrong"
    ] * 5
    asked = len(hashes)
    limited = refusal(backend, email.upper(), PASSWORD, address="198.51.100.7", now=NOW + 5 * MINUTE)
    assert (limited.code, limited.retry_after) == ("limited", 600)
    assert len(hashes) == asked
    assert refusal(backend, email, now=NOW + 15 * MINUTE - timedelta(seconds=1)).retry_after == 1
    if known:
        assert sign_in(backend, email, now=NOW + 15 * MINUTE), (
            "15 minutes after the first failure at the latest"
        )
        assert [outcome for *_, outcome, _ in trail(backend, account)] == ["failed"] * 5 + ["ok"], (
            "a refused try leaves no line"
        )
    else:
        assert refusal(backend, email, now=NOW + 15 * MINUTE).code == "wrong"


def test_a_success_begins_anew_for_the_address(backend: Backend, account: Account) -> None:
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
def test_a_network_has_thirty_failures_whoever_they_are_of(
    backend: Backend, account: Account, addresses: list[str], together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passwords, "verify_password", _never)
    for n in range(30):
        assert refusal(backend, f"{n}@example.com", address=addresses[n % len(addresses)]).code == "wrong"
    monkeypatch.undo()
    email = add_member(backend, account).email
    if together:
        assert refusal(backend, email, PASSWORD, address=addresses[0]).retry_after == 900
    assert sign_in(backend, email, address="198.51.100.9" if together else addresses[0])


async def _never(_: str | None, __: str) -> bool:
    return False


def test_many_tries_at_once_are_no_way_around_the_limit(backend: Backend, account: Account) -> None:
    member = add_member(backend, account)

    async def work(pool: Pool) -> list[str]:
        async def one(n: int) -> str:
            given: dict[str, Any] = {
                "password": WRONG,
                "code": None,
                "address": f"192.0.2.{n}",
                "agent": "",
                "now": NOW,
            }
            with pytest.raises(SignInError) as refused:
                await sessions.sign_in(pool, backend.keys, email=member.email, **given)
            return refused.value.code

        return await asyncio.gather(*(one(n) for n in range(12)))

    assert sorted(with_pool(backend, work, size=8)) == ["limited"] * 7 + ["wrong"] * 5
