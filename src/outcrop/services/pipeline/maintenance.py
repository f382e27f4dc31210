"""What happens by itself: schedules, workers that died, findings that nobody has seen for long, credentials that are no longer needed."""

from collections import Counter
from datetime import datetime, timedelta
from uuid import UUID

from outcrop.domain.scan import Trigger
from outcrop.domain.target import EVERY, Schedule, Target, TargetKind
from outcrop.services.pipeline.context import RunContext, now
from outcrop.services.pipeline.enqueue import defer, start_run
from outcrop.services.pipeline.plan import end_run
from outcrop.store import audit
from outcrop.store.findings import table
from outcrop.store.runs import jobs, scans, sources, targets

ERASED_AFTER = timedelta(days=30)  # of being closed
_AT_ONCE = 1000


async def start_due(tools: RunContext) -> int:
    """Start a run of each target whose time has come, once, however many workers ask; one that is under way is not doubled."""
    moment = now()
    started = 0
    async with tools.pool.connection() as db, db.transaction():
        for account_id, target in await targets.lock_due(db, moment):
            if not await scans.has_unfinished_run(db, account_id, target.id):
                await start_run(
                    db,
                    account_id,
                    target.spec,
                    trigger=Trigger.SCHEDULE,
                    target_id=target.id,
                    by=Trigger.SCHEDULE,
                    moment=moment,
                )
                started += 1
            await targets.update_next_run(db, account_id, target.id, _next(target, moment))
    return started


def _next(target: Target, moment: datetime) -> datetime | None:
    """Give the next time of a schedule: in step with the last one, and not in the past."""
    if target.schedule is Schedule.OFF or target.next_run_at is None:
        return None
    every = EVERY[target.schedule]
    missed = (moment - target.next_run_at) // every
    return target.next_run_at + (missed + 1) * every


async def pick_up_stalled(tools: RunContext, *, dead_after: float) -> int:
    """Let the jobs of workers that have died wait for another one; their runs say so meanwhile."""
    async with tools.pool.connection() as db, db.transaction():
        stalled = await jobs.requeue_stalled(db, dead_after)
        for arguments in stalled:
            if "scan_id" in arguments:
                await scans.mark_interrupted(db, arguments["account_id"], UUID(arguments["scan_id"]))
    return len(stalled)


async def pick_up_orphans(tools: RunContext) -> int:
    """Go on with the runs of commands that have died; a folder of another machine cannot be gone on with."""
    async with tools.pool.connection() as db, db.transaction():
        orphans = await scans.claim_orphaned_runs(db)
        for orphan in orphans:
            if orphan.kind == TargetKind.FOLDER:
                await end_run(db, orphan.account_id, orphan.scan_id, error="the command that ran it has died")
                continue
            for source in orphan.sources:
                await defer(db, orphan.account_id, orphan.scan_id, source)
    return len(orphans)


async def turn_stale(tools: RunContext, *, after: timedelta) -> int:
    """Let findings be stale whose absence nobody has confirmed, and which no run has seen for so long."""
    moment = now()
    turned = 0
    while True:
        async with tools.pool.connection() as db, db.transaction():
            found = await sources.mark_stale(db, before=moment - after)
            for account_id, finding_id in found:
                await audit.append(
                    db, account_id, audit.AuditLine(moment, "scan", "finding.stale", str(finding_id))
                )
        turned += len(found)
        if not found:
            return turned


async def erase_secrets(tools: RunContext) -> int:
    """Erase the credentials of findings that were closed long ago; where none are to be kept, of all. The trail tells how many."""
    moment = now()
    before = moment - ERASED_AFTER if tools.keep_secrets else None
    erased = 0
    while True:
        async with tools.pool.connection() as db, db.transaction():
            counts = Counter(await table.erase_secrets(db, closed_before=before, most=_AT_ONCE))
            for account_id, count in sorted(counts.items()):
                await audit.append(
                    db,
                    account_id,
                    audit.AuditLine(moment, "upkeep", "secrets.erase", detail={"findings": count}),
                )
        erased += counts.total()
        if not counts:
            return erased
