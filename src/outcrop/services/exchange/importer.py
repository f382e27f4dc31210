"""Import findings from a file into an account, in one transaction and in bounded memory.

1. A thread parses the records of the file and encrypts their credentials (`_RecordBuilder`).
2. Batches are matched with the stored findings (`_match_stored`) and written.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pydantic import ValidationError

from outcrop.domain.account import Account
from outcrop.domain.finding import (
    OPEN_STATUSES,
    CredentialPattern,
    Finding,
    Resolution,
    Status,
    cut_note,
)
from outcrop.domain.place import identity, source_of
from outcrop.domain.secret import MASK, Secret, is_masked, is_password
from outcrop.services.exchange.formats import FileRecord, ImportFormat, RecordError, read_records
from outcrop.services.exchange.import_schema import (
    COPIED_FIELDS,
    ImportedEvidence,
    ImportedFinding,
    validate_finding,
)
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, table
from outcrop.store.findings.bulk import FindingRecord
from outcrop.store.keyring import Keyring

_BATCH_SIZE = 5_000  # findings that are written with one statement
_FLUSH_INDEX_EVERY = 40_000  # findings; the pending list of the search index then has about 64 MB
_PROGRESS_EVERY = 1_000  # records


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """The numbers of imported, new and updated findings."""

    lines: int
    new: int
    updated: int


@dataclass(frozen=True, slots=True)
class _ImportRecord:
    """The row of an imported finding, and its position in the file for error messages."""

    where: str
    has_id: bool  # whether the file names the finding's id
    record: FindingRecord


async def import_findings(
    db: Connection,
    keys: Keyring,
    account: Account,
    file: BinaryIO,
    *,
    keep_secrets: bool,
    by: str,
    now: datetime,
    progress: Callable[[int], None],
    format_: ImportFormat = ImportFormat.OUTCROP,
) -> ImportSummary:
    """Import all findings of a file, or none if one is invalid. A finding whose id is stored is updated.

    `progress` gets the number of bytes read so far.
    """
    format_, file_records = read_records(file, format_)
    default_source = None if format_ is ImportFormat.OUTCROP else format_.value
    builder = _RecordBuilder(keys, account.id, now, keep_secrets=keep_secrets, default_source=default_source)
    batches = _split_batches(builder.build_all(file_records, progress))
    lines = new = 0
    async with bulk.open_bulk_import(db):
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(None, next, batches, None)
        while batch:
            next_batch = loop.run_in_executor(None, next, batches, None)  # parsed while this one is written
            try:
                lines += len(batch)
                records = await _match_stored(db, keys, account.id, batch)
                new += await bulk.upsert_batch(db, account.id, records)
                if lines % _FLUSH_INDEX_EVERY < _BATCH_SIZE:
                    await bulk.flush_search_index(db)
            finally:
                await asyncio.wait([next_batch])
            batch = next_batch.result()
        # The audit line has the counts, so it is written last, in the same transaction.
        detail = {"lines": lines, "new": new, "updated": lines - new}
        line = audit.AuditLine(now, by, "findings.import", account.slug, detail=detail)
        await audit.append(db, account.id, line)
    return ImportSummary(lines, new, lines - new)


def _split_batches(records: Iterator[_ImportRecord]) -> Iterator[list[_ImportRecord]]:
    """Yield the records in lists of _BATCH_SIZE."""
    while batch := list(islice(records, _BATCH_SIZE)):
        yield batch


# --- matching with stored findings


async def _match_stored(
    db: Connection, keys: Keyring, account_id: int, batch: list[_ImportRecord]
) -> list[FindingRecord]:
    """Return the rows to write, one per finding.

    A record without an id updates the finding of the same credential at the same place, if there is one. Of
    several records with the same id the last one counts.
    """
    identities = [entry.record.identity for entry in batch if entry.record.identity is not None]
    ids = await table.select_ids_by_identity(db, account_id, identities) if identities else {}
    without_secret = [
        entry.record.finding.id for entry in batch if entry.record.fingerprint is None and entry.has_id
    ]
    boxes = await table.select_secret_boxes(db, account_id, without_secret) if without_secret else {}
    records: dict[UUID, FindingRecord] = {}
    for entry in batch:
        record = _use_stored_id(entry, ids)
        id_ = record.finding.id
        if id_ in records:
            record = _merge(records[id_], record)
        box = record.secret_box or boxes.get(id_)
        if entry.record.fingerprint is None and box is not None:
            # The record has no credential, but a stored one of this finding must not appear in its texts.
            secret = keys.open(box, account_id, id_, mask_all=is_password(record.finding.pattern.secret_type))
            record = replace(record, finding=_mask_finding(record.finding, secret.masked_within))
        records[id_] = record
    return list(records.values())


def _use_stored_id(entry: _ImportRecord, ids: dict[bytes, UUID]) -> FindingRecord:
    """Return the record with the id of the finding at the same place; `ids` maps identities to ids.

    A record at a new place is added to `ids`. Raise RecordError if the file names another id for the place.
    """
    record = entry.record
    if record.identity is None:
        return record
    stored_id = ids.setdefault(record.identity, record.finding.id)
    if stored_id == record.finding.id:
        return record
    if entry.has_id:
        raise RecordError(
            entry.where, f"the same credential at the same place is finding {stored_id} already"
        )
    return replace(record, finding=replace(record.finding, id=stored_id), secret_box=None)


def _merge(earlier: FindingRecord, later: FindingRecord) -> FindingRecord:
    """Return the later of two records with the same id, with the earlier one's values where it has none."""
    finding = later.finding
    if later.keep_first_seen:
        finding = replace(finding, first_seen_at=earlier.finding.first_seen_at)
    if later.keep_last_seen:
        finding = replace(finding, last_seen_at=earlier.finding.last_seen_at)
    return FindingRecord(
        finding,
        fingerprint=later.fingerprint or earlier.fingerprint,
        identity=later.identity or earlier.identity,
        secret_box=later.secret_box or earlier.secret_box,
        keep_first_seen=later.keep_first_seen and earlier.keep_first_seen,
        keep_last_seen=later.keep_last_seen and earlier.keep_last_seen,
    )


# --- building records


class _RecordBuilder:
    """Builds the rows of imported findings. Runs in a thread, while the database writes."""

    def __init__(
        self, keys: Keyring, account_id: int, now: datetime, *, keep_secrets: bool, default_source: str | None
    ) -> None:
        self.keys = keys
        self.account_id = account_id
        self.now = now
        self.keep_secrets = keep_secrets
        # For findings without a source, so that importing the same report again updates the same findings.
        self.default_source = default_source

    def build_all(
        self, file_records: Iterable[FileRecord], progress: Callable[[int], None]
    ) -> Iterator[_ImportRecord]:
        """Yield the row of each record; report the bytes read now and then, and at the end."""
        bytes_read = 0
        for number, (where, fields, bytes_read) in enumerate(file_records, 1):
            if number % _PROGRESS_EVERY == 0:
                progress(bytes_read)
            imported = _validate(where, fields)
            yield _ImportRecord(where, imported.id is not None, self._build(where, imported))
        progress(bytes_read)

    def _build(self, where: str, imported: ImportedFinding) -> FindingRecord:
        """Return the row of a finding, its credential encrypted, fingerprinted and masked in all texts."""
        finding_id = imported.id or uuid4()
        finding = self._build_finding(imported, finding_id)
        record = FindingRecord(
            finding,
            keep_first_seen=imported.first_seen_at is None,
            keep_last_seen=imported.last_seen_at is None,
        )
        if imported.secret is None:
            if not is_masked(finding.matched_text):
                raise RecordError(
                    where, "matched_text is not masked, and there is no `secret` to mask it from"
                )
            return record
        secret = Secret(imported.secret, mask_all=is_password(imported.pattern.secret_type))
        finding = replace(_mask_finding(finding, secret.masked_within), matched_text=secret.masked())
        fingerprint = self.keys.compute_fingerprint(secret)
        source = source_of(imported.source_type, imported.repo_full_name, imported.source_url)
        source = source or self.default_source
        path = urlsplit(imported.source_url or "").path if imported.file_path is None else imported.file_path
        box = self.keys.seal(secret, self.account_id, finding_id) if self.keep_secrets else None
        place = None if source is None else identity(source, path, fingerprint)
        return replace(record, finding=finding, fingerprint=fingerprint, identity=place, secret_box=box)

    def _build_finding(self, imported: ImportedFinding, finding_id: UUID) -> Finding:
        """Return the imported finding with defaults for missing times; the credential is not masked yet."""
        first_seen = imported.first_seen_at or imported.last_seen_at or self.now
        last_seen = imported.last_seen_at or first_seen
        is_resolved = imported.status is Status.RESOLVED
        is_open = imported.status in OPEN_STATUSES
        evidence = imported.resolution_evidence or ImportedEvidence()
        resolution = Resolution(evidence.auto_resolved, evidence.resolved_by) if is_resolved else None
        return Finding(
            **{name: getattr(imported, name) for name in COPIED_FIELDS},
            id=finding_id,
            validation_detail=_mask_values(imported.validation_detail.model_dump(), str),
            matched_text=MASK if imported.matched_text is None else imported.matched_text,
            pattern=CredentialPattern(imported.pattern.name, imported.pattern.secret_type),
            first_seen_at=first_seen,
            last_seen_at=last_seen,
            resolved_at=(imported.resolved_at or last_seen) if is_resolved else None,
            resolution_note=None if is_open else cut_note(imported.resolution_note),
            resolution_evidence=resolution,
        )


def _validate(where: str, fields: dict[str, Any]) -> ImportedFinding:
    """Return the validated fields of a record; raise RecordError with the first problem, not its value."""
    try:
        return validate_finding(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise RecordError(where, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _mask_finding(finding: Finding, mask: Callable[[str], str]) -> Finding:
    """Apply `mask` to all texts that may contain the credential, except the repository's name.

    The name identifies the source.
    """
    return replace(
        finding,
        validation_detail=_mask_values(finding.validation_detail, mask),
        source_url=_mask_optional(finding.source_url, mask),
        file_path=_mask_optional(finding.file_path, mask),
        pattern=finding.pattern._replace(name=mask(finding.pattern.name)),
        resolution_note=cut_note(_mask_optional(finding.resolution_note, mask)),
    )


def _mask_optional(text: str | None, mask: Callable[[str], str]) -> str | None:
    """Apply `mask` to a text; None stays None."""
    return None if text is None else mask(text)


def _mask_values(value: Any, mask: Callable[[str], str]) -> Any:
    """Apply `mask` to all strings in a JSON value, and replace NUL, which PostgreSQL cannot store."""
    if isinstance(value, str):
        return mask(value).replace("\0", "\ufffd")
    if isinstance(value, list):
        return [_mask_values(item, mask) for item in value]
    if isinstance(value, dict):
        return {_mask_values(key, mask): _mask_values(item, mask) for key, item in value.items()}
    return value
