"""Merge reports of scanners without an account: the same credential at the same place is one finding."""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import BinaryIO
from uuid import UUID

from outcrop.domain.finding import Finding
from outcrop.services.exchange.apply_report import apply_report, takes_credential
from outcrop.services.exchange.formats import ImportFormat, read_records
from outcrop.services.exchange.import_records import RecordBuilder
from outcrop.services.exchange.match_reports import ReportMatcher, with_id
from outcrop.services.exchange.report_score import score_report
from outcrop.store.findings.record import FindingRecord
from outcrop.store.keyring import Keyring

_KEY_BYTES = 32


@dataclass(slots=True)
class MergedFinding:
    """A finding, credentials masked, and the reports that have it."""

    record: FindingRecord
    sources: list[str] = field(default_factory=list)

    @property
    def finding(self) -> Finding:
        return self.record.finding


def merge_reports(
    files: Iterable[tuple[str, BinaryIO]], format_: ImportFormat, *, now: datetime
) -> list[MergedFinding]:
    """Return the findings of all files, the highest score first. Each file has a name and its content.

    Raise BadInputError for a file of no known format, RecordError for a record that is no finding. The keys
    are random and forgotten afterwards: they only compare the credentials of these files.
    """
    keys = Keyring(secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(_KEY_BYTES))
    merged: dict[UUID, MergedFinding] = {}
    matcher = ReportMatcher({}, {}, set())
    for name, file in files:
        detected, file_records = read_records(file, format_)
        builder = RecordBuilder(
            keys, 0, now, keep_secrets=False, format_=detected, restore=False, may_restore=False
        )
        for entry in builder.build_all(file_records, lambda _: None):
            match = matcher.match(entry.record, entry.report_ids)
            record = with_id(keys, 0, entry.record, match)
            found = merged.setdefault(match.id, MergedFinding(record))
            if found.record is not record:
                found.record = _merge(found.record, record, now)
            if name not in found.sources:
                found.sources.append(name)
    return sorted(merged.values(), key=_order)


def _merge(record: FindingRecord, report: FindingRecord, now: datetime) -> FindingRecord:
    """Return the row of a finding after another report about it, with the score of a new credential."""
    merged = apply_report(record, report)
    return score_report(merged, places=1, moment=now) if takes_credential(record, report) else merged


def _order(entry: MergedFinding) -> tuple[float, str, str, int]:
    """Return the sort key: the highest score first, then by place."""
    finding = entry.finding
    return (
        -finding.composite_score,
        finding.repo_full_name or finding.source_url or "",
        finding.file_path or "",
        finding.line_number or 0,
    )
