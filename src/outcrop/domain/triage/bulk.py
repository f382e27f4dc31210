"""One triage action on all findings that match a filter, as a background job."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from outcrop.domain.finding import TriageAction


@dataclass(frozen=True, slots=True)
class BulkTriage:
    """A job with its progress."""

    id: UUID
    action: TriageAction
    by: str
    created_at: datetime
    total: int
    done: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: int = 0
    missing: int = 0
    stopped_by: str | None = None
    finished_at: datetime | None = None
