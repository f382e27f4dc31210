"""Every call of the API as data: the request to send, and how its answer is read. Nothing is sent here."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from outcrop.client.types import (
    BulkActionName,
    BulkResult,
    CommentFields,
    FindingFields,
    ImportFields,
    IncidentFields,
    IncidentOutcomeFields,
    ResultPage,
    ScanFields,
    ScoreFields,
    StatusFields,
)

T = TypeVar("T")

MAX_PER_PAGE = 200  # of a list
MAX_SCANS = 100  # on a page of scan runs


@dataclass(frozen=True, slots=True)
class ApiCall(Generic[T]):
    """A request, and the function that reads the JSON of its answer.

    The function raises LookupError, TypeError or ValueError if the answer has another shape.
    """

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> str:
        """Return path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


def list_findings(filters: Mapping[str, Any]) -> ApiCall[ResultPage[FindingFields]]:
    return ApiCall("GET", "/api/v1/findings", _findings, _to_query(filters))


def get_finding(finding_id: str) -> ApiCall[FindingFields]:
    return ApiCall("GET", _finding(finding_id), _single)


def get_score(finding_id: str) -> ApiCall[ScoreFields]:
    return ApiCall("GET", f"{_finding(finding_id)}/score", _score)


def triage(finding_id: str, action: BulkActionName, note: str | None = None) -> ApiCall[StatusFields]:
    query = {} if note is None else {"note": note}
    return ApiCall("POST", f"{_finding(finding_id)}/{action}", _single, query)


def list_incidents(filters: Mapping[str, Any]) -> ApiCall[ResultPage[IncidentFields]]:
    return ApiCall("GET", "/api/v1/incidents", _incidents, _to_query(filters))


def get_incident(incident_id: str) -> ApiCall[IncidentFields]:
    return ApiCall("GET", _incident(incident_id), _single)


def triage_incident(
    incident_id: str, action: BulkActionName, note: str | None = None
) -> ApiCall[IncidentOutcomeFields]:
    query = {} if note is None else {"note": note}
    return ApiCall("POST", f"{_incident(incident_id)}/{action}", _single, query)


def assign_incident(incident_id: str, assignee: str | None) -> ApiCall[IncidentFields]:
    return ApiCall("POST", f"{_incident(incident_id)}/assign", _single, {"assignee": assignee or ""})


def list_comments(incident_id: str, filters: Mapping[str, Any]) -> ApiCall[ResultPage[CommentFields]]:
    return ApiCall("GET", f"{_incident(incident_id)}/comments", _page, _to_query(filters))


def add_comment(incident_id: str, text: str) -> ApiCall[CommentFields]:
    return ApiCall("POST", f"{_incident(incident_id)}/comments", _single, {"text": text})


def change_findings(
    action: BulkActionName,
    *,
    ids: Iterable[str] | None,
    filters: Mapping[str, Any] | None,
    expected_total: int | None,
    note: str | None,
) -> ApiCall[BulkResult]:
    fields: dict[str, Any] = {"action": action, "note": note, "expected_total": expected_total}
    fields["ids"] = None if ids is None else [str(id_) for id_ in ids]
    fields["filter"] = None if filters is None else _to_query(filters)
    body = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
    return ApiCall(
        "POST", "/api/v2/findings/bulk", _bulk, body=body, headers={"Content-Type": "application/json"}
    )


def list_scans(filters: Mapping[str, Any]) -> ApiCall[ResultPage[ScanFields]]:
    return ApiCall("GET", "/api/v1/scans", _page, _to_query(filters))


def get_scan(scan_id: str) -> ApiCall[ScanFields]:
    return ApiCall("GET", f"/api/v1/scans/{_segment(scan_id)}", _single)


def list_imports(filters: Mapping[str, Any]) -> ApiCall[ResultPage[ImportFields]]:
    return ApiCall("GET", "/api/v2/imports", _page, _to_query(filters))


def get_import(import_id: str) -> ApiCall[ImportFields]:
    return ApiCall("GET", f"/api/v2/imports/{_segment(import_id)}", _single)


def send_report(
    report: bytes, parameters: Mapping[str, Any], *, idempotency_key: str | None
) -> ApiCall[StatusFields]:
    headers = {"Content-Type": "application/octet-stream"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    return ApiCall("POST", "/api/v2/imports", _single, _to_query(parameters), report, headers)


def page_call(call: ApiCall[T], number: int) -> ApiCall[T]:
    """Return the call for another page of a list."""
    return replace(call, query={**call.query, "page": str(number)})


def _finding(finding_id: str) -> str:
    return f"/api/v1/findings/{_segment(finding_id)}"


def _incident(incident_id: str) -> str:
    return f"/api/v1/incidents/{_segment(incident_id)}"


def _segment(text: str) -> str:
    """Return a text as one segment of a path. An empty one or `.` would name another route."""
    if str(text) in {"", ".", ".."}:
        raise ValueError("an id is required")
    return quote(str(text), safe="")


def _to_query(filters: Mapping[str, Any]) -> dict[str, str]:
    """Return filters as the strings of a query; None leaves a filter out."""
    return {name: _to_text(value) for name, value in filters.items() if value is not None}


def _to_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _single(answer: Any) -> Any:
    if not isinstance(answer["data"], dict):
        raise TypeError
    return answer["data"]


def _page(answer: Any) -> ResultPage[Any]:
    data, meta = answer["data"], answer["meta"]
    if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
        raise TypeError
    return ResultPage(
        data,
        total=int(meta["total"]),
        page=int(meta["page"]),
        per_page=int(meta["per_page"]),
        pages=int(meta["pages"]),
        updated_until=meta.get("updated_until"),
    )


def _findings(answer: Any) -> ResultPage[Any]:
    page = _page(answer)
    _check_fields(page.data, "id", "status", "source_url", "repo_full_name", "file_path", "line_number")
    _check_fields([finding["pattern"] for finding in page.data], "secret_type")
    return page


def _incidents(answer: Any) -> ResultPage[Any]:
    page = _page(answer)
    _check_fields(page.data, "id", "status", "places", "open_places", "assignee")
    _check_fields([incident["pattern"] for incident in page.data], "secret_type")
    return page


def _score(answer: Any) -> Any:
    score = _single(answer)
    float(score["composite_score"])
    _check_fields(score["parts"], "name", "points", "max", "reason")
    return score


def _bulk(answer: Any) -> BulkResult:
    _check_fields(answer["data"], "id", "status", "outcome")
    return BulkResult(answer["data"], answer["meta"])


def _check_fields(records: Any, *names: str) -> None:
    """Raise TypeError or LookupError unless these are a list of objects that have these fields."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise TypeError
    for record in records:
        for name in names:
            record[name]
