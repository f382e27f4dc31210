"""Scan one source of a run, from the claim to the end of the run."""

from dataclasses import replace
from uuid import UUID

from outcrop.domain.errors import OperatorError, OutcropError
from outcrop.domain.scan import Gap
from outcrop.domain.target import ENCRYPTED
from outcrop.lazy_logger import get_logger
from outcrop.limits import SOURCE_ATTEMPTS
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport
from outcrop.services.pipeline.discussion_source import scan_discussions
from outcrop.services.pipeline.fence import OutdatedScanError, hold_source
from outcrop.services.pipeline.git_source import scan_repository
from outcrop.services.pipeline.host_access import load_credential
from outcrop.services.pipeline.join_sources import claim_aliases, join_former_addresses
from outcrop.services.pipeline.plan import (
    TOO_MANY_ATTEMPTS,
    SourceClaim,
    claim_source,
    finish_source,
    release_if_cancelled,
)
from outcrop.services.pipeline.site_source import scan_site
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.resolve_target import ScanSource, source_from_json
from outcrop.store.db import UNAVAILABLE

log = get_logger()

_SCANS = {"site": scan_site, "discussions": scan_discussions}  # by kind of source


async def scan_source(context: RunContext, account_id: int, scan_id: UUID, source: str) -> None:
    """Scan one source of a run, record its findings, and end the run if this was its last source.

    Do nothing if the source or the run has ended already. Wait while another scan of the source is running.
    If another scan has taken the source over meanwhile, wait for that scan, then begin again. If this task is
    cancelled, the source is queued again. Raise what `_scan` raises.
    """
    while True:
        try:
            async with hold_source(context, account_id, scan_id, source) as key:
                await _claim_and_scan(context, key)
        except OutdatedScanError:
            log.warning("scan_outdated", scan=str(scan_id), source=source)
        else:
            return


async def _claim_and_scan(context: RunContext, key: SourceKey) -> None:
    """Claim a locked source, scan it, and save the result; do nothing if the source has ended."""
    if (claimed := await claim_source(context, key)) is None:
        return
    report = SourceReport()
    async with release_if_cancelled(context, key):
        error = await _scan(context, key, claimed, report)
        progress = report.progress | {"targets": 1}
        await finish_source(context, key, report.gaps, error, progress)


async def _scan(
    context: RunContext, key: SourceKey, claimed: SourceClaim, report: SourceReport
) -> str | None:
    """Scan a claimed source; return None, or the reason if that fails, which is also added to the gaps.

    An expected error is such a reason, and so is a source that was tried more than SOURCE_ATTEMPTS times. An
    unexpected exception is raised, so that the job is tried again; in the last attempt it is a reason too. A
    failure of the database is always raised.
    """
    source = source_from_json(claimed.spec)
    error = TOO_MANY_ATTEMPTS
    try:
        if claimed.attempts <= SOURCE_ATTEMPTS:
            token = await load_credential(context, key.account_id, claimed.run.target_id)
            source = _open_url(context, key, claimed, source)
            await claim_aliases(context, key, source)
            await join_former_addresses(context, key, source, token)
            await _SCANS.get(source.kind, scan_repository)(context, key, source, token, report)
            return None
    except (HostError, OutcropError) as failure:
        error = failure.message
    except (*UNAVAILABLE, OutdatedScanError):
        raise
    except Exception as failure:
        if claimed.attempts < SOURCE_ATTEMPTS:
            raise
        error = f"scanning failed ({type(failure).__name__})"  # the exception's text may contain a credential
    report.gaps.append(Gap(source.full_name or source.html_url or source.url, error))
    return error


def _open_url(context: RunContext, key: SourceKey, claimed: SourceClaim, source: ScanSource) -> ScanSource:
    """Return a source with its whole URL, which may be encrypted beside the run."""
    if not source.url.startswith(ENCRYPTED):
        return source
    box = claimed.run.url_box
    if box is None or key.source.startswith(ENCRYPTED):  # an older release has started or planned the run
        raise OperatorError("the run has no address: start it again, or add the target again")
    return replace(source, url=context.keys.open_url(box, key.account_id, key.scan_id))
