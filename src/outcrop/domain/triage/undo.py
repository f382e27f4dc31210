"""Undo of a triage: for a short time, for each finding that nothing else has changed."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import UUID

from outcrop.domain.finding import Finding, Resolution, Status, TriageAction

UNDO_WINDOW = timedelta(seconds=30)
UNDOABLE = frozenset(
    {TriageAction.RESOLVE, TriageAction.RESTRICT, TriageAction.FALSE_POSITIVE, TriageAction.SUPPRESS}
)


@dataclass(frozen=True, slots=True)
class TriageState:
    """The fields of a finding that a triage changes."""

    status: Status
    resolution_note: str | None
    resolved_at: datetime | None
    resolution_evidence: Resolution | None
    suppressed_at: datetime | None

    @classmethod
    def of(cls, finding: Finding) -> Self:
        """Return the state of a finding."""
        return cls(
            finding.status,
            finding.resolution_note,
            finding.resolved_at,
            finding.resolution_evidence,
            finding.suppressed_at,
        )

    @classmethod
    def from_json(cls, values: list[Any]) -> Self:
        """Return the state that `to_json` wrote."""
        status, note, resolved_at, evidence, suppressed_at = values
        return cls(
            Status(status),
            note,
            None if resolved_at is None else datetime.fromisoformat(resolved_at),
            None if evidence is None else Resolution(*evidence),
            None if suppressed_at is None else datetime.fromisoformat(suppressed_at),
        )

    def to_json(self) -> list[Any]:
        """Return the state as JSON values."""
        return [
            self.status,
            self.resolution_note,
            None if self.resolved_at is None else self.resolved_at.isoformat(),
            None if self.resolution_evidence is None else list(self.resolution_evidence),
            None if self.suppressed_at is None else self.suppressed_at.isoformat(),
        ]


@dataclass(frozen=True, slots=True)
class TriageChange:
    """What a triage changed in one finding."""

    finding_id: UUID
    before: TriageState
    after: TriageState


def restore(finding: Finding, change: TriageChange) -> Finding | None:
    """Return the finding as it was before a triage; None if something has changed it since."""
    if TriageState.of(finding) != change.after:
        return None
    before = change.before
    return replace(
        finding,
        status=before.status,
        resolution_note=before.resolution_note,
        resolved_at=before.resolved_at,
        resolution_evidence=before.resolution_evidence,
        suppressed_at=before.suppressed_at,
    )
