"""Ask code hosts for pushes to the targets whose owners cannot set up a push hook.

A target with the option `poll` is due at the interval that its host names. A push leads to the same run as
that of a hook.
"""

from collections.abc import Sequence
from uuid import UUID

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.push import HookHost, ReportedPush
from outcrop.domain.scan import Trigger
from outcrop.domain.target import POLL, Target, TargetKind
from outcrop.lazy_logger import get_logger
from outcrop.limits import POLL_RETRY_SECONDS
from outcrop.services.pipeline.context import RunContext
from outcrop.services.pipeline.enqueue import POLL_TASK, start_run
from outcrop.services.pipeline.host_access import load_credential, open_host_without_run
from outcrop.services.pipeline.pushes.start import ACTOR, start_run_of_pushes
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.events import Poll, PushEvent
from outcrop.sources.hooks.delivery import build_push
from outcrop.store.db import Connection, current_time
from outcrop.store.runs import jobs, polls, scans, targets
from outcrop.store.runs.polls import PollState

_BATCH_SIZE = 100  # targets that one transaction queues
_LEASE = 600.0  # seconds in which a queued poll is not queued again

log = get_logger()


async def enqueue_due_polls(context: RunContext) -> int:
    """Write the jobs of the polls that are due, of all accounts; return how many."""
    async with context.pool.connection() as db, db.transaction():
        due = await polls.claim_due(db, limit=_BATCH_SIZE, lease=_LEASE)
        for account_id, target_id in due:
            lock = f"poll {target_id}"
            if not await jobs.is_queued(db, lock):
                arguments = {"account_id": account_id, "target_id": str(target_id)}
                await jobs.defer_jobs(db, POLL_TASK, [(lock, arguments)], jobs.POLLED)
    return len(due)


async def poll_target(context: RunContext, account_id: int, target_id: UUID) -> int:
    """Ask the host of a target for pushes since the last poll, and start their runs; return how many.

    A failure is logged, and the next poll follows later: its list has the same pushes.
    """
    async with context.pool.connection() as db:
        target = await targets.select(db, account_id, target_id)
        before = await polls.select(db, account_id, target_id)
    if target is None or before is None or not target.spec.options.get(POLL):
        return 0
    try:
        poll = await _ask(context, account_id, target, before)
    except (HostError, OutcropError) as error:
        log.warning("poll_failed", account=account_id, target=str(target_id), error=error.message)
        poll = Poll((), None, before.etag, POLL_RETRY_SECONDS)
    async with context.pool.connection() as db, db.transaction():
        is_saved = await polls.save(
            *(db, account_id, target_id),
            before=before,
            known=poll.known,
            etag=poll.etag,
            seconds=poll.seconds,
        )
        if not is_saved or before.known is None:  # the target's first run reads what was pushed before
            return 0
        if not poll.is_complete:
            return await _compare(context, db, account_id, target)
        return await _start(db, context, account_id, target, poll.pushes)


async def _ask(context: RunContext, account_id: int, target: Target, before: PollState) -> Poll:
    """Return what the host of a target says. Raise HostError or OutcropError if it says nothing."""
    spec = target.spec
    token = await load_credential(context, account_id, target.id)
    host = open_host_without_run(context, account_id, spec, token)
    is_owner = spec.kind is TargetKind.OWNER
    name = spec.name.partition(":")[2] if is_owner else host.path_of(spec.name)
    feed = await host.event_feed(name, is_owner=is_owner, is_own_token=token is not None)
    if feed is None:
        raise OperatorError("this code host has no list of events: use a push hook or a schedule")
    return await feed.poll(before.known, before.etag)


async def _start(
    db: Connection, context: RunContext, account_id: int, target: Target, events: Sequence[PushEvent]
) -> int:
    """Start a run of each repository that was pushed to; return how many."""
    host = HookHost(open_host_without_run(context, account_id, target.spec, None).name)
    by_repository: dict[bytes, list[ReportedPush]] = {}
    for event in events:
        if event.full_name is None:
            continue
        push = build_push(
            host,
            repository_id=event.repository_id,
            full_name=event.full_name,
            addresses=(),
            branches=(event.branch,),
            author=event.author,
            after=event.after,
        )
        by_repository.setdefault(push.repository, []).append(push)
    started = 0
    for pushes in by_repository.values():
        started += await start_run_of_pushes(db, context, account_id, target, pushes)
    return started


async def _compare(context: RunContext, db: Connection, account_id: int, target: Target) -> int:
    """Start a run that compares all repositories of a target with the host, unless one waits."""
    if await scans.has_unplanned_comparison(db, account_id, target.id):
        return 0
    moment = await current_time(db)
    await start_run(
        *(db, context.keys, account_id, target.spec),
        trigger=Trigger.PUSH,
        target_id=target.id,
        moment=moment,
        by=ACTOR,
    )
    return 1
