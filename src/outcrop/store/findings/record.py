"""A finding with the columns of its row that are not public."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Finding


@dataclass(frozen=True, slots=True)
class FindingRecord:
    """A finding and the columns of its row that are not part of the finding; None keeps a stored value."""

    finding: Finding
    fingerprint: bytes | None = None
    verdict_key: bytes | None = None
    identity: bytes | None = None
    secret_box: bytes | None = None
    excerpt_box: bytes | None = None
    source: str | None = None
    source_path: bytes | None = None
    media_type: str | None = None
    last_scan_id: UUID | None = None
    new_scan_id: UUID | None = None  # the run that reports the finding as new
    score_detail: dict[str, Any] | None = None
    keep_first_seen: bool = False  # if the finding exists, keep its stored time
    keep_last_seen: bool = False
