"""Test that the cost of a source does not grow with its run, and that due targets start in batches."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from outcrop.domain.clock import now
from outcrop.domain.scan import ScanStatus, SourceState, Trigger
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.maintenance import start_due_runs
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs, scan_sources, scans, targets
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_scan
from tests.support.rows_read import count_rows_read

SITE = TargetSpec(TargetKind.SITE, "https://shop.example/", options=dict(OPTIONS[TargetKind.SITE]))


@pytest.fixture(autouse=True)
def _no_work_left(backend: Backend) -> Iterator[None]:
    """Delete all jobs, targets and unfinished runs: the queue and the scheduler work for all accounts."""
    delete = "TRUNCATE procrastinate_jobs, targets CASCADE; DELETE FROM scans WHERE finished_at IS NULL"
    backend.sql(delete)
    yield
    backend.sql(delete)


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    """Return a new account with its API client."""
    return backend.tenant()


async def _create_run(db: Connection, account_id: int, size: int) -> UUID:
    """Create a run of `size` sources, with a job for each. Half of the sources have ended and have none.

    The statistics are those of an empty table, as they are while a run is planned. No plan is kept.
    """
    await db.execute(
        """SELECT pg_clear_relation_stats('public', 'scan_sources'),
                  pg_clear_attribute_stats('public', 'scan_sources', attname, false)
           FROM pg_attribute WHERE attrelid = 'scan_sources'::regclass AND attnum > 0 AND NOT attisdropped"""
    )
    run = make_scan(status=ScanStatus.RUNNING, trigger=Trigger.CLI)
    await scans.insert(db, account_id, run)
    names = [f"source {number:06}" for number in range(size)]
    await scan_sources.add_sources(db, account_id, run.id, [(name, {}) for name in names])
    await db.execute(
        """UPDATE scan_sources SET status = 'done', progress = '{"targets": 1}', findings_new = 2
           WHERE account_id = %s AND scan_id = %s AND source < %s""",
        [account_id, run.id, names[size // 2]],
    )
    await db.execute("SET LOCAL session_replication_role = replica")  # no triggers: thousands of events
    await db.execute(
        """INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args)
           SELECT %s, 'cost', 'cost ' || n, jsonb_build_object('account_id', %s::bigint)
           FROM generate_series(1, %s) n""",
        [jobs.QUEUE, account_id, size // 2],
    )
    await db.execute("SET LOCAL session_replication_role = origin")
    return run.id


async def _count_rows_per_step(db: Connection, account_id: int, size: int) -> dict[str, int]:
    """Return the rows that each step of a source of a run reads, by step."""
    scan_id = await _create_run(db, account_id, size)
    source, moment = f"source {size - 1:06}", now()
    key = (db, account_id, scan_id, source)
    for option in jobs.SESSION_OPTIONS.replace("-c ", "").split():
        await db.execute(f"SET LOCAL {option}".encode())

    async def take_job() -> None:
        row = await jobs.Claimer({}).claim(db, jobs.QUEUE, None)
        assert row is not None
        await db.execute("SELECT procrastinate_finish_job_v1(%s, 'succeeded', true)", [row["id"]])

    async def finish() -> None:
        await scan_sources.finish_source(*key, state=SourceState.DONE, progress={"targets": 1})
        assert await scans.finish_run(db, account_id, scan_id, now=moment) is None

    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "take a job": take_job,
        "start the run": lambda: scans.start_run(db, account_id, scan_id, now=moment),
        "claim": lambda: scan_sources.claim_source(*key),
        "progress": lambda: scan_sources.set_progress(*key, {"blobs": 3}),
        "counts": lambda: scan_sources.add_counts(*key, new=1),
        "show the run": lambda: scans.select(db, account_id, scan_id),
        "finish": finish,
        "start the next run": lambda: scans.has_unfinished_run(db, account_id, uuid4()),
    }
    return {name: sum((await count_rows_read(db, step)).values()) for name, step in steps.items()}


def test_the_steps_of_a_source_read_no_more_rows_in_a_larger_run(backend: Backend) -> None:
    def count(size: int) -> dict[str, int]:
        account_id = backend.tenant().account.id
        return backend.run(lambda db: _count_rows_per_step(db, account_id, size))

    small, large = count(40), count(8_000)
    assert {name: (small[name], rows) for name, rows in large.items() if rows > small[name] + 20} == {}


def test_a_run_is_shown_as_cheaply_while_the_index_is_full_of_ended_sources(backend: Backend) -> None:
    account_id = backend.tenant().account.id

    async def count(db: Connection) -> dict[str, int]:
        scan_id = await _create_run(db, account_id, 8_000)
        for status in ("running", "done"):
            await db.execute(
                "UPDATE scan_sources SET status = %s WHERE account_id = %s AND scan_id = %s",
                [status, account_id, scan_id],
            )
        await db.execute(  # as a vacuum that finds two live entries in ten pages
            """SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', 'scan_sources_begun',
                                                'relpages', 10, 'reltuples', 2::real)"""
        )
        return await count_rows_read(db, lambda: scans.select(db, account_id, scan_id))

    assert sum(backend.run(count).values()) < 20


def test_an_unfinished_run_shows_the_sums_of_all_its_sources(backend: Backend, tenant: Tenant) -> None:
    account_id = tenant.account.id

    async def main(db: Connection) -> None:
        scan_id = await _create_run(db, account_id, 6)
        names = [f"source {number:06}" for number in range(3, 6)]
        for name in names:
            await scan_sources.claim_source(db, account_id, scan_id, name)
            await scan_sources.set_progress(db, account_id, scan_id, name, {"blobs": 3})
            await scan_sources.add_counts(db, account_id, scan_id, name, new=1, seen=5)
        await scan_sources.release_source(db, account_id, scan_id, names[0])
        expected = {"targets": 3, "commits": 0, "blobs": 9, "pages": 0, "bytes": 0}
        for name in names:
            run = await scans.select(db, account_id, scan_id)
            assert run is not None
            assert (run.progress, run.findings_new, run.findings_seen) == (expected, 9, 15)
            assert await scans.finish_run(db, account_id, scan_id, now=now()) is None
            await scan_sources.finish_source(db, account_id, scan_id, name, state=SourceState.DONE)
        result = await scans.finish_run(db, account_id, scan_id, now=now())
        assert result is not None
        assert (result.status, result.new, result.seen) == (ScanStatus.COMPLETED, 9, 15)
        run = await scans.select(db, account_id, scan_id)
        assert run is not None
        assert (run.progress, run.findings_new, run.findings_seen) == (expected, 9, 15)

    backend.run(main)


class _WatchedPool:
    """A pool that notes how many runs others can see after each use of a connection."""

    def __init__(self, pool: database.Pool) -> None:
        self._pool = pool
        self.visible: list[int] = []

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        async with self._pool.connection() as db:
            yield db
        async with self._pool.connection() as db:
            row = await database.fetch_single_row(db, "SELECT count(*) FROM scans WHERE finished_at IS NULL")
        self.visible.append(row[0])


def test_due_targets_start_in_batches_that_are_committed(
    backend: Backend, tenant: Tenant, keys: Keyring
) -> None:
    due, count = now() - timedelta(minutes=1), 50

    async def add_all(db: Connection) -> None:
        for _ in range(count):
            target = Target(uuid4(), SITE, Schedule.DAILY, due, due)
            await targets.insert(db, tenant.account.id, target, None)

    async def main() -> tuple[int, list[int]]:
        url: Any = backend.settings.database_url
        async with database.open_pool(url, size=2, statement_timeout=30) as pool:
            watched = _WatchedPool(pool)
            context = type("PoolContext", (), {"pool": watched, "keys": keys})()
            return await start_due_runs(cast("RunContext", context)), watched.visible

    backend.run(add_all)
    started, visible = asyncio.run(main())
    assert started == count
    assert visible == [20, 40, 50, 50]
