"""Report the result of a push's run to the pull requests that were pushed to.

A report has the number of credentials and a link to the portal, never a value. A failure of the host is
logged, and changes nothing about the run.
"""

from collections.abc import Sequence
from uuid import UUID

from outcrop.domain.errors import OutcropError
from outcrop.domain.secret import Secret
from outcrop.domain.target import PR_COMMENT, PR_STATUS
from outcrop.lazy_logger import get_logger
from outcrop.limits import PULL_REQUEST_COMMITS
from outcrop.services.pipeline.context import RunContext, SourceKey
from outcrop.services.pipeline.host_access import load_credential, open_host_of
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.reviews import CommitStatus
from outcrop.sources.resolve_target import ScanSource, source_from_json
from outcrop.store.db import Pool
from outcrop.store.runs import pull_requests
from outcrop.store.runs.pull_requests import PushedRun

_KEPT_DAYS = 180

log = get_logger()


async def report_to_pull_requests(context: RunContext, account_id: int, scan_id: UUID) -> None:
    """Set the statuses and add the comments that the target of a push's run asks for."""
    async with context.pool.connection() as db:
        run = await pull_requests.select_run(db, account_id, scan_id)
    if run is None:
        return
    token = await load_credential(context, account_id, run.target_id)
    source = source_from_json(run.source)
    key = SourceKey(account_id, scan_id, source.source)
    if token is None or context.base_url is None:
        missing = "credential of the target" if token is None else "OUTCROP_BASE_URL"
        log.warning("pull_request_not_marked", scan=str(scan_id), missing=missing)
        return
    try:
        await _report(context, key, run, source, token)
    except (HostError, OutcropError) as error:
        log.warning("pull_request_not_marked", scan=str(scan_id), error=error.message)


async def _report(
    context: RunContext, key: SourceKey, run: PushedRun, source: ScanSource, token: Secret
) -> None:
    """Mark the open pull requests of each commit that a push ended at."""
    repository = source.host_repository
    if source.host_name is None or repository is None:
        return
    reviews = await open_host_of(context, key, source, token).reviews(repository)
    if reviews is None:
        return
    options = run.spec.get("options", {})
    for head in run.heads:
        for number in await reviews.find_open(head):
            found, commented = await _count(context, key, number, [*await reviews.commits_of(number), head])
            url = f"{context.base_url}/scans/{key.scan_id}"
            if options.get(PR_STATUS):
                await reviews.set_status(head, CommitStatus(found == 0, describe(found), url))
            if options.get(PR_COMMENT) and found > commented:
                await reviews.add_comment(number, _comment(found, url))
                async with context.pool.connection() as db:
                    await pull_requests.save_comment(
                        db, key.account_id, key.source, number, credentials=found
                    )


async def _count(context: RunContext, key: SourceKey, number: int, commits: Sequence[str]) -> tuple[int, int]:
    """Return the credentials in the commits that a pull request has or had, and those of the last comment."""
    async with context.pool.connection() as db, db.transaction():
        known, commented = await pull_requests.save_commits(
            db, key.account_id, key.source, number, commits, most=PULL_REQUEST_COMMITS
        )
        found = await pull_requests.count_credentials(db, key.account_id, key.source, known)
    return found, commented


def describe(found: int) -> str:
    """Return the text of a status."""
    return f"{found or 'no'} credential{'' if found == 1 else 's'} found"


def _comment(found: int, url: str) -> str:
    """Return the text of a comment."""
    text = f"Outcrop: {describe(found)} in the commits of this pull request. [Show the run]({url})."
    return f"{text}\n\nRevoke them: a commit that removes them leaves them in the history."


async def forget_old_pull_requests(pool: Pool) -> int:
    """Forget the pull requests that were not marked for a long time; return how many."""
    async with pool.connection() as db:
        return await pull_requests.delete_old(db, days=_KEPT_DAYS)
