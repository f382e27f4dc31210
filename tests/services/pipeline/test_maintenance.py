"""Test the periodic tasks on a real database: schedules, dead workers, dead commands, stale findings."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

import psycopg
import pytest
from procrastinate.jobs import Job
from structlog.testing import capture_logs

from outcrop.domain.clock import now
from outcrop.domain.scan import COUNTERS, ScanStatus, SourceState, Trigger
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.limits import SOURCE_ATTEMPTS
from outcrop.runtime import prepare_database
from outcrop.services import accounts
from outcrop.services import targets as target_service
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import enqueue_source, start_run
from outcrop.services.pipeline.fence import hold_source
from outcrop.services.pipeline.host_access import load_credential
from outcrop.services.pipeline.maintenance import (
    mark_stale,
    requeue_stalled_jobs,
    resume_orphaned_runs,
    start_due_runs,
)
from outcrop.services.pipeline.run_source import scan_source
from outcrop.services.pipeline.site_source import scan_site
from outcrop.settings import Settings
from outcrop.sources.resolve_target import ScanSource
from outcrop.store import db as database
from outcrop.store.db import Connection
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs, scan_sources, scans
from outcrop.worker.periodic import run_every
from outcrop.worker.tasks import RetryAlways
from tests.support.backend import Backend, Tenant
from tests.support.calls import before_call
from tests.support.databases import new_database
from tests.support.factories import make_line, make_scan
from tests.support.periodic import run_all

T = TypeVar("T")
SITE = TargetSpec(TargetKind.SITE, "https://shop.example/", options=dict(OPTIONS[TargetKind.SITE]))
SOURCE = ScanSource("https://shop.example", "site", "https://shop.example/")
DAY = timedelta(days=1)
DEAD_AFTER = 1.0  # seconds; at most the age of the database


@pytest.fixture(autouse=True)
def _no_work_left(backend: Backend) -> Iterator[None]:
    """Delete all jobs, targets and unfinished runs, since the periodic tasks work for all accounts."""
    delete_work(backend)
    yield
    delete_work(backend)


def delete_work(backend: Backend) -> None:
    """Delete all jobs, targets and unfinished runs."""
    backend.sql("TRUNCATE procrastinate_jobs, procrastinate_workers, targets CASCADE")
    backend.sql("DELETE FROM scans WHERE finished_at IS NULL")


@pytest.fixture
def tenant(backend: Backend) -> Tenant:
    """Return a new account with its API client."""
    return backend.tenant()


def add_target(backend: Backend, tenant: Tenant, schedule: Schedule, due: datetime | None) -> Target:
    """Add a target whose next run is at `due`."""
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
    """Return the stored time of a target's next run."""
    ((next_run_at,),) = backend.sql("SELECT next_run_at FROM targets WHERE id = %s", target.id)
    return cast("datetime | None", next_run_at)


def start(backend: Backend, tenant: Tenant, *sources: str, **options: Any) -> UUID:
    """Start a run; with sources, it is planned already and each source has its job."""

    async def work(db: Connection) -> UUID:
        run = await start_run(
            db,
            backend.keys,
            tenant.account.id,
            SITE,
            trigger=Trigger.CLI,
            target_id=None,
            moment=now(),
            by="a test",
            **options,
        )
        if sources:
            await scan_sources.finish_source(
                db, tenant.account.id, run.id, scans.PLAN_SOURCE, state=SourceState.DONE
            )
            await db.execute("DELETE FROM procrastinate_jobs WHERE args ->> 'scan_id' = %s", [str(run.id)])
            await scans.start_run(db, tenant.account.id, run.id, now=now())
            await scan_sources.add_sources(
                db, tenant.account.id, run.id, [(source, asdict(SOURCE)) for source in sources]
            )
            for source in sources if "foreground" not in options else ():
                await enqueue_source(db, tenant.account.id, run.id, source)
        return run.id

    return backend.run(work)


def fetch_all(backend: Backend, *, heartbeat_age: timedelta) -> None:
    """Assign all jobs to a worker whose last heartbeat was so long ago."""
    ((worker,),) = backend.sql(
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - %s) RETURNING id", heartbeat_age
    )
    while backend.sql("SELECT id FROM procrastinate_fetch_job_v2(NULL, %s)", worker) != [(None,)]:
        pass


def job_states(backend: Backend) -> list[str]:
    """Return the states of all jobs, oldest first."""
    return [state for (state,) in backend.sql("SELECT status FROM procrastinate_jobs ORDER BY id")]


# --- schedules


def test_a_due_target_starts_one_run_although_several_workers_ask_at_once(
    backend: Backend, tenant: Tenant
) -> None:
    due = now() - timedelta(minutes=1)
    target = add_target(backend, tenant, Schedule.DAILY, due)
    assert sum(run_all(backend, *[start_due_runs] * 8)) == 1
    ((status, trigger, name, target_id),) = backend.sql(
        "SELECT status, trigger, target, target_id FROM scans WHERE account_id = %s", tenant.account.id
    )
    assert (status, trigger, name, target_id) == ("queued", "schedule", "https://shop.example/", target.id)
    assert job_states(backend) == ["todo"]
    assert next_run(backend, target) == due + DAY
    assert run_all(backend, start_due_runs) == [0], "it does not start again before it is due"


@pytest.mark.parametrize(
    ("schedule", "every"),
    [(Schedule.HOURLY, timedelta(hours=1)), (Schedule.DAILY, DAY), (Schedule.WEEKLY, 7 * DAY)],
)
def test_after_a_missed_week_one_run_starts_and_the_next_keeps_the_interval(
    backend: Backend, tenant: Tenant, schedule: Schedule, every: timedelta
) -> None:
    due = now() - 7 * DAY - timedelta(minutes=7)
    target = add_target(backend, tenant, schedule, due)
    assert run_all(backend, start_due_runs) == [1]
    then = next_run(backend, target)
    assert then is not None
    assert timedelta() < then - now() <= every
    assert (then - due) % every == timedelta()


def test_a_target_with_an_unfinished_run_starts_no_second_one(backend: Backend, tenant: Tenant) -> None:
    target = add_target(backend, tenant, Schedule.HOURLY, now())
    for status in (ScanStatus.QUEUED, ScanStatus.RUNNING, ScanStatus.INTERRUPTED):
        run = replace(make_scan(status=status), id=uuid4())
        backend.run(lambda db, run=run: scans.insert(db, tenant.account.id, run, target_id=target.id))
        backend.sql("UPDATE targets SET next_run_at = %s WHERE id = %s", before := now(), target.id)
        assert run_all(backend, start_due_runs) == [0]
        assert next_run(backend, target) == before + timedelta(hours=1), "this time is skipped"
        backend.sql("UPDATE scans SET finished_at = now(), status = 'completed' WHERE id = %s", run.id)
    backend.sql("UPDATE targets SET next_run_at = %s WHERE id = %s", now(), target.id)
    assert run_all(backend, start_due_runs) == [1]


def test_targets_that_are_off_or_removed_or_of_a_deleted_account_never_start(
    backend: Backend, tenant: Tenant
) -> None:
    add_target(backend, tenant, Schedule.OFF, None)
    removed = add_target(backend, other := backend.tenant(), Schedule.HOURLY, now())
    backend.run(
        lambda db: target_service.remove_target(db, other.account, str(removed.id), by="test", now=now())
    )
    add_target(backend, gone := backend.tenant(), Schedule.HOURLY, now())
    backend.run(lambda db: accounts.delete_account(db, gone.account.slug))
    assert run_all(backend, start_due_runs) == [0]
    assert job_states(backend) == []


# --- dead workers


def test_the_jobs_of_a_dead_worker_are_queued_again_once_and_the_run_is_interrupted(
    backend: Backend, tenant: Tenant
) -> None:
    scan_id = start(backend, tenant, "one", "two")
    fetch_all(backend, heartbeat_age=timedelta(seconds=30))
    assert (
        sum(run_all(backend, *[lambda context: requeue_stalled_jobs(context, dead_after=DEAD_AFTER)] * 4))
        == 2
    )
    assert job_states(backend) == ["todo", "todo"]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


def test_the_jobs_of_a_living_worker_stay_with_it(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    fetch_all(backend, heartbeat_age=timedelta())
    assert run_all(backend, lambda context: requeue_stalled_jobs(context, dead_after=DEAD_AFTER)) == [0]
    assert job_states(backend) == ["doing"]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "running"


def test_the_jobs_of_a_deleted_worker_are_queued_again(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, "one")
    fetch_all(backend, heartbeat_age=timedelta())
    backend.sql(
        "DELETE FROM procrastinate_workers"
    )  # as another worker does if there was no heartbeat for long
    assert run_all(backend, lambda context: requeue_stalled_jobs(context, dead_after=DEAD_AFTER)) == [1]
    assert job_states(backend) == ["todo"]


def test_a_job_of_a_deleted_account_has_no_run_to_start(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    fetch_all(backend, heartbeat_age=timedelta(seconds=30))
    backend.run(lambda db: accounts.delete_account(db, tenant.account.slug))
    assert run_all(backend, lambda context: requeue_stalled_jobs(context, dead_after=DEAD_AFTER)) == [1]
    assert backend.run(lambda db: scans.start_run(db, tenant.account.id, scan_id, now=now())) is None


def test_a_released_source_does_not_count_as_an_attempt(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")

    async def claim_and_release(db: Connection) -> int:
        claimed = await scan_sources.claim_source(db, tenant.account.id, scan_id, "one")
        await scan_sources.release_source(db, tenant.account.id, scan_id, "one")
        assert claimed is not None
        return claimed.tries

    assert [backend.run(claim_and_release) for _ in range(2 * SOURCE_ATTEMPTS)] == [1] * 2 * SOURCE_ATTEMPTS


def scan(backend: Backend, tenant: Tenant, scan_id: UUID, source: str) -> None:
    """Scan one source of a run."""
    run_all(backend, lambda context: scan_source(context, tenant.account.id, scan_id, source))


def test_an_unexpected_error_is_retried_three_times_and_reported_by_its_type(
    backend: Backend, tenant: Tenant
) -> None:
    def fail(_: int) -> None:
        raise KeyError("a value that must not be shown")

    scan_id = start(backend, tenant, "https://shop.example")
    for _ in range(SOURCE_ATTEMPTS - 1):
        with before_call(scan_site, fail), pytest.raises(KeyError):
            scan(backend, tenant, scan_id, "https://shop.example")
    with before_call(scan_site, fail):
        scan(backend, tenant, scan_id, "https://shop.example")
    run = tenant.get(f"/scans/{scan_id}").json()["data"]
    assert (run["status"], run["error"]) == ("failed", "scanning failed (KeyError)")


@pytest.mark.parametrize(
    ("step", "tries"),
    [
        (load_credential, 0),
        (scan_site, 0),
        (scan_sources.finish_source, SOURCE_ATTEMPTS),  # such a source is finished without a scan
    ],
)
def test_a_scan_that_is_cancelled_at_any_step_does_not_count_as_an_attempt(
    backend: Backend, tenant: Tenant, step: Callable[..., object], tries: int
) -> None:
    def cancel(_: int) -> None:
        raise asyncio.CancelledError

    scan_id = start(backend, tenant, "https://shop.example")
    of_source = "scan_id = %s AND source <> 'plan'"
    backend.sql(f"UPDATE scan_sources SET tries = %s WHERE {of_source}", tries, scan_id)
    with before_call(step, cancel), pytest.raises(asyncio.CancelledError):
        scan(backend, tenant, scan_id, "https://shop.example")
    rows = backend.sql(f"SELECT status, tries FROM scan_sources WHERE {of_source}", scan_id)
    assert rows == [("queued", tries)]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


# --- retries


def test_a_job_is_retried_without_limit_after_cancellations_and_failures() -> None:
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
        before = datetime.now(UTC)
        decision = RetryAlways().get_retry_decision(exception=error, job=job)
        after = datetime.now(UTC)
        assert decision.retry_at is not None
        assert before <= decision.retry_at - timedelta(seconds=wait) <= after


def test_the_timeout_for_a_connection_is_shorter_than_for_a_statement(backend: Backend) -> None:
    """While a task waits, the pool reconnects only once, so a returned database would go unnoticed."""

    async def pool_timeout() -> float:
        async with database.open_pool(
            backend.settings.database_url or "", size=1, statement_timeout=600
        ) as pool:
            return pool.timeout

    assert asyncio.run(pool_timeout()) <= 10


def test_a_periodic_task_that_fails_is_run_again() -> None:
    calls: list[int] = []

    async def main() -> None:
        stop = asyncio.Event()

        async def task() -> None:
            calls.append(1)
            if len(calls) == 3:
                stop.set()
            raise RuntimeError("a bug")

        await run_every(0.01, asyncio.Event(), stop, task)

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["event"] for line in logs] == ["periodic_task_failed"] * 3


# --- dead commands


def test_the_unfinished_sources_of_a_dead_command_are_queued_once(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one", "two", foreground=7)
    backend.run(
        lambda db: scan_sources.finish_source(db, tenant.account.id, scan_id, "one", state=SourceState.DONE)
    )
    assert sum(run_all(backend, *[resume_orphaned_runs] * 4)) == 1
    assert backend.sql("SELECT task_name, args ->> 'source' FROM procrastinate_jobs") == [
        ("look_at_source", "two")
    ]
    assert tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "interrupted"


def test_the_plan_of_a_dead_command_is_queued(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, foreground=7)
    assert run_all(backend, resume_orphaned_runs) == [1]
    assert backend.sql("SELECT task_name FROM procrastinate_jobs") == [("plan_run",)]


def test_a_living_command_keeps_its_run(backend: Backend, tenant: Tenant) -> None:
    start(backend, tenant, "one", foreground=7)
    assert backend.settings.database_url is not None
    with psycopg.connect(backend.settings.database_url) as lock_holder:
        lock_holder.execute("SELECT pg_advisory_lock(7)")
        assert run_all(backend, resume_orphaned_runs) == [0]
    assert run_all(backend, resume_orphaned_runs) == [1]


def test_a_dead_commands_scan_of_a_folder_fails(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "file:///srv/app", foreground=7)
    backend.sql('UPDATE scans SET spec = spec || \'{"kind": "folder"}\' WHERE id = %s', scan_id)
    assert run_all(backend, resume_orphaned_runs) == [1]
    run = tenant.get(f"/scans/{scan_id}").json()["data"]
    assert (run["status"], run["error"]) == ("failed", "the command that ran it has died")
    assert run["finished_at"] is not None
    assert job_states(backend) == []


# --- stale findings


def test_findings_that_no_run_has_seen_for_long_become_stale_with_an_audit_line_and_no_event(
    backend: Backend, tenant: Tenant
) -> None:
    def aged_line(days: int, status: str = "active") -> dict[str, Any]:
        return make_line(
            status=status,
            last_seen_at=(now() - days * DAY).isoformat(),
            first_seen_at=(now() - 90 * DAY).isoformat(),
        )

    old, older, young = aged_line(31), aged_line(60), aged_line(29)
    closed = [aged_line(60, status) for status in ("resolved", "false_positive", "customer_restricted")]
    run_all(
        backend, lambda context: mark_stale(context, after=10 * DAY)
    )  # the findings of other tests in this database
    backend.import_(tenant.account, old, older, young, *closed)
    assert sum(run_all(backend, *[lambda context: mark_stale(context, after=30 * DAY)] * 3)) == 2
    assert [tenant.finding(line["id"])["status"] for line in (old, older, young)] == [
        "stale",
        "stale",
        "active",
    ]
    assert [tenant.finding(line["id"])["status"] for line in closed] == [
        "resolved",
        "false_positive",
        "customer_restricted",
    ]
    lines = backend.sql(
        "SELECT actor, target FROM audit WHERE account_id = %s AND action = 'finding.stale'",
        tenant.account.id,
    )
    assert sorted(lines) == sorted(("scan", line["id"]) for line in (old, older))
    assert backend.sql("SELECT count(*) FROM outbox WHERE account_id = %s", tenant.account.id) == [(0,)]
    assert tenant.get("/findings", status="stale").json()["meta"]["total"] == 2, "the counts include them"
    assert run_all(backend, lambda context: mark_stale(context, after=30 * DAY)) == [0]
    assert run_all(backend, lambda context: mark_stale(context, after=10 * DAY)) == [1]


# --- the queue's own tables


@pytest.fixture
def empty(cluster: str, worker_id: str) -> str:
    """Create an empty database and return its URL."""
    return new_database(cluster, f"jobs_{worker_id}")


def migrate(url: str) -> None:
    """Create or update the tables of the queue."""

    async def main() -> None:
        async with await database.connect(url) as db, db.transaction():
            await jobs.migrate(db)

    asyncio.run(main())


def functions(url: str) -> set[tuple[str, str]]:
    """Return the names and sources of the queue's database functions."""
    with psycopg.connect(url) as db:
        return set(
            db.execute("SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'procrastinate%'").fetchall()
        )


def test_a_new_database_gets_the_complete_queue_with_all_migrations_marked_as_applied(empty: str) -> None:
    migrate(empty)
    with psycopg.connect(empty) as db:
        names = {name for (name,) in db.execute("SELECT name FROM job_migrations").fetchall()}
        assert db.execute("SELECT count(*) FROM procrastinate_jobs").fetchone() == (0,)
    assert len(names) > 30
    assert [name for name in names if name.startswith("procrastinate ")]
    migrate(empty)


def test_a_database_with_an_older_queue_gets_only_the_missing_migrations(empty: str) -> None:
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


def test_a_migrated_database_does_not_import_procrastinate(empty: str) -> None:
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


def test_several_processes_may_prepare_a_new_database_at_once(empty: str, settings: Settings) -> None:
    async def main() -> list[Keyring]:
        return await asyncio.gather(*(prepare_database(settings, empty) for _ in range(4)))

    first, *others = asyncio.run(main())
    assert others == [first] * 3, "one of them made the keys"


# --- running runs in the API


def test_a_hundred_running_runs_of_a_thousand_sources_each_are_summed_correctly_and_fast(
    backend: Backend, tenant: Tenant
) -> None:
    account = tenant.account.id
    backend.sql(
        """INSERT INTO scans (account_id, id, type, status, trigger, target, created_at, started_at)
           SELECT %s, gen_random_uuid(), 'github', 'running', 'cli', 'github:acme',
                  now() - make_interval(secs => n), now()
           FROM generate_series(1, 100) n""",
        account,
    )
    backend.sql(
        """INSERT INTO scan_sources (account_id, scan_id, source, spec, status, progress,
                                     findings_new, findings_seen, findings_resolved)
           SELECT %s, id, 'r' || n, '{}', 'running',
                  jsonb_build_object('targets', 1, 'commits', n, 'blobs', 2 * n, 'bytes', 5000000), 1, 2, 3
           FROM scans, generate_series(1, 1000) n WHERE account_id = %s""",
        *(account, account),
    )
    backend.sql("ANALYZE scan_sources")
    page = tenant.get("/scans", limit=20).raise_for_status().json()  # or else a statement takes too long
    assert page["meta"]["total"] == 100
    sums = {"targets": 1_000, "commits": 500_500, "blobs": 1_001_000, "pages": 0, "bytes": 5_000_000_000}
    assert set(sums) == set(COUNTERS)
    for run in page["data"]:
        assert run["progress"] == sums
        assert (run["findings_new"], run["findings_seen"], run["findings_resolved"]) == (1_000, 2_000, 3_000)
    assert page["data"] == sorted(page["data"], key=lambda run: str(run["created_at"]), reverse=True)


# --- runs without a heartbeat


def age_heartbeat(backend: Backend, scan_id: UUID, seconds: int) -> None:
    """Set the last heartbeat of a run back by the database's clock."""
    backend.sql(
        "UPDATE scans SET heartbeat_at = clock_timestamp() - make_interval(secs => %s) WHERE id = %s",
        seconds,
        scan_id,
    )


def shown_statuses(tenant: Tenant, scan_id: UUID) -> set[str]:
    """Return the status of a run as the API shows it, alone and in the list."""
    (listed,) = tenant.get("/scans").json()["data"]
    return {listed["status"], tenant.get(f"/scans/{scan_id}").json()["data"]["status"]}


async def save_heartbeats(context: RunContext) -> int:
    async with context.pool.connection() as db:
        return await scans.save_heartbeats_of_queued(db)


@pytest.mark.parametrize("foreground", [None, 7])
def test_a_run_without_a_heartbeat_is_interrupted_until_a_worker_takes_it(
    backend: Backend, tenant: Tenant, foreground: int | None
) -> None:
    scan_id = start(backend, tenant, "one", foreground=foreground)
    backend.sql("UPDATE scans SET status = 'queued' WHERE id = %s", scan_id)
    age_heartbeat(backend, scan_id, 3600)
    assert shown_statuses(tenant, scan_id) == {"queued"}, "a run that waits for its first worker has none"
    account_id = tenant.account.id
    assert backend.run(lambda db: scans.start_run(db, account_id, scan_id, now=now())) is not None
    assert shown_statuses(tenant, scan_id) == {"running"}
    age_heartbeat(backend, scan_id, scans.INTERRUPTED_AFTER - 5)
    assert shown_statuses(tenant, scan_id) == {"running"}
    age_heartbeat(backend, scan_id, scans.INTERRUPTED_AFTER + 5)
    assert shown_statuses(tenant, scan_id) == {"interrupted"}
    run_all(backend, save_heartbeats)
    assert shown_statuses(tenant, scan_id) == {"interrupted"}, "a worker is there, but has not taken it"
    backend.run(lambda db: scans.start_run(db, account_id, scan_id, now=now()))
    assert shown_statuses(tenant, scan_id) == {"running"}
    backend.run(lambda db: scans.finish_run(db, account_id, scan_id, now=now(), error="a test"))
    age_heartbeat(backend, scan_id, 3600)
    assert shown_statuses(tenant, scan_id) == {"failed"}


def test_a_run_whose_jobs_wait_for_a_busy_worker_stays_running(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    backend.run(lambda db: scans.start_run(db, tenant.account.id, scan_id, now=now()))
    age_heartbeat(backend, scan_id, scans.INTERRUPTED_AFTER - 10)
    assert sum(run_all(backend, *[save_heartbeats] * 3)) == 1
    ((age,),) = backend.sql(
        "SELECT extract(epoch FROM clock_timestamp() - heartbeat_at) FROM scans WHERE id = %s", scan_id
    )
    assert age < scans.INTERRUPTED_AFTER - 10
    assert sum(run_all(backend, save_heartbeats)) == 0, "it was saved a moment ago"
    backend.run(lambda db: scans.save_heartbeat(db, tenant.account.id, scan_id))


def test_the_scan_of_a_source_sends_heartbeats_of_its_run(backend: Backend, tenant: Tenant) -> None:
    scan_id = start(backend, tenant, "one")
    backend.run(lambda db: scans.start_run(db, tenant.account.id, scan_id, now=now()))
    age_heartbeat(backend, scan_id, 3600)

    async def hold(context: RunContext) -> None:
        cast("Any", context).source_timeout = 0.5
        async with hold_source(context, tenant.account.id, scan_id, "one"):
            for _ in range(600):
                if tenant.get(f"/scans/{scan_id}").json()["data"]["status"] == "running":
                    return
                await asyncio.sleep(0.1)

    run_all(backend, hold, hold)  # one waits for the other; each needs a connection of the pool
    assert shown_statuses(tenant, scan_id) == {"running"}
