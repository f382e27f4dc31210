"""The task of each kind of job: one call of a service, whose failure is logged and tried again."""

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import procrastinate

from outcrop.lazy_logger import get_logger
from outcrop.runtime import Runtime
from outcrop.services.activity import QUEUE_NAMES
from outcrop.services.exchange.news import REVALIDATE_TASK
from outcrop.services.exchange.staged_import import MergeContext, merge_import
from outcrop.services.exchange.upload import MERGE_TASK
from outcrop.services.findings.bulk_triage import BULK_TASK, run_bulk
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
from outcrop.services.pipeline.plan import plan_run
from outcrop.services.pipeline.pushes.poll import poll_target
from outcrop.services.pipeline.pushes.pull_requests import report_to_pull_requests
from outcrop.services.pipeline.pushes.start import start_pushed_runs
from outcrop.services.pipeline.revalidate import revalidate_due, run_requested_validation
from outcrop.services.pipeline.run_source import scan_source
from outcrop.store.db import UNAVAILABLE
from outcrop.tracing import record_span

_MAX_RETRY_DELAY = 60  # seconds

log = get_logger()


class RetryAlways(procrastinate.BaseRetryStrategy):
    """Retries without limit: `claim_source` counts the attempts, and a cancelled one does not count."""

    def get_retry_decision(
        self, *, exception: BaseException, job: procrastinate.jobs.Job
    ) -> procrastinate.RetryDecision:
        """Return the delay: none for a cancelled job, two seconds more for each attempt of a failed one."""
        is_cancelled = isinstance(exception, asyncio.CancelledError)
        delay = 0 if is_cancelled else min(2 * (job.attempts + 1), _MAX_RETRY_DELAY)
        return procrastinate.RetryDecision(retry_in={"seconds": delay})


def add_tasks(app: procrastinate.App, runtime: Runtime, context: RunContext) -> None:
    """Add the tasks of the pipeline to the app."""

    @app.task(name=PLAN_TASK, retry=RetryAlways())
    async def plan(account_id: int, scan_id: str) -> None:
        """Run the job that plans a run."""
        with _log_failure(scan=scan_id):
            await plan_run(context, account_id, UUID(scan_id))

    @app.task(name=SCAN_SOURCE_TASK, retry=RetryAlways())
    async def scan(account_id: int, scan_id: str, source: str) -> None:
        """Run the job that scans one source of a run."""
        with _log_failure(scan=scan_id):
            await scan_source(context, account_id, UUID(scan_id), source)

    @app.task(name=VALIDATE_TASK, retry=RetryAlways())
    async def validate(account_id: int, finding_id: str, by: str) -> None:
        """Run the job that checks the credential of a finding."""
        with _log_failure(finding=finding_id):
            await run_requested_validation(context, account_id, UUID(finding_id), by=by)

    @app.task(name=BULK_TASK, retry=RetryAlways())
    async def triage_all(account_id: int, bulk_id: str) -> None:
        """Run the job that applies an action to all findings that match."""
        with _log_failure(bulk=bulk_id):
            await run_bulk(context.pool, context.keys, account_id, UUID(bulk_id))

    @app.task(name=MERGE_TASK, retry=RetryAlways())
    async def merge(account_id: int, import_id: str) -> None:
        """Run the job that merges a report which was received over the API, and sends the events of it."""
        with _log_failure(report=import_id):
            merging = MergeContext(context.pool, context.keys, runtime.url, context.ruleset)
            await merge_import(merging, account_id, UUID(import_id))
            await announce_imported(context, account_id, UUID(import_id))

    @app.task(name=START_PUSHED_TASK, retry=RetryAlways())
    async def start_pushed(account_id: int, repository: str) -> None:
        """Run the job that starts the runs of a repository which was pushed to."""
        with _log_failure(task=START_PUSHED_TASK):
            await start_pushed_runs(context, account_id, bytes.fromhex(repository))

    @app.task(name=POLL_TASK, retry=RetryAlways())
    async def poll(account_id: int, target_id: str) -> None:
        """Run the job that asks a code host for pushes."""
        with _log_failure(target=target_id):
            await poll_target(context, account_id, UUID(target_id))

    @app.task(name=REPORT_TASK, retry=RetryAlways())
    async def report(account_id: int, scan_id: str) -> None:
        """Run the job that reports a run to the pull requests that were pushed to."""
        with _log_failure(scan=scan_id):
            await report_to_pull_requests(context, account_id, UUID(scan_id))

    @app.task(name=REVALIDATE_TASK)
    async def validate_due() -> None:
        """Run the job that validates the credentials which are due, such as those of an import."""
        with _log_failure(task=REVALIDATE_TASK):
            await revalidate_due(context)


def trace_jobs(app: procrastinate.App) -> None:
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
