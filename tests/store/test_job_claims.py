"""Test that the accounts share the workers: thousands of jobs of one account do not delay those of another."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from outcrop.store.db import Connection, connect
from outcrop.store.runs import jobs
from outcrop.store.runs.jobs import INTERACTIVE_QUEUE, QUEUE, Claimer
from tests.support.backend import Backend
from tests.support.rows_read import count_rows_read

SCAN, PLAN = "scan", "plan"
SHARES = {SCAN: 2}


@pytest.fixture(autouse=True)
def _no_jobs_left(backend: Backend) -> Iterator[None]:
    backend.sql("TRUNCATE procrastinate_jobs CASCADE")
    yield
    backend.sql("TRUNCATE procrastinate_jobs CASCADE")


async def _queue(
    db: Connection, account_id: int, count: int, task: str = SCAN, lock: str | None = None, **columns: Any
) -> None:
    """Queue jobs of an account; each has a lock of its own, unless they share `lock`."""
    await db.execute(
        """INSERT INTO procrastinate_jobs (queue_name, task_name, lock, args, priority, status)
           SELECT %(queue)s, %(task)s::text, coalesce(%(lock)s::text, concat_ws(' ', %(task)s::text, %(account)s, n)),
                  jsonb_build_object('account_id', %(account)s::bigint), %(priority)s, %(status)s
           FROM generate_series(1, %(count)s) n""",
        {"queue": QUEUE, "task": task, "lock": lock, "account": account_id, "count": count}
        | {"priority": 0, "status": "todo"}
        | columns,
    )


async def _claim(db: Connection, claimer: Claimer, worker: int | None = None) -> tuple[int, str] | None:
    """Claim a job and return its account and task."""
    row = await claimer.claim(db, QUEUE, worker)
    return None if row is None else (row["args"]["account_id"], row["task_name"])


async def _add_worker(db: Connection) -> int:
    cursor = await db.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


def test_ten_thousand_jobs_of_one_account_do_not_delay_the_first_of_another(backend: Backend) -> None:
    async def main(db: Connection) -> None:
        await _queue(db, 1, 10_000)
        worker, claimer = await _add_worker(db), Claimer(SHARES)
        assert [await _claim(db, claimer, worker) for _ in range(3)] == [(1, SCAN), (1, SCAN), None]
        await _queue(db, 2, 3)  # two jobs of account 1 run, and a place is left for the other
        await _queue(db, 2, 1, PLAN)
        assert await _claim(db, claimer, worker) in {(2, SCAN), (2, PLAN)}
        other_worker = await _add_worker(db)
        claimed = [await _claim(db, claimer, other_worker) for _ in range(3)]
        assert sum(found is not None and found[0] == 2 for found in claimed) == 2

    backend.run(main)


def test_accounts_take_turns_and_an_account_with_more_running_jobs_waits(backend: Backend) -> None:
    async def main(db: Connection) -> None:
        for account in (7, 3, 5):
            await _queue(db, account, 100)
        claimer = Claimer({SCAN: 100})
        claimed = [await _claim(db, claimer) for _ in range(9)]
        assert [found[0] for found in claimed if found] == [3, 5, 7] * 3
        await db.execute("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE status = 'doing'")
        assert [found[0] for _ in range(4) if (found := await _claim(db, claimer))] == [3, 5, 7, 3]
        # Each job ends before the next one is claimed, as in a process that runs one at a time.
        await db.execute("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE status = 'doing'")
        served = []
        for _ in range(6):
            found = await _claim(db, claimer)
            served.append(found and found[0])
            await db.execute("UPDATE procrastinate_jobs SET status = 'succeeded' WHERE status = 'doing'")
        assert served == [5, 7, 3, 5, 7, 3]

    backend.run(main)


def test_a_claim_respects_locks_priorities_and_times(backend: Backend) -> None:
    async def main(db: Connection) -> None:
        await _queue(db, 1, 5, lock="the same")
        await _queue(db, 1, 1)
        claimer = Claimer({SCAN: 10})
        rows = [await claimer.claim(db, QUEUE, None) for _ in range(3)]
        assert [row and row["lock"] for row in rows] == ["the same", "scan 1 1", None]
        await db.execute("TRUNCATE procrastinate_jobs CASCADE")
        await _queue(db, 1, 3)
        await db.execute(
            """UPDATE procrastinate_jobs SET
                   priority = CASE lock WHEN 'scan 1 3' THEN 5 ELSE 0 END,
                   scheduled_at = CASE lock WHEN 'scan 1 1' THEN now() + interval '1 hour' END"""
        )
        rows = [await claimer.claim(db, QUEUE, None) for _ in range(3)]
        assert [row and row["lock"] for row in rows] == ["scan 1 3", "scan 1 2", None]

    backend.run(main)


def test_a_claim_reads_as_many_rows_beside_many_jobs_as_beside_few(backend: Backend) -> None:
    async def count(db: Connection, size: int) -> int:
        await db.execute("TRUNCATE procrastinate_jobs CASCADE")
        for option in jobs.SESSION_OPTIONS.replace("-c ", "").split():
            await db.execute(f"SET LOCAL {option}".encode())
        for account in (1, 2):
            await _queue(db, account, size)
        return sum((await count_rows_read(db, lambda: _claim(db, Claimer(SHARES)))).values())

    async def main(db: Connection) -> None:
        few, many = await count(db, 10), await count(db, 8_000)
        assert many <= few + 10

    backend.run(main)


def test_claims_at_the_same_time_get_different_jobs(backend: Backend) -> None:
    async def queue(db: Connection) -> None:
        await _queue(db, 1, 40)
        await _queue(db, 2, 2)

    async def claim_some() -> list[int]:
        found = []
        claimer = Claimer({SCAN: 100})
        async with await connect(str(backend.settings.database_url)) as db:
            while (row := await claimer.claim(db, QUEUE, None)) is not None:
                found.append(int(row["id"]))
        return found

    async def main() -> list[list[int]]:
        return await asyncio.gather(*(claim_some() for _ in range(4)))

    backend.run(queue)
    claimed = [number for numbers in asyncio.run(main()) for number in numbers]
    assert len(claimed) == len(set(claimed)) == 42


# What was queued when the statistics were made: the number of jobs, their queue and their state.
_EARLIER = [
    (count, queue, status)
    for count in (0, 3, 500)
    for queue in (QUEUE, INTERACTIVE_QUEUE)
    for status in ("todo", "doing")
]


@pytest.mark.parametrize("size", [None, (1, 0), (1, 1), (10, 100), (1_000, 5_000)])
@pytest.mark.parametrize("jobs_of", ["this account", "another one"])
def test_a_job_is_taken_without_reading_the_queue_whatever_the_statistics_say(
    backend: Backend, jobs_of: str, size: tuple[int, int] | None
) -> None:
    async def count(db: Connection, earlier: tuple[int, str, str]) -> int:
        await db.execute("SET LOCAL session_replication_role = replica")  # no triggers: thousands of events
        await db.execute("DELETE FROM procrastinate_jobs")
        number, queue, status = earlier
        await _queue(db, 1, number, queue=queue, status=status)
        await db.execute("ANALYZE procrastinate_jobs")
        await db.execute("DELETE FROM procrastinate_jobs")
        if jobs_of == "this account":
            await _queue(db, 1, 1_000)
        else:
            await _queue(db, 2, 1_000, priority=5)
            await _queue(db, 2, 2, task=PLAN, status="doing")
            await _queue(db, 1, 1)
        for option in jobs.SESSION_OPTIONS.replace("-c ", "").split():
            await db.execute(f"SET LOCAL {option}".encode())
        if size is not None:
            await db.execute(
                """SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', 'procrastinate_jobs',
                                                    'relpages', %s::int, 'reltuples', %s::real)""",
                size,
            )
        return sum((await count_rows_read(db, lambda: Claimer(SHARES).claim(db, QUEUE, None))).values())

    read = {earlier: backend.run(lambda db: count(db, earlier)) for earlier in _EARLIER}  # noqa: B023
    backend.sql("TRUNCATE procrastinate_jobs CASCADE")
    backend.sql("ANALYZE procrastinate_jobs")
    assert {earlier: rows for earlier, rows in read.items() if rows > 30} == {}
