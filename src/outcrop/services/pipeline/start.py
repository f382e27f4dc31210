"""What sets workers to work, written in the caller's transaction. It needs nothing of what the work itself needs."""

from dataclasses import asdict
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.scan import ScanRun, ScanStatus, Trigger
from outcrop.domain.target import Spec
from outcrop.store import audit, jobs, scans
from outcrop.store.db import Connection
from outcrop.store.scans import PLAN

PLAN_TASK, LOOK_TASK = "plan_run", "look_at_source"


async def start_run(
    db: Connection,
    account_id: int,
    spec: Spec,
    *,
    trigger: Trigger,
    target_id: UUID | None,
    moment: datetime,
    by: str,
    foreground: int | None = None,
) -> ScanRun:
    """Make a run and, in the same transaction, the job that plans it, unless the caller does it in the foreground."""
    run = ScanRun(uuid4(), spec.scan_type, ScanStatus.QUEUED, trigger, spec.shown, moment)
    await scans.insert(db, account_id, run, target_id=target_id, spec=asdict(spec), foreground=foreground)
    await scans.add_sources(db, account_id, run.id, [(PLAN, {})])
    detail = {"target": spec.shown, "trigger": trigger}
    await audit.append(db, account_id, audit.Line(moment, by, "scan.start", str(run.id), detail=detail))
    if foreground is None:
        await defer(db, account_id, run.id, PLAN)
    return run


async def defer(db: Connection, account_id: int, scan_id: UUID, source: str) -> None:
    """Have a worker do one part of a run: its plan, or one of its sources, which nobody else looks at meanwhile."""
    arguments = {"account_id": account_id, "scan_id": str(scan_id)}
    if source == PLAN:
        await jobs.defer(db, PLAN_TASK, [(f"plan {scan_id}", arguments)])
    else:
        await jobs.defer(db, LOOK_TASK, [(f"{account_id} {source}", arguments | {"source": source})])
