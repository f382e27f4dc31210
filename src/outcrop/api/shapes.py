"""Response envelopes (list, single, mutation), and the models that describe them in `/openapi.json`."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

import orjson
from pydantic import BaseModel, ConfigDict, Field, JsonValue, WithJsonSchema, create_model
from pydantic.json_schema import SkipJsonSchema
from starlette.responses import Response

from outcrop.domain.finding import (
    Confidence,
    CredentialPattern,
    Finding,
    Resolution,
    Severity,
    Status,
    Validation,
)
from outcrop.domain.finding_fields import SHOWN_FIELDS, FindingField
from outcrop.domain.incident import IncidentStatus
from outcrop.domain.paging import Page
from outcrop.domain.push import HookHost
from outcrop.domain.scan import ScanStatus, ScanType, Trigger
from outcrop.services.findings import ExplainedScore

T = TypeVar("T")


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    try:
        content = orjson.dumps(body)
    except TypeError:  # orjson has no integers above 64 bits, and `page` may be one
        text = json.dumps(
            body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_orjson_writes_it
        )
        content = text.encode()
    return Response(content, status, headers, media_type="application/json")


def _as_orjson_writes_it(value: object) -> str:
    """Return a time or an id as the text that orjson writes."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def page_response(page: Page[T], shape: Callable[[T], dict[str, Any]]) -> Response:
    """Return a page in the list envelope; `shape` turns an item into its JSON fields."""
    meta: dict[str, Any] = {
        "total": page.total,
        "page": page.page,
        "per_page": page.per_page,
        "pages": page.pages,
    }
    if page.updated_until is not None:
        meta["updated_until"] = page.updated_until
    return json_response({"data": [shape(item) for item in page.items], "meta": meta})


def single_response(shaped: dict[str, Any]) -> Response:
    """Return one resource in the single envelope."""
    return json_response({"data": shaped})


def mutation_response(finding: Finding) -> Response:
    """Return the id and status of a changed finding in the mutation envelope."""
    return json_response({"data": {"id": str(finding.id), "status": finding.status}})


def score_fields(explained: ExplainedScore) -> dict[str, Any]:
    """Return a score and its parts as the API returns them."""
    return {
        "composite_score": explained.score,
        "version": explained.version,
        "parts": [
            {"name": reason.name, "points": reason.points, "max": reason.most, "reason": reason.sentence}
            for reason in explained.reasons
        ],
    }


# --- Models for the description only. The functions above write the responses; tests compare the two.
# The models allow more fields than they name, so that a client generated today accepts a later release.


# Marks a field or parameter that the specification does not name.
EXTENSION: dict[str, JsonValue] = {"x-extension": True}
Extension = Annotated[T, Field(json_schema_extra=EXTENSION)]

_ID_PATTERN = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_TIME_PATTERN = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\+00:00$"
Id = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid", "pattern": _ID_PATTERN})]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time", "pattern": _TIME_PATTERN})]
Count = Annotated[int, Field(ge=0)]


class PatternShape(BaseModel):
    name: str
    secret_type: str


class EvidenceShape(BaseModel):
    auto_resolved: bool
    resolved_by: str | None = Field(
        description="E-mail address of the user who resolved it; null if automatic or unknown."
    )


class ValidationDetailShape(BaseModel):
    model_config = ConfigDict(extra="allow")
    enabled_services: list[str] = Field(
        description="Services that the credential gives access to: `<service>` or `<service>_<capability>`."
    )


_FINDING_TYPES: dict[Any, Any] = {
    UUID: Id,
    datetime: Time,
    dict[str, Any]: ValidationDetailShape,
    CredentialPattern: PatternShape,
    Resolution: EvidenceShape,
    tuple[int, ...]: list[int],
}


def _finding_field(field: FindingField) -> tuple[Any, Any]:
    """Return the type of a finding's field in the API, and its description."""
    type_ = _FINDING_TYPES.get(field.type, field.type)
    limits = {name: limit for name, limit in field.limits.items() if name != "max_length"}
    if limits:
        type_ = Annotated[type_, Field(**limits)]
    about: dict[str, Any] = {"description": field.description} if field.description else {}
    if "max_length" in field.limits:
        about["max_length"] = field.limits["max_length"]
    if field.nullable and (field.is_optional or not field.by_database):
        type_ = type_ | None
    if field.extension:
        about["json_schema_extra"] = EXTENSION
    return type_, Field(**about)


_finding_fields: dict[str, Any] = {field.name: _finding_field(field) for field in SHOWN_FIELDS}
FindingShape = create_model("FindingShape", __base__=BaseModel, **_finding_fields)


class ScorePartShape(BaseModel):
    name: Extension[str] = Field(description="Such as `liveness`; `cap` if a cap has lowered the sum.")
    points: Extension[float] = Field(description="Negative for a cap.")
    max: Extension[float] = Field(description="The most points that the part can have.")
    reason: Extension[str]


class ScoreShape(BaseModel):
    composite_score: Extension[float] = Field(ge=0, le=100)
    version: Extension[int | None] = Field(
        description="Of the method that computed the score; null if the score was imported."
    )
    parts: Extension[list[ScorePartShape]] = Field(description="Their points add up to the score.")


class IncidentShape(BaseModel):
    id: Extension[Id]
    status: Extension[IncidentStatus]
    composite_score: Extension[float] = Field(
        ge=0, le=100, description="The highest of the open places; of all if none is open."
    )
    severity: Extension[Severity]
    validation_status: Extension[Validation] = Field(
        description="`valid` if any place has it, otherwise the newest."
    )
    validation_confidence: Extension[Confidence]
    validation_detail: Extension[ValidationDetailShape]
    matched_text: Extension[str] = Field(description="Masked.")
    pattern: Extension[PatternShape]
    places: Extension[int] = Field(ge=1)
    open_places: Extension[Count]
    first_seen_at: Extension[Time]
    last_seen_at: Extension[Time]
    closed_at: Extension[Time | None] = Field(
        description="When its last place was closed; null while a place is open."
    )
    assignee: Extension[str | None] = Field(description="E-mail address of a member.")
    due_at: Extension[Time | None] = Field(description="Null if no time is set for this severity.")
    overdue: Extension[bool] = Field(description="Open, and `due_at` is over.")
    ticket_url: Extension[str | None]


class IncidentMutationData(BaseModel):
    id: Extension[Id]
    status: Extension[IncidentStatus]
    changed: Extension[Count]
    unchanged: Extension[Count]
    refused: Extension[Count]


class CommentShape(BaseModel):
    id: Extension[Id]
    at: Extension[Time]
    by: Extension[str]
    text: Extension[str]


class ProgressShape(BaseModel):
    targets: Extension[Count]
    commits: Extension[Count]
    blobs: Extension[Count]
    pages: Extension[Count]
    bytes: Extension[Count]


class GapShape(BaseModel):
    what: Extension[str]
    why: Extension[str]


class PushShape(BaseModel):
    host: Extension[HookHost]
    repository: Extension[str] = Field(description="The address of the repository.")
    branch: Extension[str | None] = Field(description="The branch or tag of the last push.")
    author: Extension[str | None] = Field(description="Who pushed last.")
    commit: Extension[str | None] = Field(description="The commit that the last push ended at.")
    branches: Extension[list[str]]
    pushes: Extension[Count]


class ScanRunShape(BaseModel):
    id: Id
    type: ScanType
    status: Extension[ScanStatus]
    trigger: Extension[Trigger]
    target: Extension[str]
    created_at: Time
    started_at: Extension[Time | None]
    finished_at: Extension[Time | None]
    progress: Extension[ProgressShape]
    findings_new: Extension[Count] = Field(
        description="Found for the first time, or again after they were resolved; each sent a `finding.new`."
    )
    findings_seen: Extension[Count]
    findings_resolved: Extension[Count]
    coverage_gaps: Extension[list[GapShape]] = Field(
        description="Parts that the scan skipped, and the reasons."
    )
    error: Extension[str | None]
    waiting: Extension[str | None] = Field(
        description="Why the run makes no progress, such as a rate limit of the host, and for how long."
    )
    host: Extension[str | None] = Field(
        description="The kind of code host, such as `gitlab`; null for web sites, and if it is not known."
    )
    push: Extension[PushShape | None] = Field(
        description="The pushes that the run scans, if its trigger is `push`."
    )


class Meta(BaseModel):
    total: Count
    page: int = Field(ge=1)
    per_page: int = Field(ge=1, le=200)
    pages: Count
    updated_until: Extension[Time | SkipJsonSchema[None]] = Field(
        None,
        description="Only with `updated_since`: every change before this time is in a list. "
        "Pass it as the next `updated_since`.",
    )


class ListShape(BaseModel, Generic[T]):
    data: list[T] = Field(max_length=200)
    meta: Meta


class SingleShape(BaseModel, Generic[T]):
    data: T


class MutationData(BaseModel):
    id: Id
    status: Status


class ErrorShape(BaseModel):
    error: str
    message: str


class BadRequestShape(ErrorShape):
    error: Literal["bad_request"]


class TransitionErrorShape(ErrorShape):
    error: Literal["bad_request", "invalid_transition"]


class NotFoundShape(ErrorShape):
    error: Literal["not_found"]


class MethodErrorShape(ErrorShape):
    error: Literal["method_not_allowed"]


class InternalErrorShape(ErrorShape):
    error: Literal["internal_error"]
    request_id: Extension[Id]


class BusyErrorShape(ErrorShape):
    error: Literal["busy"]


class AuthErrorShape(BaseModel):
    error: Literal["missing_authorization", "invalid_token", "revoked_token"]


class PlanErrorShape(BaseModel):
    error: Literal["plan_required"]
    minimum: Literal["growth"]


class RateErrorShape(BaseModel):
    error: Literal["rate_limited"]


class ParameterProblem(BaseModel):
    loc: list[str | int] = Field(description="`query` or `path`, then the parameter's name.")
    msg: str
    type: str
    input: Any = Field(None, description="The invalid value, unless it is a note or very long.")
    ctx: dict[str, Any] = Field(default_factory=dict, description="The limit that was exceeded.")


class ParameterErrorShape(BaseModel):
    detail: list[ParameterProblem] = Field(min_length=1)
