"""The worker: runs that wait, events that go out, schedules that are due, and what has to happen without anyone asking for it."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from uuid import UUID

import procrastinate
import structlog

from outcrop.domain.secret import Secret
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.net.post import PostClient
from outcrop.runtime import Runtime
from outcrop.scanner.engine.ruleset import load_ruleset
from outcrop.services import sessions
from outcrop.services.delivery import DeliveryWorker
from outcrop.services.pipeline.context import RunContext, now
from outcrop.services.pipeline.enqueue import PLAN_TASK, SCAN_SOURCE_TASK, VALIDATE_TASK
from outcrop.services.pipeline.maintenance import (
    erase_secrets,
    pick_up_orphans,
    pick_up_stalled,
    start_due,
    turn_stale,
)
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.revalidate import revalidate_due, run_requested_validation
from outcrop.services.pipeline.run_source import scan_source
from outcrop.services.pipeline.score import rescore_outdated
from outcrop.services.webhooks import delete_old_deliveries
from outcrop.settings import Settings
from outcrop.sources.isolated.process_pool import open_process_pool
from outcrop.sources.workspace import cache_folder
from outcrop.store.db import UNAVAILABLE
from outcrop.store.findings import rollups
from outcrop.store.runs import jobs
from outcrop.validation.engine import ValidationMode, Validator
from outcrop.validation.issuer import MAX_CONCURRENT_CHECKS, MAX_CONNECTIONS

FOLD_EVERY = 2.0  # seconds; a list sums a few more rows meanwhile
_SCHEDULE_EVERY, _HOUR = 15.0, 3_600.0
_PATIENCE = 4.0  # seconds that a job gets to end by itself when the worker is told to stop
_GRACE = 2.0  # seconds that giving it back gets then
_ASKED_AT_ONCE = 4
_PAUSE = 2.0
_LONGEST_WAIT = 60  # seconds before a job that failed is done again

log = structlog.get_logger()


@asynccontextmanager
async def open_run_context(settings: Settings, runtime: Runtime, jobs: int) -> AsyncIterator[RunContext]:
    """Open what a run works with: rules, child processes, a client."""
    async with AsyncExitStack() as stack:
        # An errand keeps one thread waiting; a name that is looked up, or a page that is read, must not wait for it.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(jobs + 8))
        egress = Egress.from_settings(settings)
        cache = cache_folder()
        rules = [settings.rules] if settings.rules else []
        ruleset = await asyncio.to_thread(load_ruleset, rules, cache=cache)
        issuers = await stack.enter_async_context(
            open_http(egress, connections=MAX_CONNECTIONS, per_host=MAX_CONCURRENT_CHECKS)
        )
        validator = Validator(issuers, ValidationMode(settings.validate_))
        stack.push_async_callback(validator.close)
        yield RunContext(
            pool=runtime.pool,
            keys=runtime.keys,
            ruleset=ruleset,
            process_pool=await stack.enter_async_context(
                open_process_pool(jobs, rules, ruleset, egress, cache)
            ),
            http=await stack.enter_async_context(open_http(egress)),
            validator=validator,
            egress=egress,
            github_url=settings.github_api_url,
            github_token=None
            if settings.github_token is None
            else Secret(settings.github_token.get_secret_value(), mask_all=True),
            keep_secrets=settings.keep_secrets != "none",
            jobs=jobs,
            work=cache,
        )


async def work(
    runtime: Runtime, settings: Settings, stop: asyncio.Event, *, jobs: int, dead_after: float
) -> None:
    """Work until told to stop; a database that is away is waited for."""
    logging.getLogger("procrastinate").setLevel(
        logging.CRITICAL
    )  # what it has to tell is told here, without a traceback
    async with open_run_context(settings, runtime, jobs) as tools:
        chores = [
            _every(FOLD_EVERY, stop, lambda: _fold(runtime)),
            _every(_SCHEDULE_EVERY, stop, lambda: start_due(tools)),
            _every(dead_after / 2, stop, lambda: pick_up_stalled(tools, dead_after=dead_after)),
            _every(dead_after / 2, stop, lambda: pick_up_orphans(tools)),
            _every(_HOUR, stop, lambda: revalidate_due(tools)),
            _every(_HOUR, stop, lambda: rescore_outdated(tools)),
            _every(_HOUR, stop, lambda: turn_stale(tools, after=timedelta(days=settings.stale_after_days))),
            _every(_HOUR, stop, lambda: erase_secrets(tools)),
            _every(_HOUR, stop, lambda: delete_old_deliveries(runtime.pool)),
            _every(_HOUR, stop, lambda: _sweep(runtime)),
        ]
        courier = DeliveryWorker(runtime.pool, runtime.keys, PostClient(tools.egress).post)
        lasting = [
            asyncio.create_task(work) for work in (_jobs(runtime, tools, stop, dead_after), courier.run(stop))
        ]
        tasks = [asyncio.create_task(chore) for chore in chores]
        told = asyncio.create_task(stop.wait())
        await asyncio.wait({told, *tasks, *lasting}, return_when=asyncio.FIRST_COMPLETED)
        # A chore is one transaction, which is undone: a database that is away keeps nobody from stopping.
        for task in [told, *tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*lasting)


async def _every(seconds: float, stop: asyncio.Event, chore: Callable[[], Awaitable[object]]) -> None:
    while not stop.is_set():
        try:
            if done := await chore():
                log.debug("chore_done", done=done)
        except UNAVAILABLE as error:
            log.warning("database_unavailable", error=type(error).__name__)
        except Exception as error:  # one chore that fails keeps none of the others from being done
            log.exception("chore_failed", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)


async def _fold(runtime: Runtime) -> int:
    async with runtime.pool.connection() as db:
        return await rollups.fold_deltas(db)


async def _sweep(runtime: Runtime) -> int:
    async with runtime.pool.connection() as db:
        return await sessions.delete_expired(db, now=now())


async def _jobs(runtime: Runtime, tools: RunContext, stop: asyncio.Event, dead_after: float) -> None:
    """Take jobs until told to stop; what cannot be given back in time is found out by the others."""
    told = asyncio.create_task(stop.wait())
    while not stop.is_set():
        taking = asyncio.create_task(_take_jobs(_app(runtime.url, tools), tools.jobs, dead_after))
        await asyncio.wait({taking, told}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            taking.cancel()
            await asyncio.wait({taking}, timeout=_PATIENCE + _GRACE)
            return
        try:
            taking.result()
            log.warning("queue_lost")  # the connection that tells of new jobs
        except (procrastinate.exceptions.ConnectorException, *UNAVAILABLE) as error:
            log.warning("database_unavailable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _PAUSE)


async def _take_jobs(app: procrastinate.App, jobs_at_once: int, dead_after: float) -> None:
    """Take jobs as they come, as many at once as there are child processes; what a person waits for is not behind them."""
    async with app.open_async():
        at_once = {
            jobs.QUEUE: jobs_at_once + 1,
            jobs.INTERACTIVE_QUEUE: _ASKED_AT_ONCE,
        }  # a plan mostly waits for the host
        workers = [
            asyncio.create_task(
                app.run_worker_async(
                    queues=[queue],
                    concurrency=most,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    update_heartbeat_interval=dead_after / 4,
                    stalled_worker_timeout=dead_after,
                    shutdown_graceful_timeout=_PATIENCE,
                    fetch_job_polling_interval=1.0,
                )
            )
            for queue, most in at_once.items()
        ]
        try:
            ended, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()
        finally:
            for one in workers:
                one.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


class _Again(procrastinate.BaseRetryStrategy):
    """However often: how many times a source may be tried is counted where it is taken, and being told to stop is no try."""

    def get_retry_decision(
        self, *, exception: BaseException, job: procrastinate.jobs.Job
    ) -> procrastinate.RetryDecision:
        wait = (
            0 if isinstance(exception, asyncio.CancelledError) else min(2 * (job.attempts + 1), _LONGEST_WAIT)
        )
        return procrastinate.RetryDecision(retry_in={"seconds": wait})


def _app(url: str, tools: RunContext) -> procrastinate.App:
    # A database that is away is found out soon: whoever waits for a connection cannot be told to stop.
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=1, max_size=6, timeout=_GRACE)
    )

    @app.task(name=PLAN_TASK, retry=_Again())
    async def plan(account_id: int, scan_id: str) -> None:
        with _told(scan=scan_id):
            await plan_run(tools, account_id, UUID(scan_id))

    @app.task(name=SCAN_SOURCE_TASK, retry=_Again())
    async def look(account_id: int, scan_id: str, source: str) -> None:
        with _told(scan=scan_id):
            await scan_source(tools, account_id, UUID(scan_id), source)

    @app.task(name=VALIDATE_TASK, retry=_Again())
    async def validate(account_id: int, finding_id: str, by: str) -> None:
        with _told(finding=finding_id):
            await run_requested_validation(tools, account_id, UUID(finding_id), by=by)

    return app


@contextmanager
def _told(**about: str) -> Iterator[None]:
    """Log what makes a job fail: its kind and where, for its text could hold a credential."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UNAVAILABLE):
            log.warning("database_unavailable", error=type(error).__name__, **about)
        else:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            log.error(  # noqa: TRY400
                "job_failed", error=type(error).__name__, at=f"{frame.filename}:{frame.lineno}", **about
            )
        raise
