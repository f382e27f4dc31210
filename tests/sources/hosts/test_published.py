"""The comparison of stand-ins with published descriptions notices what a description does not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.code_hosts.published import Description, Exchange
from tests.support.code_hosts.tour import record_tour

REPOSITORY = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "owner": {"$ref": "#/definitions/User"}},
}
DOCUMENT: dict[str, Any] = {
    "basePath": "/api/v1",
    "paths": {
        "/repos/{owner}/{repo}": {
            "get": {
                "parameters": [{"name": "page", "in": "query"}],
                "responses": {"200": {"schema": {"$ref": "#/definitions/Repository"}}},
            },
            "post": {
                "parameters": [
                    {"in": "body", "name": "body", "schema": {"$ref": "#/definitions/Repository"}}
                ],
                "responses": {"201": {}},
            },
            "put": {
                "requestBody": {"content": {"application/json": {"schema": REPOSITORY}}},
                "responses": {"201": {}},
            },
        },
        "/repos/{owner}/search": {"get": {"responses": {200: {}}}},  # as YAML has it
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


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_what_is_sent_is_compared(method: str) -> None:
    exchange = Exchange(method, "/api/v1/repos/acme/shop", "", 201, b"{}", b'{"id": "1"}')
    found = list(Description(DOCUMENT).differences(exchange))
    assert found == [f"{method} /api/v1/repos/acme/shop sends.id: is str, described as integer"]


def test_the_tour_makes_the_requests_of_the_client(tmp_path: Path) -> None:
    paths = {exchange.path for exchange in record_tour("gitea self-hosted", tmp_path)}
    assert {"/api/v1/orgs/acme/repos", "/api/v1/repos/acme/shop", "/api/v1/user"} <= paths
    assert {"/api/v1/repos/acme/shop/issues/comments", "/api/v1/repos/acme/shop/pulls/7/commits"} <= paths


def test_the_tour_of_github_makes_the_requests_of_its_client(tmp_path: Path) -> None:
    found = record_tour("github", tmp_path)
    paths = {exchange.path for exchange in found}
    assert {"/orgs/acme/repos", "/repos/acme/shop", "/user", "/gists"} <= paths
    assert {"/repos/acme/shop/issues/comments", "/repos/acme/shop/pulls/7/commits"} <= paths
    assert "/users/jo/events/orgs/acme" in paths
    sent = [json.loads(exchange.sent) for exchange in found if exchange.method == "POST"]
    assert [list(body) for body in sent] == [["state", "context", "description", "target_url"], ["body"]]
