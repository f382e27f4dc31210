"""Validate, score and store the secrets that a run detected, and write their events.

`record_secrets` works in batches. Each batch is one transaction:

1. Get a verdict on each credential (`validate.validate_secrets`).
2. Lock the stored findings at the same places (`_record_batch`).
3. Build each finding with its verdict and its score (`_build_change`).
4. Write the findings, their audit lines and their events (`_record_batch`).
5. Update the findings of the same credentials at other places (`validate.apply_verdict`).
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any
from uuid import UUID, uuid4

from outcrop.domain.events import EventType
from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import (
    Confidence,
    CredentialPattern,
    Finding,
    SourceType,
    Status,
    Validation,
    Visibility,
    mark_seen,
)
from outcrop.domain.place import PLAIN_PATH, SEALED_PATH, SERVED_TYPES, identity
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.limits import AUTHOR_LENGTH
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.masking import find_in_texts, is_masked_in_paths
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.finding_context import decide_context
from outcrop.services.pipeline.context import ACTOR, RunContext, SourceKey
from outcrop.services.pipeline.fence import write_transaction
from outcrop.services.pipeline.masking import SecretMasker
from outcrop.services.pipeline.score import ScoreInputs, rescore, score_finding
from outcrop.services.pipeline.stored.transitions import write_event
from outcrop.services.pipeline.validate import (
    apply_verdict,
    audit_verdict_change,
    validate_secrets,
    with_verdict,
)
from outcrop.sources.located import CommitInfo
from outcrop.store import audit, secret_policy
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, scores
from outcrop.store.findings.record import FindingRecord
from outcrop.store.findings.verdicts import StoredVerdict
from outcrop.store.runs import scan_sources, sources
from outcrop.store.runs.sources import LockedFinding


class ScanCoverage(Enum):
    """The part of a source that a scan has read."""

    COMPLETE = auto()
    PARTIAL = auto()  # some objects could not be read, so blobs that held a finding before still count
    SINGLE_COMMIT = auto()  # a stored finding keeps its place, which an earlier scan knew better
    OUTDATED = auto()  # a higher release scanned it before: a stored finding also keeps its rule and score


@dataclass(frozen=True, slots=True)
class DetectedSecret:
    """A credential that this run detected at one place."""

    hit: Hit
    path: bytes  # unmasked, because it identifies the place
    source_type: SourceType
    visibility: Visibility
    source_url: str | None
    repo_full_name: str | None
    file_path: str  # the path as users see it, still to be masked
    line: int
    current_lines: tuple[int, ...] = ()  # in the newest version; none if that no longer has the secret
    origin: CommitInfo | None = None  # the oldest commit that has the secret at this path
    blobs: frozenset[bytes] = frozenset()  # ids of the git blobs that hold the secret at this path
    source: str | None = (
        None  # the origin that served it, such as a third-party script's; None: the key's source
    )
    media_type: str | None = None
    excerpt: Excerpt | None = None


@dataclass(frozen=True, slots=True)
class _PlacedSecret:
    """A detected secret with the fingerprint of its value and the identity of its place."""

    secret: DetectedSecret
    fingerprint: bytes
    verdict_key: bytes
    identity: bytes


@dataclass(frozen=True, slots=True)
class _Recording:
    """The inputs that all secrets of one `record_secrets` call share."""

    context: RunContext
    key: SourceKey
    coverage: ScanCoverage
    masker: SecretMasker  # for paths and addresses
    author_masker: SecretMasker


@dataclass(frozen=True, slots=True)
class _BatchState:
    """The stored state that a batch is compared with, and the verdicts on its credentials."""

    moment: datetime
    findings: dict[bytes, LockedFinding]  # by identity, locked
    place_counts: Counter[
        bytes
    ]  # by fingerprint: at how many places the credential is, with those of the batch
    verdicts: dict[bytes, StoredVerdict]  # by fingerprint
    keeps_secrets: bool  # whether credentials are stored


@dataclass(frozen=True, slots=True)
class _FindingChange:
    """The row to write for one detected secret, and its differences from the stored finding."""

    record: FindingRecord
    blobs: frozenset[bytes]
    before: Finding | None  # None if the finding is new
    is_news: bool  # it is new or active again, so an event is sent
    is_first_in_run: bool  # this run has not counted the finding yet


def _build_maskers(ruleset: RuleSet, secrets: Sequence[DetectedSecret]) -> tuple[SecretMasker, SecretMasker]:
    """Return the maskers of paths and addresses, and of authors.

    They mask the detected secrets, and those that are only in a path, an address or the name of an author.
    """
    texts = {text for secret in secrets for text in _texts(secret)}
    authors = {secret.origin.author or "" for secret in secrets if secret.origin is not None}
    hits = [secret.hit for secret in secrets]
    in_texts = (hit.secret for hit in (*hits, *find_in_texts(ruleset, texts)) if is_masked_in_paths(hit))
    in_authors = (hit.secret for hit in (*hits, *find_in_texts(ruleset, authors)))
    return SecretMasker(in_texts, texts), SecretMasker(in_authors, authors)


async def record_secrets(
    context: RunContext,
    key: SourceKey,
    secrets: Sequence[DetectedSecret],
    coverage: ScanCoverage = ScanCoverage.COMPLETE,
) -> set[bytes]:
    """Validate, score and store detected secrets in batches; return the identities of their places.

    Of several secrets with the same place and value, the first is stored. A verdict that has changed is
    stored with all other findings of the credential too. `coverage` says how much of the source was read: it
    decides whether stored places and blobs are replaced.
    """
    placed: dict[bytes, _PlacedSecret] = {}
    for secret in secrets:
        fingerprint = context.keys.compute_fingerprint(secret.hit.secret)
        place = identity(secret.source or key.source, _path_text(secret.path), fingerprint)
        verdict_key = context.keys.compute_verdict_key(fingerprint, secret.hit.companions)
        placed.setdefault(place, _PlacedSecret(secret, fingerprint, verdict_key, place))
    masker, author_masker = await asyncio.to_thread(_build_maskers, context.ruleset, secrets)
    recording = _Recording(context, key, coverage, masker, author_masker)
    ordered = [placed[place] for place in sorted(placed)]
    size = context.limits.batch_size
    for start in range(0, len(ordered), size):
        batch = ordered[start : start + size]
        hits = {entry.verdict_key: entry.secret.hit for entry in batch}
        validation = await validate_secrets(context, key.account_id, hits)
        async with write_transaction(context, key) as (db, moment):
            await _record_batch(db, recording, batch, validation.verdicts, moment)
            for verdict_key in sorted(validation.changed):
                await apply_verdict(db, key.account_id, verdict_key, by=ACTOR, moment=moment)
    return set(placed)


async def _record_batch(
    db: Connection,
    recording: _Recording,
    batch: Sequence[_PlacedSecret],
    verdicts: dict[bytes, StoredVerdict],
    moment: datetime,
) -> None:
    """Write the findings of a batch with their blobs, audit lines and events, and add to the run's counts.

    The stored blobs of a finding are replaced after a complete scan; otherwise the new ones are added.
    `verdicts` has a verdict for each fingerprint in the batch.
    """
    key, account_id = recording.key, recording.key.account_id
    stored = await sources.lock_findings(db, account_id, [entry.identity for entry in batch])
    places = Counter(await sources.count_places(db, account_id, [entry.fingerprint for entry in batch]))
    places.update(entry.fingerprint for entry in batch if entry.identity not in stored)
    state = _BatchState(
        moment,
        stored,
        places,
        verdicts,
        await secret_policy.keeps_secrets(db),
    )
    changes = [_build_change(recording, state, entry) for entry in batch]
    for change in changes:
        await _audit_change(db, key, change, moment)
    await bulk.create_batch_table(db)
    await bulk.upsert_batch(db, account_id, [change.record for change in changes])
    # A new place counts for the findings of the same credential at other places too.
    repeated = [fingerprint for fingerprint, count in places.items() if count > 1]
    await rescore(db, account_id, await scores.select_wrong_spread(db, account_id, repeated), moment)
    blobs = [(change.record.finding.id, change.blobs) for change in changes]
    await sources.set_occurrences(db, account_id, blobs, replace=recording.coverage is ScanCoverage.COMPLETE)
    news = [change.record.finding for change in changes if change.is_news]
    for finding in news:
        await write_event(db, key, EventType.NEW, finding, moment)
    seen = sum(change.is_first_in_run for change in changes)
    await scan_sources.add_counts(db, account_id, key.scan_id, key.source, new=len(news), seen=seen)


def _build_change(recording: _Recording, state: _BatchState, placed: _PlacedSecret) -> _FindingChange:
    """Return the row to write for a detected secret, and its differences from the stored finding.

    The row is the stored or a new finding with the verdict and the score, and with the place of the secret
    unless the scan read a single commit and the finding was stored. If a higher release has scanned the
    source, a stored finding keeps place, rule and score. The credential of a closed finding is not stored
    again. Nothing is written here.
    """
    secret, verdict = placed.secret, state.verdicts[placed.fingerprint]
    stored = state.findings.get(placed.identity)
    place_count = state.place_counts[placed.fingerprint]
    keeps_result = stored is not None and recording.coverage is ScanCoverage.OUTDATED
    keeps_place = keeps_result or (stored is not None and recording.coverage is ScanCoverage.SINGLE_COMMIT)
    if stored is None:
        finding, is_news = _new_finding(secret, state.moment), True
    else:
        finding, is_news = _see_again(stored, verdict, recording.key.scan_id, state.moment)
    if not keeps_place:
        finding = _move_to_place(finding, secret, recording)
    finding = with_verdict(finding, verdict)
    score_detail = None
    if not keeps_result:
        finding = replace(finding, rule=secret.hit.rule.id)
        inputs = ScoreInputs.from_hit(secret.hit, verdict)
        finding, score_detail = score_finding(finding, inputs, places=place_count, moment=state.moment)
    # A closed finding keeps its state: a credential that was erased for it is not stored again.
    stores_secret = state.keeps_secrets and (stored is None or finding.status is Status.ACTIVE)
    record = _build_record(
        recording, placed, finding, score_detail, stores_secret=stores_secret, keeps_place=keeps_place
    )
    if is_news:
        record = replace(record, new_scan_id=recording.key.scan_id)
    before = None if stored is None else stored.finding
    is_first_in_run = stored is None or stored.last_scan_id != recording.key.scan_id
    return _FindingChange(record, secret.blobs, before, is_news, is_first_in_run)


def _build_record(
    recording: _Recording,
    placed: _PlacedSecret,
    finding: Finding,
    score_detail: dict[str, Any] | None,
    *,
    stores_secret: bool,
    keeps_place: bool,
) -> FindingRecord:
    """Return the row of a finding; a None in the row leaves the stored value as it is.

    `stores_secret` says that credential and excerpt are in the row, encrypted; if not, both are None.
    `keeps_place` says that the stored place stays: the excerpt is None. Without `score_detail` the stored
    score stays too. The path is in the row in any case, encrypted if it contains a credential.
    """
    keys, account_id, secret = recording.context.keys, recording.key.account_id, placed.secret
    secret_box = excerpt_box = None
    if stores_secret:
        secret_box = keys.seal(secret.hit.secret, account_id, finding.id, secret.hit.companions)
        if secret.excerpt is not None and not keeps_place:
            excerpt_box = keys.seal_excerpt(secret.excerpt, account_id, finding.id)
    return FindingRecord(
        finding,
        fingerprint=placed.fingerprint,
        verdict_key=placed.verdict_key,
        identity=placed.identity,
        secret_box=secret_box,
        excerpt_box=excerpt_box,
        source=secret.source or recording.key.source,
        source_path=_seal_path(recording, finding.id, secret),
        media_type=secret.media_type,
        last_scan_id=recording.key.scan_id,
        score_detail=score_detail,
    )


def _new_finding(secret: DetectedSecret, moment: datetime) -> Finding:
    """Return an active, unvalidated finding with a new id and the score 0, first seen at `moment`.

    `_move_to_place` fills in its empty fields.
    """
    return Finding(
        id=uuid4(),
        status=Status.ACTIVE,
        validation_status=Validation.UNVALIDATED,
        validation_confidence=Confidence.LOW,
        validation_detail={"enabled_services": []},
        composite_score=0.0,
        source_type=secret.source_type,
        source_visibility=secret.visibility,
        source_url=None,
        repo_full_name=None,
        file_path=None,
        line_number=None,
        matched_text="",
        pattern=CredentialPattern("", ""),
        first_seen_at=moment,
        last_seen_at=moment,
        seen_count=1,
    )


def _see_again(
    stored: LockedFinding, verdict: StoredVerdict, scan_id: UUID, moment: datetime
) -> tuple[Finding, bool]:
    """Return a stored finding as seen at `moment` by the run `scan_id`, and whether it was reopened.

    A stale finding becomes active, which is no reopening. A finding that a scan resolved is reopened. One
    that a user resolved is reopened only if a `valid` verdict from after that time proves that the credential
    still works. `seen_count` grows once per run.
    """
    closed_at = stored.finding.resolved_at
    proven = verdict.status is Validation.VALID and closed_at is not None and verdict.checked_at > closed_at
    finding, is_news = mark_seen(stored.finding, proven=proven)
    count = finding.seen_count + (stored.last_scan_id != scan_id)
    return replace(finding, last_seen_at=max(moment, finding.last_seen_at), seen_count=count), is_news


def _move_to_place(finding: Finding, secret: DetectedSecret, recording: _Recording) -> Finding:
    """Return the finding with the place, the commit, the credential type and the texts of a detected secret.

    The texts are masked.
    """
    hit, origin, masker = secret.hit, secret.origin, recording.masker
    author = None if origin is None else origin.author
    return replace(
        finding,
        source_type=secret.source_type,
        source_visibility=secret.visibility,
        source_url=None if secret.source_url is None else _storable(masker.mask(secret.source_url)),
        repo_full_name=None if secret.repo_full_name is None else _storable(secret.repo_full_name),
        file_path=_storable(masker.mask(secret.file_path)),
        line_number=secret.line,
        lines=hit.all_lines,
        lines_total=hit.lines_total,
        current_line=secret.current_lines[0] if secret.current_lines else None,
        current_lines=secret.current_lines,
        allowed_in_source=hit.allowed,
        context=decide_context(
            secret.file_path,
            hint=hit.context_hint,
            is_password=hit.rule.password,
            is_served=secret.source_type in SERVED_TYPES,
        ),
        detection_confidence=hit.confidence,
        matched_text=_storable(hit.secret.masked()),
        pattern=CredentialPattern(hit.rule.name, hit.rule.secret_type),
        commit=None if origin is None else origin.commit or None,
        author=None if author is None else _storable(recording.author_masker.mask(author))[:AUTHOR_LENGTH],
        committed_at=None if origin is None else origin.committed_at,
    )


def _storable(text: str) -> str:
    """Return the text without characters that PostgreSQL cannot store.

    NUL becomes U+FFFD, and a lone surrogate becomes `?`.
    """
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


async def _audit_change(db: Connection, key: SourceKey, change: _FindingChange, moment: datetime) -> None:
    """Write audit lines if the status or the verdict of a stored finding has changed; none for a new finding.

    A status that is reported by an event gets no line here, because `write_event` writes one.
    """
    before, after = change.before, change.record.finding
    if before is None:
        return
    if after.status is not before.status and not change.is_news:
        detail = {"scan": str(key.scan_id), "from": before.status, "to": after.status}
        line = audit.AuditLine(moment, ACTOR, "finding.seen", str(after.id), detail=detail)
        await audit.append(db, key.account_id, line)
    await audit_verdict_change(db, key.account_id, before, after, by=ACTOR, moment=moment)


def _path_text(path: bytes) -> str:
    """Decode a path; bytes that are not UTF-8 become surrogates."""
    return path.decode("utf-8", "surrogateescape")


def _texts(secret: DetectedSecret) -> tuple[str, str, str]:
    """Return the texts of a detected secret that may contain a credential: path, shown path and URL."""
    return _path_text(secret.path), secret.file_path, secret.source_url or ""


def _seal_path(recording: _Recording, finding_id: UUID, secret: DetectedSecret) -> bytes:
    """Return the path as it is stored: a type byte, then the path, encrypted if a credential is part of it.

    The credential may be that of the secret itself or of another secret of the same scan, or one that the
    shown path masks already.
    """
    value = reveal(secret.hit.secret).encode("utf-8", "surrogateescape")
    if (
        value not in secret.path
        and MASK not in secret.file_path
        and all(recording.masker.mask(text) == text for text in _texts(secret)[:2])
    ):
        return PLAIN_PATH + secret.path
    path = Secret(secret.path.decode("latin-1"))
    return SEALED_PATH + recording.context.keys.seal(path, recording.key.account_id, finding_id)
