"""Test that `/api/v2/openapi.json` describes exactly the routes of version 2."""

import json
import os
from pathlib import Path

import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from outcrop import __version__
from outcrop.api.describe import describe
from outcrop.asgi import api_v2_router
from tests.support.backend import Backend
from tests.support.openapi import Json, operations, request_schemas, response_schemas

SNAPSHOT = Path(__file__).with_name("openapi_v2.json")
REGENERATE = "WRITE_OPENAPI_SNAPSHOT=1 .venv/bin/pytest -n0 tests/contract/test_v2_openapi.py -k snapshot"
ROUTES = {
    ("get", "/api/v2/imports"): "list_imports",
    ("get", "/api/v2/imports/{import_id}"): "get_import",
    ("post", "/api/v2/imports"): "create_import",
    ("post", "/api/v2/findings/bulk"): "change_findings",
}


@pytest.fixture
def document(backend: Backend) -> Json:
    answer = backend.client().get("/api/v2/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found: Json = answer.json()
    return found


def test_the_document_is_valid_and_names_version_and_release(document: Json) -> None:
    OPENAPI_31_VALIDATOR.validate(document)
    assert (document["info"]["version"], document["info"]["x-release"]) == ("v2", __version__)
    elsewhere = describe(api_v2_router(), "https://outcrop.example.com", "v2")
    assert elsewhere == document | {"servers": [{"url": "https://outcrop.example.com"}]}
    assert document["security"] == [{"bearer": []}]


def test_every_route_is_described_and_no_other(document: Json, backend: Backend) -> None:
    described = dict(operations(document))
    assert {place: operation["operationId"] for place, operation in described.items()} == ROUTES
    for operation in described.values():
        assert operation["description"]
        assert {"200", "202"} & operation["responses"].keys()
        assert operation["responses"].keys() >= {"400", "401", "403", "405", "429", "500", "503"}
    assert not [path for path in backend.client().get("/openapi.json").json()["paths"] if "/v2/" in path]


def test_answers_leave_room_for_new_fields_and_bodies_do_not(document: Json) -> None:
    answers = dict(response_schemas(document))
    assert "ImportShape" in answers
    assert [at for at, schema in answers.items() if schema.get("additionalProperties", True) is False] == []
    for at, schema in request_schemas(document):
        if "properties" in schema or schema.get("type") == "object":
            assert schema.get("additionalProperties") is False, at


def test_the_description_is_the_snapshot(document: Json) -> None:
    del document["servers"]  # the operator's
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("WRITE_OPENAPI_SNAPSHOT"):
        SNAPSHOT.write_text(text, "utf-8")
    assert text == SNAPSHOT.read_text("utf-8"), f"where the change is meant: {REGENERATE}"
