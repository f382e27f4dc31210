"""The resources of `/api/v2`: their JSON fields, and the models that describe them."""

from typing import Any, Literal

from pydantic import BaseModel, Field

from outcrop.api.shapes import Count, Id, Time
from outcrop.store.imports import ImportStatus, ReportImport


class ImportErrorShape(BaseModel):
    record: int | None = Field(description="Number of the record; null if no single record is the reason.")
    message: str


class ImportShape(BaseModel):
    id: Id
    status: ImportStatus
    format: str = Field(description="Format of the report, as it was detected or named.")
    repo: str | None = Field(description="The repository that the sender named.")
    commit: str | None = Field(description="The commit that the sender named.")
    created_at: Time
    finished_at: Time | None
    records: Count = Field(description="Records of the report.")
    findings_new: Count
    findings_updated: Count
    findings_unchanged: Count
    error: ImportErrorShape | None = Field(description="Why the import failed; nothing is imported then.")


class AcceptedImportShape(BaseModel):
    id: Id
    status: Literal["queued"]


def import_fields(report: ReportImport) -> dict[str, Any]:
    """Return the import as the API returns it: plain JSON values, every key present."""
    error = report.error
    return {
        "id": str(report.id),
        "status": report.status,
        "format": report.format,
        "repo": report.repo,
        "commit": report.commit,
        "created_at": report.created_at.isoformat(),
        "finished_at": None if report.finished_at is None else report.finished_at.isoformat(),
        "records": report.records,
        "findings_new": report.findings_new,
        "findings_updated": report.findings_updated,
        "findings_unchanged": report.findings_unchanged,
        "error": None if error is None else {"record": error.record, "message": error.message},
    }
