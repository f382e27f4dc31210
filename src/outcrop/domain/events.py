"""The events an account's webhook receives, and which part of the finding each one carries."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.finding import Action, Finding, public_fields


class EventType(StrEnum):
    RESOLVED = "finding.resolved"
    FALSE_POSITIVE = "finding.false_positive"


FIELDS = {
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
    fields = public_fields(finding)
    return Event(event, finding.id, {name: fields[name] for name in FIELDS[event]})
