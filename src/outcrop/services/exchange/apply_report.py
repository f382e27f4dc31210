"""What a scanner's report changes about a finding that exists."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outcrop.domain.finding import Finding, Status, Validation
from outcrop.limits import FINDING_LINES
from outcrop.store.findings.record import FindingRecord

_UNDECIDED = frozenset({Validation.ERROR, Validation.UNREACHABLE})


def apply_report(record: FindingRecord, report: FindingRecord) -> FindingRecord:
    """Return the row of a finding after a scanner's report about it.

    The report can set the line, the commit with its author and date, a later time at which the finding was
    seen, and a newer verdict. A finding that had no credential gets that of the report.
    """
    if takes_credential(record, report):
        record = _take_credential(record, report)
    finding, reported = record.finding, report.finding
    if not report.keep_last_seen and reported.last_seen_at > finding.last_seen_at:
        finding = replace(finding, last_seen_at=reported.last_seen_at)
    if reported.line_number is not None:
        is_known = set(reported.lines) <= set(finding.lines)
        lines, total = (
            (finding if is_known else reported).lines,
            (finding if is_known else reported).lines_total,
        )
        finding = replace(finding, line_number=reported.line_number, lines=lines, lines_total=total)
    if reported.commit is not None:
        author, committed_at = reported.author, reported.committed_at
        if reported.commit == finding.commit:
            author, committed_at = author or finding.author, committed_at or finding.committed_at
        finding = replace(finding, commit=reported.commit, author=author, committed_at=committed_at)
    if _has_newer_verdict(finding, reported):
        finding = _take_verdict(finding, reported)
    return replace(record, finding=finding)


def takes_credential(record: FindingRecord, report: FindingRecord) -> bool:
    """Whether a report has the credential of a finding that was known without it."""
    return record.fingerprint is None and report.fingerprint is not None


def _take_credential(record: FindingRecord, report: FindingRecord) -> FindingRecord:
    """Return the row of a finding with the credential of a report, and with what follows from it.

    The address, path and name are those of the report, where the credential is masked. A closed finding
    stays closed, and its credential is not stored.
    """
    finding, reported = record.finding, report.finding
    finding = replace(
        finding,
        matched_text=reported.matched_text,
        pattern=reported.pattern,
        rule=reported.rule or finding.rule,
        context=reported.context,
        source_url=reported.source_url or finding.source_url,
        file_path=reported.file_path,
        author=reported.author or finding.author,
    )
    return replace(
        report,
        finding=finding,
        secret_box=report.secret_box if finding.status is Status.ACTIVE else None,
        keep_first_seen=record.keep_first_seen,
        keep_last_seen=record.keep_last_seen,
    )


def join_lines(earlier: FindingRecord, report: FindingRecord) -> FindingRecord:
    """Return a report with the lines of an earlier record about the same finding too.

    Other scanners report each line of a value by itself.
    """
    lines = sorted({*earlier.finding.lines, *report.finding.lines})
    total = max(len(lines), earlier.finding.lines_total, report.finding.lines_total)
    if report.finding.line_number is None or total == report.finding.lines_total:
        return report
    finding = replace(report.finding, lines=tuple(lines[:FINDING_LINES]), lines_total=total)
    return replace(report, finding=finding)


def _has_newer_verdict(finding: Finding, reported: Finding) -> bool:
    """Whether a report decides more, or later, than the stored verdict.

    Any verdict is more than none. A verdict without a time replaces only another one without a time, and one
    that decides nothing replaces no decision.
    """
    if reported.validation_status is Validation.UNVALIDATED:
        return False
    if finding.validation_status is Validation.UNVALIDATED:
        return True
    if reported.validation_status in _UNDECIDED:
        return False
    ours, theirs = _checked_at(finding), _checked_at(reported)
    if theirs is None:
        return ours is None and reported.validation_status is not finding.validation_status
    return ours is None or theirs > ours


def verdict_of(finding: Finding) -> tuple[Any, ...]:
    """Return the fields of a finding's verdict."""
    return finding.validation_status, finding.validation_confidence, finding.validation_detail


def _checked_at(finding: Finding) -> datetime | None:
    """Return the time of a finding's verdict; None if it is not known."""
    try:
        moment = datetime.fromisoformat(finding.validation_detail["checked_at"])
    except (KeyError, TypeError, ValueError):
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _take_verdict(finding: Finding, reported: Finding) -> Finding:
    """Return the finding with the verdict of a report; known services of a valid credential stay."""
    detail = finding.validation_detail | reported.validation_detail
    if reported.validation_status is Validation.VALID and not detail["enabled_services"]:
        detail["enabled_services"] = finding.validation_detail["enabled_services"]
    return replace(
        finding,
        validation_status=reported.validation_status,
        validation_confidence=reported.validation_confidence,
        validation_detail=detail,
    )
