"""The events an account's webhook receives, and which part of the finding each one carries."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Action, Finding, Validation, public_fields


class EventType(StrEnum):
    NEW = "finding.new"
    RESOLVED = "finding.resolved"
    FALSE_POSITIVE = "finding.false_positive"


FIELDS = {
    EventType.NEW: (
        "id",
        "status",
        "validation_status",
        "validation_confidence",
        "composite_score",
        "source_type",
        "source_visibility",
        "source_url",
        "repo_full_name",
        "file_path",
        "line_number",
        "matched_text",
        "pattern",
        "first_seen_at",
        "last_seen_at",
        "seen_count",
    ),
    EventType.RESOLVED: (
        "id",
        "status",
        "resolved_at",
        "resolution_note",
        "resolution_evidence",
        "validation_status",
        "composite_score",
        "source_url",
        "matched_text",
        "pattern",
    ),
    EventType.FALSE_POSITIVE: ("id", "status", "source_url", "pattern"),
}
# Restricting a finding sends nothing.
OF_ACTION = {Action.RESOLVE: EventType.RESOLVED, Action.FALSE_POSITIVE: EventType.FALSE_POSITIVE}


@dataclass(frozen=True, slots=True)
class Event:
    type: EventType
    finding_id: UUID
    finding: dict[str, Any]


def event_of(action: Action, finding: Finding) -> Event | None:
    """Give the event that the action sends about the finding as it is after it."""
    if (event := OF_ACTION.get(action)) is None:
        return None
    return event_about(event, finding)


def event_about(event: EventType, finding: Finding) -> Event:
    """Give an event about the finding as it is. `finding.new` has no word for a check that failed: nothing is known then."""
    fields = public_fields(finding)
    if event is EventType.NEW and finding.validation_status is Validation.ERROR:
        fields["validation_status"] = Validation.UNVALIDATED
    return Event(event, finding.id, {name: fields[name] for name in FIELDS[event]})
