"""Run the worker: queued jobs, webhook deliveries and periodic tasks, until it is stopped."""

import asyncio
import logging
import os
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import procrastinate
import structlog
from procrastinate.manager import JobManager

from outcrop.domain.clock import MAX_CLOCK_ERROR
from outcrop.domain.secret import Secret
from outcrop.limits import ISSUER_CHECKS, ISSUER_CONNECTIONS
from outcrop.net.guard import Egress
from outcrop.net.http import open_http
from outcrop.net.post import PostClient
from outcrop.runtime import Runtime
from outcrop.sandbox import Owner, find_missing, find_owner
from outcrop.scanner.engine.load import load_ruleset
from outcrop.services import sessions
from outcrop.services.activity import QUEUE_NAMES
from outcrop.services.delivery import DeliveryWorker
from outcrop.services.exchange.news import REVALIDATE_TASK
from outcrop.services.exchange.staged_import import MergeContext, merge_import, tidy_imports
from outcrop.services.exchange.upload import MERGE_TASK
from outcrop.services.findings.bulk_triage import BULK_TASK, run_bulk
from outcrop.services.hooks.manage import delete_old_deliveries as delete_old_deliveries_of_hooks
from outcrop.services.hooks.receive import START_PUSHED_TASK
from outcrop.services.pipeline.announce import announce_imported
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import (
    PLAN_TASK,
    POLL_TASK,
    REPORT_TASK,
    SCAN_SOURCE_TASK,
    VALIDATE_TASK,
)
from outcrop.services.pipeline.maintenance import (
    encrypt_addresses,
    erase_secrets,
    mark_stale,
    requeue_stalled_jobs,
    resume_orphaned_runs,
    start_due_runs,
)
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.pushes.poll import enqueue_due_polls, poll_target
from outcrop.services.pipeline.pushes.pull_requests import forget_old_pull_requests, report_to_pull_requests
from outcrop.services.pipeline.pushes.start import compare_refused, start_pushed_runs
from outcrop.services.pipeline.revalidate import revalidate_due, run_requested_validation
from outcrop.services.pipeline.run_source import scan_source
from outcrop.services.pipeline.score import rescore_outdated
from outcrop.services.suppressions import run_pending
from outcrop.services.webhooks import delete_old_deliveries
from outcrop.settings import Settings
from outcrop.sources.isolated.process_pool import open_process_pool
from outcrop.sources.workspace import cache_folder
from outcrop.store.db import UNAVAILABLE, current_time, end_stuck_sessions, session_options
from outcrop.store.findings import rollups
from outcrop.store.incidents import pending
from outcrop.store.runs import jobs, scans
from outcrop.tracing import is_tracing, record_span
from outcrop.validation.engine import ValidationMode, Validator

FOLD_EVERY = 2.0  # seconds; until then, listing findings has a few more rollup rows to add up
_SCHEDULE_EVERY, _HOUR, _DAY = 15.0, 3_600.0, 86_400.0  # seconds
_JOB_STOP_TIMEOUT = 4.0  # seconds in which a running job may end when the worker is stopped
_RELEASE_TIMEOUT = 2.0  # seconds in which a cancelled job returns its source to the queue
_CONCURRENT_REQUESTS = 4  # jobs that a user waits for
_CONCURRENT_IMPORTS = 2
_CONCURRENT_POLLS = 8
_MORE_PROCESSES = 2  # that scan, beside one for each job of an account
_MORE_PUSHES = 3  # jobs that start and plan the runs of pushes, beside those that scan
_COMPARE_EVERY = 5.0  # seconds
_POLL_EVERY = 5.0  # seconds; a target is due once a minute or less
_RECONNECT_PAUSE = 2.0  # seconds
_MAX_RETRY_DELAY = 60  # seconds

log = structlog.get_logger()


@asynccontextmanager
async def open_run_context(settings: Settings, runtime: Runtime, jobs: int) -> AsyncIterator[RunContext]:
    """Load the rules and open the process pool and the HTTP clients that scan runs need."""
    async with AsyncExitStack() as stack:
        # Each running repository job blocks one thread. DNS lookups and scans of web pages need others.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(jobs + 10))
        egress = Egress.from_settings(settings)
        cache = cache_folder()
        owner = await asyncio.to_thread(find_owner, settings.data_dir)
        work_parent = cache if owner is None else _create_folder_of(owner, settings.data_dir / "scans")
        if missing := find_missing():
            log.warning("sandbox_incomplete", missing=list(missing))
        rules = [settings.rules] if settings.rules else []
        ruleset = await asyncio.to_thread(load_ruleset, rules, cache=cache)
        issuers = await stack.enter_async_context(
            open_http(egress, connections=ISSUER_CONNECTIONS, per_host=ISSUER_CHECKS)
        )
        validator = Validator(issuers, ValidationMode(settings.validate_))
        stack.push_async_callback(validator.close)
        yield RunContext(
            pool=runtime.pool,
            keys=runtime.keys,
            ruleset=ruleset,
            process_pool=await stack.enter_async_context(
                # One process more for a second account, and one for pushes.
                open_process_pool(
                    *(jobs + _MORE_PROCESSES, rules, ruleset, egress, cache),
                    reserved=1,
                    hidden=settings.data_dir,
                    limits=settings.source_limits,
                    work=work_parent,
                    owner=owner,
                )
            ),
            http=await stack.enter_async_context(open_http(egress)),
            validator=validator,
            egress=egress,
            source_limits=settings.source_limits,
            github_url=settings.github_api_url,
            base_url=settings.base_url,
            github_token=None
            if settings.github_token is None
            else Secret(settings.github_token.get_secret_value(), mask_all=True),
            jobs=jobs,
            work=work_parent,
            owner=owner,
        )


def _create_folder_of(owner: Owner, folder: Path) -> Path:
    """Create a folder of another user, if it does not exist; return it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, owner.user, owner.group)
    return folder


async def work(
    runtime: Runtime, settings: Settings, stop: asyncio.Event, *, jobs: int, dead_after: float
) -> None:
    """Work until `stop` is set; while the database is unavailable, wait for it.

    Run `jobs` sources of an account at once, and one more of a second account. A worker without a sign of
    life for `dead_after` seconds counts as dead. When this program no longer works on the schema
    (`runtime.outdated`), running jobs end and nothing new begins.
    """
    # Failures are logged here, without tracebacks, whose texts may contain credentials.
    logging.getLogger("procrastinate").setLevel(logging.CRITICAL)
    async with open_run_context(settings, runtime, jobs) as context:
        stale_after = timedelta(days=settings.stale_after_days)
        periodic = [
            asyncio.create_task(_run_every(seconds, runtime.outdated, stop, task))
            for seconds, task in (
                (FOLD_EVERY, lambda: _fold_rollups(runtime)),
                (FOLD_EVERY, lambda: _update_incidents(runtime)),
                (_SCHEDULE_EVERY, lambda: start_due_runs(context)),
                (_COMPARE_EVERY, lambda: compare_refused(context)),
                (_POLL_EVERY, lambda: enqueue_due_polls(context)),
                (_SCHEDULE_EVERY, lambda: _end_stuck_sessions(runtime)),
                (_SCHEDULE_EVERY, lambda: _save_heartbeats(runtime)),
                (dead_after / 2, lambda: requeue_stalled_jobs(context, dead_after=dead_after)),
                (dead_after / 2, lambda: resume_orphaned_runs(context)),
                (_SCHEDULE_EVERY, lambda: run_pending(runtime.pool)),
                (dead_after / 2, lambda: tidy_imports(runtime.pool)),
                (_DAY, lambda: encrypt_addresses(context)),
                (_HOUR, lambda: revalidate_due(context)),
                (_HOUR, lambda: rescore_outdated(context)),
                (_HOUR, lambda: _if_clock_is_right(runtime, lambda: mark_stale(context, after=stale_after))),
                (_HOUR, lambda: _if_clock_is_right(runtime, lambda: erase_secrets(context))),
                (_HOUR, lambda: _if_clock_is_right(runtime, lambda: delete_old_deliveries(runtime.pool))),
                (_HOUR, lambda: delete_old_deliveries_of_hooks(runtime.pool)),
                (_HOUR, lambda: forget_old_pull_requests(runtime.pool)),
                (_HOUR, lambda: _if_clock_is_right(runtime, lambda: _delete_expired_sessions(runtime))),
            )
        ]
        poster = PostClient(context.egress, settings.allowed_webhook_ports)
        deliveries = DeliveryWorker(runtime.pool, runtime.keys, poster.post)
        # Jobs and deliveries end by themselves when `stop` is set.
        main_tasks = [
            asyncio.create_task(_run_jobs(runtime, context, stop, dead_after)),
            asyncio.create_task(_deliver(deliveries, runtime.outdated, stop)),
        ]
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, *periodic, *main_tasks}, return_when=asyncio.FIRST_COMPLETED)
        # A periodic task is one transaction, which is rolled back, so an unavailable database delays no stop.
        for task in [stopped, *periodic]:
            task.cancel()
        await asyncio.gather(*periodic, return_exceptions=True)
        await asyncio.gather(*main_tasks)


# --- periodic tasks


async def _run_every(
    seconds: float, outdated: asyncio.Event, stop: asyncio.Event, task: Callable[[], Awaitable[object]]
) -> None:
    """Run a task every so many seconds until `stop` is set; log its failures and go on.

    While `outdated` is set, the task is not run.
    """
    while not stop.is_set():
        try:
            if not outdated.is_set() and (count := await task()):
                log.debug("periodic_task_done", count=count)
        except UNAVAILABLE as error:
            log.warning("database_unavailable", error=type(error).__name__)
        except Exception as error:  # the other tasks still run
            log.exception("periodic_task_failed", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)


async def _if_clock_is_right(runtime: Runtime, task: Callable[[], Awaitable[int]]) -> int:
    """Run a task that destroys data and return its result; 0 if the clock of this machine is wrong.

    It is wrong if it differs from the database's clock by more than MAX_CLOCK_ERROR. Then the difference is
    logged.
    """
    async with runtime.pool.connection() as db:
        difference = datetime.now(UTC) - await current_time(db)
    if abs(difference) > MAX_CLOCK_ERROR:
        log.error("clock_differs_from_database", seconds=round(difference.total_seconds()))
        return 0
    return await task()


async def _end_stuck_sessions(runtime: Runtime) -> int:
    """End the sessions of frozen processes that the server does not end by itself; return how many."""
    async with runtime.pool.connection() as db:
        return await end_stuck_sessions(db, after=runtime.idle_timeout)


async def _save_heartbeats(runtime: Runtime) -> int:
    """Save heartbeats of the runs whose jobs wait for a free worker; return how many."""
    async with runtime.pool.connection() as db:
        return await scans.save_heartbeats_of_queued(db)


async def _deliver(deliveries: DeliveryWorker, outdated: asyncio.Event, stop: asyncio.Event) -> None:
    """Deliver events until `outdated` or `stop` is set, then wait for `stop`."""
    end = asyncio.Event()

    async def end_after(event: asyncio.Event) -> None:
        await event.wait()
        end.set()

    waiting = [asyncio.create_task(end_after(event)) for event in (outdated, stop)]
    try:
        await deliveries.run(end)
        await stop.wait()
    finally:
        for task in waiting:
            task.cancel()


async def _fold_rollups(runtime: Runtime) -> int:
    """Add the pending changes of finding counts to the rollups; return how many."""
    async with runtime.pool.connection() as db:
        return await rollups.fold_deltas(db)


async def _update_incidents(runtime: Runtime) -> int:
    """Bring the incidents up to date with changed findings; return the number of changes."""
    async with runtime.pool.connection() as db:
        return await pending.apply_all(db)


async def _delete_expired_sessions(runtime: Runtime) -> int:
    """Delete expired sessions, links and sign-in attempts; return how many."""
    async with runtime.pool.connection() as db:
        return await sessions.delete_expired(db, now=await current_time(db))


# --- jobs


async def _run_jobs(runtime: Runtime, context: RunContext, stop: asyncio.Event, dead_after: float) -> None:
    """Run queued jobs until `stop` is set; reconnect when the connection to the queue is lost.

    A job that cannot return its source in time is requeued by another worker later.
    """
    stopped = asyncio.create_task(stop.wait())
    while not stop.is_set():
        queues = asyncio.create_task(_run_queues(_build_app(runtime, context), context.jobs, dead_after))
        await asyncio.wait({queues, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            queues.cancel()
            await asyncio.wait({queues}, timeout=_JOB_STOP_TIMEOUT + _RELEASE_TIMEOUT)
            return
        try:
            queues.result()
            log.warning("queue_lost")  # the connection that is notified of new jobs
        except (procrastinate.exceptions.ConnectorException, *UNAVAILABLE) as error:
            log.warning("database_unavailable", error=type(error).__name__)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _RECONNECT_PAUSE)


async def _run_queues(app: procrastinate.App, max_jobs: int, dead_after: float) -> None:
    """Run the jobs of all queues as they arrive: `max_jobs` scans and a few users' requests at once."""
    if is_tracing():
        _trace_jobs(app)
    async with app.open_async():
        # One account has at most `max_jobs` sources and a plan, which mostly waits for the code host. The
        # other place is for a second account, so that it need not wait for the end of a long source.
        concurrency = {
            jobs.QUEUE: max_jobs + 2,
            jobs.INTERACTIVE_QUEUE: _CONCURRENT_REQUESTS,
            jobs.IMPORT_QUEUE: _CONCURRENT_IMPORTS,
            jobs.PUSH_QUEUE: _push_slots(max_jobs) + _MORE_PUSHES,
            jobs.POLL_QUEUE: _CONCURRENT_POLLS,
        }
        workers = [
            asyncio.create_task(
                app.run_worker_async(
                    queues=[queue],
                    concurrency=limit,
                    delete_jobs="always",
                    install_signal_handlers=False,
                    update_heartbeat_interval=dead_after / 4,
                    stalled_worker_timeout=dead_after,
                    shutdown_graceful_timeout=_JOB_STOP_TIMEOUT,
                    fetch_job_polling_interval=1.0,
                )
            )
            for queue, limit in concurrency.items()
        ]
        try:
            ended, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for worker in ended:
                worker.result()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


def _push_slots(max_jobs: int) -> int:
    """Return how many of the processes that scan the runs of pushes may take: three quarters."""
    return max(1, (max_jobs + _MORE_PROCESSES) * 3 // 4)


class _RetryAlways(procrastinate.BaseRetryStrategy):
    """Retries without limit: `claim_source` counts the attempts, and a cancelled one does not count."""

    def get_retry_decision(
        self, *, exception: BaseException, job: procrastinate.jobs.Job
    ) -> procrastinate.RetryDecision:
        """Return the delay: none for a cancelled job, two seconds more for each attempt of a failed one."""
        is_cancelled = isinstance(exception, asyncio.CancelledError)
        delay = 0 if is_cancelled else min(2 * (job.attempts + 1), _MAX_RETRY_DELAY)
        return procrastinate.RetryDecision(retry_in={"seconds": delay})


class _JobManager(JobManager):
    """Claims jobs so that the accounts share the worker.

    It claims none after `outdated` is set. The worker then idles, and its running jobs end.
    """

    def __init__(
        self,
        connector: procrastinate.PsycopgConnector,
        outdated: asyncio.Event,
        shares: Mapping[str, int],
        push_shares: Mapping[str, int],
    ) -> None:
        super().__init__(connector)
        self._connector = connector
        self._outdated = outdated
        self._claimer, self._push_claimer = jobs.Claimer(shares), jobs.Claimer(push_shares)

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> procrastinate.jobs.Job | None:
        """Return the next job of the first queue with one; None if there is none or no new work is taken."""
        if self._outdated.is_set():
            return None
        async with self._connector.pool.connection() as db:
            for queue in queues or ():
                claimer = self._push_claimer if queue == jobs.PUSH_QUEUE else self._claimer
                if (row := await claimer.claim(db, queue, worker_id)) is not None:
                    return procrastinate.jobs.Job.from_row(row)
        return None


def _build_app(runtime: Runtime, context: RunContext) -> procrastinate.App:
    """Return the procrastinate app with the tasks of the pipeline."""
    # A task that waits for a connection cannot be stopped, so the timeout is short.
    connector = procrastinate.PsycopgConnector(
        conninfo=runtime.url,
        min_size=1,
        max_size=8,
        timeout=_RELEASE_TIMEOUT,
        kwargs={"options": f"{session_options(idle_timeout=runtime.idle_timeout)} {jobs.SESSION_OPTIONS}"},
    )
    app = procrastinate.App(connector=connector)
    shares = {SCAN_SOURCE_TASK: context.jobs, VALIDATE_TASK: _CONCURRENT_REQUESTS - 1}
    # A slot is left for the pushes of a second account.
    push_shares = {SCAN_SOURCE_TASK: max(1, _push_slots(context.jobs) - 1)}
    app.job_manager = _JobManager(connector, runtime.outdated, shares, push_shares)

    @app.task(name=PLAN_TASK, retry=_RetryAlways())
    async def plan(account_id: int, scan_id: str) -> None:
        """Run the job that plans a run."""
        with _log_failure(scan=scan_id):
            await plan_run(context, account_id, UUID(scan_id))

    @app.task(name=SCAN_SOURCE_TASK, retry=_RetryAlways())
    async def scan(account_id: int, scan_id: str, source: str) -> None:
        """Run the job that scans one source of a run."""
        with _log_failure(scan=scan_id):
            await scan_source(context, account_id, UUID(scan_id), source)

    @app.task(name=VALIDATE_TASK, retry=_RetryAlways())
    async def validate(account_id: int, finding_id: str, by: str) -> None:
        """Run the job that checks the credential of a finding."""
        with _log_failure(finding=finding_id):
            await run_requested_validation(context, account_id, UUID(finding_id), by=by)

    @app.task(name=BULK_TASK, retry=_RetryAlways())
    async def triage_all(account_id: int, bulk_id: str) -> None:
        """Run the job that applies an action to all findings that match."""
        with _log_failure(bulk=bulk_id):
            await run_bulk(context.pool, context.keys, account_id, UUID(bulk_id))

    @app.task(name=MERGE_TASK, retry=_RetryAlways())
    async def merge(account_id: int, import_id: str) -> None:
        """Run the job that merges a report which was received over the API, and sends the events of it."""
        with _log_failure(report=import_id):
            merging = MergeContext(context.pool, context.keys, runtime.url, context.ruleset)
            await merge_import(merging, account_id, UUID(import_id))
            await announce_imported(context, account_id, UUID(import_id))

    @app.task(name=START_PUSHED_TASK, retry=_RetryAlways())
    async def start_pushed(account_id: int, repository: str) -> None:
        """Run the job that starts the runs of a repository which was pushed to."""
        with _log_failure(task=START_PUSHED_TASK):
            await start_pushed_runs(context, account_id, bytes.fromhex(repository))

    @app.task(name=POLL_TASK, retry=_RetryAlways())
    async def poll(account_id: int, target_id: str) -> None:
        """Run the job that asks a code host for pushes."""
        with _log_failure(target=target_id):
            await poll_target(context, account_id, UUID(target_id))

    @app.task(name=REPORT_TASK, retry=_RetryAlways())
    async def report(account_id: int, scan_id: str) -> None:
        """Run the job that reports a run to the pull requests that were pushed to."""
        with _log_failure(scan=scan_id):
            await report_to_pull_requests(context, account_id, UUID(scan_id))

    @app.task(name=REVALIDATE_TASK)
    async def validate_due() -> None:
        """Run the job that validates the credentials which are due, such as those of an import."""
        with _log_failure(task=REVALIDATE_TASK):
            await revalidate_due(context)

    return app


def _trace_jobs(app: procrastinate.App) -> None:
    """Run each task of ours in a span with its queue, its name and how it ended."""
    for task in app.tasks.values():
        if not task.pass_context:  # procrastinate's own have it
            task.func, task.pass_context = _in_span(task.func), True


def _in_span(run: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return a function that runs a job in a span."""

    async def run_in_span(context: procrastinate.JobContext, **arguments: Any) -> None:
        queue = QUEUE_NAMES.get(context.job.queue, context.job.queue)
        with record_span("job", {"outcrop.queue": queue, "outcrop.job": context.job.task_name}) as span:
            span.fields["outcrop.outcome"] = "failed"
            try:
                await run(**arguments)
                span.fields["outcrop.outcome"] = "completed"
            except asyncio.CancelledError:  # it is tried again
                span.fields["outcrop.outcome"] = "cancelled"
                raise

    return run_in_span


@contextmanager
def _log_failure(**fields: str) -> Iterator[None]:
    """Log the type and place of an exception in the body; its text may contain a credential."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UNAVAILABLE):
            log.warning("database_unavailable", error=type(error).__name__, **fields)
        else:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            log.error(  # noqa: TRY400
                "job_failed", error=type(error).__name__, at=f"{frame.filename}:{frame.lineno}", **fields
            )
        raise
