"""Incidents: one credential of an account with all its places, and queries for their list."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.finding import (
    Confidence,
    CredentialPattern,
    Severity,
    Validation,
    score_bounds,
    severity_of,
)
from outcrop.domain.paging import OrderDir

UNASSIGNED = "none"  # the filter for what nobody has been assigned to


class IncidentStatus(StrEnum):
    """Open while any place is active or stale."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Incident:
    """One credential with all its places.

    The verdict, the masked text and the pattern are those of one place: one with a valid verdict if there is
    one, otherwise the one with the newest verdict. The score is the highest of the open places; of all when
    closed.
    """

    id: UUID
    places: int
    open_places: int
    composite_score: float
    validation_status: Validation
    validation_confidence: Confidence
    validation_detail: dict[str, Any]
    matched_text: str
    pattern: CredentialPattern
    first_seen_at: datetime
    last_seen_at: datetime
    closed_at: datetime | None
    due_at: datetime | None
    assignee: str | None

    @property
    def status(self) -> IncidentStatus:
        return IncidentStatus.OPEN if self.open_places else IncidentStatus.CLOSED

    @property
    def severity(self) -> Severity:
        return severity_of(self.composite_score)

    def is_overdue(self, now: datetime) -> bool:
        """Whether the incident is open and its due date is over."""
        return self.open_places > 0 and self.due_at is not None and self.due_at < now


def public_incident(incident: Incident, now: datetime) -> dict[str, Any]:
    """Return the incident's fields as the API shows them, every key present."""
    return {
        "id": incident.id,
        "status": incident.status,
        "composite_score": incident.composite_score,
        "severity": incident.severity,
        "validation_status": incident.validation_status,
        "validation_confidence": incident.validation_confidence,
        "validation_detail": incident.validation_detail,
        "matched_text": incident.matched_text,
        "pattern": incident.pattern._asdict(),
        "places": incident.places,
        "open_places": incident.open_places,
        "first_seen_at": incident.first_seen_at,
        "last_seen_at": incident.last_seen_at,
        "closed_at": incident.closed_at,
        "assignee": incident.assignee,
        "due_at": incident.due_at,
        "overdue": incident.is_overdue(now),
        "ticket_url": None,
    }


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on an incident."""

    id: UUID
    at: datetime
    by: str
    text: str
    mentions: tuple[str, ...] = ()  # the members that it mentions; only of a new comment


class IncidentOrder(StrEnum):
    COMPOSITE_SCORE = "composite_score"
    FIRST_SEEN_AT = "first_seen_at"
    LAST_SEEN_AT = "last_seen_at"
    DUE_AT = "due_at"  # incidents without a due date are last in ascending order


@dataclass(frozen=True, slots=True)
class IncidentQuery:
    """Filters, order and page of a list of incidents; filters combine with AND."""

    status: IncidentStatus | None = None
    validation: Validation | None = None
    service: str | None = None
    secret_type: str | None = None
    min_score: float | None = None
    severity: Severity | None = None
    seen_from: datetime | None = None  # first seen at or after
    seen_before: datetime | None = None  # first seen before
    terms: tuple[str, ...] = ()
    assignee: str | None = None  # an address in any case, or empty: nobody
    overdue: bool | None = None
    closed_valid: bool | None = None  # closed, and the credential is still valid
    page: int = 1
    per_page: int = 25
    order_by: IncidentOrder = IncidentOrder.COMPOSITE_SCORE
    order_dir: OrderDir = OrderDir.DESC

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page

    @property
    def lowest_score(self) -> float:
        """The lowest score that `min_score` and `severity` accept."""
        lowest = 0.0 if self.severity is None else score_bounds(self.severity)[0]
        return max(lowest, self.min_score or 0.0)

    @property
    def score_below(self) -> float | None:
        """The lowest score that is too high for `severity`; None if none is."""
        return None if self.severity is None else score_bounds(self.severity)[1]
