"""One source of a run from its beginning to its end, once, however often its worker dies."""

import asyncio
from typing import Any
from uuid import UUID

from outcrop.domain.errors import OutcropError
from outcrop.domain.finding import Visibility
from outcrop.domain.scan import Gap, SourceState
from outcrop.services.pipeline.context import MAX_ATTEMPTS, RunContext, SourceKey, SourceReport, now
from outcrop.services.pipeline.git_source import scan_repository
from outcrop.services.pipeline.github_access import credential
from outcrop.services.pipeline.plan import end_run
from outcrop.services.pipeline.site_source import scan_site
from outcrop.sources.hosts.github_api import GitHubError
from outcrop.sources.resolve_target import ScanSource
from outcrop.store.db import UNAVAILABLE
from outcrop.store.runs import scans


async def scan_source(tools: RunContext, account_id: int, scan_id: UUID, source: str) -> None:
    """SourceReport at one source, record what is there, and end the run if it was the last."""
    key = SourceKey(account_id, scan_id, source)
    async with tools.pool.connection() as db, db.transaction():
        planned = await scans.start_run(db, account_id, scan_id, now=now())
        taken = await scans.claim_source(db, account_id, scan_id, source)
    if planned is None or taken is None:
        return
    try:
        look, error = await _look(tools, key, planned, taken)
        async with tools.pool.connection() as db, db.transaction():
            state = SourceState.FAILED if error else SourceState.DONE
            await scans.finish_source(
                db,
                account_id,
                scan_id,
                source,
                state=state,
                progress=look.progress | {"targets": 1},
                gaps=look.gaps,
                error=error,
            )
            await end_run(db, account_id, scan_id)
    except asyncio.CancelledError:
        async with tools.pool.connection() as db, db.transaction():
            await scans.release_source(db, account_id, scan_id, source)
        raise


async def _look(
    tools: RunContext, key: SourceKey, planned: scans.UnfinishedRun, taken: scans.ClaimedSource
) -> tuple[SourceReport, str | None]:
    """SourceReport at a source; give what there is to tell of it, and why it failed where it did."""
    look = SourceReport()
    found = _found(taken.spec)
    error = f"its worker has died {MAX_ATTEMPTS} times"
    try:
        if taken.tries <= MAX_ATTEMPTS:
            token = await credential(tools, key.account_id, planned.target_id)
            await (scan_site if found.kind == "site" else scan_repository)(tools, key, found, token, look)
            return look, None
    except (GitHubError, OutcropError) as failure:
        error = failure.message
    except UNAVAILABLE:
        raise
    except Exception as failure:
        if taken.tries < MAX_ATTEMPTS:
            raise
        error = (
            f"looking at it failed ({type(failure).__name__})"  # not its text, which could hold a credential
        )
    look.gaps.append(Gap(found.full_name or found.html_url or found.url, error))
    return look, error


def _found(raw: dict[str, Any]) -> ScanSource:
    lists = {"include": tuple(raw["include"]), "exclude": tuple(raw["exclude"])}
    return ScanSource(**{**raw, **lists, "visibility": Visibility(raw["visibility"])})
