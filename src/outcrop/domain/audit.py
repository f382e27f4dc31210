"""What is asked of the audit trail."""

from dataclasses import dataclass
from datetime import datetime

OUTCOMES = ("ok", "failed", "unknown", "dropped")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which lines are wanted: all that hold to everything that is given."""

    action: str | None = None  # `webhook` is every action that begins with `webhook.`
    actor: str | None = None
    target: str | None = None
    outcome: str | None = None
    since: datetime | None = None
    until: datetime | None = None  # not itself
