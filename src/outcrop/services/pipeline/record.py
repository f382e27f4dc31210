"""What a run saw becomes findings: new ones, known ones seen again, each with its event, in one transaction a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from uuid import UUID, uuid4

from outcrop.domain.events import EventType, event_about
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import (
    Confidence,
    Finding,
    SourceType,
    Status,
    Validation,
    Visibility,
    mark_gone,
    mark_seen,
)
from outcrop.domain.place import identity
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.engine.hit import Hit
from outcrop.services.pipeline.context import ACTOR, RunContext, SourceKey, now
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.score import ScoreInputs, scored
from outcrop.services.pipeline.validate import apply, audit_change, judged, verify
from outcrop.store import audit, outbox
from outcrop.store.db import Connection
from outcrop.store.findings import table
from outcrop.store.findings.table import FindingRecord
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.keyring import Keyring
from outcrop.store.runs import scans, sources
from outcrop.store.runs.sources import LockedFinding

BATCH = 500


class ScanCoverage(Enum):
    """How much of a source was looked at."""

    WHOLE = auto()
    PARTIAL = auto()  # something could not be read: the blobs that were known to hold a finding still count
    COMMIT = auto()  # one commit: where a known finding stands is better known already


@dataclass(frozen=True, slots=True)
class DetectedSecret:
    """One credential at one place, as this run saw it."""

    hit: Hit
    path: bytes  # unmasked: it identifies the place
    source_type: SourceType
    visibility: Visibility
    source_url: str | None
    repo_full_name: str | None
    file_path: str
    line: int
    current_line: int | None = None
    commit: str | None = None
    blobs: frozenset[bytes] = frozenset()
    source: str | None = None  # where it is another than the key's own: a script from elsewhere
    media_type: str | None = None
    excerpt: Excerpt | None = None


async def record(
    tools: RunContext,
    key: SourceKey,
    sightings: Sequence[DetectedSecret],
    extent: ScanCoverage = ScanCoverage.WHOLE,
) -> set[bytes]:
    """Record a run's sightings in batches; give the identities of all that were seen."""
    placed: dict[bytes, tuple[DetectedSecret, bytes]] = {}
    for sighting in sightings:
        fingerprint = tools.keys.compute_fingerprint(sighting.hit.secret)
        place = identity(sighting.source or key.source, _name(sighting.path), fingerprint)
        placed.setdefault(place, (sighting, fingerprint))
    masked = SecretMasker(
        (one.hit.secret for one in sightings), (text for one in sightings for text in _texts(one))
    )
    order = sorted(placed)
    for at in range(0, len(order), BATCH):
        batch = {place: placed[place] for place in order[at : at + BATCH]}
        word = await verify(
            tools, key.account_id, {fingerprint: one.hit for one, fingerprint in batch.values()}
        )
        async with tools.pool.connection() as db, db.transaction():
            await _record(db, tools, key, batch, _How(extent, masked, word.told))
            for fingerprint in sorted(word.changed):  # it stands in other places too
                await apply(db, key.account_id, fingerprint, word.told[fingerprint], by=ACTOR)
    return set(placed)


def _texts(sighting: DetectedSecret) -> tuple[str, str, str]:
    return _name(sighting.path), sighting.file_path, sighting.source_url or ""


def _name(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


_Batch = dict[bytes, tuple[DetectedSecret, bytes]]


@dataclass(frozen=True, slots=True)
class _How:
    extent: ScanCoverage
    masked: SecretMasker
    told: dict[bytes, StoredVerdict]


async def _record(db: Connection, tools: RunContext, key: SourceKey, batch: _Batch, how: _How) -> None:
    extent, masked = how.extent, how.masked
    moment = now()
    there = await sources.lock_findings(db, key.account_id, list(batch))
    places = await sources.count_places(
        db, key.account_id, [fingerprint for _, fingerprint in batch.values()]
    )
    records: list[FindingRecord] = []
    announced: list[Finding] = []
    met = 0
    for place, (sighting, fingerprint) in batch.items():
        known = there.get(place)
        count = places.get(fingerprint, 0) + (known is None)
        told = how.told[fingerprint]
        finding, news = _met(known, told, key.scan_id, moment) if known else (_new(sighting, moment), True)
        stays = known is not None and extent is ScanCoverage.COMMIT
        if not stays:
            finding = _placed(finding, sighting, masked)
        finding = judged(finding, told)
        total, detail = scored(finding, _traits(sighting.hit, told), places=count, now=moment)
        finding = replace(finding, composite_score=total)
        if news:
            announced.append(finding)
        elif known is not None and finding.status is not known.finding.status:
            change = {"scan": str(key.scan_id), "from": known.finding.status, "to": finding.status}
            await audit.append(
                db,
                key.account_id,
                audit.AuditLine(moment, ACTOR, "finding.seen", str(finding.id), detail=change),
            )
        if known is not None:
            await audit_change(db, key.account_id, known.finding, finding, by=ACTOR)
        met += known is None or known.last_scan_id != key.scan_id
        # What is closed is as it was: a credential that was erased for it is not stored again.
        kept = tools.keep_secrets and (known is None or finding.status is Status.ACTIVE)
        box = (
            tools.keys.seal(sighting.hit.secret, key.account_id, finding.id, sighting.hit.parts)
            if kept
            else None
        )
        records.append(
            FindingRecord(
                finding,
                fingerprint=fingerprint,
                identity=place,
                secret_box=box,
                excerpt_box=None
                if box is None or stays
                else _sealed_excerpt(tools.keys, key.account_id, finding.id, sighting.excerpt),
                source=sighting.source or key.source,
                source_path=_sealed_path(tools.keys, key.account_id, finding.id, sighting, masked),
                rule=sighting.hit.rule.id,
                commit_id=None if stays else sighting.commit,
                media_type=sighting.media_type,
                last_scan_id=key.scan_id,
                score_detail=detail,
            )
        )
    await table.create_batch_table(db)
    await table.upsert_batch(db, key.account_id, records)
    blobs = [(record.finding.id, batch[record.identity][0].blobs) for record in records if record.identity]
    await sources.set_occurrences(db, key.account_id, blobs, whole=extent is ScanCoverage.WHOLE)
    for finding in announced:
        await announce(db, key, EventType.NEW, finding, moment)
    await scans.add_counts(db, key.account_id, key.scan_id, key.source, new=len(announced), seen=met)


def _traits(hit: Hit, told: StoredVerdict) -> ScoreInputs:
    return ScoreInputs(
        hit.strength, hit.rule.impact, hit.placeholder, told.test_mode, told.canary, told.asked
    )


def _met(known: LockedFinding, told: StoredVerdict, scan_id: UUID, moment: datetime) -> tuple[Finding, bool]:
    """Give a finding as it is after it was seen again, and whether that is news: a check since it was closed may prove it alive."""
    closed = known.finding.resolved_at
    proven = told.status is Validation.VALID and closed is not None and told.checked_at > closed
    finding, news = mark_seen(known.finding, proven=proven)
    count = finding.seen_count + (known.last_scan_id != scan_id)
    return replace(finding, last_seen_at=max(moment, finding.last_seen_at), seen_count=count), news


def _placed(finding: Finding, sighting: DetectedSecret, masked: SecretMasker) -> Finding:
    """Give the finding with what this sighting says of it."""
    hit = sighting.hit
    return replace(
        finding,
        source_type=sighting.source_type,
        source_visibility=sighting.visibility,
        source_url=None if sighting.source_url is None else _text(masked(sighting.source_url)),
        repo_full_name=None if sighting.repo_full_name is None else _text(sighting.repo_full_name),
        file_path=_text(masked(sighting.file_path)),
        line_number=sighting.line,
        current_line=sighting.current_line,
        allowed_in_source=hit.allowed,
        matched_text=_text(hit.secret.masked()),
        pattern_name=hit.rule.name,
        pattern_secret_type=hit.rule.secret_type,
    )


def _new(sighting: DetectedSecret, moment: datetime) -> Finding:
    return Finding(
        id=uuid4(),
        status=Status.ACTIVE,
        validation_status=Validation.UNVALIDATED,
        validation_confidence=Confidence.LOW,
        validation_detail={"enabled_services": []},
        composite_score=0.0,
        source_type=sighting.source_type,
        source_visibility=sighting.visibility,
        source_url=None,
        repo_full_name=None,
        file_path=None,
        line_number=None,
        matched_text="",
        pattern_name="",
        pattern_secret_type="",
        first_seen_at=moment,
        last_seen_at=moment,
        seen_count=1,
    )


def _text(text: str) -> str:
    """Give what PostgreSQL can hold: no NUL, and no halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


async def announce(
    db: Connection, key: SourceKey, event: EventType, finding: Finding, moment: datetime
) -> None:
    """Write the event and the audit line of a change, in its transaction."""
    await outbox.append(db, key.account_id, event_about(event, finding), event_id=uuid4(), now=moment)
    detail = {"scan": str(key.scan_id), "to": finding.status}
    await audit.append(
        db, key.account_id, audit.AuditLine(moment, ACTOR, event, str(finding.id), detail=detail)
    )


async def reopen(tools: RunContext, key: SourceKey, finding_ids: Sequence[UUID]) -> None:
    """Let findings that were taken for gone, and are there all the same, be active again."""
    for finding_id in finding_ids:
        async with tools.pool.connection() as db, db.transaction():
            locked = await table.lock_with_secret(db, key.account_id, finding_id)
            if locked is not None and (back := mark_seen(locked[0]))[1]:
                await table.update_triage(db, key.account_id, back[0])
                await announce(db, key, EventType.NEW, back[0], now())
                await scans.add_counts(db, key.account_id, key.scan_id, key.source, new=1)


async def resolve_gone(tools: RunContext, key: SourceKey, finding_ids: Sequence[UUID]) -> int:
    """Resolve findings whose absence is confirmed; give how many changed."""
    resolved = 0
    for finding_id in finding_ids:
        async with tools.pool.connection() as db, db.transaction():
            moment = now()
            locked = await table.lock_with_secret(db, key.account_id, finding_id)
            if locked is None or (closed := mark_gone(locked[0], now=moment)) is None:
                continue
            await table.update_triage(db, key.account_id, closed)
            await announce(db, key, EventType.RESOLVED, closed, moment)
            await scans.add_counts(db, key.account_id, key.scan_id, key.source, resolved=1)
            resolved += 1
    return resolved


def _sealed_excerpt(
    keys: Keyring, account_id: int, finding_id: UUID, excerpt: Excerpt | None
) -> bytes | None:
    return None if excerpt is None else keys.seal_excerpt(excerpt, account_id, finding_id)


# --- the path of a finding, which may hold the credential itself

_PLAIN, _SEALED = b"\0", b"\1"


def _sealed_path(
    keys: Keyring, account_id: int, finding_id: UUID, sighting: DetectedSecret, masked: SecretMasker
) -> bytes:
    value = reveal(sighting.hit.secret).encode("utf-8", "surrogateescape")
    if (
        value not in sighting.path
        and MASK not in sighting.file_path
        and all(masked(text) == text for text in _texts(sighting)[:2])
    ):
        return _PLAIN + sighting.path
    return _SEALED + keys.seal(Secret(sighting.path.decode("latin-1")), account_id, finding_id)


def opened_path(keys: Keyring, account_id: int, finding_id: UUID, stored: bytes) -> bytes:
    """Give the unmasked path of a finding."""
    if stored[:1] != _SEALED:
        return stored[1:]
    return reveal(keys.open(stored[1:], account_id, finding_id, mask_all=True)).encode("latin-1")
