"""Find out from the activity of a finding or incident what became of a check that somebody asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from outcrop.domain.finding import Finding
from outcrop.domain.incident import Incident
from outcrop.services.pipeline.enqueue import REVALIDATE_ACTION
from outcrop.store.audit import AuditLine

_VALIDATE_ACTION = "finding.validate"
_PATIENCE = timedelta(minutes=15)  # a check that has not ended by then is not waited for


@dataclass(frozen=True, slots=True)
class CheckState:
    """When a credential was last checked, and what became of the last request for a check."""

    checked_at: datetime | None
    requested_at: datetime | None = None
    requested_by: str = ""
    is_pending: bool = False
    failure: str | None = None  # why the requested check was not possible


def describe_check(subject: Finding | Incident, history: Sequence[AuditLine], now: datetime) -> CheckState:
    """Return the state of the check of a credential; `history` are the audit lines, newest first."""
    checked_at = _read_time(subject.validation_detail.get("checked_at"))
    has_ended = False
    for line in history:
        if line.action == _VALIDATE_ACTION:
            has_ended = True
        if line.action == REVALIDATE_ACTION:
            failure = str(line.detail.get("reason", "")) if line.outcome == "failed" else None
            is_pending = not has_ended and failure is None and now - line.at < _PATIENCE
            if failure is None and not has_ended and not is_pending:
                failure = "it has not ended within 15 minutes; is a worker running?"
            return CheckState(checked_at, line.at, line.actor, is_pending, None if has_ended else failure)
    return CheckState(checked_at)


def _read_time(text: object) -> datetime | None:
    """Return a stored time; None if there is none or it cannot be read."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None and moment.year > 1970 else None
