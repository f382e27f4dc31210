"""What the API returns, as typed dictionaries. A later release may add fields."""

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypedDict, TypeVar

T = TypeVar("T")

BulkActionName = Literal["resolve", "restrict", "suppress", "false_positive"]


class PatternFields(TypedDict):
    name: str
    secret_type: str


class EvidenceFields(TypedDict):
    auto_resolved: bool
    resolved_by: str | None


class FindingFields(TypedDict):
    """A finding; docs/api.md explains each field."""

    id: str
    status: str
    validation_status: str
    validation_confidence: str
    validation_detail: dict[str, Any]
    composite_score: float
    source_type: str
    source_visibility: str
    source_url: str | None
    repo_full_name: str | None
    file_path: str | None
    line_number: int | None
    matched_text: str
    pattern: PatternFields
    first_seen_at: str
    last_seen_at: str
    seen_count: int
    resolved_at: str | None
    resolution_note: str | None
    resolution_evidence: EvidenceFields | None
    suppressed_at: str | None
    current_line: int | None
    allowed_in_source: bool
    commit: str | None
    author: str | None
    committed_at: str | None
    rule: str | None
    severity: str
    updated_at: str
    incident_id: str
    assignee: str | None


class IncidentFields(TypedDict):
    """An incident: a credential with all its places; docs/api.md explains each field."""

    id: str
    status: str
    composite_score: float
    severity: str
    validation_status: str
    validation_confidence: str
    validation_detail: dict[str, Any]
    matched_text: str
    pattern: PatternFields
    places: int
    open_places: int
    first_seen_at: str
    last_seen_at: str
    closed_at: str | None
    assignee: str | None
    due_at: str | None
    overdue: bool
    ticket_url: str | None


class IncidentOutcomeFields(TypedDict):
    """The id and the status of an incident after an action, and the numbers of its places."""

    id: str
    status: str
    changed: int
    unchanged: int
    refused: int


class CommentFields(TypedDict):
    """A comment on an incident."""

    id: str
    at: str
    by: str
    text: str


class StatusFields(TypedDict):
    """The id and the status of a changed finding."""

    id: str
    status: str


class ScorePartFields(TypedDict):
    name: str
    points: float
    max: float
    reason: str


class ScoreFields(TypedDict):
    composite_score: float
    version: int | None
    parts: list[ScorePartFields]


class PushFields(TypedDict):
    """The pushes that a scan run scans."""

    host: str
    repository: str
    branch: str | None
    author: str | None
    commit: str | None
    branches: list[str]
    pushes: int


class ScanFields(TypedDict):
    """A scan run."""

    id: str
    type: str
    status: str
    trigger: str
    target: str
    created_at: str
    started_at: str | None
    finished_at: str | None
    progress: dict[str, int]
    findings_new: int
    findings_seen: int
    findings_resolved: int
    coverage_gaps: list[dict[str, str]]
    error: str | None
    waiting: str | None
    push: PushFields | None


class ImportFields(TypedDict):
    """An import of a report."""

    id: str
    status: str
    format: str
    repo: str | None
    commit: str | None
    created_at: str
    finished_at: str | None
    records: int
    findings_new: int
    findings_updated: int
    findings_unchanged: int
    error: dict[str, Any] | None


class OutcomeFields(TypedDict):
    """What a bulk action did to one finding; `status` is None if there is no such finding."""

    id: str
    status: str | None
    outcome: str


class OutcomeCounts(TypedDict):
    matched: int
    changed: int
    unchanged: int
    refused: int
    not_found: int


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[T]):
    """One page of a list."""

    data: list[T]
    total: int
    page: int
    per_page: int
    pages: int
    updated_until: str | None = None  # pass it as the next `updated_since`


@dataclass(frozen=True, slots=True)
class BulkResult:
    """The outcome of a bulk action, for each finding and in numbers."""

    data: list[OutcomeFields]
    counts: OutcomeCounts
