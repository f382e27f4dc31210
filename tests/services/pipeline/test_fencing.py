"""Check that an outdated scan, or an answer that is no repository, resolves nothing."""

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from outcrop.domain.account import Account
from outcrop.domain.scan import ScanStatus
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.services.pipeline.fence import OutdatedScanError, hold_source, write_transaction
from outcrop.services.pipeline.foreground import run_in_foreground
from outcrop.services.pipeline.run_source import scan_source
from outcrop.services.pipeline.stored.transitions import resolve_finding
from outcrop.sources.isolated.process_pool import ProcessPool
from outcrop.sources.isolated.repository_job import JobProgressCallback, JobResult, RepositoryJob
from outcrop.store.runs import scans
from tests.services.pipeline.test_pipeline_rescan import KEY, events, one_repository
from tests.support.pipeline import Pipeline, plain_spec

NEVER = 10_000.0  # seconds: a scan with this timeout sends no heartbeat during a test
AT_ONCE = 0.0


class PausingPool:
    """A process pool whose jobs return only when `go_on` is set, as if the worker was suspended."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool
        self.has_result = asyncio.Event()
        self.go_on = asyncio.Event()

    async def run(
        self, job: RepositoryJob, on_progress: JobProgressCallback, *, urgent: bool = False
    ) -> JobResult:
        result = await self._pool.run(job, on_progress, urgent=urgent)
        self.has_result.set()
        await self.go_on.wait()
        return result


def pausing(context: RunContext) -> tuple[RunContext, PausingPool]:
    """Return the context of a worker that is suspended after it has scanned a repository."""
    pool = PausingPool(context.process_pool)
    return replace(context, process_pool=cast("Any", pool), source_timeout=NEVER), pool


@pytest.mark.parametrize("same_run", [True, False])
def test_a_worker_that_wakes_up_late_resolves_nothing(
    pipeline: Pipeline, account: Account, same_run: bool
) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    shop.repo.commit({"other.txt": "x"}, parents=[])
    shop.update_api(keep_commits=False)
    run_id, (source,) = pipeline.plan(account, spec)
    suspended, pool = pausing(pipeline.context)
    awake = replace(pipeline.context, source_timeout=AT_ONCE)

    async def overtake() -> None:
        late = asyncio.create_task(scan_source(suspended, account.id, run_id, source))
        await pool.has_result.wait()
        shop.push({"a.txt": f"x\n{KEY}\n"})
        if same_run:  # as the job of a worker that counts as dead
            await scan_source(awake, account.id, run_id, source)
        else:
            await run_in_foreground(awake, account, spec, lambda _: None, by="a test")
        pool.go_on.set()
        await late

    pipeline.wait(overtake())
    assert pipeline.finding(account)["status"] == "active"
    assert events(pipeline, account) == ["finding.new"]
    assert pipeline.get_run(account, run_id).status is ScanStatus.COMPLETED
    pipeline.scan(account, spec)
    assert pipeline.finding(account)["status"] == "active"


def test_a_second_scan_of_a_source_waits_and_says_so(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    run_id, (source,) = pipeline.plan(account, spec)

    async def scan_twice() -> list[str | None]:
        waiting: list[str | None] = []
        first, pool = pausing(pipeline.context)
        first_task = asyncio.create_task(scan_source(first, account.id, run_id, source))
        await pool.has_result.wait()
        second_task = asyncio.create_task(
            run_in_foreground(
                pipeline.context, account, spec, lambda run: waiting.append(run.waiting), by="a test"
            )
        )
        while not any(waiting):  # noqa: ASYNC110 - the callback gets a new state twice a second
            await asyncio.sleep(0.05)
        assert not second_task.done()
        pool.go_on.set()
        await first_task
        assert (await second_task).waiting is None
        return waiting

    waiting = pipeline.wait(scan_twice())
    assert f"{shop.source}: another scan is running" in waiting
    assert pipeline.finding(account)["seen_count"] == 2


def test_no_write_of_an_overtaken_scan_succeeds(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    run_id, (source,) = pipeline.plan(account, spec)
    suspended = replace(pipeline.context, source_timeout=NEVER)
    awake = replace(pipeline.context, source_timeout=AT_ONCE)

    async def overtake() -> None:
        async with hold_source(suspended, account.id, run_id, source) as old:
            async with write_transaction(suspended, old):
                pass
            async with hold_source(awake, account.id, run_id, source) as new:
                assert new.attempt == old.attempt + 1
                with pytest.raises(OutdatedScanError):
                    async with write_transaction(suspended, old):
                        pass
                async with write_transaction(awake, new):
                    pass

    pipeline.wait(overtake())


def test_a_finding_that_was_seen_since_the_scan_began_is_not_resolved(
    pipeline: Pipeline, account: Account
) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    run_id, (source,) = pipeline.plan(account, spec)
    finding_id = pipeline.finding(account)["id"]

    async def resolve(*, seen_meanwhile: bool) -> None:
        async with hold_source(pipeline.context, account.id, run_id, source) as key:
            if seen_meanwhile:
                pipeline.sql("UPDATE findings SET sighted_at = clock_timestamp() WHERE id = %s", finding_id)
            await resolve_finding(pipeline.context, key, finding_id)

    pipeline.wait(resolve(seen_meanwhile=True))
    assert pipeline.finding(account)["status"] == "active"
    pipeline.wait(resolve(seen_meanwhile=False))
    assert pipeline.finding(account)["status"] == "resolved"


def test_a_run_counts_what_it_resolves_although_it_is_valid(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    run_id, (source,) = pipeline.plan(account, spec)
    finding_id = pipeline.finding(account)["id"]
    pipeline.sql("UPDATE findings SET validation_status = 'valid' WHERE id = %s", finding_id)

    async def resolve() -> None:
        async with hold_source(pipeline.context, account.id, run_id, source) as key:
            for _ in range(2):
                await resolve_finding(pipeline.context, key, finding_id)

    pipeline.wait(resolve())
    assert pipeline.sql("SELECT resolved_valid FROM scans WHERE id = %s", run_id) == [(1,)]
    line = "SELECT detail ->> 'validation' FROM audit WHERE target = %s AND action = 'finding.resolved'"
    assert pipeline.sql(line, str(finding_id)) == [("valid",)]


def test_an_unchanged_source_reopens_what_its_last_scan_saw(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    pipeline.scan(account, spec)
    pipeline.sql(
        """UPDATE findings SET status = 'resolved', resolved_at = now(), auto_resolved = true
           WHERE account_id = %s""",
        account.id,
    )
    run = pipeline.scan(account, spec)
    assert pipeline.finding(account)["status"] == "active"
    assert events(pipeline, account) == ["finding.new", "finding.new"]
    assert run.findings_new == 1


@pytest.mark.parametrize("page", [b"<html>Sign in</html>", b"ok", b""])
@pytest.mark.parametrize("has_api", [True, False])
def test_a_page_in_place_of_a_repository_resolves_nothing(
    pipeline: Pipeline, account: Account, page: bytes, has_api: bool
) -> None:
    spec, shop = one_repository(pipeline)
    if not has_api:
        spec = plain_spec(shop.full_name)
    pipeline.scan(account, spec)
    assert pipeline.finding(account)["status"] == "active"
    shop.update_api()
    pipeline.git.page = page
    try:
        run = pipeline.scan(account, spec)
    finally:
        pipeline.git.page = None
    assert run.status is ScanStatus.FAILED
    assert any("not that of a git host" in gap.why for gap in run.coverage_gaps)
    assert pipeline.finding(account)["status"] == "active"
    assert events(pipeline, account) == ["finding.new"]


def test_a_repository_that_lost_all_refs_resolves_nothing(pipeline: Pipeline, account: Account) -> None:
    spec, shop = one_repository(pipeline)
    pipeline.scan(account, spec)
    shop.repo.delete_ref("refs/heads/main")
    shop.update_api(keep_commits=False)
    run = pipeline.scan(account, spec)
    assert [gap.why for gap in run.coverage_gaps] == [
        "it had branches or tags before and has none now: no finding was resolved"
    ]
    assert pipeline.finding(account)["status"] == "active"
    shop.push({"other.txt": "x"})
    shop.update_api(keep_commits=False)
    pipeline.scan(account, spec)
    assert pipeline.finding(account)["status"] == "resolved", "a rewritten history resolves"


def test_the_key_of_a_plan_has_no_fence(pipeline: Pipeline, account: Account) -> None:
    spec, _ = one_repository(pipeline)
    run_id, _ = pipeline.plan(account, spec)

    async def write() -> None:
        async with write_transaction(pipeline.context, SourceKey(account.id, run_id, "plan")) as (db, _):
            await scans.set_waiting(db, account.id, run_id, "a test")

    pipeline.wait(write())
    assert pipeline.sql("SELECT waiting FROM scans WHERE id = %s", run_id) == [("a test",)]
