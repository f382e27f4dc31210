"""Plan a run: list the repositories, gists or site that its target consists of.

A worker claims a source before it works on it, and finishes it afterwards (`claim_source`, `finish_source`).
The plan itself is claimed like a source, named PLAN_SOURCE.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outcrop import metrics
from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.scan import Gap, ScanStatus, SourceState
from outcrop.domain.target import PR_COMMENT, PR_STATUS, TargetKind, TargetSpec, split_stored_name
from outcrop.limits import SOURCE_ATTEMPTS
from outcrop.services.pipeline.context import ACTOR, RunContext, SourceKey
from outcrop.services.pipeline.enqueue import PUSHED_NAME, enqueue_report, enqueue_source, lane_of
from outcrop.services.pipeline.fence import OutdatedScanError, send_heartbeats, write_transaction
from outcrop.services.pipeline.host_access import load_credential, open_host_of
from outcrop.services.pipeline.join_sources import identify_sources
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.options import PlanStart
from outcrop.sources.resolve_target import ScanSource, resolve_pushed, resolve_target, source_as_json
from outcrop.store import audit
from outcrop.store.db import Connection, current_time
from outcrop.store.runs import jobs, scan_sources, scans
from outcrop.store.runs.scans import PLAN_SOURCE

TOO_MANY_ATTEMPTS = f"its worker has died {SOURCE_ATTEMPTS} times"
_BATCH_SIZE = 100  # sources that one transaction adds


@dataclass(frozen=True, slots=True)
class SourceClaim:
    """A source that this process works on, and its run."""

    run: scans.UnfinishedRun
    spec: dict[str, Any]  # the fields of a ScanSource
    attempts: int  # including this one


async def plan_run(
    context: RunContext, account_id: int, scan_id: UUID, *, deferred: bool = True
) -> list[str]:
    """List and store the sources of a run; return the names of those that were not stored yet.

    If `deferred`, write a job for each of these. Return [] if the run or its plan has ended already. An
    interrupted plan goes on with the page of the list at which it last stored sources; those stay as they
    are. A HostError or OutcropError ends the plan as failed, after the sources listed so far are stored;
    another exception is raised. The run is ended if it has no other source.
    """
    key = SourceKey(account_id, scan_id, PLAN_SOURCE)
    if (claimed := await claim_source(context, key)) is None:
        return []
    spec = _spec_from_json(claimed.run.spec)
    lane = lane_of(claimed.run.trigger, claimed.run.spec) if deferred else None
    names: list[str] = []
    batch: list[ScanSource] = []
    start = PlanStart(*claimed.spec.get(scan_sources.PAGE, (None, None)))
    gaps: list[Gap] = []
    error: str | None = None
    async with release_if_cancelled(context, key), send_heartbeats(context, account_id, scan_id):
        try:
            async for source in _resolve(context, key, claimed, spec, gaps=gaps, start=start):
                batch.append(source)
                if len(batch) >= _BATCH_SIZE:
                    names += await _add_sources(context, key, batch, lane, start)
                    batch = []
        except (HostError, OutcropError) as failure:  # the sources listed so far are still scanned
            error = failure.message
            gaps.append(Gap(spec.shown, error))
        names += await _add_sources(context, key, batch, lane)
    await finish_source(context, key, gaps, error)
    return names


async def _resolve(
    context: RunContext,
    key: SourceKey,
    claimed: SourceClaim,
    spec: TargetSpec,
    *,
    gaps: list[Gap],
    start: PlanStart,
) -> AsyncIterator[ScanSource]:
    """Yield the sources of a target, as its own credential sees them; append skipped sources to `gaps`.

    Without a credential of its own the operator's token is used. Raise OperatorError if the plan was tried
    more than SOURCE_ATTEMPTS times, and what `resolve_target` raises.
    """
    if claimed.attempts > SOURCE_ATTEMPTS:
        raise OperatorError(TOO_MANY_ATTEMPTS)
    token = await load_credential(context, key.account_id, claimed.run.target_id)
    host = open_host_of(context, key, spec, token, on_gap=gaps.append, start=start)
    if (pushed := claimed.run.spec.get(PUSHED_NAME)) is not None:
        for source in await resolve_pushed(spec, pushed, host, has_credential=token is not None, gaps=gaps):
            yield source
        return
    async for source in resolve_target(spec, host, has_credential=token is not None, gaps=gaps):
        yield source


async def _add_sources(
    context: RunContext,
    key: SourceKey,
    batch: Sequence[ScanSource],
    lane: jobs.Lane | None,
    start: PlanStart | None = None,
) -> list[str]:
    """Store sources of a run; return the names of the new ones. With a lane, each gets a job in it.

    `start` is saved: the sources before its page are stored.
    """
    async with context.pool.connection() as db, db.transaction():
        named = await identify_sources(db, key.account_id, list(batch))
        specs = [(source.source, source_as_json(source)) for source in named]
        added = await scan_sources.add_sources(db, key.account_id, key.scan_id, specs)
        for name in added if lane is not None else ():
            await enqueue_source(db, key.account_id, key.scan_id, name, lane or jobs.SCHEDULED)
        if start is not None and start.page_url is not None:
            pages = [start.list_url, start.page_url]
            await scan_sources.save_page(db, key.account_id, key.scan_id, key.source, pages)
    return added


def _spec_from_json(raw: dict[str, Any]) -> TargetSpec:
    """Return the target specification that is stored with a run; `raw` has its fields."""
    kind = TargetKind(raw["kind"])
    name, host_url = split_stored_name(kind, raw["name"])
    return TargetSpec(kind, name, tuple(raw["include"]), tuple(raw["exclude"]), raw["options"], host_url)


# --- claiming and finishing a source


async def claim_source(context: RunContext, key: SourceKey) -> SourceClaim | None:
    """Mark the run and the source as running, and count the attempt; return both as a claim.

    Progress, gaps and error of an earlier attempt are cleared. Return None if the run or the source has
    ended.
    """
    async with context.pool.connection() as db, db.transaction():
        run = await scans.start_run(db, key.account_id, key.scan_id, now=await current_time(db))
        taken = await scan_sources.claim_source(db, key.account_id, key.scan_id, key.source)
    return None if run is None or taken is None else SourceClaim(run, taken.spec, taken.tries)


@asynccontextmanager
async def release_if_cancelled(context: RunContext, key: SourceKey) -> AsyncIterator[None]:
    """Queue the claimed source again if the body of the `with` statement is cancelled.

    Then the attempt is not counted, the run is marked as interrupted, and CancelledError is raised again.
    Other exceptions are not handled. A source that another scan has taken over is left to that scan.
    """
    try:
        yield
    except asyncio.CancelledError:
        with suppress(OutdatedScanError):
            async with write_transaction(context, key) as (db, _):
                await scan_sources.release_source(db, key.account_id, key.scan_id, key.source)
        raise


async def finish_source(
    context: RunContext,
    key: SourceKey,
    gaps: Sequence[Gap],
    error: str | None,
    progress: dict[str, int] | None = None,
) -> None:
    """End a claimed source, as failed if there is an `error`; end its run too if this was the last source.

    `gaps`, `error` and the counters `progress` are stored with the source; if `progress` is None, the stored
    counters stay.
    """
    state = SourceState.FAILED if error else SourceState.DONE
    async with write_transaction(context, key) as (db, _):
        await scan_sources.finish_source(
            db,
            key.account_id,
            key.scan_id,
            key.source,
            state=state,
            progress=progress,
            gaps=gaps,
            error=error,
        )
        ended = await end_run(db, key.account_id, key.scan_id)
    if key.source != PLAN_SOURCE:
        metrics.count_source(state)
    if ended is not None:
        metrics.count_run(ended.type, ended.status)


async def end_run(
    db: Connection, account_id: int, scan_id: UUID, *, error: str | None = None
) -> scans.RunResult | None:
    """End a run and write its audit line, if all its sources have ended or there is an `error`.

    Return the result. With an `error` the run has failed; without one, the states of its sources decide. Do
    nothing and return None if a source is unfinished, or if the run has ended before.
    """
    moment = await current_time(db)
    if (ended := await scans.finish_run(db, account_id, scan_id, now=moment, error=error)) is None:
        return None
    outcome = "ok" if ended.status is ScanStatus.COMPLETED else "failed"
    detail: dict[str, int | str] = {"new": ended.new, "seen": ended.seen, "resolved": ended.resolved}
    if ended.error is not None:
        detail["error"] = ended.error
    line = audit.AuditLine(moment, ACTOR, "scan.finish", str(scan_id), outcome, detail)
    await audit.append(db, account_id, line)
    options = ended.pushed_options
    if ended.status is ScanStatus.COMPLETED and (options.get(PR_STATUS) or options.get(PR_COMMENT)):
        await enqueue_report(db, account_id, scan_id)
    return ended
