"""Run jobs, deliveries and periodic tasks until the worker is stopped."""

import asyncio
import logging
from datetime import timedelta

from outcrop.net.post import PostClient
from outcrop.runtime import Runtime
from outcrop.services.delivery import DeliveryWorker
from outcrop.services.exchange.staged_import import tidy_imports
from outcrop.services.hooks.manage import delete_old_deliveries as delete_old_deliveries_of_hooks
from outcrop.services.pipeline.maintenance import (
    encrypt_addresses,
    erase_secrets,
    mark_stale,
    requeue_stalled_jobs,
    resume_orphaned_runs,
    start_due_runs,
)
from outcrop.services.pipeline.pushes.poll import enqueue_due_polls
from outcrop.services.pipeline.pushes.pull_requests import forget_old_pull_requests
from outcrop.services.pipeline.pushes.start import compare_refused
from outcrop.services.pipeline.revalidate import revalidate_due
from outcrop.services.pipeline.score import rescore_outdated
from outcrop.services.suppressions import run_pending
from outcrop.services.webhooks import delete_old_deliveries
from outcrop.settings import Settings
from outcrop.worker.periodic import (
    delete_expired_sessions,
    end_stuck_sessions,
    fold_rollups,
    if_clock_is_right,
    run_every,
    save_heartbeats,
    update_incidents,
)
from outcrop.worker.queues import run_jobs
from outcrop.worker.run_context import open_run_context

FOLD_EVERY = 2.0  # seconds; until then, listing findings has a few more rollup rows to add up
_SCHEDULE_EVERY, _HOUR, _DAY = 15.0, 3_600.0, 86_400.0  # seconds
_COMPARE_EVERY = 5.0  # seconds
_POLL_EVERY = 5.0  # seconds; a target is due once a minute or less


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
            asyncio.create_task(run_every(seconds, runtime.outdated, stop, task))
            for seconds, task in (
                (FOLD_EVERY, lambda: fold_rollups(runtime)),
                (FOLD_EVERY, lambda: update_incidents(runtime)),
                (_SCHEDULE_EVERY, lambda: start_due_runs(context)),
                (_COMPARE_EVERY, lambda: compare_refused(context)),
                (_POLL_EVERY, lambda: enqueue_due_polls(context)),
                (_SCHEDULE_EVERY, lambda: end_stuck_sessions(runtime)),
                (_SCHEDULE_EVERY, lambda: save_heartbeats(runtime)),
                (dead_after / 2, lambda: requeue_stalled_jobs(context, dead_after=dead_after)),
                (dead_after / 2, lambda: resume_orphaned_runs(context)),
                (_SCHEDULE_EVERY, lambda: run_pending(runtime.pool)),
                (dead_after / 2, lambda: tidy_imports(runtime.pool)),
                (_DAY, lambda: encrypt_addresses(context)),
                (_HOUR, lambda: revalidate_due(context)),
                (_HOUR, lambda: rescore_outdated(context)),
                (_HOUR, lambda: if_clock_is_right(runtime, lambda: mark_stale(context, after=stale_after))),
                (_HOUR, lambda: if_clock_is_right(runtime, lambda: erase_secrets(context))),
                (_HOUR, lambda: if_clock_is_right(runtime, lambda: delete_old_deliveries(runtime.pool))),
                (_HOUR, lambda: delete_old_deliveries_of_hooks(runtime.pool)),
                (_HOUR, lambda: forget_old_pull_requests(runtime.pool)),
                (_HOUR, lambda: if_clock_is_right(runtime, lambda: delete_expired_sessions(runtime))),
            )
        ]
        poster = PostClient(context.egress, settings.allowed_webhook_ports)
        deliveries = DeliveryWorker(runtime.pool, runtime.keys, poster.post)
        # Jobs and deliveries end by themselves when `stop` is set.
        main_tasks = [
            asyncio.create_task(run_jobs(runtime, context, stop, dead_after)),
            asyncio.create_task(_deliver(deliveries, runtime.outdated, stop)),
        ]
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait({stopped, *periodic, *main_tasks}, return_when=asyncio.FIRST_COMPLETED)
        # A periodic task is one transaction, which is rolled back, so an unavailable database delays no stop.
        for task in [stopped, *periodic]:
            task.cancel()
        await asyncio.gather(*periodic, return_exceptions=True)
        await asyncio.gather(*main_tasks)


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
