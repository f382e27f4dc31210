"""Describe for `/api/v2/openapi.json` routes with a body: the body and the error responses."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from outcrop.api.describe import response, responses
from outcrop.api.shapes import ErrorShape

REPORT_BODY = {
    "required": True,
    "description": "The report, as the scanner wrote it. The Content-Type does not matter.",
    "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
}


def _drop_default(schema: dict[str, Any]) -> None:
    """Describe a field as optional without a default."""
    del schema["default"]


class ReportErrorShape(ErrorShape):
    error: Literal["bad_report", "bad_request"]
    # Optional without a default: the description says that it can be absent, never that it can be 0.
    record: int = Field(
        0,
        ge=1,
        description="Number of the record; only with `bad_report`.",
        json_schema_extra=_drop_default,
    )


class SlowErrorShape(ErrorShape):
    error: Literal["too_slow"]


class ConflictErrorShape(ErrorShape):
    error: Literal["idempotency_conflict"]


class SizeErrorShape(ErrorShape):
    error: Literal["too_large"]


def upload_responses(success: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return the description of every response of a route that receives a report."""
    described = responses(success)
    described[202] = described.pop(200) | {"description": "The report is valid, and a job will merge it"}
    described[400] = described[400] | {
        "model": ReportErrorShape,
        "description": "The body is no report, a record is invalid, or the request cannot be parsed",
    }
    described[408] = response(SlowErrorShape, "The body arrives too slowly")
    described[409] = response(ConflictErrorShape, "The Idempotency-Key was used for another request")
    described[413] = response(SizeErrorShape, "The report is too large")
    described[503] = described[503] | {
        "description": "Too many reports are being received, or the database is not available at the moment"
    }
    return dict(sorted(described.items()))
