"""Do the periodic work: start scheduled runs, resume interrupted ones, age findings, erase credentials."""

from collections import Counter
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from outcrop import metrics
from outcrop.domain.scan import Trigger
from outcrop.domain.target import EVERY, Schedule, Target, TargetKind
from outcrop.services.pipeline.context import ACTOR, RunContext
from outcrop.services.pipeline.enqueue import enqueue_source, start_run
from outcrop.services.pipeline.plan import end_run
from outcrop.services.pipeline.score import rescore
from outcrop.store import audit, secret_policy
from outcrop.store.db import Connection, current_time
from outcrop.store.findings import table
from outcrop.store.keyring import Keyring
from outcrop.store.runs import jobs, scans, source_locks, sources, targets

ERASE_AFTER = timedelta(days=30)  # from when the finding was closed
_ERASE_BATCH_SIZE = 1000  # credentials that one transaction erases
_START_BATCH_SIZE = 20  # due targets that one transaction starts; a worker begins with them after its commit


async def start_due_runs(context: RunContext) -> int:
    """Start a run of each target that is due, and set the target's next time; return how many were started.

    A target with an unfinished run gets no second one. Several workers may call this at the same time. Each
    batch is committed, so that the first runs do not wait for the last ones.
    """
    started = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            due = await targets.lock_due(db, moment, limit=_START_BATCH_SIZE)
            for account_id, target in due:
                opened = targets.open_target(context.keys, account_id, target)
                started += await _start_if_none_runs(db, context.keys, account_id, opened, moment)
                await targets.update_next_run(db, account_id, target.id, _next_run_at(target, moment))
        if not due:
            return started


async def _start_if_none_runs(
    db: Connection, keys: Keyring, account_id: int, target: Target, moment: datetime
) -> bool:
    """Start a run of a target that has no unfinished one; return whether it was started."""
    if await scans.has_unfinished_run(db, account_id, target.id):
        return False
    await start_run(
        db,
        keys,
        account_id,
        target.spec,
        trigger=Trigger.SCHEDULE,
        target_id=target.id,
        by=Trigger.SCHEDULE,
        moment=moment,
    )
    return True


def _next_run_at(target: Target, moment: datetime) -> datetime | None:
    """Return the first time after `moment` that is a whole number of intervals after the last planned run.

    None if the target has no schedule or no planned run.
    """
    if target.schedule is Schedule.OFF or target.next_run_at is None:
        return None
    every = EVERY[target.schedule]
    missed = (moment - target.next_run_at) // every
    return target.next_run_at + (missed + 1) * every


async def encrypt_addresses(context: RunContext) -> int:
    """Encrypt addresses with a query that an older release has stored in clear text; return how many.

    From runs that have ended, the query is removed.
    """
    changed = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            count = await targets.encrypt_urls(db, context.keys) + await scans.strip_queries(db)
        if not count:
            return changed
        changed += count


async def requeue_stalled_jobs(context: RunContext, *, dead_after: float) -> int:
    """Put the jobs of dead workers back into the queue; return how many jobs.

    The scan runs of these jobs are marked as interrupted. A worker is dead if it gave no sign of life for
    `dead_after` seconds.
    """
    async with context.pool.connection() as db, db.transaction():
        stalled = await jobs.requeue_stalled(db, dead_after)
        for arguments in stalled:
            if "scan_id" in arguments:
                account_id, scan_id = arguments["account_id"], UUID(arguments["scan_id"])
                await scans.mark_interrupted(db, account_id, scan_id)
                await source_locks.release_run(db, account_id, arguments.get("source", ""), scan_id)
    return len(stalled)


async def resume_orphaned_runs(context: RunContext) -> int:
    """Write jobs for the unfinished sources of foreground runs whose process has died; return how many runs.

    A run that scans a folder is ended as failed instead, since the folder may be on another machine. Such
    runs are counted too.
    """
    ended: list[scans.RunResult | None] = []
    async with context.pool.connection() as db, db.transaction():
        orphans = await scans.claim_orphaned_runs(db)
        for orphan in orphans:
            if orphan.kind == TargetKind.FOLDER:
                reason = "the command that ran it has died"
                ended.append(await end_run(db, orphan.account_id, orphan.scan_id, error=reason))
                continue
            for source in orphan.sources:
                await source_locks.release_run(db, orphan.account_id, source, orphan.scan_id)
                await enqueue_source(db, orphan.account_id, orphan.scan_id, source)
    for result in filter(None, ended):
        metrics.count_run(result.type, result.status)
    return len(orphans)


async def mark_stale(context: RunContext, *, after: timedelta) -> int:
    """Mark active findings as stale that no run has seen for the time `after`; return how many.

    An audit line is written for each finding.
    """
    marked = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            stale = await sources.mark_stale(db, before=moment - after)
            for account_id, finding_id in stale:
                line = audit.AuditLine(moment, ACTOR, "finding.stale", str(finding_id))
                await audit.append(db, account_id, line)
            for account_id, rows in groupby(sorted(stale), key=itemgetter(0)):
                await rescore(db, account_id, [finding_id for _, finding_id in rows], moment)
        marked += len(stale)
        if not stale:
            return marked


async def erase_secrets(context: RunContext) -> int:
    """Erase the stored credentials of findings that were closed at least ERASE_AFTER ago; return how many.

    If the database's setting is to keep none, erase all credentials. The audit trail of each account gets the
    number of its erased credentials.
    """
    erased = 0
    while True:
        async with context.pool.connection() as db, db.transaction():
            moment = await current_time(db)
            closed_before = moment - ERASE_AFTER if await secret_policy.keeps_secrets(db) else None
            account_ids = await table.erase_secrets(db, closed_before=closed_before, limit=_ERASE_BATCH_SIZE)
            counts = Counter(account_ids)
            for account_id, count in sorted(counts.items()):
                line = audit.AuditLine(moment, "upkeep", "secrets.erase", detail={"findings": count})
                await audit.append(db, account_id, line)
        erased += counts.total()
        if not counts:
            return erased
