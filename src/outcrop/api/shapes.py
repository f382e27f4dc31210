"""Envelopes: the three forms every answer has, and their description for `/openapi.json`."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import orjson
from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from outcrop.domain.finding import Confidence, Finding, SourceType, Status, Validation, Visibility
from outcrop.domain.paging import Page
from outcrop.domain.scan import ScanStatus, ScanType, Trigger

T = TypeVar("T")


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    try:
        content = orjson.dumps(body)
    except TypeError:  # a page number past 64 bits is a number all the same
        content = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    return Response(content, status, headers, media_type="application/json")


def page_response(page: Page[T], shape: Callable[[T], dict[str, Any]]) -> Response:
    meta = {"total": page.total, "page": page.page, "per_page": page.per_page, "pages": page.pages}
    return json_response({"data": [shape(item) for item in page.items], "meta": meta})


def single_response(shaped: dict[str, Any]) -> Response:
    return json_response({"data": shaped})


def mutation_response(finding: Finding) -> Response:
    return json_response({"data": {"id": str(finding.id), "status": finding.status}})


# --- descriptions only: answers are written by the functions above and held equal to these by the tests


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid")


_UUID = Field(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$", json_schema_extra={"format": "uuid"})
_TIME = Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\+00:00$", json_schema_extra={"format": "date-time"})


class PatternShape(_Described):
    name: str
    secret_type: str


class EvidenceShape(_Described):
    auto_resolved: bool
    resolved_by: str | None


class ValidationDetailShape(BaseModel):
    model_config = ConfigDict(extra="allow")
    enabled_services: list[str] = Field(description="Labels of what the credential opens: `<service>` or `<service>_<capability>`.")


class FindingShape(_Described):
    id: str = _UUID
    status: Status
    validation_status: Validation
    validation_confidence: Confidence
    validation_detail: ValidationDetailShape
    composite_score: float = Field(ge=0, le=100)
    source_type: SourceType
    source_visibility: Visibility
    source_url: str | None
    repo_full_name: str | None
    file_path: str | None
    line_number: int | None
    matched_text: str = Field(description="Always masked.")
    pattern: PatternShape
    first_seen_at: str = _TIME
    last_seen_at: str = _TIME
    seen_count: int
    resolved_at: str | None = Field(json_schema_extra={"format": "date-time"})
    resolution_note: str | None = Field(max_length=500)
    resolution_evidence: EvidenceShape | None
    suppressed_at: str | None = Field(json_schema_extra={"format": "date-time"})


class ProgressShape(_Described):
    targets: int
    commits: int
    blobs: int
    pages: int
    bytes: int


class GapShape(_Described):
    what: str
    why: str


class ScanRunShape(_Described):
    id: str = _UUID
    type: ScanType
    status: ScanStatus
    trigger: Trigger
    target: str
    created_at: str = _TIME
    started_at: str | None = Field(json_schema_extra={"format": "date-time"})
    finished_at: str | None = Field(json_schema_extra={"format": "date-time"})
    progress: ProgressShape
    findings_new: int
    findings_seen: int
    findings_resolved: int
    coverage_gaps: list[GapShape] = Field(description="What the run could not look at, and why.")
    error: str | None


class Meta(_Described):
    total: int = Field(ge=0)
    page: int = Field(ge=1)
    per_page: int = Field(ge=1)
    pages: int = Field(ge=0)


class ListShape(_Described, Generic[T]):
    data: list[T]
    meta: Meta


class SingleShape(_Described, Generic[T]):
    data: T


class MutationData(_Described):
    id: str = _UUID
    status: Status


class ErrorShape(_Described):
    error: str
    message: str


class InternalErrorShape(ErrorShape):
    request_id: str


class AuthErrorShape(_Described):
    error: str = Field(json_schema_extra={"enum": ["missing_authorization", "invalid_token", "revoked_token"]})


class PlanErrorShape(_Described):
    error: str = Field(json_schema_extra={"enum": ["plan_required"]})
    minimum: str = Field(json_schema_extra={"enum": ["growth"]})


class RateErrorShape(_Described):
    error: str = Field(json_schema_extra={"enum": ["rate_limited"]})


class ParameterProblem(BaseModel):
    loc: list[str | int]
    msg: str
    type: str
    input: Any = None
    ctx: dict[str, Any] = {}


class ParameterErrorShape(_Described):
    detail: list[ParameterProblem]
