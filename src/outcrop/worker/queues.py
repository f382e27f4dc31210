"""Run the jobs of all queues, so that the accounts share the worker."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import procrastinate
from procrastinate.manager import JobManager

from outcrop.lazy_logger import get_logger
from outcrop.runtime import Runtime
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import SCAN_SOURCE_TASK, VALIDATE_TASK
from outcrop.store.db import UNAVAILABLE, session_options
from outcrop.store.runs import jobs
from outcrop.tracing import is_tracing
from outcrop.worker.run_context import MORE_PROCESSES
from outcrop.worker.tasks import add_tasks, trace_jobs

_JOB_STOP_TIMEOUT = 4.0  # seconds in which a running job may end when the worker is stopped
_RELEASE_TIMEOUT = 2.0  # seconds in which a cancelled job returns its source to the queue
_CONCURRENT_REQUESTS = 4  # jobs that a user waits for
_CONCURRENT_IMPORTS = 2
_CONCURRENT_POLLS = 8
_MORE_PUSHES = 3  # jobs that start and plan the runs of pushes, beside those that scan
_RECONNECT_PAUSE = 2.0  # seconds

log = get_logger()


async def run_jobs(runtime: Runtime, context: RunContext, stop: asyncio.Event, dead_after: float) -> None:
    """Run queued jobs until `stop` is set; reconnect when the connection to the queue is lost.

    A job that cannot return its source in time is requeued by another worker later.
    """
    stopped = asyncio.create_task(stop.wait())
    while not stop.is_set():
        queues = asyncio.create_task(run_queues(build_app(runtime, context), context.jobs, dead_after))
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


async def run_queues(app: procrastinate.App, max_jobs: int, dead_after: float) -> None:
    """Run the jobs of all queues as they arrive: `max_jobs` scans and a few users' requests at once."""
    if is_tracing():
        trace_jobs(app)
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
    return max(1, (max_jobs + MORE_PROCESSES) * 3 // 4)


class _JobManager(JobManager):
    """Claims jobs so that the accounts share the worker.

    It claims none after `outdated` is set. The worker then idles, and its running jobs end.

    A job whose end could not be recorded is queued again as soon as the database answers. Otherwise it would
    count as running for as long as this worker lives, and all jobs with its lock would wait.
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
        self._unrecorded: list[jobs.JobAttempt] = []

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> procrastinate.jobs.Job | None:
        """Return the next job of the first queue with one; None if there is none or no new work is taken."""
        async with self._connector.pool.connection() as db:
            # If this fails, the worker gets a new id, and what it held is queued as the jobs of a dead one.
            while self._unrecorded:
                await jobs.requeue_attempt(db, self._unrecorded.pop())
            if self._outdated.is_set():
                return None
            for queue in queues or ():
                claimer = self._push_claimer if queue == jobs.PUSH_QUEUE else self._claimer
                if (row := await claimer.claim(db, queue, worker_id)) is not None:
                    return procrastinate.jobs.Job.from_row(row)
        return None

    async def finish_job(
        self, job: procrastinate.jobs.Job, status: procrastinate.jobs.Status, delete_job: bool
    ) -> None:
        """Record that a job has ended, and wake a worker for the next one with its lock.

        Otherwise that job waits until a worker asks for jobs, a second for each import of an account.
        """
        with self._recording(job):
            await super().finish_job(job, status, delete_job)
            if job.lock is not None:
                with suppress(*UNAVAILABLE):
                    async with self._connector.pool.connection() as db:
                        await jobs.notify_of_free_lock(db, job.queue, job.lock)

    async def retry_job(self, job: procrastinate.jobs.Job, *arguments: Any, **options: Any) -> None:
        """Record that a job is to be run once more."""
        with self._recording(job):
            await super().retry_job(job, *arguments, **options)

    @contextmanager
    def _recording(self, job: procrastinate.jobs.Job) -> Iterator[None]:
        """Keep the attempt if the body cannot record its end."""
        try:
            yield
        except procrastinate.exceptions.ConnectorException:
            log.warning("job_end_not_recorded", task=job.task_name)
            if job.id is not None:  # which it is for every claimed job
                self._unrecorded.append(jobs.JobAttempt(job.id, job.attempts))


def build_app(runtime: Runtime, context: RunContext) -> procrastinate.App:
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

    add_tasks(app, runtime, context)
    return app
