"""Test that `/openapi.json` leaves room for new fields and marks what the specification does not name."""

import json

import pytest

from outcrop.api.describe import describe
from outcrop.asgi import api_router
from tests.support.openapi import Json, operations, request_schemas, response_schemas

FINDINGS = "/api/v1/findings"
ERROR = {"error", "message"}
# The fields that the specification names, by schema. It names three of a scan run: `id` and `created_at` among
# the conventions, `type` as a filter.
FIELDS = {
    "FindingShape": {
        *("id", "status", "validation_status", "validation_confidence", "validation_detail"),
        *("composite_score", "source_type", "source_visibility", "source_url", "repo_full_name"),
        *("file_path", "line_number", "matched_text", "pattern", "first_seen_at", "last_seen_at"),
        *("seen_count", "resolved_at", "resolution_note", "resolution_evidence"),
    },
    "ValidationDetailShape": {"enabled_services"},
    "PatternShape": {"name", "secret_type"},
    "EvidenceShape": {"auto_resolved", "resolved_by"},
    "ScanRunShape": {"id", "type", "created_at"},
    "ProgressShape": set(),
    "GapShape": set(),
    "Meta": {"total", "page", "per_page", "pages"},
    "ListShape_FindingShape_": {"data", "meta"},
    "ListShape_ScanRunShape_": {"data", "meta"},
    "SingleShape_FindingShape_": {"data"},
    "SingleShape_ScanRunShape_": {"data"},
    "SingleShape_ScoreShape_": {"data"},
    "ScoreShape": set(),
    "PushShape": set(),
    "IncidentShape": set(),
    "IncidentMutationData": set(),
    "CommentShape": set(),
    "ListShape_IncidentShape_": {"data", "meta"},
    "ListShape_CommentShape_": {"data", "meta"},
    "SingleShape_IncidentShape_": {"data"},
    "SingleShape_IncidentMutationData_": {"data"},
    "SingleShape_CommentShape_": {"data"},
    "ScorePartShape": set(),
    "SingleShape_MutationData_": {"data"},
    "MutationData": {"id", "status"},
    "BadRequestShape": ERROR,
    "TransitionErrorShape": ERROR,
    "NotFoundShape": ERROR,
    "MethodErrorShape": ERROR,
    "InternalErrorShape": ERROR,
    "BusyErrorShape": ERROR,
    "AuthErrorShape": {"error"},
    "PlanErrorShape": {"error", "minimum"},
    "RateErrorShape": {"error"},
    "ParameterErrorShape": {"detail"},
    "ParameterProblem": {"loc", "msg", "type", "input", "ctx"},
}
PARAMETERS = {  # of the specification's operations
    ("get", FINDINGS): {
        *("status", "source_type", "validation", "service", "min_score", "date_from", "date_to", "q"),
        *("page", "per_page", "order_by", "order_dir"),
    },
    ("get", f"{FINDINGS}/{{finding_id}}"): {"finding_id"},
    ("post", f"{FINDINGS}/{{finding_id}}/suppress"): {"finding_id"},
    ("post", f"{FINDINGS}/{{finding_id}}/resolve"): {"finding_id", "note"},
    ("post", f"{FINDINGS}/{{finding_id}}/restrict"): {"finding_id", "note"},
    ("get", "/api/v1/scans"): {"type", "limit"},
    ("get", "/api/v1/scans/{scan_id}"): {"scan_id"},
}


@pytest.fixture
def document() -> Json:
    """Return the document as a client reads it: no two parts are the same object."""
    found: Json = json.loads(json.dumps(describe(api_router(), "http://127.0.0.1")))
    return found


def _is_marked(described: Json) -> bool:
    assert described.get("x-extension", True) is True  # absent or true, never false
    return "x-extension" in described


def _closed_responses(document: Json) -> set[str]:
    return {
        place
        for place, schema in response_schemas(document)
        if schema.get("additionalProperties", True) is False
    }


def _open_requests(document: Json) -> set[str]:
    return {
        place
        for place, schema in request_schemas(document)
        if ("properties" in schema or schema.get("type") == "object")
        and schema.get("additionalProperties", True) is not False
    }


def test_responses_leave_room_for_new_fields_and_requests_do_not(document: Json) -> None:
    assert {place for place, _ in response_schemas(document)} >= set(FIELDS)
    assert _closed_responses(document) == set()
    assert _open_requests(document) == set()


def test_the_walk_finds_a_closed_response_and_an_open_request(document: Json) -> None:
    document["components"]["schemas"]["PatternShape"]["additionalProperties"] = False
    body = {"schema": {"$ref": "#/components/schemas/SingleShape_FindingShape_"}}
    operation = document["paths"][f"{FINDINGS}/{{finding_id}}/resolve"]["post"]
    operation["requestBody"] = {"content": {"application/json": body}}
    assert _closed_responses(document) == {"PatternShape"}
    assert _open_requests(document) == {
        *("SingleShape_FindingShape_", "FindingShape", "ValidationDetailShape", "EvidenceShape")
    }


def test_exactly_the_fields_that_the_specification_does_not_name_are_marked(document: Json) -> None:
    described = {
        name: schema["properties"]
        for name, schema in document["components"]["schemas"].items()
        if "properties" in schema
    }
    assert described.keys() == FIELDS.keys()
    for name, properties in described.items():
        assert properties.keys() >= FIELDS[name], name
        assert {f for f in properties if not _is_marked(properties[f])} == FIELDS[name], name


def test_exactly_the_routes_and_parameters_that_the_specification_does_not_name_are_marked(
    document: Json,
) -> None:
    described = dict(operations(document))
    assert {place for place, operation in described.items() if not _is_marked(operation)} == set(PARAMETERS)
    for place, names in PARAMETERS.items():
        parameters = {parameter["name"]: parameter for parameter in described[place]["parameters"]}
        assert {name for name in parameters if not _is_marked(parameters[name])} == names, place
        assert not any("x-extension" in parameter["schema"] for parameter in parameters.values())
