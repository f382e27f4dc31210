"""Webhook events: their types, and the fields of the finding that each type contains."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from outcrop.domain.finding import (
    Action,
    Confidence,
    CredentialPattern,
    Finding,
    SourceType,
    Status,
    Validation,
    Visibility,
    public_fields,
)
from outcrop.domain.secret import MASK


class EventType(StrEnum):
    NEW = "finding.new"
    RESOLVED = "finding.resolved"
    FALSE_POSITIVE = "finding.false_positive"
    TEST = "webhook.test"  # sent only on request, to test a receiver


FIELDS: dict[EventType, tuple[str, ...]] = {
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
FIELDS[EventType.TEST] = (*FIELDS[EventType.NEW], "test")
# Restricting a finding sends no event.
EVENT_OF_ACTION = {Action.RESOLVE: EventType.RESOLVED, Action.FALSE_POSITIVE: EventType.FALSE_POSITIVE}


@dataclass(frozen=True, slots=True)
class Event:
    type: EventType
    finding_id: UUID
    finding: dict[str, Any]


def event_of(action: Action, finding: Finding) -> Event | None:
    """Return the event of a triage action, or None. `finding` is the finding after the action."""
    if (event := EVENT_OF_ACTION.get(action)) is None:
        return None
    return event_about(event, finding)


def event_about(event: EventType, finding: Finding) -> Event:
    """Return an event of this type with the finding's current fields.

    In `finding.new` the validation status `error` is sent as `unvalidated`, as the specification requires.
    """
    fields = public_fields(finding)
    if event is EventType.NEW and finding.validation_status is Validation.ERROR:
        fields["validation_status"] = Validation.UNVALIDATED
    return Event(event, finding.id, {name: fields[name] for name in FIELDS[event]})


def example_event(now: datetime) -> Event:
    """Return a test event with example values; its field `test` is true."""
    finding = Finding(
        id=UUID(int=0),
        status=Status.ACTIVE,
        validation_status=Validation.UNVALIDATED,
        validation_confidence=Confidence.LOW,
        validation_detail={},
        composite_score=0.0,
        source_type=SourceType.REPO,
        source_visibility=Visibility.PUBLIC,
        source_url="https://git.example/acme/example/blob/main/settings.py#L1",
        repo_full_name="acme/example",
        file_path="settings.py",
        line_number=1,
        matched_text=f"test{MASK}test",
        pattern=CredentialPattern("Test event", "test"),
        first_seen_at=now,
        last_seen_at=now,
        seen_count=1,
    )
    fields = public_fields(finding) | {"test": True}
    return Event(EventType.TEST, finding.id, {name: fields[name] for name in FIELDS[EventType.TEST]})
