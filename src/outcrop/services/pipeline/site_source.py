"""Crawl a web site, record the secrets that it serves, and resolve those that it no longer serves.

1. Crawl the site, scan each response, and record the detected secrets in batches (`scan_site`).
2. Request the URL of each finding that was not detected again (`_recheck_undetected`).
3. Resolve the finding if the URL no longer serves its value (`_is_served`).
"""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from urllib.parse import unquote, urlsplit

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import OPEN_STATUSES, Confidence, SourceType, Visibility
from outcrop.domain.place import identity
from outcrop.domain.scan import Gap
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.sandbox import hand_over
from outcrop.scanner.engine.excerpt import excerpts_of_file
from outcrop.scanner.engine.masking import is_masked_in_paths
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.scan import scan_content
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport
from outcrop.services.pipeline.fence import release_gap, write_transaction
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.record import DetectedSecret, ScanCoverage, record_secrets
from outcrop.services.pipeline.score import rescore_absent
from outcrop.services.pipeline.stored.presence import contains_credential
from outcrop.services.pipeline.stored.transitions import count_as_seen, resolve_finding
from outcrop.services.pipeline.stored.values import open_path
from outcrop.sources.isolated.repository_job import RepositoryJob
from outcrop.sources.located import LocatedHit, applicable_hits, printable_path, too_many_findings
from outcrop.sources.resolve_target import ScanSource
from outcrop.sources.web.crawl import CrawlOptions, crawl
from outcrop.sources.web.git_folder import fetch_repository
from outcrop.sources.web.refetch import RefetchResult, refetch, refetch_client
from outcrop.sources.web.response_reader import Resource
from outcrop.sources.workspace import work_folder
from outcrop.store.findings import scores
from outcrop.store.runs import scan_sources, sources
from outcrop.store.runs.sources import SourceCheckpoint, StoredFinding

_SAVE_PROGRESS_EVERY = 2.0  # seconds
_GIT_HEAD = "/.git/HEAD"
_IN_GIT_FOLDER = "/.git!"  # part of the path of every finding inside an exposed git folder


@dataclass(slots=True)
class _SiteScan:
    """The state of one site's scan."""

    context: RunContext
    key: SourceKey
    source: ScanSource
    options: CrawlOptions
    report: SourceReport
    unrecorded: list[DetectedSecret] = field(default_factory=list)
    detected: set[bytes] = field(default_factory=set)  # identities of the recorded secrets' places
    origins: set[str] = field(default_factory=set)  # that have served a resource
    surplus: int = 0  # secrets beyond the limit of a source, which are only counted
    is_outdated: bool = False  # a higher release has scanned the site before
    pages: int = 0
    size: int = 0

    def add_gap(self, url: str, reason: str) -> None:
        """Add a gap to the report, with the credentials in its URL masked."""
        self.report.gaps.append(Gap(_mask_text(self.context.ruleset, url), reason))

    def add_secrets(self, secrets: list[DetectedSecret]) -> None:
        """Add detected secrets that `record` is to store; count those beyond the limit of a source."""
        room = max(0, self.context.source_limits.findings - len(self.detected) - len(self.unrecorded))
        self.unrecorded += secrets[:room]
        self.surplus += len(secrets[room:])

    async def record(self) -> None:
        """Store the secrets that were detected since the last call, and add their places to `detected`."""
        secrets, self.unrecorded = self.unrecorded, []
        coverage = ScanCoverage.OUTDATED if self.is_outdated else ScanCoverage.COMPLETE
        self.detected |= await record_secrets(self.context, self.key, secrets, coverage)


async def scan_site(
    context: RunContext, key: SourceKey, source: ScanSource, token: Secret | None, report: SourceReport
) -> None:
    """Crawl a site, record the secrets that it serves, and resolve the findings that are gone.

    `token` is the value of the Authorization header for the site, None for none. Progress and gaps are
    written to `report`. If not one page could be read, remove the first gap from `report` and raise an
    OperatorError with its reason.
    """
    headers = {} if token is None else {"Authorization": reveal(token)}
    options = CrawlOptions.from_target(
        source.url, source.options, source.include, source.exclude, headers, limits=context.limits.crawl
    )
    async with context.pool.connection() as db:
        saved = await sources.select_checkpoint(db, key.account_id, key.source)
    outdated = release_gap(context, key, saved)
    scan = _SiteScan(
        context, key, source, options, report, origins={key.source}, is_outdated=outdated is not None
    )
    last_saved = monotonic()
    # A generator that is not closed would go on sending requests after the run was cancelled.
    async with aclosing(crawl(context.http, options, scan.add_gap)) as resources:
        async for resource in resources:
            await _scan_resource(scan, resource)
            if len(scan.unrecorded) >= context.limits.site_batch_size:
                await scan.record()
            if monotonic() - last_saved > _SAVE_PROGRESS_EVERY:
                last_saved = monotonic()
                async with write_transaction(context, key) as (db, _):
                    await scan_sources.set_progress(
                        db, key.account_id, key.scan_id, key.source, report.progress
                    )
    await scan.record()
    if scan.surplus:
        report.gaps.append(Gap(key.source, too_many_findings(scan.surplus, context.source_limits.findings)))
    await _recheck_undetected(scan)
    if not scan.pages and report.gaps:
        # The first gap is the start page's; the caller adds it again, under the site's name.
        raise OperatorError(report.gaps.pop(0).why)
    if outdated is not None:
        report.gaps.append(outdated)
        return
    state = SourceCheckpoint(None, context.ruleset.version, (), key.scan_id, context.release)
    async with write_transaction(context, key) as (db, moment):
        await sources.save_checkpoint(db, key.account_id, key.source, state, now=moment)


# --- detecting


async def _scan_resource(scan: _SiteScan, resource: Resource) -> None:
    """Scan a response, and the git folder behind it if it is an exposed `.git/HEAD`.

    Add secrets, gaps and counters to `scan`; nothing is stored yet.
    """
    scan.origins.add(resource.origin)
    scan.pages += 1
    scan.size += len(resource.body)
    # The credential was sent to the site's own origin only, so other origins serve to everybody.
    is_own = resource.origin == scan.key.source
    visibility = scan.source.visibility if is_own else Visibility.PUBLIC
    secrets, gaps = await asyncio.to_thread(_detect, scan.context.ruleset, resource, visibility)
    scan.add_secrets(secrets)
    for reason in gaps:
        scan.add_gap(resource.url, reason)
    if resource.source_type is SourceType.ENDPOINT and resource.file_path.endswith(_GIT_HEAD):
        scan.add_secrets(await _scan_git_folder(scan, resource, visibility, is_own=is_own))
    scan.report.progress = {"pages": scan.pages, "bytes": scan.size}


def _detect(
    ruleset: RuleSet, resource: Resource, visibility: Visibility
) -> tuple[list[DetectedSecret], list[str]]:
    """Return the secrets in a response's body, and the reasons why parts of the body could not be read.

    `visibility` is stored with each secret. Credentials in its URL and its shown path are masked.
    """
    path = resource.path.encode("utf-8", "surrogateescape")
    content = scan_content(ruleset, resource.body, Confidence.MEDIUM)
    hits = applicable_hits(content, path)
    excerpts = excerpts_of_file(
        ruleset,
        resource.body,
        [(b"!" + inner.encode("utf-8", "surrogateescape"), hit) for inner, hit in hits],
    )
    values = [hit.secret for _, hit in hits if is_masked_in_paths(hit)]
    url = _mask_text(ruleset, resource.url, values) if hits else ""
    file_paths = {
        inner: _mask_text(ruleset, resource.file_path + (f"!{inner}" if inner else ""), values)
        for inner, _ in hits
    }
    return [
        DetectedSecret(
            hit=hit,
            path=path + (b"!" + inner.encode("utf-8", "surrogateescape") if inner else b""),
            source_type=resource.source_type,
            visibility=visibility,
            source_url=url,
            repo_full_name=None,
            file_path=file_paths[inner],
            line=hit.line,
            current_lines=hit.all_lines,
            source=resource.origin,
            media_type=resource.media_type,
            excerpt=excerpt,
        )
        for (inner, hit), excerpt in zip(hits, excerpts, strict=True)
    ], content.gaps


def _mask_text(ruleset: RuleSet, text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return a URL or path with `secrets` masked, and every other credential that the rules detect in it."""
    content = scan_content(ruleset, unquote(text).encode("utf-8", "surrogateescape"), Confidence.MEDIUM)
    detected = [hit.secret for _, hit in content.hits if is_masked_in_paths(hit)]
    return SecretMasker([*secrets, *detected], [text]).mask(text)


async def _scan_git_folder(
    scan: _SiteScan, resource: Resource, visibility: Visibility, *, is_own: bool
) -> list[DetectedSecret]:
    """Download the git folder of an exposed `.git/HEAD` and return the secrets in its history.

    Return [] if the folder cannot be downloaded or scanned. The site's credential is sent only if the folder
    `is_own`: on the site's own origin. Gaps are added to the report.
    """
    context, gaps = scan.context, scan.report.gaps
    headers = scan.options.headers if is_own else {}
    with work_folder(context.work) as folder:
        repository = await fetch_repository(context.http, resource.url, folder, headers=dict(headers))
        if repository is None:
            return []
        gaps += [Gap(resource.url, reason) for reason in repository.gaps]
        await asyncio.to_thread(hand_over, folder, context.owner)
        job = RepositoryJob(folder=repository.folder, processes=context.jobs)
        try:
            result = await context.process_pool.run(job, lambda *_: None)
        except OperatorError as error:  # a broken repository does not end the scan of the site
            gaps.append(Gap(resource.url, error.message))
            return []
    for where, reason in result.gaps:
        scan.add_gap(f"{resource.url}: {where}" if where else resource.url, reason)
    return [
        _git_folder_secret(context.ruleset, resource, visibility, located, located.path)
        for located in result.located
        if located.path is not None
    ]


def _git_folder_secret(
    ruleset: RuleSet, resource: Resource, visibility: Visibility, located: LocatedHit, path: bytes
) -> DetectedSecret:
    """Return a hit in an exposed git folder as a detected secret.

    `path` is its path in the repository. The path of the secret is the path of the git folder in the URL,
    `!`, and `path`, such as `/.git!src/a.py`.
    """
    base = urlsplit(resource.url).path.removesuffix("/HEAD") + "!"
    return DetectedSecret(
        hit=located.hit,
        path=base.encode() + path,
        source_type=SourceType.ENDPOINT,
        visibility=visibility,
        source_url=resource.url,
        repo_full_name=None,
        file_path=_mask_text(ruleset, base + printable_path(path)),
        line=located.hit.line,
        current_lines=located.current_lines,
        origin=located.origin,
        source=resource.origin,
        media_type=resource.media_type,
        excerpt=located.excerpt,
    )


# --- findings that the crawl did not detect again


async def _recheck_undetected(scan: _SiteScan) -> None:
    """Request the URL of each finding that the crawl did not detect; count it as seen or resolve it.

    A closed one keeps its state; its score loses the points of the last scan if it is no longer served.
    A finding that was public is requested without the site's credential, another one with it, or not at all
    if this run has no credential for its origin. If the response proves neither, the finding stays as it is.
    At the time limit, add a gap and stop.
    """
    context, key, options = scan.context, scan.key, scan.options
    anonymous = refetch_client(context.http, options, authenticated=False)
    authenticated = refetch_client(context.http, options, authenticated=True)
    deadline = monotonic() + options.seconds
    for origin in sorted(scan.origins):
        for (url, is_public), findings in (await _undetected_by_url(scan, origin)).items():
            if not is_public and not (options.headers and origin == key.source):
                continue  # it was seen with a credential that this run does not have
            if monotonic() > deadline:
                reason = f"time limit of {options.seconds:g} seconds reached: some findings were not checked"
                scan.report.gaps.append(Gap(origin, reason))
                return
            response = await refetch(anonymous if is_public else authenticated, url)
            for stored in findings:
                is_open = stored.finding.status in OPEN_STATUSES
                is_served = await _is_served(context, key, stored, response)
                if is_served and is_open:
                    await count_as_seen(context, key, [stored.finding.id])
                elif is_served is False and not scan.is_outdated:
                    if is_open:
                        await resolve_finding(context, key, stored.finding.id)
                    else:
                        await rescore_absent(context, key, [stored.finding.id])


async def _undetected_by_url(scan: _SiteScan, origin: str) -> dict[tuple[str, bool], list[StoredFinding]]:
    """Return findings of an origin that this run has not seen, by URL and whether they are public.

    These are the open findings, then the closed ones whose score says that the last scan saw them. A finding
    without a URL is left out, and so is one whose URL contains a credential: the stored URL is masked.
    """
    context, key = scan.context, scan.key
    async with context.pool.connection() as db:
        findings = await sources.select_findings(db, key.account_id, origin)
        closed = [s.finding.id for s in findings if s.finding.status not in OPEN_STATUSES]
        scored_as_seen = set(await scores.select_seen(db, key.account_id, closed))
    findings = [s for s in findings if s.finding.status in OPEN_STATUSES or s.finding.id in scored_as_seen]
    findings.sort(key=lambda stored: stored.finding.status not in OPEN_STATUSES)
    undetected: dict[tuple[str, bool], list[StoredFinding]] = {}
    for stored in findings:
        url = stored.finding.source_url
        if stored.last_scan_id == key.scan_id:
            continue
        if url is None or MASK in url:
            continue
        if identity(origin, _path_text(context, key, stored), stored.fingerprint) not in scan.detected:
            is_public = stored.finding.source_visibility is Visibility.PUBLIC
            undetected.setdefault((url, is_public), []).append(stored)
    return undetected


def _path_text(context: RunContext, key: SourceKey, stored: StoredFinding) -> str:
    """Return the unmasked path of a stored finding as text."""
    return open_path(context, key, stored).decode("utf-8", "surrogateescape")


async def _is_served(
    context: RunContext, key: SourceKey, stored: StoredFinding, response: RefetchResult
) -> bool | None:
    """Whether the finding's URL still serves its credential; None if the response does not show it.

    Status 404 and 410 mean False. The result is None after an error, for any other status than 200, for
    another media type than before, and for a finding in a git folder.
    """
    if response.error:
        return None
    if response.status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return False
    if response.status != HTTPStatus.OK or response.media_type != stored.media_type:
        return None
    if _IN_GIT_FOLDER in _path_text(context, key, stored):
        return None
    return await asyncio.to_thread(contains_credential, context, key, stored, response.body)
