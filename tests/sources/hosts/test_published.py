"""The comparison of stand-ins with published descriptions notices what a description does not have."""

import json
from pathlib import Path
from typing import Any

from tests.support.code_hosts.published import Description, Exchange
from tests.support.code_hosts.tour import record_tour

REPOSITORY = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "owner": {"$ref": "#/definitions/User"}},
}
DOCUMENT = {
    "basePath": "/api/v1",
    "paths": {
        "/repos/{owner}/{repo}": {
            "get": {
                "parameters": [{"name": "page", "in": "query"}],
                "responses": {"200": {"schema": {"$ref": "#/definitions/Repository"}}},
            }
        },
        "/repos/{owner}/search": {"get": {"responses": {"200": {}}}},
    },
    "definitions": {
        "Repository": REPOSITORY,
        "User": {"allOf": [{"properties": {"login": {"type": "string"}}}]},
    },
}


def differences(
    body: Any, path: str = "/api/v1/repos/acme/shop", query: str = "", status: int = 200
) -> list[str]:
    exchange = Exchange("GET", path, query, status, json.dumps(body).encode())
    return list(Description(DOCUMENT).differences(exchange))


def test_differences_are_named() -> None:
    at = "GET /api/v1/repos/acme/shop"
    assert differences({"id": 1, "owner": {"login": "jo"}}, query="page=1") == []
    assert differences({"owner": None}) == []
    assert differences({}, query="sort=x") == [f"{at}: the parameter sort is not described"]
    assert differences({"id": "1"}) == [f"{at}.id: is str, described as integer"]
    assert differences({"owner": {"name": 1}}) == [f"{at}.owner: the field name is not described"]
    assert differences({}, status=418) == [f"{at}: the status 418 is not described"]
    assert differences({}, path="/api/v1/nothing") == ["GET /api/v1/nothing: is not described"]
    assert differences({"any": 1}, path="/api/v1/repos/acme/search") == []


def test_the_tour_makes_the_requests_of_the_client(tmp_path: Path) -> None:
    paths = {exchange.path for exchange in record_tour("gitea self-hosted", tmp_path)}
    assert {"/api/v1/orgs/acme/repos", "/api/v1/repos/acme/shop", "/api/v1/user"} <= paths
