"""Imports of one account wait for each other, and each begins as soon as the one before it has ended."""

import asyncio
import time
from uuid import uuid4

from outcrop.domain.account import Account
from outcrop.services.exchange.upload import MERGE_LOCK, MERGE_TASK
from outcrop.store.runs import jobs
from outcrop.worker.queues import build_app, run_queues
from tests.support.pipeline import Pipeline
from tests.support.queued_runs import wait_in_loop

COUNT = 100


def test_the_next_import_does_not_wait_for_the_next_poll(pipeline: Pipeline, account: Account) -> None:
    async def work() -> float:
        lock = f"{MERGE_LOCK}{account.id}"
        waiting = [(lock, {"account_id": account.id, "import_id": str(uuid4())}) for _ in range(COUNT)]
        async with pipeline.context.pool.connection() as db, db.transaction():
            await jobs.defer_jobs(db, MERGE_TASK, waiting, jobs.IMPORTED)
        queues = asyncio.create_task(
            run_queues(build_app(pipeline.runtime, pipeline.context), pipeline.context.jobs, 20)
        )
        began = time.monotonic()
        await wait_in_loop(lambda: not pipeline.sql("SELECT FROM procrastinate_jobs"))
        queues.cancel()
        await asyncio.gather(queues, return_exceptions=True)
        return time.monotonic() - began

    try:
        assert pipeline.wait(work()) < 60, f"{COUNT} imports at one a second need {COUNT} s"
    finally:
        pipeline.sql("DELETE FROM procrastinate_jobs")
