"""Create members in tests and sign them in, with a connection pool as a server has."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from outcrop.domain.account import Account, Member, Role, SignedInMember
from outcrop.services import sessions
from outcrop.store import db as database
from outcrop.store.db import Connection, Pool
from outcrop.store.people import accounts
from tests.support.backend import Backend
from tests.support.hashes import PASSWORD, password_hash

T = TypeVar("T")
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)


@pytest.fixture
def no_failed_sign_ins(backend: Backend) -> None:
    """Delete the failed attempts of other tests."""
    backend.sql("TRUNCATE sign_in_attempts")


def add_member(
    backend: Backend, account: Account, role: Role = Role.OWNER, stored_hash: str | None = None
) -> Member:
    """Insert a member with the password PASSWORD, or with the given hash."""
    new = accounts.NewMember(
        uuid4(), f"{role}-{uuid4().hex[:8]}@example.com", role, stored_hash or password_hash()
    )
    backend.run(lambda db: accounts.insert_member(db, account.id, new, now=NOW))
    return Member(new.id, account.slug, new.email, role, NOW)


def with_pool(backend: Backend, work: Callable[[Pool], Awaitable[T]], size: int = 1) -> T:
    """Run `work` with a pool of `size` connections."""

    async def main() -> T:
        assert backend.settings.database_url is not None
        async with database.open_pool(backend.settings.database_url, size=size, statement_timeout=30) as pool:
            return await work(pool)

    return asyncio.run(main())


def sign_in(backend: Backend, email: str, password: str = PASSWORD, **options: Any) -> str:
    """Sign a member in; return the token of the session. A wrong sign-in is answered without delay."""
    options = {
        "code": None,
        "address": "192.0.2.1",
        "agent": "Firefox",
        "now": NOW,
        "sleep": lambda _: asyncio.sleep(0),
    } | options
    return with_pool(
        backend, lambda pool: sessions.sign_in(pool, backend.keys, email=email, password=password, **options)
    )


def resume(backend: Backend, token: str, now: datetime = NOW) -> SignedInMember | None:
    return backend.run(lambda db: sessions.resume_session(db, token, now=now))


def trail(backend: Backend, account: Account) -> list[tuple[str, str, str | None, str, dict[str, Any]]]:
    """Return (actor, action, target, outcome, detail) of audit lines, without those of account and key."""
    rows = backend.sql(
        "SELECT actor, action, target, outcome, detail FROM audit WHERE account_id = %s ORDER BY id",
        account.id,
    )
    return [row for row in rows if row[1] not in {"account.create", "key.create"}]  # type: ignore[misc]


def everything_stored(backend: Backend) -> str:
    """Return all rows of every table that signing in writes to, as text."""
    tables = ("sessions", "sign_in_attempts", "links", "second_factors", "recovery_codes", "members", "audit")
    return "\n".join(row for table in tables for (row,) in backend.sql(f"SELECT t::text FROM {table} t"))


async def count_statements(db: Connection, work: Callable[[], Awaitable[object]]) -> int:
    """Return the number of statements that `work` executes on the connection."""
    count = 0
    execute = db.execute

    async def execute_and_count(*arguments: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return await execute(*arguments, **kwargs)

    db.execute = execute_and_count  # type: ignore[assignment,method-assign]
    await work()
    return count
