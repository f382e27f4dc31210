"""A job whose end the database did not record is run once more, while its worker lives."""

import asyncio

import psycopg

from outcrop.domain.account import Account
from outcrop.worker.queues import build_app, run_queues
from tests.support.pipeline import Pipeline, repository_spec, token
from tests.support.queued_runs import enqueue, wait_in_loop

_RUNNING = "SELECT attempts FROM procrastinate_jobs WHERE status = 'doing'"
_KILL_WAITING = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%%procrastinate_finish_job%%'"""


def test_a_job_whose_end_is_not_recorded_is_run_once_more(pipeline: Pipeline, account: Account) -> None:
    name = f"{pipeline.add_owner()}/shop"
    pipeline.add_repository(name, {"a.py": token(name)})

    async def lose_one_end(db: psycopg.Connection) -> None:
        """Lock the row of the running job; break the connection that waits to record its end."""
        db.execute(_RUNNING + " FOR UPDATE")
        pipeline.git.delay = 0
        await wait_in_loop(lambda: bool(pipeline.sql(_KILL_WAITING)))
        await asyncio.sleep(0.5)  # the worker goes on while nobody can change the row
        db.rollback()

    async def work() -> None:
        queues = asyncio.create_task(
            run_queues(build_app(pipeline.runtime, pipeline.context), pipeline.context.jobs, 20)
        )
        pipeline.git.delay = 1.0
        pipeline.git.requests.clear()
        run = await enqueue(pipeline, account, repository_spec(name))
        await wait_in_loop(lambda: bool(pipeline.git.requests))
        with psycopg.connect(pipeline.runtime.url) as db:
            await lose_one_end(db)
        await wait_in_loop(lambda: not pipeline.sql("SELECT FROM procrastinate_jobs"))
        assert not queues.done(), "the worker itself went on"
        queues.cancel()
        await asyncio.gather(queues, return_exceptions=True)
        assert pipeline.sql("SELECT status FROM scans WHERE id = %s", run) == [("completed",)]

    try:
        pipeline.wait(work())
    finally:
        pipeline.git.delay = 0
        pipeline.sql("DELETE FROM procrastinate_jobs")
