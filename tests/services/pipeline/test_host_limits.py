"""Test that workers share what they know of a host's rate limit, and that a plan goes on where it ended."""

import asyncio
import secrets

import pytest

from outcrop.domain.account import Account
from outcrop.net.http import HttpResponse
from outcrop.services.pipeline.host_access import StoredLimit
from outcrop.services.pipeline.plan import plan_run
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.rate_limit import RateLimit
from tests.support.github_host import secondary_limit
from tests.support.pipeline import Pipeline, owner_spec


def limited(seconds: int) -> HttpResponse:
    return HttpResponse("", 429, {"Retry-After": str(seconds)}, b"")


def test_a_limit_that_one_worker_meets_is_respected_by_the_others(pipeline: Pipeline) -> None:
    key, clock, slept = secrets.token_bytes(32), [1000.0], list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds
        async with pipeline.context.pool.connection() as db:  # the database's clock goes on as well
            await db.execute("DELETE FROM host_limits WHERE key = %s", [key])

    def open_limit(key: bytes) -> RateLimit:
        shared = StoredLimit(pipeline.context.pool, key)
        return RateLimit("host", lambda *_: None, 3_600, sleep, lambda: clock[0], shared=shared)

    async def main() -> None:
        first, second, other = open_limit(key), open_limit(key), open_limit(secrets.token_bytes(32))
        await second.wait_until_allowed()
        assert first.is_limited(limited(40), 0)
        await first.publish()
        await second.wait_until_allowed()  # was read in this second
        clock[0] += 1
        await other.wait_until_allowed()
        assert slept == []
        await second.wait_until_allowed()
        assert slept == [pytest.approx(40, abs=5)]
        await second.wait_until_allowed()

    pipeline.wait(main())
    assert len(slept) == 1


def test_an_absurd_wait_is_stored_for_two_hours_at_most(pipeline: Pipeline) -> None:
    key = secrets.token_bytes(32)

    async def main() -> float:
        shared = StoredLimit(pipeline.context.pool, key)
        limit = RateLimit("host", lambda *_: None, 3_600, asyncio.sleep, lambda: 0.0, shared=shared)
        limit.is_limited(limited(10**11), 0)
        await limit.publish()
        with pytest.raises(HostError, match="longer than we wait"):
            await limit.wait_until_allowed()
        found = await shared.read()
        assert found is not None
        return found[0]

    assert 7_000 < pipeline.wait(main()) <= 7_200


def test_a_limit_stops_the_other_runs_of_an_account_and_no_other_account(pipeline: Pipeline) -> None:
    owner, accounts = pipeline.add_owner(), [pipeline.create_account() for _ in range(2)]
    pipeline.hub.add_repo(f"{owner}/shop", has_wiki=False, commits=())
    pipeline.hub.tokens["made-up-shared"] = owner
    pipeline.hub.faults.append(secondary_limit(429, retry_after=5_000))

    def errors(account: Account) -> str | None:
        pipeline.hub.requests.clear()
        return pipeline.scan_with(account, owner_spec(owner), "made-up-shared").error

    assert "longer than we wait" in str(errors(accounts[0]))
    assert "longer than we wait" in str(errors(accounts[0]))
    assert pipeline.hub.requests == []
    errors(accounts[1])
    assert pipeline.hub.requests != []


def test_an_interrupted_plan_goes_on_with_its_page(pipeline: Pipeline, account: Account) -> None:
    owner = pipeline.add_owner(organisation=True)
    for number in range(350):
        pipeline.hub.add_repo(f"{owner}/r{number:03}", has_wiki=False)
    run_id, hub = pipeline.start(account, owner_spec(owner)), pipeline.hub

    def listed() -> list[str]:
        return [path.partition("&page=")[2] or "1" for path in hub.paths if "/repos?" in path]

    async def interrupt() -> None:
        hub.delay = 0.02
        plan = asyncio.create_task(plan_run(pipeline.context, account.id, run_id))
        while "3" not in listed():  # noqa: ASYNC110 - the host is in another thread
            await asyncio.sleep(0.005)
        plan.cancel()
        await asyncio.gather(plan, return_exceptions=True)

    hub.requests.clear()
    pipeline.wait(interrupt())
    hub.delay = 0.0
    before = pipeline.sql("SELECT count(*) FROM scan_sources WHERE scan_id = %s", run_id)[0][0]
    assert 100 <= before < 350
    hub.requests.clear()
    pipeline.wait(plan_run(pipeline.context, account.id, run_id))
    assert listed()[0] in {"2", "3"}
    assert pipeline.sql("SELECT count(*) FROM scan_sources WHERE scan_id = %s", run_id) == [(351,)]
