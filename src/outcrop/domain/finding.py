"""A finding: its states, what moves it from one to another, and the form everyone outside sees it in."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from outcrop.domain.errors import TransitionError
from outcrop.domain.secret import Clean

NOTE_LENGTH = 500


class Status(StrEnum):
    ACTIVE = "active"
    RESOLVED = "resolved"
    FALSE_POSITIVE = "false_positive"
    CUSTOMER_RESTRICTED = "customer_restricted"
    STALE = "stale"


class Validation(StrEnum):
    VALID = "valid"
    INVALID = "invalid"
    UNVALIDATED = "unvalidated"
    ERROR = "error"
    UNREACHABLE = "unreachable"


class Confidence(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class SourceType(StrEnum):
    REPO = "repo"
    GIST = "gist"
    COMMIT = "commit"
    ENDPOINT = "endpoint"
    JS_BUNDLE = "js_bundle"


class Visibility(StrEnum):
    PUBLIC = "public"
    INTERNAL = "internal"
    PRIVATE = "private"
    UNKNOWN = "unknown"


class Resolution(NamedTuple):
    """How a finding was closed."""

    auto_resolved: bool
    resolved_by: str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """A credential at a place, as it stands now."""

    id: UUID
    status: Status
    validation_status: Validation
    validation_confidence: Confidence
    validation_detail: dict[str, Any]
    composite_score: float
    source_type: SourceType
    source_visibility: Visibility
    source_url: str | None
    repo_full_name: str | None
    file_path: str | None
    line_number: int | None
    matched_text: str
    pattern_name: str
    pattern_secret_type: str
    first_seen_at: datetime
    last_seen_at: datetime
    seen_count: int
    resolved_at: datetime | None = None
    resolution_note: str | None = None
    resolution_evidence: Resolution | None = None
    suppressed_at: datetime | None = None
    current_line: int | None = None  # at the tip; `line_number` is that of the oldest commit
    allowed_in_source: bool = False  # its line says that it is meant to be there


class Action(StrEnum):
    """What a person can do to a finding's status."""

    RESOLVE = "resolve"
    RESTRICT = "restrict"
    FALSE_POSITIVE = "false_positive"


class Outcome(StrEnum):
    MOVES = "moves"
    STAYS = "stays"  # already there: answered well, nothing rewritten, no event
    REFUSED = "refused"


TARGET = {
    Action.RESOLVE: Status.RESOLVED,
    Action.RESTRICT: Status.CUSTOMER_RESTRICTED,
    Action.FALSE_POSITIVE: Status.FALSE_POSITIVE,
}
# Any state that is not named here lets the action move it.
EXCEPTIONS: dict[tuple[Action, Status], Outcome] = {
    (Action.RESOLVE, Status.RESOLVED): Outcome.STAYS,
    (Action.RESOLVE, Status.FALSE_POSITIVE): Outcome.REFUSED,
    (Action.RESTRICT, Status.CUSTOMER_RESTRICTED): Outcome.STAYS,
    (Action.RESTRICT, Status.RESOLVED): Outcome.REFUSED,
    (Action.RESTRICT, Status.FALSE_POSITIVE): Outcome.REFUSED,
    (Action.FALSE_POSITIVE, Status.FALSE_POSITIVE): Outcome.STAYS,
}


def outcome(action: Action, status: Status) -> Outcome:
    return EXCEPTIONS.get((action, status), Outcome.MOVES)


def close(
    finding: Finding, action: Action, *, note: str | None, by: str | None, now: datetime
) -> Finding | None:
    """Give the finding after the action, None where it is there already, or raise where its state does not allow it."""
    match outcome(action, finding.status):
        case Outcome.STAYS:
            return None
        case Outcome.REFUSED:
            raise TransitionError(f"a finding that is {finding.status} cannot be moved to {TARGET[action]}")
        case Outcome.MOVES:
            resolved = action is Action.RESOLVE
            return replace(
                finding,
                status=TARGET[action],
                resolution_note=note,
                resolved_at=now if resolved else None,
                resolution_evidence=Resolution(auto_resolved=False, resolved_by=by) if resolved else None,
            )


# Reopening: what is closed becomes active again. Only a run can tell that a stale finding is there.
REOPENS = {
    Status.ACTIVE: Outcome.STAYS,
    Status.RESOLVED: Outcome.MOVES,
    Status.FALSE_POSITIVE: Outcome.MOVES,
    Status.CUSTOMER_RESTRICTED: Outcome.MOVES,
    Status.STALE: Outcome.REFUSED,
}


def reopen(finding: Finding) -> Finding | None:
    """Give the finding active again, with nothing left of how it was closed; None where it is active already."""
    match REOPENS[finding.status]:
        case Outcome.STAYS:
            return None
        case Outcome.REFUSED:
            raise TransitionError(
                f"a finding that is {finding.status} is not closed: it is active again when a scan sees it"
            )
        case Outcome.MOVES:
            return replace(
                finding,
                status=Status.ACTIVE,
                resolved_at=None,
                resolution_note=None,
                resolution_evidence=None,
            )


def seen(finding: Finding, *, proven: bool = False) -> tuple[Finding, bool]:
    """Give the finding after a run saw it again, and whether that is news.

    What a person has closed stays closed, unless a check made since then proves the credential alive.
    """
    evidence = finding.resolution_evidence
    if finding.status is Status.STALE:
        return replace(finding, status=Status.ACTIVE), False
    if finding.status is Status.RESOLVED and evidence is not None and (evidence.auto_resolved or proven):
        return replace(
            finding, status=Status.ACTIVE, resolved_at=None, resolution_note=None, resolution_evidence=None
        ), True
    return finding, False


def gone(finding: Finding, *, now: datetime) -> Finding | None:
    """Give the finding after its absence was confirmed; None where its state does not change by that."""
    if finding.status not in {Status.ACTIVE, Status.STALE}:
        return None
    evidence = Resolution(auto_resolved=True, resolved_by=None)
    return replace(
        finding, status=Status.RESOLVED, resolved_at=now, resolution_evidence=evidence, current_line=None
    )


def cut_note(note: str | None) -> Clean | None:
    """Keep a note within its length after masking made it longer; an empty one is none."""
    return Clean(note[:NOTE_LENGTH]) if note else None


def suppress(finding: Finding, *, now: datetime) -> Finding:
    """Hide the finding from the active view; the first time counts."""
    return finding if finding.suppressed_at is not None else replace(finding, suppressed_at=now)


def unsuppress(finding: Finding) -> Finding:
    """Show the finding in the active view again."""
    return finding if finding.suppressed_at is None else replace(finding, suppressed_at=None)


class Move(StrEnum):
    """Everything a person can do to a finding: what closes it, and the rest, which has no event."""

    RESOLVE = Action.RESOLVE.value
    RESTRICT = Action.RESTRICT.value
    FALSE_POSITIVE = Action.FALSE_POSITIVE.value
    REOPEN = "reopen"
    SUPPRESS = "suppress"
    UNSUPPRESS = "unsuppress"

    @property
    def closing(self) -> Action | None:
        return Action(self.value) if self.value in _ACTIONS else None


class Triaged(StrEnum):
    """What became of one of several findings that a person moved at once."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"  # it was there already
    REFUSED = "refused"
    MISSING = "missing"


_ACTIONS = frozenset(action.value for action in Action)


def moved(finding: Finding, move: Move, *, note: str | None, by: str, now: datetime) -> Finding | None:
    """Give the finding after a person's move, None where nothing changes by it, or raise where its state does not allow it."""
    if (action := move.closing) is not None:
        return close(finding, action, note=note, by=by, now=now)
    if move is Move.REOPEN:
        return reopen(finding)
    after = suppress(finding, now=now) if move is Move.SUPPRESS else unsuppress(finding)
    return None if after is finding else after


def public_fields(finding: Finding) -> dict[str, Any]:
    """Give the finding as the API and the webhooks show it, every key present; ids and times are written by the JSON encoder."""
    evidence = finding.resolution_evidence
    return {
        "id": finding.id,
        "status": finding.status,
        "validation_status": finding.validation_status,
        "validation_confidence": finding.validation_confidence,
        "validation_detail": finding.validation_detail,
        "composite_score": finding.composite_score,
        "source_type": finding.source_type,
        "source_visibility": finding.source_visibility,
        "source_url": finding.source_url,
        "repo_full_name": finding.repo_full_name,
        "file_path": finding.file_path,
        "line_number": finding.line_number,
        "matched_text": finding.matched_text,
        "pattern": {"name": finding.pattern_name, "secret_type": finding.pattern_secret_type},
        "first_seen_at": finding.first_seen_at,
        "last_seen_at": finding.last_seen_at,
        "seen_count": finding.seen_count,
        "resolved_at": finding.resolved_at,
        "resolution_note": finding.resolution_note,
        "resolution_evidence": None
        if evidence is None
        else {"auto_resolved": evidence.auto_resolved, "resolved_by": evidence.resolved_by},
        "suppressed_at": finding.suppressed_at,
        "current_line": finding.current_line,
        "allowed_in_source": finding.allowed_in_source,
    }
