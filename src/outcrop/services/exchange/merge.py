"""Merge a batch of imported records with the stored findings.

A record that restores replaces all fields of its finding. A scanner's report changes only the fields that
`apply_report` names, and none that a person decides about.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.domain.secret import is_password
from outcrop.services.exchange.apply_report import (
    apply_report,
    join_lines,
    takes_credential,
    verdict_of,
)
from outcrop.services.exchange.formats import RecordError
from outcrop.services.exchange.import_records import ImportRecord, mask_finding
from outcrop.services.exchange.match_reports import ReportMatcher, with_id
from outcrop.services.exchange.place_records import place_records
from outcrop.services.exchange.report_score import score_report
from outcrop.store import audit
from outcrop.store.db import Connection
from outcrop.store.findings import bulk, table
from outcrop.store.findings.record import FindingRecord
from outcrop.store.keyring import Keyring
from outcrop.store.runs import sources


async def merge_with_stored(
    db: Connection, keys: Keyring, account_id: int, batch: Sequence[ImportRecord], *, by: str, now: datetime
) -> "MergedBatch":
    """Return the rows to write, one per finding; an audit line is written for each changed verdict.

    Findings that a report does not change are left out. Changed ones are locked before they are read.
    """
    merged = await _merge_batch(db, keys, account_id, await place_records(db, account_id, batch))
    changes = merged.find_changes()
    taken = [changes[id_] for id_ in merged.taken if id_ in changes]
    places = await _count_places(
        db, account_id, [*merged.rows.values(), *changes.values()], [*merged.new, *taken]
    )
    locked = await bulk.select_records(db, account_id, list(changes), lock=True) if changes else {}
    updated = []
    for id_, before in locked.items():
        after = merged.apply_reports(id_, before)
        if verdict_of(after.finding) != verdict_of(before.finding) or takes_credential(before, after):
            after = score_report(after, places=_places_of(after, places), moment=now)
        await _audit_verdict(db, account_id, before.finding, after.finding, by=by, now=now)
        updated.append(_mask_known(keys, account_id, after, merged.taken.get(id_)))
    rows = []
    for id_, record in merged.rows.items():
        count = _places_of(record, places)
        is_rescored = id_ in merged.rescored or (record.score_detail is not None and count > 1)
        scored = score_report(record, places=count, moment=now) if is_rescored else record
        rows.append(_mask_known(keys, account_id, scored, merged.taken.get(id_)))
    return MergedBatch(
        [*rows, *updated],
        _find_repeated([*rows, *taken], places),
        [record for record in rows if record.finding.id in merged.added],
        [record for record in updated if record.finding.id in merged.taken],
        merged.reported - len(changes),
    )


async def _merge_batch(
    db: Connection, keys: Keyring, account_id: int, batch: Sequence[ImportRecord]
) -> "_Merge":
    """Return the rows of a batch, and its reports about stored findings."""
    matcher = await _open_matcher(db, account_id, batch)
    boxes = await _select_boxes(db, account_id, batch)
    known = {*matcher.by_identity.values(), *matcher.by_report}
    matched = [_with_stored_id(keys, account_id, entry, matcher) for entry in batch]
    reports = (record for record, entry in zip(matched, batch, strict=True) if not entry.restores)
    reported = sorted({record.finding.id for record in reports} & known)
    stored = await bulk.select_records(db, account_id, reported, lock=False) if reported else {}
    merged = _Merge(stored)
    for record, entry in zip(matched, batch, strict=True):
        if not entry.restores:
            merged.report(record)
            continue
        restored = merged.restore(record)
        if record.fingerprint is None:  # a known credential must not appear in its texts
            id_ = record.finding.id
            merged.rows[id_] = _mask_known(keys, account_id, restored, restored.secret_box or boxes.get(id_))
    return merged


def _find_repeated(records: Iterable[FindingRecord], places: Counter[bytes]) -> list[bytes]:
    """Return the fingerprints of the records' credentials that may be at several places."""
    return [
        record.fingerprint
        for record in records
        if record.fingerprint is not None and (record.score_detail is None or places[record.fingerprint] > 1)
    ]


@dataclass(frozen=True, slots=True)
class MergedBatch:
    """The rows to write, and the credentials that may be at several places."""

    records: list[FindingRecord]
    repeated: list[bytes]  # fingerprints
    new: list[FindingRecord]  # the new findings of reports
    known: list[FindingRecord]  # stored findings whose credential is known now
    unchanged: int  # stored findings that the reports did not change


class _Merge:
    """The rows of a batch, and the reports about stored findings."""

    def __init__(self, stored: dict[UUID, FindingRecord]) -> None:
        self.stored = stored
        self.rows: dict[UUID, FindingRecord] = {}  # restored and new findings
        self.added: dict[UUID, None] = {}  # ids of new findings of reports, in their order
        self.rescored: set[UUID] = set()  # rows whose score is that of another verdict or credential
        self.taken: dict[UUID, bytes | None] = {}  # encrypted credentials of findings that had none
        self._reports: defaultdict[UUID, list[FindingRecord]] = defaultdict(list)  # about stored findings

    @property
    def new(self) -> list[FindingRecord]:
        """The new findings of reports."""
        return [record for record in self.rows.values() if record.score_detail is not None]

    @property
    def reported(self) -> int:
        """The number of stored findings that reports are about."""
        return len(self._reports)

    def restore(self, record: FindingRecord) -> FindingRecord:
        """Add a restored finding, in place of earlier records of the batch about it; return its row."""
        id_ = record.finding.id
        self._reports.pop(id_, None)
        self.added.pop(id_, None)
        self.rescored.discard(id_)
        self.rows[id_] = _merge_restored(self.rows[id_], record) if id_ in self.rows else record
        return self.rows[id_]

    def report(self, report: FindingRecord) -> None:
        """Add a scanner's report about a finding of this batch, a stored one or a new one."""
        id_ = report.finding.id
        earlier = self.rows.get(id_) or self.stored.get(id_)
        if earlier is not None and takes_credential(earlier, report) and id_ not in self.taken:
            self.taken[id_] = report.secret_box
            self.rescored.add(id_)
        if id_ in self.rows:
            report = join_lines(self.rows[id_], report)
            before, self.rows[id_] = self.rows[id_], apply_report(self.rows[id_], report)
            if verdict_of(before.finding) != verdict_of(self.rows[id_].finding):
                self.rescored.add(id_)
        elif id_ in self.stored:
            last = self._reports[id_][-1:]
            self._reports[id_].append(join_lines(last[0], report) if last else report)
        else:
            self.rows[id_] = report
            self.added[id_] = None

    def apply_reports(self, id_: UUID, record: FindingRecord) -> FindingRecord:
        """Return the row of a stored finding after all reports about it."""
        return reduce(apply_report, self._reports[id_], record)

    def find_changes(self) -> dict[UUID, FindingRecord]:
        """Return the rows of stored findings that a report changes, by id, in the order of the ids."""
        after = ((id_, self.apply_reports(id_, self.stored[id_])) for id_ in sorted(self._reports))
        return {id_: record for id_, record in after if record != self.stored[id_]}


# --- stored values of a batch


async def _open_matcher(db: Connection, account_id: int, batch: Sequence[ImportRecord]) -> ReportMatcher:
    """Return a matcher of the stored findings that the batch can be about."""
    identities = [entry.record.identity for entry in batch if entry.record.identity is not None]
    ids = await table.select_ids_by_identity(db, account_id, identities) if identities else {}
    report_ids = sorted({id_ for entry in batch for id_ in entry.report_ids})
    stored = await table.select_fingerprints(db, account_id, report_ids) if report_ids else {}
    return ReportMatcher.of_stored(ids, stored)


async def _select_boxes(db: Connection, account_id: int, batch: Iterable[ImportRecord]) -> dict[UUID, bytes]:
    """Return the stored credentials of findings that the batch restores without their credential, by id."""
    ids = [e.record.finding.id for e in batch if e.has_id and e.record.fingerprint is None]
    return await table.select_secret_boxes(db, account_id, ids) if ids else {}


async def _count_places(
    db: Connection, account_id: int, records: Iterable[FindingRecord], new: Iterable[FindingRecord]
) -> Counter[bytes]:
    """Return the number of places of the records' credentials, with the new ones, by fingerprint."""
    fingerprints = {record.fingerprint for record in records if record.fingerprint is not None}
    stored = await sources.count_places(db, account_id, sorted(fingerprints)) if fingerprints else {}
    places = Counter(record.fingerprint for record in new if record.fingerprint is not None)
    places.update(stored)
    return places


def _places_of(record: FindingRecord, places: Counter[bytes]) -> int:
    """Return the number of places of a record's credential; 1 if it has none."""
    return 1 if record.fingerprint is None else places[record.fingerprint]


def _with_stored_id(
    keys: Keyring, account_id: int, entry: ImportRecord, matcher: ReportMatcher
) -> FindingRecord:
    """Return the record with the id of the finding that it restores, or that it is a report about."""
    if entry.restores:
        return _use_stored_id(entry, matcher.by_identity)
    return with_id(keys, account_id, entry.record, matcher.match(entry.record, entry.report_ids))


async def _audit_verdict(
    db: Connection, account_id: int, before: Finding, after: Finding, *, by: str, now: datetime
) -> None:
    """Write an audit line if the validation status has changed."""
    if after.validation_status is before.validation_status:
        return
    detail = {"from": before.validation_status, "to": after.validation_status, "reason": "imported report"}
    await audit.append(
        db, account_id, audit.AuditLine(now, by, "finding.validate", str(after.id), detail=detail)
    )


# --- restored findings


def _use_stored_id(entry: ImportRecord, ids: dict[bytes, UUID]) -> FindingRecord:
    """Return the restored record with the id of the finding at the same place; a new place is added to `ids`.

    Raise RecordError if the file names another id for the place.
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
    return replace(record, finding=replace(record.finding, id=stored_id), secret_box=None, source_path=None)


def _mask_known(keys: Keyring, account_id: int, record: FindingRecord, box: bytes | None) -> FindingRecord:
    """Return the record with the credential in the box masked in its texts; the box is the finding's."""
    if box is None:
        return record
    finding = record.finding
    secret = keys.open(box, account_id, finding.id, mask_all=is_password(finding.pattern.secret_type))
    return replace(record, finding=mask_finding(finding, secret))


def _merge_restored(earlier: FindingRecord, later: FindingRecord) -> FindingRecord:
    """Return the later of two records with the same id, with the earlier one's values where it has none."""
    finding = replace(later.finding, commit=later.finding.commit or earlier.finding.commit)
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
