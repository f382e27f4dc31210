"""The route `/api/v2/findings/bulk`: one action for many findings."""

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import urlencode
from uuid import UUID

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError, model_validator
from starlette.requests import ClientDisconnect

from outcrop.api import errors, parameters, shapes
from outcrop.api.describe import responses
from outcrop.api.errors import ParameterError
from outcrop.api.parameters import FindingParameters
from outcrop.api.v2.context import ApiV2Context, api_v2_context
from outcrop.api.v2.describe import SizeErrorShape
from outcrop.domain.errors import BadInputError, ConflictError
from outcrop.domain.finding import Status, TriageAction, TriageResult
from outcrop.domain.ids import ID_FORM, parse_id
from outcrop.domain.paging import FindingQuery
from outcrop.limits import (
    BULK_BODY_BYTES,
    BULK_BODY_SECONDS,
    BULK_IDS,
    BULK_MATCHES,
    BULK_SECONDS,
    NOTE_LENGTH,
)
from outcrop.services import findings

router = APIRouter(prefix="/findings", tags=["findings"])


class BulkAction(StrEnum):
    RESOLVE = "resolve"
    RESTRICT = "restrict"
    SUPPRESS = "suppress"
    FALSE_POSITIVE = "false_positive"


class BulkRequest(BaseModel):
    """The body of a request: an action, and the findings by their ids or by a filter."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    action: BulkAction
    note: StrictStr | None = Field(
        None, max_length=NOTE_LENGTH, description="Stored with each finding; ignored for `suppress`."
    )
    ids: list[StrictStr] | None = Field(
        None, max_length=BULK_IDS, description="Ids of findings; each counts once."
    )
    filter: dict[StrictStr, StrictStr] | None = Field(
        None,
        description="Parameters of the list of findings, as strings. Page and order have no meaning.",
    )
    expected_total: StrictInt | None = Field(
        None, ge=0, le=BULK_MATCHES, description="Only with `filter`: how many findings must match it."
    )

    @model_validator(mode="after")
    def _check_choice(self) -> "BulkRequest":
        """Raise unless the body has either `ids`, or `filter` and `expected_total`."""
        if (self.ids is None) == (self.filter is None):
            raise ValueError("give either ids or filter")
        if (self.filter is None) != (self.expected_total is None):
            raise ValueError("expected_total belongs to filter")
        return self


class BulkOutcome(StrEnum):
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


_OUTCOMES = {
    TriageResult.CHANGED: BulkOutcome.CHANGED,
    TriageResult.UNCHANGED: BulkOutcome.UNCHANGED,
    TriageResult.REFUSED: BulkOutcome.REFUSED,
    TriageResult.MISSING: BulkOutcome.NOT_FOUND,
}


class BulkResultShape(BaseModel):
    id: shapes.Id
    status: Status | None = Field(description="After the action; null if there is no such finding.")
    outcome: BulkOutcome


class BulkMeta(BaseModel):
    matched: shapes.Count = Field(description="Findings that exist, of the ids or of the filter.")
    changed: shapes.Count
    unchanged: shapes.Count
    refused: shapes.Count
    not_found: shapes.Count


class BulkShape(BaseModel):
    data: list[BulkResultShape] = Field(max_length=BULK_MATCHES)
    meta: BulkMeta


class BulkConflictShape(shapes.ErrorShape):
    error: Literal["conflict"]


_id_items = {"type": "string", "format": "uuid", "pattern": f"^{ID_FORM.pattern}$"}


def _body_schema() -> dict[str, Any]:
    """Return the schema of the body: one of two forms."""
    schema = BulkRequest.model_json_schema()
    properties = schema["properties"]
    described = {
        name: next((branch for branch in field.get("anyOf", ()) if branch.get("type") != "null"), field)
        | {key: field[key] for key in ("description",) if key in field}
        for name, field in properties.items()
    }
    described["action"] = {"type": "string", "enum": [action.value for action in BulkAction]}
    described["ids"] = described["ids"] | {"items": _id_items}
    names = sorted(FindingParameters.model_fields)
    described["filter"] = {
        "type": "object",
        "description": described["filter"]["description"],
        "properties": {name: {"type": "string"} for name in names},
        "additionalProperties": False,
    }
    common = {name: described[name] for name in ("action", "note")}

    def form(*needed: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": common | {name: described[name] for name in needed},
            "required": ["action", *needed],
            "additionalProperties": False,
        }

    return {"oneOf": [form("ids"), form("filter", "expected_total")]}


_described = responses(BulkShape, mutation=True)
_described[409] = {"model": BulkConflictShape, "description": "Another number of findings matches the filter"}
_described[413] = {"model": SizeErrorShape, "description": "The body is too large"}


@router.post(
    "/bulk",
    response_model=None,
    responses=_described,
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/json": {"schema": _body_schema()}}}
    },
)
async def change_findings(request: Request) -> Response:
    """Apply one action to many findings."""
    context = api_v2_context(request)
    context.deadline.extend(BULK_BODY_SECONDS)
    body = await _read_body(request)
    if body is None:
        return errors.error(413, "too_large", f"the body has more than {BULK_BODY_BYTES} bytes")
    bulk = _parse(body)
    ids = None if bulk.ids is None else _parse_ids(bulk.ids)
    query = None if bulk.filter is None else _parse_filter(bulk.filter)
    context.deadline.extend(BULK_SECONDS)
    results, statuses = await _apply(context, bulk, ids, query)
    return _respond(results, statuses)


async def _apply(
    context: ApiV2Context, bulk: BulkRequest, ids: list[UUID] | None, query: FindingQuery | None
) -> tuple[list[tuple[UUID, TriageResult]], dict[UUID, Status]]:
    """Apply the action in one transaction; return the results in order, and the statuses by id."""
    account_id, by = context.caller.account_id, context.caller.email
    action = TriageAction(bulk.action.value)
    async with context.connect() as db:
        note = None
        if bulk.action is not BulkAction.SUPPRESS:
            note = await context.notes.clean_note(db, context.keys, account_id, bulk.note)
        if query is not None:
            page = await findings.list_findings(db, account_id, query)
            if page.total != bulk.expected_total:
                raise ConflictError(
                    f"{page.total} findings match the filter, not {bulk.expected_total}; nothing was changed"
                )
            ids = [finding.id for finding in page.items]
        assert ids is not None  # noqa: S101 - the body has ids or a filter
        async with db.transaction():
            if query is None:
                results = await findings.triage(
                    db, context.keys, account_id, ids, action, note=note, by=by, now=context.now
                )
            else:
                results = await findings.triage_matching(
                    db, context.keys, account_id, ids, query, action=action, note=note, by=by, now=context.now
                )
            statuses = await findings.read_statuses(db, account_id, ids)
    return results, statuses


def _respond(results: list[tuple[UUID, TriageResult]], statuses: dict[UUID, Status]) -> Response:
    """Return the outcome of each finding and the counts."""
    counts = Counter(_OUTCOMES[result] for _, result in results)
    data = [
        {"id": str(id_), "status": statuses.get(id_), "outcome": _OUTCOMES[result]} for id_, result in results
    ]
    matched = len(results) - counts[BulkOutcome.NOT_FOUND]
    meta = {"matched": matched} | {outcome.value: counts[outcome] for outcome in BulkOutcome}
    return shapes.json_response({"data": data, "meta": meta})


async def _read_body(request: Request) -> bytes | None:
    """Return the body; None if it is longer than BULK_BODY_BYTES."""
    parts, size = [], 0
    try:
        async for part in request.stream():
            parts.append(part)
            size += len(part)
            if size > BULK_BODY_BYTES:
                return None
    except ClientDisconnect:
        raise BadInputError("the body ended early") from None
    return b"".join(parts)


def _parse(body: bytes) -> BulkRequest:
    """Return the parsed body. Raise BadInputError if it is no JSON, ParameterError if it is invalid."""
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadInputError("the body is not JSON") from None
    if not isinstance(fields, dict):
        raise ParameterError([_problem([], "dict_type", "Input should be an object")])
    try:
        bulk = BulkRequest.model_validate(fields)
    except ValidationError as error:
        raise ParameterError(
            [_problem(e["loc"], e["type"], e["msg"]) for e in error.errors(include_url=False)]
        ) from None
    if bulk.note is not None and "\0" in bulk.note:
        raise ParameterError([_problem(["note"], "string_nul", "Input should not contain a NUL character")])
    return bulk


def _parse_ids(texts: list[str]) -> list[UUID]:
    """Return the ids, each once. Raise ParameterError if one is not a UUID."""
    ids = [parse_id(text) for text in texts]
    invalid = [n for n, id_ in enumerate(ids) if id_ is None]
    if invalid:
        message = "Input should be a UUID in its 36-character form"
        raise ParameterError([_problem(["ids", n], "uuid_parsing", message) for n in invalid])
    return list(dict.fromkeys(id_ for id_ in ids if id_ is not None))


def _parse_filter(values: dict[str, str]) -> FindingQuery:
    """Return the query of a filter. Raise ParameterError for an unknown name or an invalid value."""
    unknown = sorted(values.keys() - FindingParameters.model_fields.keys())
    if unknown:
        raise ParameterError(
            [_problem(["filter", name], "extra_forbidden", "There is no such parameter") for name in unknown]
        )
    try:
        read = parameters.read(FindingParameters, urlencode(values).encode())
    except ParameterError as error:
        raise ParameterError(
            [problem | {"loc": ["body", "filter", *problem["loc"][1:]]} for problem in error.detail]
        ) from None
    return replace(read.query(), page=1, per_page=BULK_MATCHES)


def _problem(loc: Any, type_: str, msg: str) -> dict[str, Any]:
    """Return one entry of the 422 body. Values are not repeated: the body may contain a credential."""
    return {"loc": ["body", *loc], "msg": msg, "type": type_}
