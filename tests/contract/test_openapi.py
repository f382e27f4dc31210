"""Test that `/openapi.json` describes exactly what the service does.

It contains every endpoint of the specification, every bound and every answer, and nothing else.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import httpx
import jsonschema_rs
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR
from structlog.testing import capture_logs

from outcrop import __version__
from outcrop.api import parameters
from outcrop.api.describe import describe
from outcrop.api.errors import ParameterError
from outcrop.api.parameters import FindingParameters, NoteParameters, ScanParameters
from outcrop.asgi import api_router
from outcrop.domain.account import Plan
from outcrop.domain.events import FIELDS, EventType
from tests.support.backend import Backend, Tenant, running_server
from tests.support.factories import make_line, make_scan
from tests.support.generated_client import generate_client, run_program
from tests.support.openapi import allow_only_described_fields

Json = dict[str, Any]

SNAPSHOT = Path(__file__).with_name("openapi.json")
REGENERATE = "WRITE_OPENAPI_SNAPSHOT=1 .venv/bin/pytest -n0 tests/contract/test_openapi.py -k snapshot"

FINDING = "/api/v1/findings/{finding_id}"
SCAN = "/api/v1/scans/{scan_id}"
EVERYWHERE = {"200", "400", "401", "403", "405", "429", "500", "503"}
LISTED = EVERYWHERE | {"422"}
LOOKED_UP = LISTED | {"404"}
OPERATIONS = {  # of the specification, and false_positive of its gaps: the name, the answers, the body of 200
    ("get", "/api/v1/findings"): ("list_findings", LISTED, "ListShape_FindingShape_"),
    ("get", FINDING): ("get_finding", LOOKED_UP, "SingleShape_FindingShape_"),
    ("get", f"{FINDING}/score"): ("get_score", LOOKED_UP, "SingleShape_ScoreShape_"),
    ("post", f"{FINDING}/suppress"): ("suppress_finding", LOOKED_UP, "SingleShape_MutationData_"),
    ("post", f"{FINDING}/resolve"): ("resolve_finding", LOOKED_UP, "SingleShape_MutationData_"),
    ("post", f"{FINDING}/restrict"): ("restrict_finding", LOOKED_UP, "SingleShape_MutationData_"),
    ("post", f"{FINDING}/false_positive"): ("mark_false_positive", LOOKED_UP, "SingleShape_MutationData_"),
    ("get", "/api/v1/scans"): ("list_scans", LISTED, "ListShape_ScanRunShape_"),
    ("get", SCAN): ("get_scan", EVERYWHERE | {"404"}, "SingleShape_ScanRunShape_"),
}
CODES = {  # what `error` can be, by status
    "401": {"missing_authorization", "invalid_token", "revoked_token"},
    "403": {"plan_required"},
    "404": {"not_found"},
    "405": {"method_not_allowed"},
    "429": {"rate_limited"},
    "500": {"internal_error"},
    "503": {"busy"},
}
STATUSES = ["active", "resolved", "false_positive", "customer_restricted", "stale"]
SOURCES = ["repo", "gist", "commit", "endpoint", "js_bundle"]
VALIDATIONS = ["valid", "invalid", "unvalidated", "error", "unreachable"]
ORDERS = ["composite_score", "first_seen_at", "last_seen_at", "updated_at"]
NO_NUL = r"^[^\u0000]*$"
FINDING_QUERY: dict[str, Json] = {
    "status": {"type": "string", "enum": STATUSES},
    "source_type": {"type": "string", "enum": SOURCES},
    "validation": {"type": "string", "enum": VALIDATIONS},
    "suppressed": {"type": "boolean"},
    "service": {"type": "string", "pattern": NO_NUL},
    "min_score": {"type": "number", "minimum": 0, "maximum": 100},
    "page": {"type": "integer", "minimum": 1, "default": 1},
    "per_page": {"type": "integer", "minimum": 1, "maximum": 200, "default": 25},
    "order_by": {"type": "string", "enum": ORDERS, "default": "composite_score"},
    "order_dir": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
}
SCAN_QUERY: dict[str, Json] = {
    "type": {"type": "string", "enum": ["github", "scrape"]},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
    "page": {"type": "integer", "minimum": 1, "default": 1},
}
NOTE_QUERY: dict[str, Json] = {"note": {"type": "string", "maxLength": 500, "pattern": NO_NUL}}


@pytest.fixture
def document(backend: Backend) -> Json:
    answer = backend.client().get("/openapi.json")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found: Json = answer.json()
    return found


def _operations(document: Json) -> dict[tuple[str, str], Json]:
    return {
        (method, path): operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


def _query(operation: Json) -> dict[str, Json]:
    assert all(not p["required"] and p["description"] for p in operation["parameters"] if p["in"] == "query")
    return {p["name"]: p["schema"] for p in operation["parameters"] if p["in"] == "query"}


# --- the document


def test_the_document_is_valid_openapi(document: Json) -> None:
    assert document["openapi"].startswith("3.1.")
    OPENAPI_31_VALIDATOR.validate(document)


KEYWORDS = {  # all that is used; a misspelt one would be allowed by JSON Schema and mean nothing
    *(
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
    ),
    *("maximum", "minItems", "minLength", "minimum", "pattern", "properties", "required", "title", "type"),
    "x-extension",
}


def _schemas(value: Any, *, at: str = "") -> Iterator[tuple[str, Json]]:
    """Return every schema of the document with its path."""
    if isinstance(value, list):
        for n, item in enumerate(value):
            yield from _schemas(item, at=f"{at}/{n}")
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "schema":
                yield from _within(item, f"{at}/{key}")
            elif (at, key) == ("/components", "schemas"):
                for name, schema in item.items():
                    yield from _within(schema, f"{at}/{key}/{name}")
            else:
                yield from _schemas(item, at=f"{at}/{key}")


def _within(schema: Json, at: str) -> Iterator[tuple[str, Json]]:
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from _within(inner, f"{at}/{name}")
    for inner in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
        yield from _within(inner, at)


def test_every_schema_says_only_what_json_schema_knows(document: Json) -> None:
    schemas = list(_schemas(document))
    assert len(schemas) > 200
    for at, schema in schemas:
        assert set(schema) <= KEYWORDS, at
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema)
        if "$ref" in schema:
            assert (
                schema["$ref"].removeprefix("#/components/schemas/") in document["components"]["schemas"]
            ), at


def test_every_named_schema_is_used(document: Json) -> None:
    used = {schema["$ref"].rsplit("/", 1)[1] for _, schema in _schemas(document) if "$ref" in schema}
    assert used == set(document["components"]["schemas"])


def test_every_endpoint_is_described_and_nothing_else(document: Json) -> None:
    operations = _operations(document)
    assert {
        place for place in operations if not place[1].startswith("/api/v1/incidents")
    } == OPERATIONS.keys()  # tests/contract/test_incident_routes.py has the others
    for place, (name, _, _) in OPERATIONS.items():
        assert operations[place]["operationId"] == name
        assert operations[place]["description"]
        assert "requestBody" not in operations[place]


def test_version_and_base_address(document: Json) -> None:
    assert document["info"]["version"] == "v1"
    assert document["info"]["x-release"] == __version__
    assert document["servers"] == [{"url": "http://127.0.0.1"}]
    elsewhere = describe(api_router(), "https://outcrop.example.com")
    assert elsewhere == document | {"servers": [{"url": "https://outcrop.example.com"}]}


def test_every_operation_takes_a_bearer_token(document: Json) -> None:
    scheme = document["components"]["securitySchemes"]
    assert set(scheme) == {"bearer"}
    assert (scheme["bearer"]["type"], scheme["bearer"]["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"bearer": []}]
    assert all("security" not in operation for operation in _operations(document).values())


def test_every_event_is_described_as_it_is_sent(document: Json) -> None:
    events = {event for event in EventType if event is not EventType.TEST}
    assert document["webhooks"].keys() == events
    finding = document["components"]["schemas"]["FindingShape"]["properties"]
    for event in events:
        schema = document["webhooks"][event]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"]["event"]["const"] == event
        assert schema["required"] == ["event", "delivered_at", "client_slug", "finding"]
        sent = schema["properties"]["finding"]
        assert tuple(sent["required"]) == FIELDS[event]
        assert sent["properties"] == {name: finding[name] for name in FIELDS[event]}


def test_the_description_is_the_snapshot(document: Json) -> None:
    del document["servers"]  # the operator's
    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("WRITE_OPENAPI_SNAPSHOT"):
        SNAPSHOT.write_text(text, "utf-8")
    assert text == SNAPSHOT.read_text("utf-8"), (
        f"the API's description changed; where that is meant, write it anew: {REGENERATE}"
    )


# --- parameters


def test_bounds_enums_and_defaults_are_the_specifications(document: Json) -> None:
    operations = _operations(document)
    query = _query(operations["get", "/api/v1/findings"])
    assert list(query) == [
        *(
            "status",
            "source_type",
            "validation",
            "suppressed",
            "service",
            "min_score",
            "date_from",
            "date_to",
        ),
        *(
            "updated_since",
            "severity",
            "secret_type",
            "rule",
            "repo",
            "visibility",
            "author",
            "context",
            "assignee",
            "incident_id",
            "scan",
        ),
        *("q", "page", "per_page", "order_by", "order_dir"),
    ]
    assert {name: query[name] for name in FINDING_QUERY} == FINDING_QUERY
    assert query["date_from"] == query["date_to"]
    assert [branch.get("format") for branch in query["date_from"]["anyOf"]] == ["date", "date-time", None]
    assert {key: query["q"][key] for key in ("type", "maxLength")} == {"type": "string", "maxLength": 1000}
    assert _query(operations["get", "/api/v1/scans"]) == SCAN_QUERY
    for action in ("resolve", "restrict", "false_positive"):
        assert _query(operations["post", f"{FINDING}/{action}"]) == NOTE_QUERY
    for place in (("get", FINDING), ("post", f"{FINDING}/suppress"), ("get", SCAN)):
        assert _query(operations[place]) == {}


def test_ids_in_paths_are_described(document: Json) -> None:
    for (_, path), operation in _operations(document).items():
        described = [p for p in operation["parameters"] if p["in"] == "path"]
        assert [p["name"] for p in described] == [
            name for name in ("finding_id", "scan_id", "incident_id") if f"{{{name}}}" in path
        ]
        for parameter in described:
            assert parameter["required"]
            if parameter["name"] != "scan_id":
                assert parameter["schema"]["format"] == "uuid"
                valid = jsonschema_rs.validator_for(parameter["schema"]).is_valid
                id_ = str(uuid4())
                assert valid(id_)
                assert valid(id_.upper())
                assert not any(
                    valid(text)
                    for text in (
                        "",
                        "x",
                        id_ + "0",
                        id_.replace("-", ""),
                        f"{{{id_}}}",
                        f"urn:uuid:{id_}",
                        id_ + "\n",
                    )
                )
            else:
                assert parameter["schema"] == {"type": "string", "minLength": 1}


def _accepted(model: type[Any], name: str, text: str) -> bool:
    try:
        parameters.read(model, urlencode({name: text}).encode())
    except ParameterError as error:
        return [
            problem for problem in error.detail if problem["loc"] != ["query", name]
        ] != []  # blamed on another one: no refusal of it
    return True


def _described(model: type[Any], name: str, text: str) -> bool:
    """Judge the text by the description alone. A number or a boolean is its JSON text."""
    type_, validator = _validator(model, name)
    value: Any = text
    if type_ in {"integer", "number", "boolean"}:
        try:
            value = json.loads(text)
        except ValueError:
            return False
    return validator.is_valid(value)


@cache
def _validator(model: type[Any], name: str) -> tuple[str | None, jsonschema_rs.Validator]:
    schema = next(p["schema"] for p in parameters.described(model) if p["name"] == name)
    return schema.get("type"), jsonschema_rs.validator_for(schema)


MIDNIGHTS = [
    f"{year:04}-{month:02}-{day:02}"
    for year in (0, 1, 4, 100, 400, 1900, 1970, 2000, 2023, 2024, 9999)
    for month in range(14)
    for day in range(33)
]


def test_every_day_of_the_calendar_is_a_date_and_no_other() -> None:
    for text in MIDNIGHTS:
        real = False
        with suppress(ValueError):
            real = bool(date.fromisoformat(text))
        assert _accepted(FindingParameters, "date_from", text) is real, text
        assert _described(FindingParameters, "date_from", text) is real, text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-03T04:05:06Z", "2026-02-03T04:05:06+00:00"),
        ("2026-02-03t04:05:06z", "2026-02-03T04:05:06+00:00"),
        ("2026-02-03T04:05:06", "2026-02-03T04:05:06+00:00"),
        ("2026-02-03T04:05", "2026-02-03T04:05:00+00:00"),
        ("2026-02-03 04:05:06", "2026-02-03T04:05:06+00:00"),
        ("2026-02-03T04:05:06+02:00", "2026-02-03T02:05:06+00:00"),
        ("2026-02-03T04:05:06 02:00", "2026-02-03T02:05:06+00:00"),  # a plus sign that was not encoded
        ("2026-02-03T04:05:06-23:59", "2026-02-04T04:04:06+00:00"),
        ("2026-02-03T04:05:06.000000000000", "2026-02-03T04:05:06+00:00"),
        (
            "2026-02-03T04:05:06.0000000001Z",
            "2026-02-03T04:05:07+00:00",
        ),  # after the whole second, and no finding lies between
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.999999+00:00"),
        ("9999-12-31T23:59:59.5Z", "9999-12-31T23:59:59.999999+00:00"),
        ("2026-02-03T24:00:00Z", None),
        ("2026-02-03T04:60:00Z", None),
        ("2026-02-03T04:05:60Z", None),
        ("2026-02-03T04:05:06+24:00", None),
        ("2026-02-03T04:05:06+05:60", None),
        ("2026-02-03T04:05:06+0200", None),
        ("2026-02-03T04:05.5", None),
        ("2026-02-03T04", None),
        ("2026-02-03T", None),
        ("2026-02-03T04:05:06.Z", None),
        ("2026-02-03T04:05:06Z\n", None),
        ("2026-02-03\n", None),
        (" 2026-02-03", None),
        ("20260203", None),
        ("1770091506", None),
        ("2026-W05-2", None),
        ("٢٠٢٦-02-03", None),
        ("", None),
    ],
)
def test_a_time_is_read_as_described(text: str, moment: str | None) -> None:
    assert _described(FindingParameters, "date_from", text) is (moment is not None)
    assert _accepted(FindingParameters, "date_from", text) is (moment is not None)
    if moment is not None:
        query = parameters.read(FindingParameters, urlencode({"date_from": text}).encode()).query()
        assert query.seen_from == datetime.fromisoformat(moment)


_TIMES = st.from_regex(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,12})?)?([Zz]|[-+ ][0-9]{2}:[0-9]{2})?)?",
    fullmatch=True,
)
_SPACES = [chr(code) for code in range(0x3001) if chr(code).isspace()]  # U+3000 is the last one
_WORDS = st.lists(st.sampled_from(["a", "ü", "/", "\ufeff", "\u200b", "\u180e", *_SPACES]), max_size=70).map(
    "".join
)
_FLOATS = st.floats(-1, 101) | st.floats()
_COMPLETE = (
    st.integers(-3, 300).map(str)
    | st.integers().map(str)
    | _FLOATS.filter(lambda f: not f.is_integer()).map(repr)
)
_VALUES = {
    "date_from": _TIMES | st.text(max_size=30) | st.datetimes().map(str) | st.dates().map(str),
    "q": _WORDS
    | st.text(max_size=40)
    | st.lists(st.sampled_from("xy"), min_size=14, max_size=18).map(" ".join),
    "service": st.text(max_size=10),
    "min_score": _COMPLETE | _FLOATS.map(repr),
    "page": _COMPLETE,
    "per_page": _COMPLETE,
    "suppressed": st.sampled_from(["true", "false", "True", "1", "0", "yes", "null", ""]),
    "status": st.sampled_from([*STATUSES, "ACTIVE", "active ", "none", ""]),
}


@given(asked=st.one_of(*(st.tuples(st.just(name), values) for name, values in _VALUES.items())))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_a_value_is_taken_exactly_where_its_description_allows_it(asked: tuple[str, str]) -> None:
    assert _accepted(FindingParameters, *asked) is _described(FindingParameters, *asked)


def test_terms_are_split_at_every_white_space_there_is() -> None:
    for space in _SPACES:
        for terms, allowed in ((16, True), (17, False)):
            text = space + space.join(["x"] * terms) + space
            assert _accepted(FindingParameters, "q", text) is allowed, repr(space)
            assert _described(FindingParameters, "q", text) is allowed, repr(space)


@pytest.mark.parametrize(
    ("model", "name", "text", "allowed"),
    [
        (FindingParameters, "q", "ü" * 1000, True),
        (FindingParameters, "q", "ü" * 1001, False),
        (FindingParameters, "q", "a\0b", False),
        (FindingParameters, "q", "", True),
        (FindingParameters, "service", "a\0", False),
        (FindingParameters, "service", "", True),
        (FindingParameters, "page", "1" + "0" * 400, True),
        (FindingParameters, "min_score", "-0.0", True),
        (FindingParameters, "min_score", "100.0", True),
        (FindingParameters, "min_score", "100.00001", False),
        (FindingParameters, "min_score", "1e2", True),
        (FindingParameters, "min_score", "", False),
        (FindingParameters, "order_by", "", False),
        (ScanParameters, "type", "github", True),
        (ScanParameters, "type", "GitHub", False),
        (ScanParameters, "limit", "100", True),
        (ScanParameters, "limit", "101", False),
        (ScanParameters, "limit", "0", False),
        (NoteParameters, "note", "𝄞" * 500, True),
        (NoteParameters, "note", "𝄞" * 501, False),
        (NoteParameters, "note", "a\0", False),
        (NoteParameters, "note", "", True),
    ],
)
def test_a_bound_is_where_it_is_described(model: type[Any], name: str, text: str, *, allowed: bool) -> None:
    assert _accepted(model, name, text) is allowed
    assert _described(model, name, text) is allowed


# --- answers


def test_every_answer_is_described_with_its_body(document: Json) -> None:
    for place, (_, statuses, body) in OPERATIONS.items():
        described = _operations(document)[place]["responses"]
        assert set(described) == statuses, place
        assert _body(described["200"]) == f"#/components/schemas/{body}"
        for status, response in described.items():
            assert response["description"]
            assert set(response["content"]) == {"application/json"}
            if status in CODES:
                assert _codes(document, response) == CODES[status], (place, status)


@pytest.mark.parametrize("place", list(OPERATIONS), ids=" ".join)
def test_only_resolve_and_restrict_refuse_a_state(document: Json, place: tuple[str, str]) -> None:
    refusing = place[1].endswith(("/resolve", "/restrict"))
    codes = _codes(document, _operations(document)[place]["responses"]["400"])
    assert codes == ({"bad_request", "invalid_transition"} if refusing else {"bad_request"})


def _body(response: Json) -> str:
    reference: str = response["content"]["application/json"]["schema"]["$ref"]
    return reference


def _codes(document: Json, response: Json) -> set[str]:
    code = document["components"]["schemas"][_body(response).rsplit("/", 1)[1]]["properties"]["error"]
    return set(code["enum"]) if "enum" in code else {code["const"]}


def _holds(document: Json, place: tuple[str, str], answer: httpx.Response) -> None:
    """Check an answer's body and headers against the description of its status, and for any others."""
    response = _operations(document)[place]["responses"][str(answer.status_code)]
    components = allow_only_described_fields(document)["components"]
    schema = {"$ref": _body(response), "components": components}
    jsonschema_rs.Draft202012Validator(schema, validate_formats=True).validate(answer.json())
    assert answer.headers["content-type"] == "application/json"
    for name, header in response.get("headers", {}).items():
        if name in answer.headers:
            text = answer.headers[name]
            jsonschema_rs.validator_for(header["schema"]).validate(
                int(text) if header["schema"]["type"] == "integer" else text
            )
        else:
            assert not header.get("required"), f"{name} is missing"
    reported = {name.lower() for name in response.get("headers", {})}
    assert set(answer.headers) <= reported | {"content-type", "content-length", "date", "connection"}, (
        "a header is not described"
    )


def _ask(
    tenant: Tenant, place: tuple[str, str], finding_id: str, scan_id: str, **params: str
) -> httpx.Response:
    method, path = place
    return tenant.client.request(method, path.format(finding_id=finding_id, scan_id=scan_id), params=params)


@pytest.mark.parametrize("place", list(OPERATIONS), ids=" ".join)
def test_what_happens_is_what_is_described(backend: Backend, document: Json, place: tuple[str, str]) -> None:
    tenant, line, run = backend.tenant(), make_line(), make_scan()
    backend.import_(tenant.account, line)
    backend.scan(tenant.account, run)
    ids = (line["id"], str(run.id))
    seen = set()

    def holds(answer: httpx.Response, status: int) -> None:
        assert answer.status_code == status
        _holds(document, place, answer)
        seen.add(str(status))

    holds(_ask(tenant, place, *ids), 200)
    _, statuses, _ = OPERATIONS[place]
    if "404" in statuses:
        holds(_ask(tenant, place, str(uuid4()), "no such run"), 404)
    if "422" in statuses:
        wrong = (
            {"note": "x" * 501, "page": "0"}
            if "suppress" not in place[1] and place not in {("get", FINDING), ("get", f"{FINDING}/score")}
            else {}
        )
        holds(_ask(tenant, place, ids[0] if wrong else "x", ids[1], **wrong), 422)
    other = "POST" if place[0] == "get" else "GET"
    holds(tenant.client.request(other, place[1].format(finding_id=ids[0], scan_id=ids[1])), 405)
    holds(_ask(Tenant(tenant.account, "", "", backend.client()), place, *ids), 401)
    holds(_ask(Tenant(tenant.account, "", "", backend.client("x")), place, *ids), 401)
    holds(_ask(backend.tenant(Plan.STARTER), place, *ids), 403)
    holds(_unparsable(backend.base_url), 400)
    if place[0] == "post":
        backend.import_(tenant.account, held := make_line())
        with psycopg.connect(backend.settings.database_url or "") as db:
            db.execute("SELECT FROM findings WHERE id = %s FOR UPDATE", [held["id"]])
            holds(_ask(tenant, place, held["id"], ids[1]), 503)
    with (
        running_server(backend.settings, rate_limit=1) as server,
        Backend(backend.settings, backend.keys, server.base_url) as limited,
    ):
        hurried = limited.tenant()
        limited.import_(hurried.account, line)
        limited.scan(hurried.account, run)
        holds(_ask(hurried, place, *ids), 200)
        holds(_ask(hurried, place, *ids), 429)

    assert seen | {"503"} == statuses - {"500"}


@pytest.mark.parametrize(
    ("sqlstate", "status"),
    [("P0001", 500), ("53300", 503)],  # an exception in SQL, too many connections
    ids=["fault", "database"],
)
@pytest.mark.parametrize("place", list(OPERATIONS), ids=" ".join)
def test_a_fault_is_answered_as_described(
    backend: Backend, document: Json, place: tuple[str, str], sqlstate: str, status: int
) -> None:
    tenant = backend.tenant()
    with capture_logs() as logs, backend.failing_tables(sqlstate, "findings", "rollup_cells", "scans"):
        answer = _ask(tenant, place, str(uuid4()), str(uuid4()))
        for _ in range(200):  # the line may follow the answer
            if any(line["event"] == "request_failed" for line in logs):
                break
            time.sleep(0.01)
    assert answer.status_code == status
    assert "on purpose" not in answer.text
    _holds(document, place, answer)
    if status == 500:
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert [line["request_id"] for line in logs if line["event"] == "request_failed"] == [
        answer.headers["x-request-id"]
    ]


def _unparsable(base_url: str) -> httpx.Response:
    parts = urlsplit(base_url)
    assert parts.hostname is not None
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=60) as sock:
        sock.sendall(b"GET /api/v1/findings HTTP/1.1\r\nno colon\r\n\r\n")
        head, _, body = b"".join(iter(lambda: sock.recv(65536), b"")).partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    return httpx.Response(int(status.split()[1]), headers=headers, content=body)


def test_a_refused_state_is_answered_as_described(backend: Backend, document: Json) -> None:
    tenant, line = backend.tenant(), make_line(status="false_positive")
    backend.import_(tenant.account, line)
    for action in ("resolve", "restrict"):
        answer = tenant.post(f"/findings/{line['id']}/{action}")
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_transition")
        _holds(document, ("post", f"{FINDING}/{action}"), answer)


def test_findings_and_runs_of_every_shape_hold_to_their_description(backend: Backend, document: Json) -> None:
    tenant = backend.tenant()
    lines = [
        make_line(status=s, source_type=t, validation_status=v)
        for s, t, v in zip(STATUSES, SOURCES, VALIDATIONS, strict=True)
    ]
    lines += [
        {"id": str(uuid4()), "matched_text": "********"},
        {
            "id": str(uuid4()),
            "matched_text": "********",
            "first_seen_at": "0001-01-01T00:00:00Z",
            "last_seen_at": "9999-12-31T23:59:59Z",
        },
    ]
    backend.import_(tenant.account, *lines)
    tenant.post(f"/findings/{lines[0]['id']}/resolve", note="n" * 500).raise_for_status()
    tenant.post(f"/findings/{lines[1]['id']}/suppress").raise_for_status()
    answer = tenant.get("/findings", per_page=200)
    assert answer.json()["meta"]["total"] == len(lines)
    _holds(document, ("get", "/api/v1/findings"), answer)
    for line in lines:
        _holds(document, ("get", FINDING), tenant.get(f"/findings/{line['id']}"))


# --- a client made from it

CLIENT = """
import datetime, json, sys
from uuid import UUID
from outcrop_client import AuthenticatedClient
from outcrop_client.api.findings import get_finding, list_findings, mark_false_positive, \
resolve_finding, restrict_finding, suppress_finding
from outcrop_client.api.scans import get_scan, list_scans
from outcrop_client.models import ListFindingsOrderBy, ListFindingsOrderDir, ListFindingsStatus, ListScansType
from outcrop_client.models import NotFoundShape, ParameterErrorShape, TransitionErrorShape

base_url, key, first, second, third, scan = sys.argv[1:]
seen = {}
with AuthenticatedClient(base_url=base_url, token=key, httpx_args={"trust_env": False}) as client:
    page = list_findings.sync(
        client=client, status=ListFindingsStatus.ACTIVE, service="aws_s3", min_score=70, \
q="acme settings", per_page=1, page=2,
        date_from=datetime.date(2026, 1, 2), \
date_to=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        order_by=ListFindingsOrderBy.FIRST_SEEN_AT, order_dir=ListFindingsOrderDir.ASC,
    )
    seen["list"] = [page.meta.total, page.meta.pages, [str(f.id) for f in page.data]]
    seen["none"] = list_findings.sync(client=client, date_to=datetime.date(2026, 1, 1)).meta.total
    one = get_finding.sync(UUID(first), client=client).data
    seen["get"] = [one.status.value, one.composite_score, one.pattern.name, \
one.first_seen_at.isoformat(), one.resolved_at]
    seen["resolve"] = resolve_finding.sync(UUID(first), client=client, \
note="rotated & gone").data.status.value
    one = get_finding.sync(UUID(first), client=client).data
    seen["resolved"] = [one.resolution_note, one.resolution_evidence.auto_resolved, \
one.resolved_at is not None]
    seen["suppress"] = suppress_finding.sync(UUID(second), client=client).data.status.value
    seen["restrict"] = restrict_finding.sync(UUID(second), client=client).data.status.value
    seen["false_positive"] = mark_false_positive.sync(UUID(third), client=client).data.status.value
    refused = restrict_finding.sync(UUID(third), client=client)
    seen["refused"] = [isinstance(refused, TransitionErrorShape), refused.error.value]
    seen["missing"] = isinstance(get_finding.sync(UUID(int=1), client=client), NotFoundShape)
    wrong = list_findings.sync(client=client, per_page=201)
    seen["wrong"] = [isinstance(wrong, ParameterErrorShape), wrong.detail[0].loc]
    runs = list_scans.sync(client=client, type_=ListScansType.GITHUB, limit=5)
    seen["scans"] = [runs.meta.total, [str(r.id) for r in runs.data]]
    seen["scan"] = get_scan.sync(scan, client=client).data.target
print(json.dumps(seen))
"""


def test_a_client_generated_from_it_works(backend: Backend, document: Json, tmp_path: Path) -> None:
    tenant, run = backend.tenant(), make_scan()
    lines = [make_line(composite_score=score) for score in (71.0, 72.0, 73.0)]
    backend.import_(tenant.account, *lines, make_line(status="stale"), make_line(composite_score=69.5))
    backend.scan(tenant.account, run)
    ids = [line["id"] for line in lines]
    generate_client(document, tmp_path)
    seen = run_program(CLIENT, backend.base_url, tenant.key, *ids, str(run.id), folder=tmp_path)
    assert seen == {
        "list": [3, 3, [sorted(ids)[1]]],
        "none": 0,
        "get": ["active", 71.0, "AWS access key pair", "2026-01-02T03:04:05+00:00", None],
        "resolve": "resolved",
        "resolved": ["rotated & gone", False, True],
        "suppress": "active",
        "restrict": "customer_restricted",
        "false_positive": "false_positive",
        "refused": [True, "invalid_transition"],
        "missing": True,
        "wrong": [True, ["query", "per_page"]],
        "scans": [1, [str(run.id)]],
        "scan": "github:acme",
    }
    assert tenant.finding(ids[0])["resolution_evidence"] == {
        "auto_resolved": False,
        "resolved_by": tenant.account.email,
    }


# Adds a field to every object in every answer, as a later release may.
LATER_CLIENT = """
import json, sys
from uuid import UUID
import httpx
from outcrop_client import AuthenticatedClient
from outcrop_client.api.findings import get_finding, list_findings, resolve_finding
from outcrop_client.api.scans import get_scan
from outcrop_client.models import NotFoundShape, ParameterErrorShape

def extended(value):
    if isinstance(value, dict):
        return {key: extended(inner) for key, inner in value.items()} | {"later": {"any": ["value"]}}
    return [extended(inner) for inner in value] if isinstance(value, list) else value

class LaterRelease(httpx.HTTPTransport):
    def handle_request(self, request):
        answer = super().handle_request(request)
        return httpx.Response(answer.status_code, json=extended(json.loads(answer.read())))

base_url, key, finding_id, scan_id = sys.argv[1:]
arguments = {"transport": LaterRelease(), "trust_env": False}
with AuthenticatedClient(base_url=base_url, token=key, httpx_args=arguments) as client:
    page = list_findings.sync(client=client)
    finding = get_finding.sync(UUID(finding_id), client=client)
    changed = resolve_finding.sync(UUID(finding_id), client=client)
    run = get_scan.sync(scan_id, client=client)
    missing = get_finding.sync(UUID(int=1), client=client)
    wrong = list_findings.sync(client=client, per_page=201)
assert isinstance(missing, NotFoundShape) and isinstance(wrong, ParameterErrorShape)
seen = [page, page.meta, page.data[0], page.data[0].pattern, page.data[0].validation_detail,
        finding, finding.data, changed, changed.data, run, run.data, run.data.progress,
        missing, wrong, wrong.detail[0]]
for answer in seen:
    assert answer["later"] == {"any": ["value"]}, answer
    assert answer.to_dict()["later"] == {"any": ["value"]}, answer
print(json.dumps([str(finding.data.id), changed.data.status.value, run.data.target]))
"""


def test_a_client_generated_today_accepts_the_fields_of_a_later_release(
    backend: Backend, document: Json, tmp_path: Path
) -> None:
    tenant, line, run = backend.tenant(), make_line(), make_scan()
    backend.import_(tenant.account, line)
    backend.scan(tenant.account, run)
    generate_client(document, tmp_path)
    arguments = (backend.base_url, tenant.key, line["id"], str(run.id))
    seen = run_program(LATER_CLIENT, *arguments, folder=tmp_path)
    assert seen == [line["id"], "resolved", "github:acme"]
