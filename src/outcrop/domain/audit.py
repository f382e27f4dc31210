"""Filters and outcomes of the audit trail."""

from dataclasses import dataclass
from datetime import datetime

OUTCOMES = ("ok", "failed", "unknown", "dropped")


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Conditions for lines of the audit trail; a line must meet every condition that is not None."""

    action: str | None = None  # `webhook` also matches every action that begins with `webhook.`
    actor: str | None = None
    target: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # exclusive
