"""Test that an account with many slow requests does not delay the others."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import psycopg
import pytest

from outcrop.limits import ACCOUNT_REQUESTS
from outcrop.services.shares import AccountBusyError, AccountShares
from tests.api.test_gate import until
from tests.support.backend import Backend, Tenant
from tests.support.portal_client import Person, sign_in

MANY = 14  # more than the connections of the test's server
_WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


@contextmanager
def blocked_findings(backend: Backend) -> Iterator[psycopg.Connection]:
    """Make every statement on findings wait during the body, or until the connection commits."""
    assert backend.settings.database_url is not None
    with psycopg.connect(backend.settings.database_url) as db:
        db.execute("LOCK TABLE findings, finding_search IN ACCESS EXCLUSIVE MODE")
        yield db


def send_many(pool: ThreadPoolExecutor, tenant: Tenant) -> list[Future[httpx.Response]]:
    return [pool.submit(tenant.get, "/findings", q="x") for _ in range(MANY)]


def test_an_account_with_slow_requests_does_not_delay_others(
    backend: Backend, tenant: Tenant, owner_of_another: Person
) -> None:
    other = owner_of_another.tenant
    with ThreadPoolExecutor(MANY) as pool, blocked_findings(backend) as db:
        slow = send_many(pool, tenant)
        until(60, lambda: backend.sql(_WAITING) == [(ACCOUNT_REQUESTS,)])
        for _ in range(5):
            assert other.get("/scans").status_code == 200
            assert owner_of_another.get("/profile/plan").status_code == 200
        until(60, lambda: any(future.done() for future in slow))
        db.commit()
        answers = [future.result() for future in slow]
    refused = [answer for answer in answers if "too many requests" in answer.text]
    assert refused
    for answer in refused:
        assert (answer.status_code, answer.json()["error"]) == (503, "busy")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.fixture
def owner_of_another(backend: Backend) -> Person:
    return sign_in(backend, backend.tenant())


def test_requests_wait_for_their_turn(backend: Backend, tenant: Tenant) -> None:
    with ThreadPoolExecutor(MANY) as pool, blocked_findings(backend) as db:
        slow = send_many(pool, tenant)
        until(60, lambda: backend.sql(_WAITING) == [(ACCOUNT_REQUESTS,)])
        db.commit()
        assert [future.result().status_code for future in slow] == [200] * MANY


def test_pages_of_the_portal_count_too(backend: Backend, tenant: Tenant) -> None:
    owner = sign_in(backend, tenant)
    with ThreadPoolExecutor(MANY) as pool, blocked_findings(backend) as db:
        slow = [pool.submit(owner.get, "/findings", q="x") for _ in range(MANY)]
        until(60, lambda: backend.sql(_WAITING) == [(ACCOUNT_REQUESTS,)])
        until(60, lambda: any(future.done() for future in slow))
        db.commit()
        answers = [future.result() for future in slow]
    refused = [answer for answer in answers if "too many requests" in answer.text.lower()]
    assert refused
    assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {(503, "1")}


def test_shares_are_of_one_account_and_are_forgotten() -> None:
    async def main() -> None:
        shares = AccountShares(most=1)
        async with shares.hold(1):
            assert not shares.is_free(1)
            async with shares.hold(2, wait=0.01):
                pass
            with pytest.raises(AccountBusyError):
                async with shares.hold(1, wait=0.01):
                    pass
            waiting = [asyncio.create_task(_note(shares, turn, turns)) for turn in range(3)]
            await asyncio.sleep(0.01)
            waiting[1].cancel()
        await asyncio.wait(waiting)
        assert turns == [0, 2]
        assert (shares._shares, shares._users) == ({}, {})

    turns: list[int] = []
    asyncio.run(main())


async def _note(shares: AccountShares, turn: int, turns: list[int]) -> None:
    async with shares.hold(1):
        turns.append(turn)
