"""A repository, a gist or a folder: what changed is brought here and read; what is gone from every ref is resolved."""

import asyncio
import hashlib
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import SourceType, Status
from outcrop.domain.place import identity, line_address
from outcrop.domain.scan import Gap
from outcrop.domain.secret import Secret, reveal
from outcrop.services.pipeline.context import RunContext, SourceKey, SourceReport, now, run_periodically
from outcrop.services.pipeline.github_access import github
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.record import (
    DetectedSecret,
    ScanCoverage,
    opened_path,
    record,
    reopen,
    resolve_gone,
)
from outcrop.sources.git.clone import Remote
from outcrop.sources.git.scan import Known
from outcrop.sources.git.scan import Standing as KnownPlace
from outcrop.sources.hosts.github import GitHub
from outcrop.sources.isolated.repository_job import JobResult, RepositoryJob
from outcrop.sources.located import LocatedHit, printable_path
from outcrop.sources.resolve_target import ScanSource
from outcrop.store.runs import scans, sources
from outcrop.store.runs.sources import SourceCheckpoint, StoredFinding

_OPEN = {Status.ACTIVE, Status.STALE}
# How git says that there is no such repository; some hosts ask for a name first.
_NOT_THERE = ("not found", "could not read Username", "unable to read askpass")
_TELL_EVERY = 2.0  # seconds between two looks that the database is told of


async def scan_repository(
    tools: RunContext, key: SourceKey, found: ScanSource, token: Secret | None, look: SourceReport
) -> None:
    """SourceReport at a repository from where the last whole look has left off."""
    async with tools.pool.connection() as db:
        read = await sources.select_checkpoint(db, key.account_id, key.source)
    rules = _looked_with(tools, found)
    before = read if read is not None and read.rules == rules else None  # what an equal look has left
    about, _, word = ((before and before.changed) or "").partition(" ")
    known_word = word if about == _about(found) else None
    if (
        before is not None
        and found.kind == "git"
        and found.changed is not None
        and found.changed == known_word
    ):
        await _unchanged(tools, key, before)
        return
    async with tools.pool.connection() as db:
        standing = await sources.select_findings(db, key.account_id, key.source)
    errand = RepositoryJob(
        remote=None if found.kind == "folder" else Remote(found.url, _login(tools, key, found, token)),
        folder=Path(found.url) if found.kind == "folder" else None,
        commit=found.commit,
        known_refs_digest=known_word if found.kind == "git" and found.changed is None else None,
        known=_known(tools, key, standing, before.tips if before is not None else ()),
        processes=tools.jobs,
    )
    try:
        brought = await _run(tools, key, errand, look)
    except OperatorError as error:
        if read is None and found.options.get("wiki") and any(words in error.message for words in _NOT_THERE):
            return  # every repository may have a wiki, and few do
        raise
    if brought.unchanged and before is not None:
        await _unchanged(tools, key, before)
        return
    sightings = [
        _sighting(one, found) for one in brought.located if one.path is not None and _wanted(one.path, found)
    ]
    extent = (
        ScanCoverage.COMMIT
        if found.kind == "commit"
        else ScanCoverage.WHOLE
        if brought.is_complete
        else ScanCoverage.PARTIAL
    )
    seen = await record(tools, key, sightings, extent)
    if not brought.is_complete:
        async with tools.pool.connection() as db, db.transaction():
            await sources.clear_change_marker(db, key.account_id, key.source)
    if found.kind == "commit":
        return  # one commit says nothing of what stands elsewhere
    await _judge(tools, key, found, token, _Looked(standing, brought, seen, same_rules=before is not None))
    if brought.is_complete:
        moment = now()
        changed = found.changed or brought.refs_digest
        left = SourceCheckpoint(changed and f"{_about(found)} {changed}", rules, brought.tips, key.scan_id)
        async with tools.pool.connection() as db, db.transaction():
            await sources.save_checkpoint(db, key.account_id, key.source, left, now=moment)


def _looked_with(tools: RunContext, found: ScanSource) -> str:
    """Name the rules, and which paths are looked at: what another look has left out is not known to be empty."""
    if not (found.include or found.exclude):
        return tools.ruleset.version
    return f"{tools.ruleset.version} {hashlib.sha256(repr((found.include, found.exclude)).encode()).hexdigest()[:16]}"


def _about(found: ScanSource) -> str:
    """Name what findings repeat of their source: a rename, or a change of who may see it, has to be told though nothing was pushed."""
    return hashlib.sha256(
        repr((found.full_name, found.html_url, str(found.visibility))).encode()
    ).hexdigest()[:16]


async def _unchanged(tools: RunContext, key: SourceKey, read: SourceCheckpoint) -> None:
    """Let this run have seen what the last one saw."""
    if read.scan_id is None or read.scan_id == key.scan_id:
        return
    async with tools.pool.connection() as db, db.transaction():
        moment = now()
        met = await sources.mark_unchanged_seen(
            db, key.account_id, key.source, last=read.scan_id, scan_id=key.scan_id, now=moment
        )
        await sources.save_checkpoint(
            db, key.account_id, key.source, replace(read, scan_id=key.scan_id), now=moment
        )
        await scans.add_counts(db, key.account_id, key.scan_id, key.source, seen=met)


def _login(
    tools: RunContext, key: SourceKey, found: ScanSource, token: Secret | None
) -> tuple[str, str] | None:
    """Give what a clone proves itself with: the target's own credential, or the operator's on the host that it is for."""
    if token is not None:
        name, colon, password = reveal(token).partition(":")
        return (name, password) if colon else ("x-access-token", name)
    host = github(tools, key, None)
    return (
        ("x-access-token", reveal(tools.github_token))
        if tools.github_token and host.is_own_host(found.url)
        else None
    )


def _known(
    tools: RunContext, key: SourceKey, standing: list[StoredFinding], tips: tuple[bytes, ...]
) -> Known:
    return Known(
        tips,
        tuple(KnownPlace(_path(tools, key, one), one.blobs, _value(tools, key, one)) for one in standing),
    )


def _path(tools: RunContext, key: SourceKey, one: StoredFinding) -> bytes:
    return opened_path(tools.keys, key.account_id, one.finding.id, one.path)


def _value(tools: RunContext, key: SourceKey, one: StoredFinding) -> str | None:
    return (
        None
        if one.box is None
        else reveal(tools.keys.open(one.box, key.account_id, one.finding.id, mask_all=True))
    )


async def _run(tools: RunContext, key: SourceKey, errand: RepositoryJob, look: SourceReport) -> JobResult:
    """Have the errand run; how far it has come is told while it runs."""
    told = asyncio.Event()

    def progress(blobs: int, size: int, commits: int) -> None:
        look.progress = {"blobs": blobs, "bytes": size, "commits": commits}
        told.set()

    last = 0.0

    async def tell() -> None:
        nonlocal last
        await told.wait()
        told.clear()
        if monotonic() - last > _TELL_EVERY:
            last = monotonic()
            async with tools.pool.connection() as db:
                await scans.set_progress(db, key.account_id, key.scan_id, key.source, look.progress)

    async with run_periodically(tell):
        brought = await tools.process_pool.run(errand, progress)
    look.progress = {"blobs": brought.blobs, "bytes": brought.size, "commits": brought.commits}
    masked = SecretMasker(
        (one.hit.secret for one in brought.located), (text for gap in brought.gaps for text in gap)
    )
    look.gaps += [
        Gap(f"{key.source}: {masked(where)}" if where else key.source, masked(why))
        for where, why in brought.gaps
    ]
    return brought


def _wanted(path: bytes, found: ScanSource) -> bool:
    text = printable_path(path)

    def matches(patterns: tuple[str, ...]) -> bool:
        return any(fnmatchcase(text, pattern) for pattern in patterns)

    return (not found.include or matches(found.include)) and not matches(found.exclude)


def _sighting(one: LocatedHit, found: ScanSource) -> DetectedSecret:
    path = one.path or b""
    commit = one.origin.commit if one.origin else None
    source_type = SourceType.GIST if found.gist else SourceType.REPO if one.at_tip else SourceType.COMMIT
    url: str | None = found.html_url or None
    if url and not found.gist and not found.options.get("wiki"):
        url = line_address(url, commit, path, one.hit.line, github=found.github)
    return DetectedSecret(
        hit=one.hit,
        path=path,
        source_type=source_type,
        visibility=found.visibility,
        source_url=url,
        repo_full_name=found.full_name,
        file_path=printable_path(path),
        line=one.hit.line,
        current_line=one.current_line,
        commit=commit,
        blobs=frozenset(one.blobs),
        excerpt=one.excerpt,
    )


@dataclass(frozen=True, slots=True)
class _Looked:
    standing: list[StoredFinding]
    brought: JobResult
    seen: set[bytes]
    same_rules: bool  # as those of the last look


async def _judge(
    tools: RunContext, key: SourceKey, found: ScanSource, token: Secret | None, looked: _Looked
) -> None:
    """Resolve what no ref reaches any more, by its value; what still stands though no rule tells of it has been seen."""
    gone: list[StoredFinding] = []
    there: list[StoredFinding] = []
    for one, still in zip(looked.standing, looked.brought.known_present, strict=True):
        path = _path(tools, key, one)
        if identity(
            key.source, path.decode("utf-8", "surrogateescape"), one.fingerprint
        ) in looked.seen or not _wanted(path, found):
            continue
        if still:
            there.append(one)
        elif one.box is not None or looked.same_rules:  # other rules may not tell of a value that is not kept
            gone.append(one)
    async with tools.pool.connection() as db, db.transaction():
        met = await sources.mark_seen(
            db, key.account_id, [one.finding.id for one in there], scan_id=key.scan_id, now=now()
        )
        await scans.add_counts(db, key.account_id, key.scan_id, key.source, seen=met)
    await reopen(tools, key, [one.finding.id for one in there if one.finding.status is Status.RESOLVED])
    # A clone on this machine may lack what the repository that it came from holds.
    if not looked.brought.is_complete or (found.kind == "folder" and found.html_url):
        return
    host = github(tools, key, token)
    dropped: dict[str | None, bool] = {}
    for one in gone:
        if one.finding.status not in _OPEN:
            continue
        if one.commit not in dropped:
            dropped[one.commit] = await _is_dropped(host, found, one.commit)
        if dropped[one.commit]:
            await resolve_gone(tools, key, [one.finding.id])


async def _is_dropped(host: GitHub, found: ScanSource, commit: str | None) -> bool:
    """Tell whether the host has dropped the commit too: GitHub serves commits that no ref reaches."""
    if not found.github or commit is None or found.full_name is None:
        return True
    return await host.commit_is_gone(found.full_name, commit) is True
