"""Findings: their fields, statuses and transitions.

The class `Finding` is the one definition of a finding's fields. Columns, API, imports and exports are derived
from it (`domain.finding_fields`).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from outcrop.domain.errors import TransitionError
from outcrop.domain.secret import MaskedText
from outcrop.limits import FINDING_LINES, NOTE_LENGTH


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
    """How sure it is that a value is a credential, or that a verdict is right; the highest first."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    rank: int  # 0 is the highest

    def at_least(self, minimum: "Confidence") -> bool:
        """Whether this confidence is `minimum` or higher."""
        return self.rank <= minimum.rank


for _rank, _confidence in enumerate(Confidence):
    _confidence.rank = _rank


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


class Severity(StrEnum):
    """How urgent a finding is, by its score; the highest first."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


_MINIMUM = {Severity.CRITICAL: 80.0, Severity.HIGH: 60.0, Severity.MEDIUM: 40.0, Severity.LOW: 0.0}
_MAXIMUM = {Severity.HIGH: 80.0, Severity.MEDIUM: 60.0, Severity.LOW: 40.0}  # exclusive


def severity_of(score: float) -> Severity:
    """Return the severity of a score."""
    return next((severity for severity, minimum in _MINIMUM.items() if score >= minimum), Severity.LOW)


def score_bounds(severity: Severity) -> tuple[float, float | None]:
    """Return the lowest score of a severity, and the lowest score above it; None if there is none."""
    return _MINIMUM[severity], _MAXIMUM.get(severity)


class FindingContext(StrEnum):
    """What the file of a credential is for; everything that is not recognised is production."""

    PRODUCTION = "production"
    TEST = "test"
    EXAMPLE = "example"
    DOCUMENTATION = "documentation"
    VENDORED = "vendored"


# Open findings need a decision. All other statuses are closed.
OPEN_STATUSES = frozenset({Status.ACTIVE, Status.STALE})


class CredentialPattern(NamedTuple):
    """The name and the type of a credential, as its rule states them."""

    name: str
    secret_type: str


class Resolution(NamedTuple):
    """Evidence of how a finding was resolved: by a scan or by a user."""

    auto_resolved: bool
    resolved_by: str | None


def _meta(
    description: str = "",
    *,
    extension: bool = False,
    columns: tuple[str, ...] = (),
    by_database: bool = False,
    is_optional: bool = False,
    **limits: float,
) -> dict[str, Any]:
    """Return the metadata of a field of `Finding`.

    `extension` marks a field that the specification does not have. `columns` are the columns of a field that
    is a tuple, or the column of a field that has another name. `by_database` marks a field that the
    database writes: it is None only in a finding that is not stored yet, or if it `is_optional`. `limits` are
    arguments of pydantic's `Field`, such as `ge` and `max_length`.
    """
    return {
        "description": description,
        "extension": extension,
        "columns": columns,
        "by_database": by_database,
        "is_optional": is_optional,
        "limits": limits,
    }


@dataclass(frozen=True, slots=True)
class Finding:
    """One credential at one place, in its current state."""

    id: UUID
    status: Status
    validation_status: Validation
    validation_confidence: Confidence
    validation_detail: dict[str, Any]
    composite_score: float = field(metadata=_meta(ge=0, le=100))
    source_type: SourceType
    source_visibility: Visibility
    source_url: str | None
    repo_full_name: str | None
    file_path: str | None
    line_number: int | None = field(metadata=_meta(ge=0))
    matched_text: str = field(metadata=_meta("Always masked."))
    pattern: CredentialPattern = field(metadata=_meta(columns=("pattern_name", "pattern_secret_type")))
    first_seen_at: datetime
    last_seen_at: datetime
    seen_count: int = field(metadata=_meta(ge=0))
    resolved_at: datetime | None = field(default=None, metadata=_meta("Null unless the finding is resolved."))
    resolution_note: str | None = field(
        default=None, metadata=_meta("Note of the last closing action.", max_length=NOTE_LENGTH)
    )
    resolution_evidence: Resolution | None = field(
        default=None,
        metadata=_meta("Null unless the finding is resolved.", columns=("auto_resolved", "resolved_by")),
    )
    suppressed_at: datetime | None = field(
        default=None,
        metadata=_meta("Time since which the finding is hidden from the active view.", extension=True),
    )
    current_line: int | None = field(  # `line_number` is the line in the oldest commit
        default=None,
        metadata=_meta(
            "Line at the tip of the default branch, if the credential is still there.", extension=True
        ),
    )
    allowed_in_source: bool = field(
        default=False,
        metadata=_meta("Whether the line has an allow mark; the finding is recorded anyway.", extension=True),
    )
    commit: str | None = field(
        default=None,
        metadata=_meta(
            "Oldest commit that has the credential at this path.", extension=True, columns=("commit_id",)
        ),
    )
    author: str | None = field(default=None, metadata=_meta("Author of `commit`.", extension=True))
    committed_at: datetime | None = field(
        default=None, metadata=_meta("Author date of `commit`.", extension=True)
    )
    rule: str | None = field(
        default=None, metadata=_meta("Id of the rule that found the credential.", extension=True)
    )
    updated_at: datetime | None = field(
        default=None,
        metadata=_meta(
            "Time of the last change. A new `last_seen_at` or `seen_count` alone is none.",
            extension=True,
            by_database=True,
        ),
    )
    context: FindingContext | None = field(
        default=None,
        metadata=_meta(
            "What the file is for; null if no scan of this release has seen the finding.", extension=True
        ),
    )
    detection_confidence: Confidence | None = field(
        default=None,
        metadata=_meta(
            "How sure it is that the value is a credential; null if no scan of this release has seen it.",
            extension=True,
        ),
    )
    lines: tuple[int, ...] = field(  # never empty if `line_number` is known
        default=(),
        metadata=_meta(
            "All lines of the version that `line_number` belongs to, ascending.",
            extension=True,
            max_length=FINDING_LINES,
        ),
    )
    lines_total: int = field(
        default=0, metadata=_meta("Number of these lines, also of those not listed.", extension=True, ge=0)
    )
    current_lines: tuple[int, ...] = field(
        default=(),
        metadata=_meta(
            "All lines at the tip of the default branch, ascending. `current_line` is the first.",
            extension=True,
            max_length=FINDING_LINES,
        ),
    )

    incident_id: UUID | None = field(
        default=None,
        metadata=_meta(
            "Id of the incident: the credential with all its places.", extension=True, by_database=True
        ),
    )
    assignee: str | None = field(
        default=None,
        metadata=_meta(
            "E-mail address of the member who is the incident's assignee.",
            extension=True,
            by_database=True,
            is_optional=True,
        ),
    )

    def __post_init__(self) -> None:
        """Make the lines agree with `line_number` and `current_line`, which some writers set alone."""
        lines = fit_lines(self.lines, self.lines_total, self.line_number)
        if lines is not self.lines or self.lines_total < len(lines):
            object.__setattr__(self, "lines", lines)
            object.__setattr__(self, "lines_total", len(lines))
        object.__setattr__(
            self, "current_lines", fit_lines(self.current_lines, len(self.current_lines), self.current_line)
        )


def fit_lines(lines: tuple[int, ...], total: int, line: int | None) -> tuple[int, ...]:
    """Return the lines of a finding: `lines` if `line` is one of them or of those not listed, else `line`.

    `total` is the number of lines with those that are not listed.
    """
    if line is None:
        return ()
    return lines if line in lines or total > len(lines) > 0 else (line,)


class Action(StrEnum):
    """Triage actions that close a finding."""

    RESOLVE = "resolve"
    RESTRICT = "restrict"
    FALSE_POSITIVE = "false_positive"


class TransitionOutcome(StrEnum):
    """Effect of a triage action on a finding's status."""

    MOVES = "moves"
    STAYS = "stays"  # already in that status: success, nothing is written, no event
    REFUSED = "refused"


CLOSED_STATUS = {
    Action.RESOLVE: Status.RESOLVED,
    Action.RESTRICT: Status.CUSTOMER_RESTRICTED,
    Action.FALSE_POSITIVE: Status.FALSE_POSITIVE,
}
# In every other status the action moves the finding.
EXCEPTIONS: dict[tuple[Action, Status], TransitionOutcome] = {
    (Action.RESOLVE, Status.RESOLVED): TransitionOutcome.STAYS,
    (Action.RESOLVE, Status.FALSE_POSITIVE): TransitionOutcome.REFUSED,
    (Action.RESTRICT, Status.CUSTOMER_RESTRICTED): TransitionOutcome.STAYS,
    (Action.RESTRICT, Status.RESOLVED): TransitionOutcome.REFUSED,
    (Action.RESTRICT, Status.FALSE_POSITIVE): TransitionOutcome.REFUSED,
    (Action.FALSE_POSITIVE, Status.FALSE_POSITIVE): TransitionOutcome.STAYS,
}


def transition_outcome(action: Action, status: Status) -> TransitionOutcome:
    """Return the effect of an action on a finding in this status."""
    return EXCEPTIONS.get((action, status), TransitionOutcome.MOVES)


def close(
    finding: Finding, action: Action, *, note: str | None, by: str | None, now: datetime
) -> Finding | None:
    """Return the finding after the action, or None if it already has that status.

    Raise TransitionError if the current status does not allow the action.
    """
    match transition_outcome(action, finding.status):
        case TransitionOutcome.STAYS:
            return None
        case TransitionOutcome.REFUSED:
            raise TransitionError(
                f"a finding that is {finding.status} cannot be moved to {CLOSED_STATUS[action]}"
            )
        case TransitionOutcome.MOVES:
            resolved = action is Action.RESOLVE
            return replace(
                finding,
                status=CLOSED_STATUS[action],
                resolution_note=note,
                resolved_at=now if resolved else None,
                resolution_evidence=Resolution(auto_resolved=False, resolved_by=by) if resolved else None,
            )


# Reopening makes a closed finding active. A stale finding becomes active only when a scan sees it again.
REOPENS = {
    Status.ACTIVE: TransitionOutcome.STAYS,
    Status.RESOLVED: TransitionOutcome.MOVES,
    Status.FALSE_POSITIVE: TransitionOutcome.MOVES,
    Status.CUSTOMER_RESTRICTED: TransitionOutcome.MOVES,
    Status.STALE: TransitionOutcome.REFUSED,
}


def reopen(finding: Finding) -> Finding | None:
    """Return the finding as active, without its resolution; None if it is active already.

    Raise TransitionError for a stale finding.
    """
    match REOPENS[finding.status]:
        case TransitionOutcome.STAYS:
            return None
        case TransitionOutcome.REFUSED:
            raise TransitionError(
                f"a {finding.status} finding is not closed: it becomes active when a scan sees it again"
            )
        case TransitionOutcome.MOVES:
            return replace(
                finding,
                status=Status.ACTIVE,
                resolved_at=None,
                resolution_note=None,
                resolution_evidence=None,
            )


def mark_seen(finding: Finding, *, proven: bool = False) -> tuple[Finding, bool]:
    """Return the finding after a scan saw it again, and whether it was reopened.

    A finding that a user resolved stays resolved, unless a later validation proved the credential
    valid (`proven`).
    """
    evidence = finding.resolution_evidence
    if finding.status is Status.STALE:
        return replace(finding, status=Status.ACTIVE), False
    if finding.status is Status.RESOLVED and evidence is not None and (evidence.auto_resolved or proven):
        return replace(
            finding, status=Status.ACTIVE, resolved_at=None, resolution_note=None, resolution_evidence=None
        ), True
    return finding, False


def mark_gone(finding: Finding, *, now: datetime) -> Finding | None:
    """Return the finding as automatically resolved, or None if its status does not change.

    Only active and stale findings change.
    """
    if finding.status not in OPEN_STATUSES:
        return None
    evidence = Resolution(auto_resolved=True, resolved_by=None)
    return replace(
        finding, status=Status.RESOLVED, resolved_at=now, resolution_evidence=evidence, current_line=None
    )


def cut_note(note: str | None) -> MaskedText | None:
    """Return the note cut to its maximum length (masking may lengthen it); None for an empty note."""
    return MaskedText(note[:NOTE_LENGTH]) if note else None


def suppress(finding: Finding, *, now: datetime) -> Finding:
    """Return the finding hidden from the active view; the time of the first suppression is kept."""
    return finding if finding.suppressed_at is not None else replace(finding, suppressed_at=now)


def unsuppress(finding: Finding) -> Finding:
    """Return the finding shown in the active view again."""
    return finding if finding.suppressed_at is None else replace(finding, suppressed_at=None)


class TriageAction(StrEnum):
    """All triage actions: those that close a finding, and those that send no event."""

    RESOLVE = Action.RESOLVE.value
    RESTRICT = Action.RESTRICT.value
    FALSE_POSITIVE = Action.FALSE_POSITIVE.value
    REOPEN = "reopen"
    SUPPRESS = "suppress"
    UNSUPPRESS = "unsuppress"

    @property
    def closing(self) -> Action | None:
        """Return the closing action, or None if this action does not close a finding."""
        return Action(self.value) if self.value in _ACTIONS else None


class TriageResult(StrEnum):
    """Result for one finding of a bulk action."""

    CHANGED = "changed"
    UNCHANGED = "unchanged"  # it already had that status
    REFUSED = "refused"
    MISSING = "missing"


_ACTIONS = frozenset(action.value for action in Action)


def apply_triage(
    finding: Finding, move: TriageAction, *, note: str | None, by: str, now: datetime
) -> Finding | None:
    """Return the finding after a triage action, or None if nothing changes.

    Raise TransitionError if the current status does not allow the action.
    """
    if (action := move.closing) is not None:
        return close(finding, action, note=note, by=by, now=now)
    if move is TriageAction.REOPEN:
        return reopen(finding)
    after = suppress(finding, now=now) if move is TriageAction.SUPPRESS else unsuppress(finding)
    return None if after is finding else after


_NAMES = tuple(Finding.__dataclass_fields__)
_get_values = attrgetter(*_NAMES)


def public_fields(finding: Finding) -> dict[str, Any]:
    """Return the finding's fields as the API and webhooks show them, every key present.

    Ids and times are still objects; the JSON encoder formats them.
    """
    public = dict(zip(_NAMES, _get_values(finding), strict=True))
    public["severity"] = severity_of(finding.composite_score)
    public["pattern"] = finding.pattern._asdict()
    if finding.resolution_evidence is not None:
        public["resolution_evidence"] = finding.resolution_evidence._asdict()
    return public
