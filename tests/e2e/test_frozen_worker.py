"""A frozen process (SIGSTOP, or a suspended machine) keeps its database locks for a limited time only."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from outcrop.domain.target import TargetKind
from outcrop.store import db as database
from tests.support.backend import Backend
from tests.support.databases import migrated_database
from tests.support.workers import Deployment, open_deployment, until

IDLE_TIMEOUT = 1.0
RECORDS = """SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
             AND query LIKE '%%INSERT INTO findings%%'"""


@pytest.fixture
def there(cluster: str, worker_id: str, tmp_path: Path) -> Iterator[Deployment]:
    with open_deployment(tmp_path, migrated_database(cluster, f"frozen_{worker_id}")) as made:
        yield made


def test_a_worker_that_is_frozen_while_it_records_stops_the_others_for_a_limited_time(
    there: Deployment,
) -> None:
    url = there.backend.settings.database_url or ""
    with psycopg.connect(url) as blocker:  # the worker waits for this lock in the middle of its recording
        blocker.execute("LOCK TABLE finding_search IN SHARE MODE")
        first = there.start(TargetKind.REPOSITORY, there.repository("first"))
        frozen = there.impatient_worker(IDLE_TIMEOUT)
        until(lambda: there.backend.sql(RECORDS), "the worker to record", 120)
        os.kill(frozen.pid, signal.SIGSTOP)
    until(
        lambda: there.backend.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 7264004"),
        "the frozen worker to hold the lock of recording",
    )
    second = there.start(TargetKind.REPOSITORY, there.repository("second"))
    there.worker()
    assert there.wait_for_end(second, 120)["findings_new"] == 1
    os.kill(frozen.pid, signal.SIGCONT)
    assert there.wait_for_end(first, 120)["findings_new"] == 1
    assert [(seen, events) for _, seen, events in there.recorded()] == [(1, 1), (1, 1)]
    assert frozen.poll() is None
    assert "Traceback" not in there.log(frozen)
    assert "periodic_task_failed" not in there.log(frozen)


@pytest.mark.parametrize("stuck_in", ["COPY", "a large result"])
def test_a_session_whose_client_is_frozen_in_the_middle_of_a_statement_is_ended(
    backend: Backend, stuck_in: str
) -> None:
    """The server's timeout for idle transactions does not cover these."""
    url = backend.settings.database_url or ""

    async def main() -> tuple[int, int]:
        async with database.open_pool(url, size=2, statement_timeout=30) as pool:
            async with pool.connection() as db:
                await db.execute("CREATE TEMP TABLE received (n int)")
                await db.execute("BEGIN")
                if stuck_in == "COPY":
                    db.pgconn.send_query(b"COPY received FROM STDIN")
                else:
                    db.pgconn.send_query(b"SELECT repeat('x', 1000) FROM generate_series(1, 100000)")
                while db.pgconn.flush():
                    pass
                async with pool.connection() as other:
                    too_early = await database.end_stuck_sessions(other, after=600)
                    ended, deadline = 0, time.monotonic() + 60
                    while not ended and time.monotonic() < deadline:
                        ended = await database.end_stuck_sessions(other, after=0.2)
                        await asyncio.sleep(0.05)
                db.pgconn.finish()
            return too_early, ended

    assert asyncio.run(main()) == (0, 1)


@pytest.mark.parametrize("idle_timeout", [0.2, database.COMMAND_IDLE_TIMEOUT])
def test_a_session_that_is_idle_in_a_transaction_is_unavailable_after_its_timeout(
    backend: Backend, idle_timeout: float
) -> None:
    url = backend.settings.database_url or ""

    async def main() -> bool:
        db = await database.connect(url, idle_timeout=idle_timeout)
        try:
            async with db, db.transaction():
                await asyncio.sleep(1)
                await db.execute("SELECT 1")
        except database.UNAVAILABLE:
            return False
        return True

    assert asyncio.run(main()) is (idle_timeout > 1)
