"""The worker: runs that wait, schedules that are due, and what has to happen without anyone asking for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from uuid import UUID

import procrastinate
import structlog

from outcrop.domain.secret import Secret
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.runtime import Runtime
from outcrop.scanner.ruleset import load
from outcrop.services.pipeline.look import look_at_source
from outcrop.services.pipeline.plan import LOOK_TASK, PLAN_TASK, plan_run
from outcrop.services.pipeline.tools import MOST_TRIES, Tools
from outcrop.services.pipeline.upkeep import pick_up_orphans, pick_up_stalled, start_due, turn_stale
from outcrop.settings import Settings
from outcrop.sources.crew import open_crew
from outcrop.sources.workspace import cache_folder
from outcrop.store import jobs, rollups
from outcrop.store.db import UNAVAILABLE

FOLD_EVERY = 2.0  # seconds; a list sums a few more rows meanwhile
_SCHEDULE_EVERY, _SWEEP_EVERY, _STALE_EVERY = 15.0, 10.0, 3_600.0
_HEARTBEAT, _DEAD_AFTER = 5.0, 20.0
_PATIENCE = 5.0  # seconds that a job gets to end by itself when the worker is told to stop
_PAUSE = 2.0

log = structlog.get_logger()


@asynccontextmanager
async def open_tools(settings: Settings, runtime: Runtime, jobs: int) -> AsyncIterator[Tools]:
    """Open what a run works with: rules, child processes, a client."""
    async with AsyncExitStack() as stack:
        egress = Egress.parse(settings.egress_allow, settings.egress_connect_to, settings.egress_ca_file, settings.egress_source)
        cache = cache_folder()
        rules = [settings.rules] if settings.rules else []
        ruleset = await asyncio.to_thread(load, rules, cache=cache)
        yield Tools(
            pool=runtime.pool,
            keys=runtime.keys,
            ruleset=ruleset,
            crew=await stack.enter_async_context(open_crew(jobs, rules, ruleset, egress, cache)),
            http=await stack.enter_async_context(open_http(egress)),
            egress=egress,
            github_url=settings.github_api_url,
            github_token=None if settings.github_token is None else Secret(settings.github_token.get_secret_value(), wholly=True),
            keep_secrets=settings.keep_secrets != "none",
            jobs=jobs,
            work=cache,
        )


async def work(runtime: Runtime, settings: Settings, stop: asyncio.Event, *, jobs: int) -> None:
    """Work until told to stop; a database that is away is waited for."""
    async with open_tools(settings, runtime, jobs) as tools:
        chores = [
            _every(FOLD_EVERY, stop, lambda: _fold(runtime)),
            _every(_SCHEDULE_EVERY, stop, lambda: start_due(tools)),
            _every(_SWEEP_EVERY, stop, lambda: pick_up_stalled(tools, dead_after=_DEAD_AFTER)),
            _every(_SWEEP_EVERY, stop, lambda: pick_up_orphans(tools)),
            _every(_STALE_EVERY, stop, lambda: turn_stale(tools, after=timedelta(days=settings.stale_after_days))),
            _jobs(runtime, tools, stop),
        ]
        await asyncio.gather(*chores)


async def _every(seconds: float, stop: asyncio.Event, chore: Callable[[], Awaitable[object]]) -> None:
    while not stop.is_set():
        try:
            if done := await chore():
                log.debug("chore_done", done=done)
        except UNAVAILABLE as error:
            log.warning("database_unavailable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)


async def _fold(runtime: Runtime) -> int:
    async with runtime.pool.connection() as db:
        return await rollups.fold(db)


async def _jobs(runtime: Runtime, tools: Tools, stop: asyncio.Event) -> None:
    """Take jobs as they come, as many at once as there are child processes."""
    while not stop.is_set():
        app = _app(runtime.url, tools)
        try:
            async with app.open_async():
                running = asyncio.create_task(
                    app.run_worker_async(
                        queues=[jobs.QUEUE],
                        concurrency=tools.jobs + 1,  # a plan mostly waits for the host
                        delete_jobs="always",
                        install_signal_handlers=False,
                        update_heartbeat_interval=_HEARTBEAT,
                        stalled_worker_timeout=_DEAD_AFTER,
                        shutdown_graceful_timeout=_PATIENCE,
                        fetch_job_polling_interval=1.0,
                    )
                )
                told = asyncio.create_task(stop.wait())
                await asyncio.wait({running, told}, return_when=asyncio.FIRST_COMPLETED)
                told.cancel()
                if stop.is_set():
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                    return
                running.result()
        except (procrastinate.exceptions.ConnectorException, *UNAVAILABLE) as error:
            log.warning("database_unavailable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _PAUSE)


def _app(url: str, tools: Tools) -> procrastinate.App:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=4))
    # One time more than a source is tried: the last ends it as failed.
    again = procrastinate.RetryStrategy(max_attempts=MOST_TRIES + 1, wait=2)

    @app.task(name=PLAN_TASK, retry=again)
    async def plan(account_id: int, scan_id: str) -> None:
        await plan_run(tools, account_id, UUID(scan_id))

    @app.task(name=LOOK_TASK, retry=again)
    async def look(account_id: int, scan_id: str, source: str) -> None:
        await look_at_source(tools, account_id, UUID(scan_id), source)

    return app
