"""What a run saw becomes findings: new ones, known ones seen again, each with its event, in one transaction a batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID, uuid4

from outcrop.domain.events import EventType, event_about
from outcrop.domain.finding import Confidence, Finding, SourceType, Status, Validation, Visibility, gone, seen
from outcrop.domain.place import identity
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.detect import Hit
from outcrop.scanner.score import Evidence, score
from outcrop.services.pipeline.tools import Part, Tools, now
from outcrop.store import audit, findings, outbox, scans, sources
from outcrop.store.db import Connection
from outcrop.store.findings import Record
from outcrop.store.keyring import Keys
from outcrop.store.sources import There

BATCH = 500
ACTOR = "scan"  # who the audit trail names


@dataclass(frozen=True, slots=True)
class Sighting:
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
    source: str | None = None  # where it is another than the part's own: a script from elsewhere
    media_type: str | None = None


async def record(tools: Tools, part: Part, sightings: Sequence[Sighting]) -> set[bytes]:
    """Record a run's sightings in batches; give the identities of all that were seen."""
    placed: dict[bytes, tuple[Sighting, bytes]] = {}
    for sighting in sightings:
        fingerprint = tools.keys.fingerprint_of(sighting.hit.secret)
        place = identity(sighting.source or part.source, sighting.path.decode("utf-8", "surrogateescape"), fingerprint)
        placed.setdefault(place, (sighting, fingerprint))
    order = sorted(placed)
    for at in range(0, len(order), BATCH):
        batch = {place: placed[place] for place in order[at : at + BATCH]}
        async with tools.pool.connection() as db, db.transaction():
            await _record(db, tools, part, batch)
    return set(placed)


async def _record(db: Connection, tools: Tools, part: Part, batch: dict[bytes, tuple[Sighting, bytes]]) -> None:
    moment = now()
    there = await sources.lock_at(db, part.account_id, list(batch))
    places = await sources.spread(db, part.account_id, [fingerprint for _, fingerprint in batch.values()])
    records: list[Record] = []
    announced: list[Finding] = []
    new = met = 0
    for place, (sighting, fingerprint) in batch.items():
        known = there.get(place)
        count = places.get(fingerprint, 0) + (known is None)
        finding, news = _after(known, sighting, part.scan_id, count, moment)
        if news:
            announced.append(finding)
        new += known is None
        met += known is None or known.last_scan_id != part.scan_id
        box = tools.keys.seal(sighting.hit.secret, part.account_id, finding.id) if tools.keep_secrets else None
        records.append(
            Record(
                finding,
                fingerprint=fingerprint,
                identity=place,
                secret_box=box,
                source=sighting.source or part.source,
                source_path=_sealed_path(tools.keys, part.account_id, finding.id, sighting),
                rule=sighting.hit.rule.id,
                commit_id=sighting.commit,
                media_type=sighting.media_type,
                last_scan_id=part.scan_id,
            )
        )
    await findings.open_batch(db)
    await findings.upsert_batch(db, part.account_id, records)
    blobs = [(record.finding.id, batch[record.identity][0].blobs) for record in records if record.identity]
    await sources.set_occurrences(db, part.account_id, blobs)
    for finding in announced:
        await announce(db, part, EventType.NEW, finding, moment)
    await scans.count(db, part.account_id, part.scan_id, part.source, new=new, seen=met)


def _after(known: There | None, sighting: Sighting, scan_id: UUID, places: int, moment: datetime) -> tuple[Finding, bool]:
    """Give the finding as it is after this sighting, and whether that is news."""
    hit, secret = sighting.hit, sighting.hit.secret
    news = known is None
    if known is None:
        finding = _new(sighting, moment)
    else:
        finding, news = seen(known.finding)
        finding = replace(
            finding, last_seen_at=max(moment, finding.last_seen_at), seen_count=finding.seen_count + (known.last_scan_id != scan_id)
        )
    finding = replace(
        finding,
        source_type=sighting.source_type,
        source_visibility=sighting.visibility,
        source_url=None if sighting.source_url is None else _text(secret.masked_within(sighting.source_url)),
        repo_full_name=None if sighting.repo_full_name is None else _text(sighting.repo_full_name),
        file_path=_text(secret.masked_within(sighting.file_path)),
        line_number=sighting.line,
        current_line=sighting.current_line,
        allowed_in_source=hit.allowed,
        matched_text=_text(secret.masked()),
        pattern_name=hit.rule.name,
        pattern_secret_type=hit.rule.secret_type,
    )
    evidence = Evidence(
        finding.validation_status, finding.validation_confidence, hit.strength, hit.rule.impact, finding.source_type,
        finding.source_visibility, path=finding.file_path, placeholder=hit.placeholder,
        services=tuple(finding.validation_detail["enabled_services"]), places=places,
    )  # fmt: skip
    return replace(finding, composite_score=score(evidence).total), news


def _new(sighting: Sighting, moment: datetime) -> Finding:
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


async def announce(db: Connection, part: Part, event: EventType, finding: Finding, moment: datetime) -> None:
    """Write the event and the audit line of a change, in its transaction."""
    await outbox.append(db, part.account_id, event_about(event, finding), event_id=uuid4(), now=moment)
    detail = {"scan": str(part.scan_id), "to": finding.status}
    await audit.append(db, part.account_id, audit.Line(moment, ACTOR, event, str(finding.id), detail=detail))


async def resolve_gone(tools: Tools, part: Part, finding_ids: Sequence[UUID]) -> int:
    """Resolve findings whose absence is confirmed; give how many changed."""
    resolved = 0
    for finding_id in finding_ids:
        async with tools.pool.connection() as db, db.transaction():
            moment = now()
            locked = await findings.select_for_update(db, part.account_id, finding_id)
            if locked is None or (closed := gone(locked[0], now=moment)) is None:
                continue
            await findings.update_triage(db, part.account_id, closed)
            await announce(db, part, EventType.RESOLVED, closed, moment)
            await scans.count(db, part.account_id, part.scan_id, part.source, resolved=1)
            resolved += 1
    return resolved


# --- the path of a finding, which may hold the credential itself

_PLAIN, _SEALED = b"\0", b"\1"


def _sealed_path(keys: Keys, account_id: int, finding_id: UUID, sighting: Sighting) -> bytes:
    value = reveal(sighting.hit.secret).encode("utf-8", "surrogateescape")
    if value not in sighting.path and sighting.hit.secret.masked_within(sighting.file_path) == sighting.file_path:
        return _PLAIN + sighting.path
    return _SEALED + keys.seal(Secret(sighting.path.decode("latin-1")), account_id, finding_id)


def opened_path(keys: Keys, account_id: int, finding_id: UUID, stored: bytes) -> bytes:
    """Give the unmasked path of a finding."""
    if stored[:1] != _SEALED:
        return stored[1:]
    return reveal(keys.open(stored[1:], account_id, finding_id, wholly=True)).encode("latin-1")
