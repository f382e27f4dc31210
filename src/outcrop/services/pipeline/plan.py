"""A run is taken apart into its sources: repositories, gists, a site."""

import asyncio
from dataclasses import asdict
from typing import Any
from uuid import UUID

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.scan import Gap, ScanStatus, SourceState
from outcrop.domain.target import TargetKind, TargetSpec
from outcrop.services.pipeline.context import ACTOR, MAX_ATTEMPTS, RunContext, SourceKey, now
from outcrop.services.pipeline.enqueue import defer
from outcrop.services.pipeline.github_access import credential, github
from outcrop.sources.hosts.github_api import GitHubError
from outcrop.sources.resolve_target import ScanSource, resolve_target
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.runs import scans
from outcrop.store.runs.scans import PLAN_SOURCE

_AT_ONCE = 100


async def plan_run(tools: RunContext, account_id: int, scan_id: UUID, *, deferred: bool = True) -> list[str]:
    """Find the sources of a run and, with each, the job that looks at it. Give their names.

    A plan that was interrupted is made again: what is there already stays as it is.
    """
    key = SourceKey(account_id, scan_id, PLAN_SOURCE)
    async with tools.pool.connection() as db, db.transaction():
        planned = await scans.start_run(db, account_id, scan_id, now=now())
        taken = await scans.claim_source(db, account_id, scan_id, PLAN_SOURCE)
    if planned is None or taken is None:
        return []
    spec = _spec(planned.spec)
    gaps: list[Gap] = []
    names: list[str] = []
    batch: list[ScanSource] = []
    error: str | None = None
    try:
        if taken.tries > MAX_ATTEMPTS:
            raise OperatorError(f"its worker has died {MAX_ATTEMPTS} times")
        token = await credential(tools, account_id, planned.target_id)
        async for found in resolve_target(
            spec, github(tools, key, token), has_credential=token is not None, gaps=gaps
        ):
            batch.append(found)
            if len(batch) >= _AT_ONCE:
                names += await _add(tools, key, batch, deferred=deferred)
                batch = []
        names += await _add(tools, key, batch, deferred=deferred)
    except asyncio.CancelledError:
        async with tools.pool.connection() as db, db.transaction():
            await scans.release_source(db, account_id, scan_id, PLAN_SOURCE)
        raise
    except (GitHubError, OutcropError) as failure:  # what was found before is looked at; the rest is a gap
        error = failure.message
        gaps.append(Gap(spec.shown, error))
        names += await _add(tools, key, batch, deferred=deferred)
    async with tools.pool.connection() as db, db.transaction():
        state = SourceState.FAILED if error else SourceState.DONE
        await scans.finish_source(db, account_id, scan_id, PLAN_SOURCE, state=state, gaps=gaps, error=error)
        await end_run(db, account_id, scan_id)
    return names


async def end_run(db: Connection, account_id: int, scan_id: UUID, *, error: str | None = None) -> None:
    """End a run whose sources have all ended, with its audit line; one that goes on stays as it is."""
    moment = now()
    if (ended := await scans.finish_run(db, account_id, scan_id, now=moment, error=error)) is None:
        return
    outcome = "ok" if ended.status is ScanStatus.COMPLETED else "failed"
    detail = {"new": ended.new, "seen": ended.seen, "resolved": ended.resolved} | (
        {} if ended.error is None else {"error": ended.error}
    )
    await audit.append(
        db, account_id, audit.AuditLine(moment, ACTOR, "scan.finish", str(scan_id), outcome, detail)
    )


async def _add(tools: RunContext, key: SourceKey, batch: list[ScanSource], *, deferred: bool) -> list[str]:
    async with tools.pool.connection() as db, db.transaction():
        specs = [(found.source, asdict(found)) for found in batch]
        added = await scans.add_sources(db, key.account_id, key.scan_id, specs)
        for name in added if deferred else ():
            await defer(db, key.account_id, key.scan_id, name)
    return added


def _spec(raw: dict[str, Any]) -> TargetSpec:
    return TargetSpec(
        TargetKind(raw["kind"]), raw["name"], tuple(raw["include"]), tuple(raw["exclude"]), raw["options"]
    )
