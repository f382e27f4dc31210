"""Name the columns of a finding, and build a Finding from a row of them."""

from typing import Any

from outcrop.domain.finding import Confidence, Finding, Resolution, SourceType, Status, Validation, Visibility

COLUMNS = (
    "id, status, validation_status, validation_confidence, validation_detail, composite_score, "
    "source_type, source_visibility, source_url, repo_full_name, file_path, line_number, "
    "matched_text, pattern_name, pattern_secret_type, first_seen_at, last_seen_at, seen_count, "
    "resolved_at, resolution_note, auto_resolved, resolved_by, suppressed_at, "
    "current_line, allowed_in_source"
)

# A dict lookup is ten times faster than calling an enum's class.
_STATUS = {value.value: value for value in Status}
_VALIDATION = {value.value: value for value in Validation}
_CONFIDENCE = {value.value: value for value in Confidence}
_SOURCE = {value.value: value for value in SourceType}
_VISIBILITY = {value.value: value for value in Visibility}


def build_finding(row: tuple[Any, ...]) -> Finding:
    """Return the finding of a row whose first columns are COLUMNS."""
    return Finding(
        row[0],
        _STATUS[row[1]],
        _VALIDATION[row[2]],
        _CONFIDENCE[row[3]],
        row[4],
        row[5],
        _SOURCE[row[6]],
        _VISIBILITY[row[7]],
        row[8],
        row[9],
        row[10],
        row[11],
        row[12],
        row[13],
        row[14],
        row[15],
        row[16],
        row[17],
        row[18],
        row[19],
        None if row[20] is None else Resolution(auto_resolved=row[20], resolved_by=row[21]),
        row[22],
        row[23],
        row[24],
    )
