"""Scan a repository, a gist or a folder, and resolve the findings that are gone from every ref.

`scan_repository` continues where the last complete scan with the same rules ended:

1. Stop if the host says that nothing was pushed since.
2. Clone and scan the new commits in a child process (`_run_job`).
3. Record the detected secrets (`record.record_secrets`).
4. Keep or resolve the stored findings that were not detected (`_keep_present`, `_resolve_gone`).
5. Save the tips of the refs for the next scan.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import OPEN_STATUSES, SourceType, Status
from outcrop.domain.place import identity
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.domain.target import is_included
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport, run_periodically
from outcrop.services.pipeline.fence import release_gap, write_transaction
from outcrop.services.pipeline.host_access import open_host_of
from outcrop.services.pipeline.join_sources import is_clone, join_former_addresses
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.record import DetectedSecret, ScanCoverage, record_secrets
from outcrop.services.pipeline.score import rescore_absent, rescore_seen
from outcrop.services.pipeline.stored.transitions import count_as_seen, reopen_finding, resolve_finding
from outcrop.services.pipeline.stored.values import open_path, open_value
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.code_host.registry import line_url
from outcrop.sources.git.clone import Remote
from outcrop.sources.git.known_secrets import EarlierScan, KnownSecret
from outcrop.sources.isolated.repository_job import JobResult, RepositoryJob
from outcrop.sources.located import LocatedHit, printable_path
from outcrop.sources.resolve_target import PUSHED, ScanSource
from outcrop.store.runs import scan_sources, sources
from outcrop.store.runs.sources import SourceCheckpoint, StoredFinding

# Git's messages if a repository does not exist; some hosts ask for a user name in that case.
_NOT_FOUND_MESSAGES = ("not found", "could not read Username", "unable to read askpass")
_SAVE_PROGRESS_EVERY = 2.0  # seconds


@dataclass(frozen=True, slots=True)
class _LastScan:
    """The saved state of a source's last complete scan, and whether this scan can continue it."""

    saved: SourceCheckpoint | None  # None before the first complete scan
    continued: SourceCheckpoint | None  # None if the rules or the path patterns are others now
    rules_id: str  # names the rules and path patterns of this scan
    marker: str | None  # the saved change marker; None if the source's name or visibility has changed since


@dataclass(frozen=True, slots=True)
class _StoredSecret:
    """A stored finding of the source, with its decrypted path and value."""

    finding: StoredFinding
    place: KnownSecret


async def scan_repository(
    context: RunContext, key: SourceKey, source: ScanSource, token: Secret | None, report: SourceReport
) -> None:
    """Scan a repository, gist, commit or folder, record its secrets, and resolve the findings that are gone.

    If nothing has changed since the last complete scan, only mark its findings as seen. After a complete
    scan, save where the next one continues; after an incomplete one, clear the change marker, so that the
    next one scans again. If a higher release made the last scan, do the same as after an incomplete one, and
    resolve nothing. `token` is the target's own credential, None if it has none. Progress and gaps are
    written to `report`. Raise OperatorError if the source cannot be read; a wiki that was never there is no
    error.
    """
    last = await _load_last_scan(context, key, source)
    if last.continued is not None and _is_unchanged(source, last):
        await _count_all_as_seen(context, key, last.continued)
        return
    stored = await _load_stored_secrets(context, key)
    job = _build_job(context, source, await _clone_login(context, key, source, token), last, stored)
    try:
        result = await _run_job(context, key, job, report, urgent=bool(source.options.get(PUSHED)))
    except OperatorError as error:
        if last.saved is None and _is_missing_wiki(source, error):
            return
        raise
    if result.unchanged and last.continued is not None:
        await _count_all_as_seen(context, key, last.continued)
        return
    secrets = _detected_secrets(source, result)
    if outdated := release_gap(context, key, last.saved):
        report.gaps.append(outdated)
    coverage = ScanCoverage.OUTDATED if outdated else _coverage(source, result)
    has_joined = await join_former_addresses(context, key, source, token, _shown_places(context, secrets))
    detected = await record_secrets(context, key, secrets, coverage)
    if outdated or not result.is_complete:
        async with write_transaction(context, key) as (db, _):
            await sources.clear_change_marker(db, key.account_id, key.source)
    if source.kind == "commit":
        return  # a single commit shows nothing about findings at other places
    present, absent = _split_undetected(key, source, stored, result, detected)
    await _keep_present(context, key, present)
    if _may_resolve(source, result, is_outdated=outdated is not None):
        await _resolve_gone(context, key, source, token, absent, same_rules=last.continued is not None)
        # Without a marker the next scan looks for the findings that have just moved here.
        await _save_scan(context, key, source, last.rules_id, result, has_marker=not has_joined)


def _shown_places(context: RunContext, secrets: Sequence[DetectedSecret]) -> list[tuple[bytes, str]]:
    """Return fingerprint and shown path of detected secrets."""
    return [(context.keys.compute_fingerprint(secret.hit.secret), secret.file_path) for secret in secrets]


def _may_resolve(source: ScanSource, result: JobResult, *, is_outdated: bool) -> bool:
    """Whether the scan shows what is gone, and the next scan can continue it.

    A clone on this machine may lack commits of the source, or have others.
    """
    return result.is_complete and not is_outdated and not is_clone(source)


# --- continuing the last scan


async def _load_last_scan(context: RunContext, key: SourceKey, source: ScanSource) -> _LastScan:
    """Load the state of the source's last complete scan, and compare it with this scan's rules and source.

    Nothing is continued before the first complete scan, or by a clone, whose commits are others.
    """
    if is_clone(source):
        return _LastScan(None, None, _rules_id(context, source), None)
    async with context.pool.connection() as db:
        saved = await sources.select_checkpoint(db, key.account_id, key.source)
    rules_id = _rules_id(context, source)
    continued = saved if saved is not None and saved.rules == rules_id else None
    description, _, marker = ((continued and continued.changed) or "").partition(" ")
    is_same = description == _description_digest(source)
    return _LastScan(saved, continued, rules_id, marker if is_same else None)


def _is_unchanged(source: ScanSource, last: _LastScan) -> bool:
    """Whether the host's change marker shows that nothing was pushed since the last scan.

    False without a marker, and for a commit, a folder or a repository that was pushed to.
    """
    if source.kind != "git" or source.options.get(PUSHED):
        return False
    return source.changed is not None and source.changed == last.marker


def _rules_id(context: RunContext, source: ScanSource) -> str:
    """Return a text that identifies the rules and the path patterns of a scan.

    A scan can continue the last one only if this text is the same: other rules or patterns may have skipped
    more files.
    """
    if not (source.include or source.exclude):
        return context.ruleset.version
    patterns = hashlib.sha256(repr((source.include, source.exclude)).encode()).hexdigest()[:16]
    return f"{context.ruleset.version} {patterns}"


def _description_digest(source: ScanSource) -> str:
    """Return a digest of the source's name, address and visibility, which its findings repeat.

    If one of them changes, the findings are written again even though nothing was pushed.
    """
    description = (source.full_name, source.html_url, str(source.visibility))
    return hashlib.sha256(repr(description).encode()).hexdigest()[:16]


async def _count_all_as_seen(context: RunContext, key: SourceKey, last: SourceCheckpoint) -> None:
    """Mark all findings that the last complete scan saw as seen by this run too, and add them to its counts.

    The checkpoint `last` is saved again with this run's id, unless `last` names no run or this run. Findings
    that the last complete scan saw and that are resolved automatically are reopened, since nothing can have
    removed their credentials.
    """
    if last.scan_id is None:
        return
    async with write_transaction(context, key) as (db, moment):
        resolved = await sources.select_auto_resolved(db, key.account_id, key.source, last=last.scan_id)
    for finding_id in resolved:
        await reopen_finding(context, key, finding_id)
    if last.scan_id == key.scan_id:
        return
    async with write_transaction(context, key) as (db, moment):
        seen = await sources.mark_unchanged_seen(
            db, key.account_id, key.source, last=last.scan_id, scan_id=key.scan_id, now=moment
        )
        await sources.save_checkpoint(
            db, key.account_id, key.source, replace(last, scan_id=key.scan_id), now=moment
        )
        await scan_sources.add_counts(db, key.account_id, key.scan_id, key.source, seen=seen)
    await rescore_seen(context, key)


async def _save_scan(
    context: RunContext,
    key: SourceKey,
    source: ScanSource,
    rules_id: str,
    result: JobResult,
    *,
    has_marker: bool,
) -> None:
    """Save the checkpoint of this scan, from which the next scan continues.

    It has a digest of the source's description with the host's change marker (or else the digest of the
    refs) if it `has_marker`, the rules, the tips, the id of the run and the release of this program.
    """
    marker = (source.changed or result.refs_digest) if has_marker else None
    changed = marker and f"{_description_digest(source)} {marker}"
    state = SourceCheckpoint(changed, rules_id, result.tips, key.scan_id, context.release)
    async with write_transaction(context, key) as (db, moment):
        await sources.save_checkpoint(db, key.account_id, key.source, state, now=moment)


# --- running the scan in a child process


async def _load_stored_secrets(context: RunContext, key: SourceKey) -> list[_StoredSecret]:
    """Load all findings of the source, closed ones too, with their decrypted paths and values.

    The value is None if the credential is not stored.
    """
    async with context.pool.connection() as db:
        findings = await sources.select_findings(db, key.account_id, key.source)
    return [
        _StoredSecret(
            finding,
            KnownSecret(open_path(context, key, finding), finding.blobs, open_value(context, key, finding)),
        )
        for finding in findings
    ]


def _build_job(
    context: RunContext,
    source: ScanSource,
    login: tuple[str, str] | None,
    last: _LastScan,
    stored: Sequence[_StoredSecret],
) -> RepositoryJob:
    """Return the job that clones and scans the source, beginning where the last scan ended.

    `login` is user name and password for the clone, or None. The job also checks whether the values of the
    `stored` findings are still present.
    """
    is_folder = source.kind == "folder"
    # The host has no change marker for this source, so the refs themselves are compared.
    compares_refs = source.kind == "git" and source.changed is None
    tips = () if last.continued is None else last.continued.tips
    return RepositoryJob(
        remote=None if is_folder else Remote(source.url, login),
        folder=Path(source.url) if is_folder else None,
        commit=source.commit,
        known_refs_digest=last.marker if compares_refs else None,
        known=EarlierScan(tips, tuple(secret.place for secret in stored)),
        had_refs=last.saved is not None and bool(last.saved.tips),
        processes=context.jobs,
    )


async def _clone_login(
    context: RunContext, key: SourceKey, source: ScanSource, token: Secret | None
) -> tuple[str, str] | None:
    """Return user name and password for a clone, None for a clone without a login.

    Both are from the target's own credential `token`. If that is None, they are from the operator's GitHub
    token, but only for a source on the host of that token. A credential without a colon is a token. A source
    of a host whose API lists it gets its login from the host, and only if it is cloned from that host.
    """
    if source.host is not None:
        host = open_host_of(context, key, source, token)
        return await host.login() if host.is_own_host(source.url) else None
    is_app = token is not None and reveal(token).startswith("{")
    if token is not None and not is_app:
        name, colon, password = reveal(token).partition(":")
        return (name, password) if colon else ("x-access-token", name)
    host = open_host_of(context, key, source, token)
    has_token = is_app or context.github_token is not None
    return await host.login() if has_token and host.is_own_host(source.url) else None


async def _run_job(
    context: RunContext, key: SourceKey, job: RepositoryJob, report: SourceReport, *, urgent: bool
) -> JobResult:
    """Run the job in a child process and return its result; raise OperatorError if the job fails.

    Progress is written to `report` and, meanwhile, to the database. The job's gaps are added to `report`,
    with the detected secrets masked.
    """
    has_progress = asyncio.Event()
    last_saved = 0.0

    def on_progress(blobs: int, size: int, commits: int) -> None:
        """Store the counters in the report and wake `save_progress`."""
        report.progress = {"blobs": blobs, "bytes": size, "commits": commits}
        has_progress.set()

    async def save_progress() -> None:
        """Wait for new counters; write them to the database unless that was done a moment ago.

        The interval is _SAVE_PROGRESS_EVERY seconds.
        """
        nonlocal last_saved
        await has_progress.wait()
        has_progress.clear()
        if monotonic() - last_saved > _SAVE_PROGRESS_EVERY:
            last_saved = monotonic()
            async with write_transaction(context, key) as (db, _):
                await scan_sources.set_progress(db, key.account_id, key.scan_id, key.source, report.progress)

    async with run_periodically(save_progress):
        result = await context.process_pool.run(job, on_progress, urgent=urgent)
    report.progress = {"blobs": result.blobs, "bytes": result.size, "commits": result.commits}
    masker = SecretMasker(
        (hit.hit.secret for hit in result.located), (text for gap in result.gaps for text in gap)
    )
    report.gaps += [
        Gap(f"{key.source}: {masker.mask(where)}" if where else key.source, masker.mask(why))
        for where, why in result.gaps
    ]
    return result


def _is_missing_wiki(source: ScanSource, error: OperatorError) -> bool:
    """Whether the source is a wiki, and `error` has git's message that the wiki does not exist.

    GitHub announces a wiki for every repository.
    """
    return bool(source.options.get("wiki")) and any(
        message in error.message for message in _NOT_FOUND_MESSAGES
    )


# --- the result


def _coverage(source: ScanSource, result: JobResult) -> ScanCoverage:
    """Return how much of the source the scan has read.

    SINGLE_COMMIT if the source is a commit, else COMPLETE or PARTIAL as the result says.
    """
    if source.kind == "commit":
        return ScanCoverage.SINGLE_COMMIT
    return ScanCoverage.COMPLETE if result.is_complete and not is_clone(source) else ScanCoverage.PARTIAL


def _detected_secrets(source: ScanSource, result: JobResult) -> list[DetectedSecret]:
    """Return the hits of a scan as detected secrets; skip those whose path is unknown or not included."""
    return [
        _detected_secret(source, located, located.path)
        for located in result.located
        if located.path is not None and _is_included(located.path, source)
    ]


def _detected_secret(source: ScanSource, located: LocatedHit, path: bytes) -> DetectedSecret:
    """Return the hit at `path` as a detected secret, with its place as findings show it.

    The place is its type, its URL (None if the source has no web address) and the name of the repository.
    """
    commit = located.origin.commit if located.origin else None
    git_type = SourceType.REPO if located.at_tip else SourceType.COMMIT
    url: str | None = source.html_url or None
    if url and not source.gist and not source.options.get("wiki"):
        url = line_url(source.host_name, url, commit, path, located.hit.line)
    return DetectedSecret(
        hit=located.hit,
        path=path,
        source_type=SourceType.GIST if source.gist else git_type,
        visibility=source.visibility,
        source_url=url,
        repo_full_name=source.full_name,
        file_path=printable_path(path),
        line=located.hit.line,
        current_lines=located.current_lines,
        origin=located.origin,
        blobs=frozenset(located.blobs),
        excerpt=located.excerpt,
    )


def _is_included(path: bytes, source: ScanSource) -> bool:
    """Whether the target's patterns include the path and do not exclude it.

    Without include patterns, all paths are included.
    """
    return is_included(source.include, source.exclude, printable_path(path))


def _split_undetected(
    key: SourceKey,
    source: ScanSource,
    stored: Sequence[_StoredSecret],
    result: JobResult,
    detected: set[bytes],
) -> tuple[list[StoredFinding], list[StoredFinding]]:
    """Return the `stored` findings that the scan did not detect, in two lists: present and absent.

    The values of the present findings are still in a ref, or that is unknown. `detected` has the identities
    of the detected places. Findings at paths that the target does not include are in neither list. A value
    can be present and undetected if the rules have changed.
    """
    present: list[StoredFinding] = []
    absent: list[StoredFinding] = []
    for secret, is_present in zip(stored, result.known_present, strict=True):
        path = secret.place.path.decode("utf-8", "surrogateescape")
        place = identity(key.source, path, secret.finding.fingerprint)
        if place not in detected and _is_included(secret.place.path, source):
            (present if is_present else absent).append(secret.finding)
    return present, absent


async def _keep_present(context: RunContext, key: SourceKey, present: Sequence[StoredFinding]) -> None:
    """Mark findings whose value is still in a ref as seen; reopen those that a scan had resolved."""
    await count_as_seen(context, key, [stored.finding.id for stored in present])
    for stored in present:
        if stored.finding.status is Status.RESOLVED:
            await reopen_finding(context, key, stored.finding.id)


async def _resolve_gone(
    context: RunContext,
    key: SourceKey,
    source: ScanSource,
    token: Secret | None,
    absent: Sequence[StoredFinding],
    *,
    same_rules: bool,
) -> None:
    """Resolve those of the `absent` findings that are open and whose commit the code host no longer serves.

    No ref holds the value of an absent finding; without a host's API that is enough. If the value is not
    stored, that is certain only if the last scan had the same rules (`same_rules`): other findings without a
    value are kept. The scores of all lose the points of the last scan. `token` is the target's credential. Do
    nothing for a local clone of a remote repository.
    """
    if source.kind == "folder" and source.html_url:
        return  # a local clone may lack commits of the repository that it was cloned from
    await rescore_absent(context, key, [stored.finding.id for stored in absent])
    host = open_host_of(context, key, source, token)
    is_deleted: dict[str | None, bool] = {}  # by commit
    for stored in absent:
        if stored.finding.status not in OPEN_STATUSES or not (stored.box is not None or same_rules):
            continue
        if stored.box is None and stored.last_scan_id is None:
            continue  # only a report has seen it, and its value is not known
        commit = stored.finding.commit
        if commit not in is_deleted:
            is_deleted[commit] = await _is_commit_deleted(host, source, commit)
        if is_deleted[commit]:
            await resolve_finding(context, key, stored.finding.id)


async def _is_commit_deleted(host: CodeHost, source: ScanSource, commit: str | None) -> bool:
    """Whether the code host no longer serves a commit; True without a host's API, or if it is unknown.

    Hosts also serve commits that no ref reaches. False if the host does not answer clearly.
    """
    if commit is None or source.host_repository is None:
        return True
    return await host.commit_is_gone(source.host_repository, commit) is True
