"""Filling an account from a file: findings in the API's own shape, or made so, in one transaction, in bounded memory."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated, Any, BinaryIO
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from outcrop.domain.account import Account
from outcrop.domain.finding import (
    NOTE_LENGTH,
    Confidence,
    Finding,
    Resolution,
    SourceType,
    Status,
    Validation,
    Visibility,
    cut_note,
)
from outcrop.domain.ids import parse_id
from outcrop.domain.place import identity, source_of
from outcrop.domain.secret import MASK, Secret, is_masked, is_password
from outcrop.services.exchange.formats import ImportFormat, RecordError, records
from outcrop.services.exchange.formats import Record as Given
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, table
from outcrop.store.findings.bulk import FindingRecord
from outcrop.store.keyring import Keyring

_BATCH = 5_000
_SORTED_IN = (
    40_000  # lines after which the search index is brought up to date: about 64 MB of its waiting list
)
_INT4 = 2**31 - 1
_DEEPEST = 32  # far more than anybody writes, and far less than what writes JSON can follow


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError("string_nul", "contains a NUL character")
    return text


def _time(value: object) -> datetime:
    """Read ISO 8601; without an offset it is UTC; fractions of a second are dropped."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return moment.replace(microsecond=0)
        except (ValueError, OverflowError):
            pass
    raise PydanticCustomError("datetime_parsing", "should be a time in ISO 8601")


def _id(value: object) -> UUID:
    if isinstance(value, str) and (id_ := parse_id(value)) is not None:
        return id_
    raise PydanticCustomError("uuid_parsing", "should be a UUID in its 36-character form")


def _shallow(value: object) -> object:
    if not _fits(value, _DEEPEST):
        raise PydanticCustomError("too_deep", "is nested more than {deepest} deep", {"deepest": _DEEPEST})
    return value


def _fits(value: object, levels: int) -> bool:
    """Tell whether a value has at most so many levels; never goes deeper itself."""
    if not isinstance(value, dict | list):
        return True
    return levels > 0 and all(
        _fits(item, levels - 1) for item in (value.values() if isinstance(value, dict) else value)
    )


Time = Annotated[datetime, BeforeValidator(_time)]
Label = Annotated[StrictStr, Field(min_length=1, max_length=200), AfterValidator(_no_nul)]
Line = Annotated[StrictStr, Field(max_length=8192), AfterValidator(_no_nul)]
Name = Annotated[StrictStr, Field(max_length=512), AfterValidator(_no_nul)]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class _Pattern(_Shape):
    name: Name = "Imported credential"
    secret_type: Name = "unknown"  # noqa: S105


class _Detail(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)
    enabled_services: Annotated[list[Label], Field(max_length=200)] = []


class _Evidence(_Shape):
    auto_resolved: StrictBool = False
    resolved_by: Name | None = None


class ImportedFinding(_Shape):
    """One line. Everything has a default; `secret` is the raw credential, which goes no further than this process."""

    id: Annotated[UUID, BeforeValidator(_id)] | None = None
    secret: Annotated[StrictStr, Field(min_length=1, max_length=65_536)] | None = Field(None, repr=False)
    status: Status = Status.ACTIVE
    validation_status: Validation = Validation.UNVALIDATED
    validation_confidence: Confidence = Confidence.LOW
    validation_detail: Annotated[_Detail, BeforeValidator(_shallow)] = _Detail()
    composite_score: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False, strict=True)] = 0.0
    source_type: SourceType = SourceType.REPO
    source_visibility: Visibility = Visibility.UNKNOWN
    source_url: Line | None = None
    repo_full_name: Name | None = None
    file_path: Line | None = None
    line_number: Annotated[int, Field(ge=0, le=_INT4, strict=True)] | None = None
    matched_text: Name | None = None
    pattern: _Pattern = _Pattern()
    first_seen_at: Time | None = None
    last_seen_at: Time | None = None
    seen_count: Annotated[int, Field(ge=0, le=_INT4, strict=True)] = 1
    resolved_at: Time | None = None
    resolution_note: Annotated[StrictStr, Field(max_length=NOTE_LENGTH), AfterValidator(_no_nul)] | None = (
        None
    )
    resolution_evidence: _Evidence | None = None
    suppressed_at: Time | None = None
    current_line: Annotated[int, Field(ge=0, le=_INT4, strict=True)] | None = None
    allowed_in_source: StrictBool = False


@dataclass(frozen=True, slots=True)
class ImportSummary:
    lines: int
    new: int
    updated: int


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
    """Write every line, or none. The same id again updates; `progress` is told how many bytes have been read."""
    format_, given = records(file, format_)
    read = _Reader(
        keys,
        account.id,
        now,
        keep_secrets=keep_secrets,
        source=None if format_ is ImportFormat.OUTCROP else format_.value,
    )
    batches = _in_batches(read.records(given, progress))
    lines = new = 0
    async with bulk.open_bulk_import(db):
        loop = asyncio.get_running_loop()
        batch = await loop.run_in_executor(None, next, batches, None)
        while batch:
            following = loop.run_in_executor(None, next, batches, None)  # read on while the database writes
            try:
                lines += len(batch)
                new += await bulk.upsert_batch(db, account.id, await _placed(db, keys, account.id, batch))
                if lines % _SORTED_IN < _BATCH:
                    await bulk.flush_search_index(db)
            finally:
                await asyncio.wait([following])
            batch = following.result()
        # What it tells of comes last: with its figures, in the same transaction.
        detail = {"lines": lines, "new": new, "updated": lines - new}
        await audit.append(
            db, account.id, audit.AuditLine(now, by, "findings.import", account.slug, detail=detail)
        )
    return ImportSummary(lines, new, lines - new)


@dataclass(frozen=True, slots=True)
class _Numbered:
    where: str
    id_given: bool
    record: FindingRecord


def _in_batches(records: Iterator[_Numbered]) -> Iterator[list[_Numbered]]:
    while batch := list(islice(records, _BATCH)):
        yield batch


async def _placed(
    db: Connection, keys: Keyring, account_id: int, batch: list[_Numbered]
) -> list[FindingRecord]:
    """Let one credential at one place be one finding: a line without an id finds the one that is there; the last line of an id wins."""
    places = [n.record.identity for n in batch if n.record.identity is not None]
    at = await table.select_ids_by_identity(db, account_id, places) if places else {}
    without = [n.record.finding.id for n in batch if n.record.fingerprint is None and n.id_given]
    boxes = await table.select_secret_boxes(db, account_id, without) if without else {}
    records: dict[UUID, FindingRecord] = {}
    for numbered in batch:
        record = numbered.record
        if record.identity is not None:
            there = at.setdefault(record.identity, record.finding.id)
            if there != record.finding.id:
                if numbered.id_given:
                    raise RecordError(
                        numbered.where, f"the same credential at the same place is finding {there} already"
                    )
                record = replace(record, finding=replace(record.finding, id=there), secret_box=None)
        id_ = record.finding.id
        if id_ in records:
            record = _merged(records[id_], record)
        box = record.secret_box or boxes.get(id_)
        if (
            numbered.record.fingerprint is None and box is not None
        ):  # what is known of the credential masks what is new
            secret = keys.open(box, account_id, id_, mask_all=is_password(record.finding.pattern_secret_type))
            record = replace(record, finding=_masked_finding(record.finding, secret.masked_within))
        records[id_] = record
    return list(records.values())


def _merged(earlier: FindingRecord, later: FindingRecord) -> FindingRecord:
    """Give the later of two lines with one id; it does not take away what only the earlier one has."""
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


def _masked_finding(finding: Finding, masked: Callable[[str], str]) -> Finding:
    """Mask a credential in every field it can stand in; a repository's name is left alone, it is how the source is found."""
    return replace(
        finding,
        validation_detail=_masked_values(finding.validation_detail, masked),
        source_url=_masked(finding.source_url, masked),
        file_path=_masked(finding.file_path, masked),
        pattern_name=masked(finding.pattern_name),
        resolution_note=cut_note(_masked(finding.resolution_note, masked)),
    )


class _Reader:
    """Turns lines into records; runs in a thread beside the database."""

    def __init__(
        self, keys: Keyring, account_id: int, now: datetime, *, keep_secrets: bool, source: str | None
    ) -> None:
        self.keys = keys
        self.account_id = account_id
        self.now = now
        self.keep_secrets = keep_secrets
        self.source = source  # of findings that name none: the same report again is then the same findings

    def records(self, given: Iterable[Given], progress: Callable[[int], None]) -> Iterator[_Numbered]:
        read = 0
        for number, (where, record, read) in enumerate(given, 1):
            if number % 1000 == 0:
                progress(read)
            imported = _parse(where, record)
            yield _Numbered(where, imported.id is not None, self._record(where, imported))
        progress(read)

    def _record(self, where: str, imported: ImportedFinding) -> FindingRecord:
        finding_id = imported.id or uuid4()
        finding = self._finding(imported, finding_id)
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
        finding = replace(_masked_finding(finding, secret.masked_within), matched_text=secret.masked())
        fingerprint = self.keys.compute_fingerprint(secret)
        source = source_of(imported.source_type, imported.repo_full_name, imported.source_url) or self.source
        path = urlsplit(imported.source_url or "").path if imported.file_path is None else imported.file_path
        box = self.keys.seal(secret, self.account_id, finding_id) if self.keep_secrets else None
        place = None if source is None else identity(source, path, fingerprint)
        return replace(record, finding=finding, fingerprint=fingerprint, identity=place, secret_box=box)

    def _finding(self, imported: ImportedFinding, finding_id: UUID) -> Finding:
        first = imported.first_seen_at or imported.last_seen_at or self.now
        last = imported.last_seen_at or first
        resolved = imported.status is Status.RESOLVED
        evidence = imported.resolution_evidence or _Evidence()
        open_ = imported.status in {Status.ACTIVE, Status.STALE}
        return Finding(
            id=finding_id,
            status=imported.status,
            validation_status=imported.validation_status,
            validation_confidence=imported.validation_confidence,
            validation_detail=_masked_values(imported.validation_detail.model_dump(), str),
            composite_score=imported.composite_score,
            source_type=imported.source_type,
            source_visibility=imported.source_visibility,
            source_url=imported.source_url,
            repo_full_name=imported.repo_full_name,
            file_path=imported.file_path,
            line_number=imported.line_number,
            matched_text=MASK if imported.matched_text is None else imported.matched_text,
            pattern_name=imported.pattern.name,
            pattern_secret_type=imported.pattern.secret_type,
            first_seen_at=first,
            last_seen_at=last,
            seen_count=imported.seen_count,
            resolved_at=(imported.resolved_at or last) if resolved else None,
            resolution_note=None if open_ else cut_note(imported.resolution_note),
            resolution_evidence=Resolution(evidence.auto_resolved, evidence.resolved_by)
            if resolved
            else None,
            suppressed_at=imported.suppressed_at,
            current_line=imported.current_line,
            allowed_in_source=imported.allowed_in_source,
        )


def _parse(where: str, record: dict[str, Any]) -> ImportedFinding:
    try:
        return ImportedFinding.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise RecordError(where, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _masked(text: str | None, masked: Callable[[str], str]) -> str | None:
    return None if text is None else masked(text)


def _masked_values(value: Any, masked: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return masked(value).replace("\0", "\ufffd")  # PostgreSQL's text has no NUL
    if isinstance(value, list):
        return [_masked_values(item, masked) for item in value]
    if isinstance(value, dict):
        return {_masked_values(key, masked): _masked_values(item, masked) for key, item in value.items()}
    return value
