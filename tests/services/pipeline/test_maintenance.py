"""What keeps runs going, on a real database: schedules, jobs of workers that have died, commands that have died, and stale findings."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from procrastinate.jobs import Job
from structlog.testing import capture_logs

from outcrop import worker
from outcrop.domain.scan import COUNTERS, ScanStatus, SourceState, Trigger
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.runtime import prepare_database
from outcrop.services import accounts
from outcrop.services import targets as target_service
from outcrop.services.pipeline import plan
from outcrop.services.pipeline.context import MAX_ATTEMPTS, RunContext, now
from outcrop.services.pipeline.enqueue import enqueue_source, start_run
from outcrop.services.pipeline.maintenance import (
    mark_stale,
    requeue_stalled_jobs,
    resume_orphaned_runs,
    start_due_runs,
)
from outcrop.services.pipeline.run_source import scan_source
from outcrop.settings import Settings
from outcrop.sources.resolve_target import ScanSource
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.runs import jobs, scan_sources, scans
from tests.support.backend import Backend, Tenant
from tests.support.factories import make_line, make_scan

T = TypeVar("T")
SITE = TargetSpec(TargetKind.SITE, "https://shop.example/", options=dict(OPTIONS[TargetKind.SITE]))
SOURCE = ScanSource("https://shop.example", "site", "https://shop.example/")
DAY = timedelta(days=1)
DEAD_AFTER = 1.0  # seconds; no longer than the database has been there


@pytest.fixture(autouse=True)
def _nothing_left(backend: Backend) -> Iterator[None]:
    """Upkeep is for all accounts, so each test begins and ends with none of it to do."""
    leave_nothing(backend)
    yield
    leave_nothing(backend)


def leave_nothing(backend: Backend) -> None:
    backend.sql("TRUNCATE procrastinate_jobs, procrastinate_workers, targets CASCADE")
    backend.sql("DELETE FROM scans WHERE finished_at IS NULL")


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    return backend.tenant()


def keep(backend: Backend, *chores: Callable[[RunContext], Awaitable[T]]) -> list[T]:
    """Do chores at once, as so many workers would."""

    async def main() -> list[T]:
        assert backend.settings.database_url is not None
        async with database.open_pool(
            backend.settings.database_url, size=len(chores), statement_timeout=30
        ) as pool:
            tools = cast("RunContext", WithPool(pool))
            return list(await asyncio.gather(*(chore(tools) for chore in chores)))

    return asyncio.run(main())


class WithPool:
    """Upkeep needs no more of a worker's tools than this."""

    def __init__(self, pool: database.Pool) -> None:
        self.pool = pool


def add_target(backend: Backend, tenant: Tenant, schedule: Schedule, due: datetime | None) -> Target:
    added = backend.run(
        lambda db: target_service.add_target(
            db, backend.keys, tenant.account, "https://shop.example/",
            kind=None, schedule=schedule, include=[], exclude=[], chosen={}, credential=None, by="test", now=now(),
        )
    )  # fmt: skip
    if due is not None:
        backend.sql("UPDATE targets SET next_run_at = %s WHERE id = %s", due, added.id)
    return added


def next_run(backend: Backend, target: Target) -> datetime | None:
    ((found,),) = backend.sql("SELECT next_run_at FROM targets WHERE id = %s", target.id)
    return cast("datetime | None", found)


def start(backend: Backend, tenant: Tenant, *sources: str, **given: Any) -> UUID:
    """Start a run that is planned already: it consists of these sources, each with its job."""

    async def work(db: Connection) -> UUID:
        run = await start_run(
            db,
            tenant.account.id,
            SITE,
            trigger=Trigger.CLI,
            target_id=None,
            moment=now(),
            by="a test",
            **given,
        )
        if sources:
            await scan_sources.finish_source(
                db, tenant.account.id, run.id, plan.PLAN_SOURCE, state=SourceState.DONE
            )
            await db.execute("DELETE FROM procrastinate_jobs WHERE args ->> 'scan_id' = %s", [str(run.id)])
            await scans.start_run(db, tenant.account.id, run.id, now=now())
            await scan_sources.add_sources(
                db, tenant.account.id, run.id, [(source, asdict(SOURCE)) for source in sources]
            )
            for source in sources if "foreground" not in given else ():
                await enqueue_source(db, tenant.account.id, run.id, source)
        return run.id

    return backend.run(work)


def fetch_all(backend: Backend, *, heard: timedelta) -> None:
    """Let a worker, last heard of so long ago, have taken every job."""
    ((worker,),) = backend.sql(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - %s) RETURNING id", heard
    )
    while backend.sql("SELECT id FROM procrastinate_fetch_job_v2(NULL, %s)", worker) != [(None,)]:
        pass


def job_states(backend: Backend) -> list[str]:
    return [state for (state,) in backend.sql("SELECT status FROM procrastinate_jobs ORDER BY id")]


# --- schedules


def test_a_due_target_starts_one_run_however_many_ask_at_once(backend: Backend, tenant: Tenant) -> None:
    due = now() - timedelta(minutes=1)
    target = add_target(backend, tenant, Schedule.DAILY, due)
    assert sum(keep(backend, *[start_due_runs] * 8)) == 1
    ((status, trigger, name, target_id),) = backend.sql(
        "SELECT status, trigger, target, target_id FROM scans WHERE account_id = %s", tenant.account.id
    )
    assert (status, trigger, name, target_id) == ("queued", "schedule", "https://shop.example/", target.id)
    assert job_states(backend) == ["todo"]
    assert next_run(backend, target) == due + DAY
    assert keep(backend, start_due_runs) == [0], "and not again before its time"


@pytest.mark.parametrize(
    ("schedule", "every"),
    [(Schedule.HOURLY, timedelta(hours=1)), (Schedule.DAILY, DAY), (Schedule.WEEKLY, 7 * DAY)],
)
def test_after_a_missed_week_there_is_one_run_and_the_next_is_in_step(
    backend: Backend, tenant: Tenant, schedule: Schedule, every: timedelta
) -> None:
    due = now() - 7 * DAY - timedelta(minutes=7)
    target = add_target(backend, tenant, schedule, due)
    assert keep(backend, start_due_runs) == [1]
    then = next_run(backend, target)
    assert then is not None
    assert timedelta() < then - now() <= every
    assert (then - due) % every == timedelta()


def test_a_run_that_is_under_way_is_not_doubled(backend: Backend, tenant: Tenant) -> None:
    target = add_target(backend, tenant, Schedule.HOURLY, now())
    for status in (ScanStatus.QUEUED, ScanStatus.RUNNING, ScanStatus.INTERRUPTED):
        run = replace(make_scan(status=status), id=uuid4())
        backend.run(lambda db, run=run: scans.insert(db, tenant.account.id, run, target_id=target.id))
        backend.sql("UPDATE targets SET next_run_at = %s WHERE id = %s", before := now(), target.id)
        assert keep(backend, start_due_runs) == [0]
        assert next_run(backend, target) == before + timedelta(hours=1), "its turn has passed"
        backend.sql("UPDATE scans SET finished_at = now(), status = 'completed' WHERE id = %s", run.id)
    backend.sql("UPDATE targets SET next_run_at = %s WHERE id = %s", now(), target.id)
    assert keep(backend, start_due_runs) == [1]


def test_what_is_off_removed_or_of_a_deleted_account_never_starts(backend: Backend, tenant: Tenant) -> None:
    add_target(backend, tenant, Schedule.OFF, None)
    removed = add_target(backend, other := backend.tenant(), Schedule.HOURLY, now())
    backend.run(
        lambda db: target_service.remove_target(db, other.account, str(removed.id), by="test", now=now())
    )
    add_target(backend, gone := backend.tenant(), Schedule.HOURLY, now())
    backend.run(lambda db: accounts.delete_account(db, gone.account.slug))
    assert keep(backend, start_due_runs) == [0]
    assert job_states(backend) == []


# --- workers that have died


def test_the_jobs_of_a_dead_worker_wait_again_once_and_their_run_says_so(
    backend: Backend, tenant: Tenant
) -> None:
    scan_id = start(backend, tenant, "one", "two")
    fetch_all(backend, heard=timedelta(seconds=30))
    assert sum(keep(backend, *[lambda tools: requeue_stalled_jobs(tools, dead_after=DEAD_AFTER)] * 4)) == 2
    assert job_states(backend) == ["todo", "todo"]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


def test_the_jobs_of_a_worker_that_is_heard_of_are_left_to_it(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    fetch_all(backend, heard=timedelta())
    assert keep(backend, lambda tools: requeue_stalled_jobs(tools, dead_after=DEAD_AFTER)) == [0]
    assert job_states(backend) == ["doing"]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "running"


def test_the_jobs_of_a_worker_that_is_forgotten_wait_again(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, "one")
    fetch_all(backend, heard=timedelta())
    backend.sql(
        "DELETE FROM procrastinate_workers"
    )  # as the next worker does with those that it has not heard of for long
    assert keep(backend, lambda tools: requeue_stalled_jobs(tools, dead_after=DEAD_AFTER)) == [1]
    assert job_states(backend) == ["todo"]


def test_a_job_of_a_deleted_account_is_nothing_to_do(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    fetch_all(backend, heard=timedelta(seconds=30))
    backend.run(lambda db: accounts.delete_account(db, tenant.account.slug))
    assert keep(backend, lambda tools: requeue_stalled_jobs(tools, dead_after=DEAD_AFTER)) == [1]
    assert backend.run(lambda db: scans.start_run(db, tenant.account.id, scan_id, now=now())) is None


def test_being_told_to_stop_is_no_try(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")

    async def stopped(db: Connection) -> int:
        taken = await scan_sources.claim_source(db, tenant.account.id, scan_id, "one")
        await scan_sources.release_source(db, tenant.account.id, scan_id, "one")
        assert taken is not None
        return taken.tries

    assert [backend.run(stopped) for _ in range(2 * MAX_ATTEMPTS)] == [1] * 2 * MAX_ATTEMPTS


def look(backend: Backend, tenant: Tenant, scan_id: UUID, source: str) -> None:
    keep(backend, lambda tools: scan_source(tools, tenant.account.id, scan_id, source))


def test_an_error_that_nobody_thought_of_is_tried_three_times_and_told_by_its_kind(
    backend: Backend, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("a value that is nobody's business")

    monkeypatch.setattr("outcrop.services.pipeline.run_source.scan_site", broken)
    scan_id = start(backend, tenant, "https://shop.example")
    for _ in range(MAX_ATTEMPTS - 1):
        with pytest.raises(KeyError):
            look(backend, tenant, scan_id, "https://shop.example")
    look(backend, tenant, scan_id, "https://shop.example")
    run = tenant.get(f"/scans/{scan_id}").json()["data"]
    assert (run["status"], run["error"]) == ("failed", "scanning failed (KeyError)")


def test_a_look_that_is_told_to_stop_at_any_moment_is_no_try(
    backend: Backend, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    for moment in ("run_source.load_credential", "run_source.scan_site", "plan.scan_sources.finish_source"):
        scan_id = start(backend, tenant, "https://shop.example")
        with monkeypatch.context() as patch:
            if moment.endswith("finish_source"):
                patch.setattr("outcrop.services.pipeline.run_source.scan_site", nothing)
            patch.setattr(f"outcrop.services.pipeline.{moment}", stopped)
            with pytest.raises(asyncio.CancelledError):
                look(backend, tenant, scan_id, "https://shop.example")
        rows = backend.sql(
            "SELECT status, tries FROM scan_sources WHERE scan_id = %s AND source <> 'plan'", scan_id
        )
        assert rows == [("queued", 0)], moment
        assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


async def nothing(*_: object) -> None:
    """Look at nothing."""


def test_a_source_that_a_host_lists_twice_is_looked_at_once(
    backend: Backend, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def listed(*_: object, **__: object) -> AsyncIterator[ScanSource]:
        yield SOURCE
        yield SOURCE

    monkeypatch.setattr("outcrop.services.pipeline.plan.resolve_target", listed)
    monkeypatch.setattr("outcrop.services.pipeline.plan.open_github", lambda *_: None)
    for given in ({}, {"foreground": 7}):
        scan_id = start(backend, tenant, **given)
        names = keep(
            backend,
            lambda tools, id_=scan_id, given=given: plan.plan_run(
                tools, tenant.account.id, id_, deferred=not given
            ),
        )
        assert names == [["https://shop.example"]]
    assert backend.sql("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'look_at_source'") == [(1,)]


# --- what a worker goes on with


def test_a_job_is_done_again_however_often_it_was_stopped_or_failed() -> None:
    for attempts, error, wait in (
        (50, asyncio.CancelledError(), 0),
        (0, KeyError(), 2),
        (50, KeyError(), 60),
    ):
        job = Job(
            id=1,
            queue="outcrop",
            lock=None,
            queueing_lock=None,
            task_name="look_at_source",
            attempts=attempts,
        )
        decision = worker._RetryAlways().get_retry_decision(exception=error, job=job)
        assert decision.retry_at is not None
        assert abs((decision.retry_at - datetime.now(UTC)).total_seconds() - wait) < 1


def test_a_connection_is_not_waited_for_as_long_as_a_statement_may_take(backend: Backend) -> None:
    """Who waits makes the pool try again only once: a database that is back would not be noticed."""

    async def waits() -> float:
        async with database.open_pool(
            backend.settings.database_url or "", size=1, statement_timeout=600
        ) as pool:
            return pool.timeout

    assert asyncio.run(waits()) <= 10


def test_a_chore_that_fails_is_done_again() -> None:
    done: list[int] = []

    async def main() -> None:
        stop = asyncio.Event()

        async def chore() -> None:
            done.append(1)
            if len(done) == 3:
                stop.set()
            raise RuntimeError("a bug")

        await worker._run_every(0.01, stop, chore)

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["event"] for line in logs] == ["periodic_task_failed"] * 3


# --- commands that have died


def test_what_a_dead_command_left_is_given_to_workers_once(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one", "two", foreground=7)
    backend.run(
        lambda db: scan_sources.finish_source(db, tenant.account.id, scan_id, "one", state=SourceState.DONE)
    )
    assert sum(keep(backend, *[resume_orphaned_runs] * 4)) == 1
    assert backend.sql("SELECT task_name, args ->> 'source' FROM procrastinate_jobs") == [
        ("look_at_source", "two")
    ]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


def test_a_dead_commands_plan_is_made_by_a_worker(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, foreground=7)
    assert keep(backend, resume_orphaned_runs) == [1]
    assert backend.sql("SELECT task_name FROM procrastinate_jobs") == [("plan_run",)]


def test_a_command_that_lives_keeps_its_run(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, "one", foreground=7)
    assert backend.settings.database_url is not None
    with psycopg.connect(backend.settings.database_url) as holding:
        holding.execute("SELECT pg_advisory_lock(7)")
        assert keep(backend, resume_orphaned_runs) == [0]
    assert keep(backend, resume_orphaned_runs) == [1]


def test_a_dead_commands_folder_has_failed(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "file:///srv/app", foreground=7)
    backend.sql('UPDATE scans SET spec = spec || \'{"kind": "folder"}\' WHERE id = %s', scan_id)
    assert keep(backend, resume_orphaned_runs) == [1]
    run = tenant.get(f"/scans/{scan_id}").json()["data"]
    assert (run["status"], run["error"]) == ("failed", "the command that ran it has died")
    assert run["finished_at"] is not None
    assert job_states(backend) == []


# --- stale findings


def test_findings_that_no_run_has_seen_for_long_are_stale_with_an_audit_line_and_no_event(
    backend: Backend, tenant: Tenant
) -> None:
    def line(days: int, status: str = "active") -> dict[str, Any]:
        return make_line(
            status=status,
            last_seen_at=(now() - days * DAY).isoformat(),
            first_seen_at=(now() - 90 * DAY).isoformat(),
        )

    old, older, young = line(31), line(60), line(29)
    closed = [line(60, status) for status in ("resolved", "false_positive", "customer_restricted")]
    keep(
        backend, lambda tools: mark_stale(tools, after=10 * DAY)
    )  # what other tests have left in this database
    backend.import_(tenant.account, old, older, young, *closed)
    assert sum(keep(backend, *[lambda tools: mark_stale(tools, after=30 * DAY)] * 3)) == 2
    assert [tenant.finding(one["id"])["status"] for one in (old, older, young)] == [
        "stale",
        "stale",
        "active",
    ]
    assert [tenant.finding(one["id"])["status"] for one in closed] == [
        "resolved",
        "false_positive",
        "customer_restricted",
    ]
    lines = backend.sql(
        "SELECT actor, target FROM audit WHERE account_id = %s AND action = 'finding.stale'",
        tenant.account.id,
    )
    assert sorted(lines) == sorted(("scan", one["id"]) for one in (old, older))
    assert backend.sql("SELECT count(*) FROM outbox WHERE account_id = %s", tenant.account.id) == [(0,)]
    assert tenant.get("/findings", status="stale").json()["meta"]["total"] == 2, "the counts know of it"
    assert keep(backend, lambda tools: mark_stale(tools, after=30 * DAY)) == [0]
    assert keep(backend, lambda tools: mark_stale(tools, after=10 * DAY)) == [1]


# --- the queue's own tables


@pytest.fixture
def empty(cluster: str, worker_id: str) -> str:
    name = f"jobs_{worker_id}"
    with psycopg.connect(cluster, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        db.execute(f"CREATE DATABASE {name}")
    return psycopg.conninfo.make_conninfo(cluster, dbname=name)


def migrate(url: str) -> None:
    async def main() -> None:
        async with await database.connect(url) as db, db.transaction():
            await jobs.migrate(db)

    asyncio.run(main())


def functions(url: str) -> set[tuple[str, str]]:
    with psycopg.connect(url) as db:
        return set(
            db.execute("SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'procrastinate%'").fetchall()
        )


def test_a_fresh_database_gets_the_whole_queue_and_every_migration_counts_as_applied(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as db:
        names = {name for (name,) in db.execute("SELECT name FROM job_migrations").fetchall()}
        assert db.execute("SELECT count(*) FROM procrastinate_jobs").fetchone() == (0,)
    assert len(names) > 30
    assert [name for name in names if name.startswith("procrastinate ")]
    migrate(empty)


def test_a_database_of_an_older_queue_gets_only_what_it_lacks(empty: str) -> None:
    migrate(empty)
    newest = functions(empty)
    with psycopg.connect(empty, autocommit=True) as db:
        db.execute("DROP FUNCTION procrastinate_fetch_job_v2")
        db.execute("DELETE FROM job_migrations WHERE name LIKE '03.03%' OR name LIKE 'procrastinate %'")
        db.execute("INSERT INTO job_migrations VALUES ('procrastinate 3.2.0')")
        db.execute("INSERT INTO procrastinate_jobs (queue_name, task_name) VALUES ('outcrop', 'kept')")
    migrate(empty)
    assert functions(empty) == newest
    with psycopg.connect(empty) as db:
        assert db.execute("SELECT task_name FROM procrastinate_jobs").fetchall() == [("kept",)]
        assert db.execute(
            "SELECT count(*) FROM job_migrations WHERE name LIKE 'procrastinate %'"
        ).fetchone() == (2,)


def test_a_migrated_database_needs_nothing_of_the_queue(empty: str) -> None:
    migrate(empty)
    program = (
        "import asyncio, sys\n"
        "from outcrop.store import db\n"
        "from outcrop.store.runs import jobs\n"
        "async def main():\n"
        "    async with await db.connect(sys.argv[1]) as connection, connection.transaction():\n"
        "        await jobs.migrate(connection)\n"
        "asyncio.run(main())\n"
        "assert 'procrastinate' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, empty], check=True)


def test_many_processes_may_prepare_a_fresh_database_at_once(empty: str, settings: Settings) -> None:
    async def main() -> None:
        await asyncio.gather(*(prepare_database(settings, empty) for _ in range(4)))

    asyncio.run(main())


# --- runs as the API shows them while they are live


def test_a_hundred_live_runs_of_a_thousand_sources_each_are_summed_right_and_fast(
    backend: Backend, tenant: Tenant
) -> None:
    account = tenant.account.id
    backend.sql(
        """INSERT INTO scans (account_id, id, type, status, trigger, target, created_at, started_at)
           SELECT %s, gen_random_uuid(), 'github', 'running', 'cli', 'github:acme', now() - make_interval(secs => n), now()
           FROM generate_series(1, 100) n""",
        account,
    )
    backend.sql(
        """INSERT INTO scan_sources (account_id, scan_id, source, spec, status, progress, findings_new, findings_seen, findings_resolved)
           SELECT %s, id, 'r' || n, '{}', 'running',
                  jsonb_build_object('targets', 1, 'commits', n, 'blobs', 2 * n, 'bytes', 5000000), 1, 2, 3
           FROM scans, generate_series(1, 1000) n WHERE account_id = %s""",
        *(account, account),
    )
    backend.sql("ANALYZE scan_sources")
    began = time.monotonic()
    page = tenant.get("/scans", limit=20).json()
    taken = time.monotonic() - began
    assert page["meta"]["total"] == 100
    sums = {"targets": 1_000, "commits": 500_500, "blobs": 1_001_000, "pages": 0, "bytes": 5_000_000_000}
    assert set(sums) == set(COUNTERS)
    for run in page["data"]:
        assert run["progress"] == sums
        assert (run["findings_new"], run["findings_seen"], run["findings_resolved"]) == (1_000, 2_000, 3_000)
    assert page["data"] == sorted(page["data"], key=lambda run: str(run["created_at"]), reverse=True)
    assert taken < 2, taken
