"""Keep one source for one repository, and merge sources that turn out to be the same.

A run of a code host names its source by the host's numeric id; a report and a folder name it by an address.
The aliases of a source lead from each address to it. If a numbered source is scanned and an address of it
belongs to a source without a number, the latter's findings move to the former (`claim_aliases`). An address
that only a report has named may be a former one of the source: its host is asked (`join_former_addresses`).
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from outcrop.domain.errors import BadInputError, OperatorError
from outcrop.domain.finding import OPEN_STATUSES, Finding, Validation
from outcrop.domain.place import SEALED_PATH, identity
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_logger import get_logger
from outcrop.limits import FORMER_ADDRESSES
from outcrop.services.pipeline.context import ACTOR, RunContext, SourceKey
from outcrop.services.pipeline.fence import write_transaction
from outcrop.services.pipeline.host_access import open_host_of
from outcrop.services.pipeline.stored.values import open_path
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.host import CodeHost
from outcrop.sources.repository_address import normalise_repository
from outcrop.sources.resolve_target import ScanSource
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings.record import FindingRecord
from outcrop.store.runs import source_locks, source_names, sources
from outcrop.store.runs.source_names import FindingBoxes
from outcrop.store.runs.sources import StoredFinding

_POLL_SECONDS = 0.5  # between two tries to lock a source that another scan holds
_JOINED = "joined"  # option of a folder that is a clone of a source with another name

log = get_logger()


def list_addresses(source: ScanSource) -> list[str]:
    """Return the normalised addresses of a repository, gist or folder; none for a site or discussions.

    Of a self-hosted instance only addresses at it count: otherwise it could take over what was found at
    another host, by giving its addresses.
    """
    if source.kind in {"site", "discussions"}:
        return []
    texts = [source.source] if source.kind == "folder" else [source.url]
    if not source.options.get("wiki"):  # its page is one of the repository's
        texts.append(source.html_url)
    normal = dict.fromkeys(normalise_repository(text) for text in texts)
    host = None if source.host_url is None else urlsplit(source.host_url).netloc.lower()
    return [
        address
        for address in normal
        if address is not None and (host is None or urlsplit(address).netloc in {host, f"gist.{host}"})
    ]


def is_numbered(source: ScanSource) -> bool:
    """Whether the host named the source by an id that outlives a rename."""
    return source.kind in {"git", "commit"} and not source.source.startswith(("https://", "http://", "file:"))


async def identify_sources(db: Connection, account_id: int, found: list[ScanSource]) -> list[ScanSource]:
    """Return the sources of a plan with the names under which they are stored; new ones are added.

    A source that its host did not number has the name of the one with the same address.
    """
    addresses = {address for source in found for address in list_addresses(source)}
    known = await source_names.resolve_aliases(db, account_id, addresses)
    named = []
    for source in found:
        own = list_addresses(source)
        name = source.source
        if own and not is_numbered(source):
            name = next((known[address] for address in own if address in known), name)
        if own:
            await source_names.add_sources(db, account_id, [name], is_numbered=is_numbered(source))
            await source_names.add_aliases(db, account_id, [(address, name) for address in own])
        is_clone = source.kind == "folder" and name != source.source
        options: dict[str, Any] = source.options | ({_JOINED: True} if is_clone else {})
        named.append(replace(source, source=name, options=options))
    return named


def is_clone(source: ScanSource) -> bool:
    """Whether a folder is a clone of a source that is stored under another name.

    It may lack commits of that source, and have others.
    """
    return bool(source.options.get(_JOINED))


async def join_former_addresses(
    context: RunContext,
    key: SourceKey,
    source: ScanSource,
    token: Secret | None,
    detected: Sequence[tuple[bytes, str]] = (),
) -> bool:
    """Merge sources that only reports have named, at former addresses of a repository; return if any was.

    The repository's host is asked about addresses at it whose findings are also those of the repository:
    the same credential at the same path. `detected` are pairs of fingerprint and path that a scan found and
    that are not stored yet. `token` is the target's credential. An address that the host does not answer for
    stays a source of its own.
    """
    if not is_numbered(source) or source.host_repository is None or source.gist or source.options.get("wiki"):
        return False
    origins = {f"https://{urlsplit(address).netloc}/" for address in list_addresses(source)}
    async with context.pool.connection() as db:
        if not await source_names.has_unnumbered(db, key.account_id, origins):
            return False
        places = [*await source_names.select_places(db, key.account_id, key.source), *detected]
        candidates = await source_names.select_sharing(db, key.account_id, origins, places)
    host = open_host_of(context, key, source, token)
    former = [
        address
        for address in candidates[:FORMER_ADDRESSES]
        if await _is_repository(host, address, key.source)
    ]
    if former:
        await claim_aliases(context, key, source, former)
    return bool(former)


async def _is_repository(host: CodeHost, address: str, name: str) -> bool:
    """Whether the host says that an address leads to the repository whose source has this name."""
    try:
        return host.source_of(await host.repository(host.path_of(address))) == name
    except (HostError, BadInputError):
        return False


async def claim_aliases(
    context: RunContext, key: SourceKey, source: ScanSource, former: Sequence[str] = ()
) -> None:
    """Make the addresses of a scanned source its aliases, and merge unnumbered sources that have them.

    `former` are more addresses of it. An address of another numbered source moves: another repository has
    taken it over. Raise OperatorError if the source itself was merged into another one.
    """
    own = [*list_addresses(source), *former]
    if not own:
        return
    while True:
        async with write_transaction(context, key) as (db, _):
            await source_names.add_sources(db, key.account_id, [key.source], is_numbered=is_numbered(source))
            owners = await source_names.resolve_aliases(db, key.account_id, own)
            if not is_numbered(source):
                merged = next((name for name in owners.values() if name != key.source), None)
                if merged is not None:
                    raise OperatorError(f"is part of {merged} now: its next run scans it")
                await source_names.add_aliases(db, key.account_id, [(address, key.source) for address in own])
                return
            if all(owners.get(address) == key.source for address in own):
                return
            names = {key.source, *owners.values()}
            locked = await source_names.lock_sources(db, key.account_id, names)
            others = sorted(
                name for name in set(owners.values()) - {key.source} if not locked.get(name, True)
            )
            is_busy = False
            for other in others:
                if not await _merge_into(db, context, key, other):
                    is_busy = True
            if not is_busy:
                for address in own:
                    await source_names.move_alias(db, key.account_id, address, key.source)
                return
        await asyncio.sleep(_POLL_SECONDS)


async def _merge_into(db: Connection, context: RunContext, key: SourceKey, other: str) -> bool:
    """Merge another source into that of the key, whose lock is held; False if a scan holds the other one."""
    lease = await source_locks.acquire(
        db, key.account_id, other, key.scan_id, dead_after=context.source_timeout
    )
    if lease is None:
        return False
    await sources.lock_recording(db, key.account_id)
    moving = await sources.select_findings(db, key.account_id, other)
    identities = {
        stored.finding.id: identity(
            key.source, open_path(context, key, stored).decode("utf-8", "surrogateescape"), stored.fingerprint
        )
        for stored in moving
    }
    twins = await sources.lock_findings(db, key.account_id, list(identities.values()))
    of_key = await sources.select_findings(db, key.account_id, key.source)
    of_source = {stored.finding.id: stored for stored in of_key}
    pairs = [
        (stored, of_source[twins[identities[stored.finding.id]].finding.id])
        for stored in moving
        if identities[stored.finding.id] in twins
    ]
    paired = {stored.finding.id for stored, _ in pairs}
    ids = [stored.finding.id for pair in pairs for stored in pair]
    decisions = await source_names.select_last_decisions(db, key.account_id, ids)
    boxes = await source_names.select_boxes(db, key.account_id, ids)
    moment = lease.started_at
    joined = []
    for ours, theirs in pairs:
        ended, record = _join(context, key, (ours, theirs), decisions, boxes)
        record = replace(record, identity=identities[ours.finding.id])
        joined.append((ended, record))
        detail = {"merged": str(ended), "source": key.source, "from": other}
        line = audit.AuditLine(moment, ACTOR, "finding.merge", str(record.finding.id), detail=detail)
        await audit.append(db, key.account_id, line)
    await source_names.join_findings(db, key.account_id, joined)
    await source_names.move_findings(
        db, key.account_id, key.source, [pair for pair in identities.items() if pair[0] not in paired]
    )
    await source_names.delete_source(db, key.account_id, other, key.source)
    log.info("source_merged", account=key.account_id, source=key.source, merged=other, findings=len(moving))
    return True


def _join(
    context: RunContext,
    key: SourceKey,
    pair: tuple[StoredFinding, StoredFinding],
    decisions: dict[UUID, int],
    boxes: dict[UUID, FindingBoxes],
) -> tuple[UUID, FindingRecord]:
    """Return the id that ends, and the row of the finding that stays, which is the older one.

    `pair` ends with the finding of the numbered source. The later decision of a person counts, otherwise the
    status that the numbered source knows.
    """
    moved, known = pair
    stays = min(pair, key=lambda stored: (stored.finding.first_seen_at, stored is moved))
    ends = known if stays is moved else moved
    decided = _decided(moved, known, decisions)
    checked = max(pair, key=lambda stored: (_is_checked(stored.finding), stored is known)).finding
    detail = known.finding
    finding = replace(
        detail,
        id=stays.finding.id,
        status=decided.status,
        resolved_at=decided.resolved_at,
        resolution_note=decided.resolution_note,
        resolution_evidence=decided.resolution_evidence,
        suppressed_at=decided.suppressed_at,
        validation_status=checked.validation_status,
        validation_confidence=checked.validation_confidence,
        validation_detail=checked.validation_detail,
        first_seen_at=min(stored.finding.first_seen_at for stored in pair),
        last_seen_at=max(stored.finding.last_seen_at for stored in pair),
        seen_count=sum(stored.finding.seen_count for stored in pair),
    )
    record = _reseal(context, key, finding, (known.finding.id, moved.finding.id), boxes)
    return ends.finding.id, replace(
        record,
        fingerprint=known.fingerprint,
        verdict_key=boxes[known.finding.id].verdict_key or boxes[moved.finding.id].verdict_key,
        source=key.source,
        last_scan_id=known.last_scan_id or moved.last_scan_id,
        media_type=known.media_type,
    )


def _decided(moved: StoredFinding, known: StoredFinding, decisions: dict[UUID, int]) -> Finding:
    """Return the finding whose status counts: that of the later decision, or one that a person closed."""
    last = max((moved, known), key=lambda stored: decisions.get(stored.finding.id, -1))
    if last.finding.id in decisions:
        return last.finding
    evidence = moved.finding.resolution_evidence
    by_scan = evidence is not None and evidence.auto_resolved
    if moved.finding.status not in OPEN_STATUSES and not by_scan and known.finding.status in OPEN_STATUSES:
        return moved.finding
    return known.finding


def _is_checked(finding: Finding) -> tuple[bool, str]:
    """Return the sort key of a finding's verdict: a later one is higher, and none is the lowest."""
    is_checked = finding.validation_status is not Validation.UNVALIDATED
    return is_checked, str(finding.validation_detail.get("checked_at") or "")


def _reseal(
    context: RunContext,
    key: SourceKey,
    finding: Finding,
    owners: tuple[UUID, UUID],
    boxes: dict[UUID, FindingBoxes],
) -> FindingRecord:
    """Return the row of a finding with the first encrypted columns that one of the owners has.

    They are bound to a finding's id, so they are encrypted again.
    """
    keys, account_id = context.keys, key.account_id
    secret_box = excerpt_box = path = None
    for owner in owners:
        own = boxes[owner]
        if secret_box is None and own.secret is not None:
            secret, parts = keys.open_with_companions(own.secret, account_id, owner, mask_all=True)
            secret_box = keys.seal(secret, account_id, finding.id, parts)
        if excerpt_box is None and own.excerpt is not None:
            excerpt = keys.open_excerpt(own.excerpt, account_id, owner)
            excerpt_box = keys.seal_excerpt(excerpt, account_id, finding.id)
        if path is None and own.path is not None:
            path = own.path
            if path[:1] == SEALED_PATH:
                text = Secret(reveal(keys.open(path[1:], account_id, owner, mask_all=True)))
                path = SEALED_PATH + keys.seal(text, account_id, finding.id)
    return FindingRecord(finding, secret_box=secret_box, excerpt_box=excerpt_box, source_path=path)
