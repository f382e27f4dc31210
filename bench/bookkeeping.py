"""Runs over many empty repositories: only the host's list, the plan, the job queue and the database work.

`make bench-pipeline ARGS="--repositories 100000"` prints the cost of a source in a small and in the large
run. `--due 10000` prints when the first run of so many due targets begins. No repository is cloned: the
process pool answers at once that a repository is empty.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import uuid4

from bench.measure import table
from bench.process import tree_cpu
from outcrop.domain.account import Plan
from outcrop.domain.clock import now
from outcrop.domain.scan import Trigger
from outcrop.domain.target import OPTIONS, Schedule, Target, TargetKind, TargetSpec
from outcrop.runtime import Runtime, open_runtime
from outcrop.services import accounts
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import start_run
from outcrop.services.pipeline.maintenance import start_due_runs
from outcrop.settings import Settings
from outcrop.sources.isolated.process_pool import ProcessPool
from outcrop.sources.isolated.repository_job import JobResult
from outcrop.store.runs import scans, targets
from outcrop.worker.queues import run_jobs
from outcrop.worker.run_context import open_run_context
from tests.support.github_host import github_host

SMALL = 1_000
_DEAD_AFTER = 60.0
_POLL_SECONDS = 0.5  # as often as a page of the portal or a command asks for the run


class _EmptyRepositories:
    """Answers for every repository that it is empty."""

    async def run(self, *_: object, **__: object) -> JobResult:
        return JobResult(refs_digest="empty", is_complete=True)


class Cost(NamedTuple):
    """Seconds for each source of a run."""

    wall: float
    plan: float  # of the wall time: until all are planned
    worker: float  # CPU time
    database: float  # CPU time


def measure(work: Path, count: int) -> None:
    """Print the cost of a source in a run of SMALL repositories and in one of `count`."""
    costs = {
        size: asyncio.run(_measure_run(_empty_folder(work), size)) for size in (min(SMALL, count), count)
    }
    small = next(iter(costs.values()))
    base = small.worker + small.database
    rows = [
        [
            f"{size:,}",
            *(f"{seconds * 1000:.2f}" for seconds in cost),
            f"{cost.wall / small.wall:.2f}",
            f"{(cost.worker + cost.database) / base:.2f}",
        ]
        for size, cost in costs.items()
    ]
    table(
        "Empty repositories, one worker with `--jobs 2`, ms for each source; goal: at most 1.3×",
        ["sources", "wall", "of that the plan", "CPU of the worker", "of the database", "× wall", "× CPU"],
        rows,
    )


def measure_due(work: Path, count: int) -> None:
    """Print when the first run of `count` due targets begins, and when all are started."""
    first, last = asyncio.run(_measure_due(_empty_folder(work), count))
    table(
        f"{count:,} due targets, one worker with `--jobs 2`; goal: the first run begins within 5 s",
        ["first run begins, s", "all are queued, s"],
        [[f"{first:.2f}", f"{last:.1f}"]],
    )


def _empty_folder(work: Path) -> Path:
    """Return a new empty folder for a database."""
    folder = work / "bookkeeping"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


@asynccontextmanager
async def _open_worker(settings: Settings) -> AsyncIterator[tuple[Runtime, RunContext]]:
    """Open a database and what the jobs of a worker need; every repository is empty."""
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings, pool_size=8, statement_timeout=60))
        context = await stack.enter_async_context(open_run_context(settings, runtime, 2))
        pool: Any = _EmptyRepositories()
        yield runtime, replace(context, process_pool=cast("ProcessPool", pool))


async def _measure_run(folder: Path, size: int) -> Cost:
    """Return the cost of a source in a run of `size` repositories."""
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
        async with _open_worker(settings) as (runtime, context):
            return await _time_run(runtime, context, size, folder / "data")


async def _time_run(runtime: Runtime, context: RunContext, size: int, data: Path) -> Cost:
    """Run a worker until one run over all repositories has ended; return the cost of a source.

    `data` is the data folder, whose database is measured too.
    """
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
    postmaster = int(next(data.rglob("postmaster.pid")).read_text().split()[0])
    start, planned = time.perf_counter(), 0.0
    cpu, database_cpu = time.process_time(), tree_cpu(postmaster)
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
    cpu, database_cpu = time.process_time() - cpu, tree_cpu(postmaster) - database_cpu
    return Cost(*(total / size for total in (seconds, planned, cpu, database_cpu)))


async def _measure_due(folder: Path, count: int) -> tuple[float, float]:
    """Return the seconds until the first run of `count` due targets begins, and until all are queued."""
    settings = Settings(data_dir=folder / "data", validate_="off")
    async with _open_worker(settings) as (runtime, context):
        async with runtime.pool.connection() as db, db.transaction():
            account = await accounts.create_account(
                db, slug="bench", plan=Plan.GROWTH, email="a@example.com", by="bench", now=now()
            )
            due = now() - timedelta(minutes=1)
            for number in range(count):
                spec = TargetSpec(
                    TargetKind.REPOSITORY,
                    f"https://git.example/r{number}.git",
                    options=dict(OPTIONS[TargetKind.REPOSITORY]),
                )
                await targets.insert(db, account.id, Target(uuid4(), spec, Schedule.DAILY, due, due), None)
        stop = asyncio.Event()
        jobs = asyncio.create_task(run_jobs(runtime, context, stop, _DEAD_AFTER))  # no periodic tasks
        start = time.perf_counter()
        starting = asyncio.create_task(start_due_runs(context))
        while True:
            async with runtime.pool.connection() as db:
                cursor = await db.execute("SELECT FROM scans WHERE started_at IS NOT NULL LIMIT 1")
                if await cursor.fetchone() is not None:
                    break
            await asyncio.sleep(0.05)
        first = time.perf_counter() - start
        if await starting != count:
            raise SystemExit("not all due targets were started")
        last = time.perf_counter() - start
        stop.set()
        await jobs
        return first, last
