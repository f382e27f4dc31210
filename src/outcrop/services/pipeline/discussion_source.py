"""Scan the issues, merge or pull requests and comments of a repository, and resolve findings that are gone.

1. List those that were edited since the last complete scan, or all, and record their secrets.
2. Ask the host for the present text of each finding that was not detected again (`_recheck_undetected`).
3. Resolve the finding if the host no longer has the text, or the text no longer has the credential.
"""

import asyncio
import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import OPEN_STATUSES, Confidence, SourceType, Visibility
from outcrop.domain.place import identity
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret
from outcrop.limits import DISCUSSION_CHECKS, DISCUSSION_TEXTS
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.scan import scan_content
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport
from outcrop.services.pipeline.fence import release_gap, write_transaction
from outcrop.services.pipeline.host_access import open_host_of
from outcrop.services.pipeline.record import DetectedSecret, ScanCoverage, record_secrets
from outcrop.services.pipeline.score import rescore_absent
from outcrop.services.pipeline.stored.presence import contains_credential
from outcrop.services.pipeline.stored.transitions import count_as_seen, resolve_finding
from outcrop.services.pipeline.stored.values import open_path
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.hosted import HostedText
from outcrop.sources.located import CommitInfo, applicable_hits, too_many_findings
from outcrop.sources.resolve_target import DISCUSSIONS, ScanSource
from outcrop.store.findings import scores
from outcrop.store.runs import scan_sources, sources
from outcrop.store.runs.sources import SourceCheckpoint, StoredFinding

_SAVE_PROGRESS_EVERY = 2.0  # seconds
_OVERLAP = timedelta(hours=1)  # by which the clocks of host and database may differ


@dataclass(slots=True)
class _DiscussionScan:
    """The state of the scan of one repository's discussions."""

    context: RunContext
    key: SourceKey
    source: ScanSource
    host: CodeHost
    repository: str  # its name for requests to the host
    report: SourceReport
    is_outdated: bool  # a higher release has scanned the source before
    deadline: float
    unrecorded: list[DetectedSecret] = field(default_factory=list)
    detected: set[bytes] = field(default_factory=set)  # identities of the recorded secrets' places
    surplus: int = 0  # secrets beyond the limit of a source, which are only counted
    texts: int = 0
    size: int = 0

    async def record(self) -> None:
        """Store the secrets that were detected since the last call, and save the progress."""
        found, self.unrecorded = self.unrecorded, []
        coverage = ScanCoverage.OUTDATED if self.is_outdated else ScanCoverage.COMPLETE
        self.detected |= await record_secrets(self.context, self.key, found, coverage)
        self.report.progress = {"texts": self.texts, "bytes": self.size}
        async with write_transaction(self.context, self.key) as (db, _):
            await scan_sources.set_progress(
                db, self.key.account_id, self.key.scan_id, self.key.source, self.report.progress
            )


async def scan_discussions(
    context: RunContext, key: SourceKey, source: ScanSource, token: Secret | None, report: SourceReport
) -> None:
    """Scan what people have written, record its secrets, and resolve the findings that are gone.

    After a list that ended early, nothing is resolved and the next scan begins where this one began. Progress
    and gaps are written to `report`. Raise HostError or OperatorError if nothing could be read.
    """
    host = open_host_of(context, key, source, token, on_gap=report.gaps.append)
    async with context.pool.connection() as db:
        saved = await sources.select_checkpoint(db, key.account_id, key.source)
    outdated = release_gap(context, key, saved)
    scan = _DiscussionScan(
        *(context, key, source, host, source.host_repository or "", report),
        is_outdated=outdated is not None,
        deadline=monotonic() + context.source_limits.seconds,
    )
    await _check_repository(scan, has_credential=token is not None)
    rules = _rules_id(context, source)
    is_whole = await _scan_texts(scan, _since(saved) if saved and saved.rules == rules else None)
    if not is_whole:
        return
    has_listed_all = not report.gaps
    await _check_repository(scan, has_credential=token is not None)
    await _recheck_undetected(scan)
    if outdated is not None:
        report.gaps.append(outdated)
    elif has_listed_all and key.started_at is not None:
        changed = (key.started_at - _OVERLAP).astimezone(UTC).isoformat()
        state = SourceCheckpoint(changed, rules, (), key.scan_id, context.release)
        async with write_transaction(context, key) as (db, moment):
            await sources.save_checkpoint(db, key.account_id, key.source, state, now=moment)


async def _check_repository(scan: _DiscussionScan, *, has_credential: bool) -> None:
    """Raise OperatorError unless the name still means the same repository, which may be scanned."""
    repository = await scan.host.repository(scan.source.full_name or "")
    if f"{scan.host.source_of(repository)}{DISCUSSIONS}" != scan.key.source:
        raise OperatorError("another repository has the name now: the next run scans it")
    if repository.visibility is not Visibility.PUBLIC and not has_credential:
        raise OperatorError("is not public: the target needs a credential of its own")


def _rules_id(context: RunContext, source: ScanSource) -> str:
    """Return a text that names the rules and what findings repeat of the repository.

    If it changes, everything is listed again.
    """
    description = (source.full_name, source.html_url, str(source.visibility))
    return f"{context.ruleset.version} {hashlib.sha256(repr(description).encode()).hexdigest()[:16]}"


def _since(saved: SourceCheckpoint) -> datetime | None:
    """Return the time after which texts must have been edited to be listed; None for all."""
    try:
        return None if saved.changed is None else datetime.fromisoformat(saved.changed)
    except ValueError:
        return None


# --- detecting


async def _scan_texts(scan: _DiscussionScan, since: datetime | None) -> bool:
    """List the texts, and record their secrets; return whether the list ended as it should.

    An error after the first text and a limit are gaps.
    """
    context, limit = scan.context, scan.context.source_limits.findings
    last_saved = monotonic()
    reason: str | None = None
    try:
        async for text in scan.host.discussions(scan.repository, since):
            if scan.texts == DISCUSSION_TEXTS or monotonic() > scan.deadline:
                reason = f"stopped after {scan.texts:,} issues and comments"
                break
            scan.texts += 1
            await _scan_text(scan, text)
            is_due = monotonic() - last_saved > _SAVE_PROGRESS_EVERY
            if is_due or len(scan.unrecorded) >= context.limits.site_batch_size:
                last_saved = monotonic()
                await scan.record()
    except HostError as error:
        if scan.texts == 0:
            raise
        reason = error.message
    await scan.record()
    if scan.surplus:
        scan.report.gaps.append(Gap(scan.key.source, too_many_findings(scan.surplus, limit)))
    if reason is not None:
        scan.report.gaps.append(Gap(scan.source.html_url, reason))
    return reason is None


async def _scan_text(scan: _DiscussionScan, text: HostedText) -> None:
    """Add the secrets and gaps of one text to the scan; nothing is stored yet."""
    body = text.text.encode("utf-8", "surrogateescape")
    scan.size += len(body)
    secrets, gaps = await asyncio.to_thread(_detect, scan, text, body)
    room = max(0, scan.context.source_limits.findings - len(scan.detected) - len(scan.unrecorded))
    scan.unrecorded += secrets[:room]
    scan.surplus += len(secrets[room:])
    scan.report.gaps += [Gap(f"{scan.key.source}: {text.path}", reason) for reason in gaps]


def _detect(scan: _DiscussionScan, text: HostedText, body: bytes) -> tuple[list[DetectedSecret], list[str]]:
    """Return the secrets in a text, and the reasons why parts of it could not be read."""
    ruleset, path = scan.context.ruleset, text.path.encode()
    content = scan_content(ruleset, body, Confidence.MEDIUM)
    hits = applicable_hits(content, path)
    excerpts = excerpts_of_file(ruleset, body, [(b"!" + inner.encode(), hit) for inner, hit in hits])
    at = None if text.created_at is None else int(text.created_at.timestamp())
    return [
        DetectedSecret(
            hit=hit,
            path=path,
            source_type=SourceType.ENDPOINT,
            visibility=scan.source.visibility,
            source_url=text.html_url,
            repo_full_name=scan.source.full_name,
            file_path=text.path,
            line=hit.line,
            current_lines=hit.all_lines,
            origin=CommitInfo("", text.author, at),
            excerpt=excerpt,
        )
        for (_, hit), excerpt in zip(hits, excerpts, strict=True)
    ], content.gaps


# --- findings that the list did not show again


async def _recheck_undetected(scan: _DiscussionScan) -> None:
    """Ask for the text of each finding that was not detected; count it as seen or resolve it.

    If the host's answer is not clear, the finding stays as it is, and there is a gap. After the first
    error the others are not asked for.
    """
    context, key, gaps = scan.context, scan.key, scan.report.gaps
    undetected = await _undetected_by_path(scan)
    for number, (path, findings) in enumerate(undetected.items()):
        if number == DISCUSSION_CHECKS or monotonic() > scan.deadline:
            left = len(undetected) - number
            gaps.append(Gap(key.source, f"{left:,} issues and comments with findings were not checked"))
            return
        try:
            text = await scan.host.discussion_text(scan.repository, path)
        except HostError as error:
            gaps.append(Gap(f"{key.source}: {path}", error.message))
            if error.kind in {"limited", "unavailable", "unauthorised"}:
                return
            continue
        body = None if text is None else text.encode("utf-8", "surrogateescape")
        for stored in findings:
            is_open = stored.finding.status in OPEN_STATUSES
            is_there: bool | None = False
            if body is not None:
                is_there = await asyncio.to_thread(contains_credential, context, key, stored, body)
            if is_there and is_open:
                await count_as_seen(context, key, [stored.finding.id])
            elif is_there is False and not scan.is_outdated:
                if is_open:
                    await resolve_finding(context, key, stored.finding.id)
                else:
                    await rescore_absent(context, key, [stored.finding.id])


async def _undetected_by_path(scan: _DiscussionScan) -> dict[str, list[StoredFinding]]:
    """Return the findings that this run has not seen, by path: the open ones first.

    Closed ones are returned if their score says that the last scan saw them.
    """
    context, key = scan.context, scan.key
    async with context.pool.connection() as db:
        found = await sources.select_findings(db, key.account_id, key.source)
        closed = [stored.finding.id for stored in found if stored.finding.status not in OPEN_STATUSES]
        scored_as_seen = set(await scores.select_seen(db, key.account_id, closed))
    found.sort(key=lambda stored: stored.finding.status not in OPEN_STATUSES)
    undetected: dict[str, list[StoredFinding]] = {}
    for stored in found:
        is_wanted = stored.finding.status in OPEN_STATUSES or stored.finding.id in scored_as_seen
        path = open_path(context, key, stored).decode("utf-8", "surrogateescape")
        is_detected = identity(key.source, path, stored.fingerprint) in scan.detected
        if is_wanted and stored.last_scan_id != key.scan_id and not is_detected:
            undetected.setdefault(path, []).append(stored)
    return undetected
