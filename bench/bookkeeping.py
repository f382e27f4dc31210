"""Runs over many empty repositories: only the host's list, the plan, the job queue and the database work.

`make bench-pipeline ARGS="--repositories 100000"` prints the cost of a source in a small and in the large
run. No repository is cloned: the process pool answers at once that a repository is empty.
"""

import asyncio
import shutil
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from bench.measure import table
from outcrop.domain.account import Plan
from outcrop.domain.clock import now
from outcrop.domain.scan import Trigger
from outcrop.domain.target import OPTIONS, TargetKind, TargetSpec
from outcrop.runtime import Runtime, open_runtime
from outcrop.services import accounts
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import start_run
from outcrop.settings import Settings
from outcrop.sources.isolated.process_pool import ProcessPool
from outcrop.sources.isolated.repository_job import JobResult
from outcrop.store.runs import scans
from outcrop.worker.queues import run_jobs
from outcrop.worker.run_context import open_run_context
from tests.support.github_host import github_host

SMALL = 1_000
_DEAD_AFTER = 60.0
_POLL_SECONDS = 0.5  # as often as a page of the portal or a command asks for the run


class _EmptyRepositories:
    """Answers for every repository that it is empty."""

    async def run(self, *_: object) -> JobResult:
        return JobResult(refs_digest="empty", is_complete=True)


def measure(work: Path, count: int) -> None:
    """Print the cost of a source in a run of SMALL repositories and in one of `count`."""
    costs = {}
    for size in (min(SMALL, count), count):
        shutil.rmtree(work / "bookkeeping", ignore_errors=True)
        (work / "bookkeeping").mkdir(parents=True)
        costs[size] = asyncio.run(_measure_run(work / "bookkeeping", size))
    base = next(iter(costs.values()))[0]
    rows = [
        [f"{size:,}", f"{wall * 1000:.2f}", f"{plan * 1000:.2f}", f"{wall / base:.2f}"]
        for size, (wall, plan) in costs.items()
    ]
    table(
        "Empty repositories, one worker with `--jobs 2`; goal: at most 1.3×",
        ["sources", "ms a source", "of that until all are planned", "× small"],
        rows,
    )


async def _measure_run(folder: Path, size: int) -> tuple[float, float]:
    """Return the seconds for each source of a run of `size` repositories, and those of the plan alone."""
    with github_host(folder, limit=10**9) as hub:
        for number in range(size):
            hub.add_repo(
                f"bench/r{number}", commits=(), has_wiki=False, size=1, pushed_at="2026-01-01T00:00:00Z"
            )
        settings = Settings(
            data_dir=folder / "data",
            validate_="off",
            github_api_url=hub.base_url,
            egress_allow=("127.0.0.0/8",),
            egress_connect_to=tuple(
                f"{host}:{port}={address}:{to}" for host, port, address, to in hub.egress.connect_to
            ),
            egress_ca_file=hub.egress.ca_file,
        )
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(
                open_runtime(settings, pool_size=8, statement_timeout=60)
            )
            context = await stack.enter_async_context(open_run_context(settings, runtime, 2))
            pool: Any = _EmptyRepositories()
            return await _time_run(runtime, replace(context, process_pool=cast("ProcessPool", pool)), size)


async def _time_run(runtime: Runtime, context: RunContext, size: int) -> tuple[float, float]:
    """Run a worker until one run over all repositories has ended; return the seconds as above."""
    spec = TargetSpec(TargetKind.OWNER, "github:bench", options=dict(OPTIONS[TargetKind.OWNER]))
    async with runtime.pool.connection() as db, db.transaction():
        account = await accounts.create_account(
            db, slug="bench", plan=Plan.GROWTH, email="a@example.com", by="bench", now=now()
        )
        run = await start_run(
            db,
            runtime.keys,
            account.id,
            spec,
            trigger=Trigger.CLI,
            target_id=None,
            moment=now(),
            by="bench",
        )
    stop = asyncio.Event()
    start, planned = time.perf_counter(), 0.0
    jobs = asyncio.create_task(run_jobs(runtime, context, stop, _DEAD_AFTER))  # no periodic tasks
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        async with runtime.pool.connection() as db:
            current = await scans.select(db, account.id, run.id)
            if not planned:
                cursor = await db.execute(
                    "SELECT FROM scan_sources WHERE source = 'plan' AND status IN ('done', 'failed')"
                )
                planned = 0.0 if await cursor.fetchone() is None else time.perf_counter() - start
        if current is not None and current.finished_at is not None:
            break
    seconds = time.perf_counter() - start
    stop.set()
    await jobs
    if current.progress["targets"] != size:
        raise SystemExit(
            f"{current.progress['targets']} of {size} repositories were scanned: {current.error}"
        )
    return seconds / size, planned / size
