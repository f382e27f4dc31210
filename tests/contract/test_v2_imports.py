"""Test the lists of imports over the API, and that version 2 has the checks of version 1."""

from typing import Any
from uuid import uuid4

import jsonschema_rs
import pytest

from outcrop.domain.account import Plan
from outcrop.settings import Settings
from outcrop.store.keyring import Keyring
from tests.support.backend import Backend, Tenant, running_server
from tests.support.openapi import allow_only_described_fields

LIST, BY_ID = "/api/v2/imports", "/api/v2/imports/{import_id}"


def insert(backend: Backend, tenant: Tenant, **columns: Any) -> str:
    """Store an import; return its id."""
    values = {
        "account_id": tenant.account.id,
        "id": uuid4(),
        "status": "completed",
        "format": "gitleaks",
        "events": True,
        "created_by": "ci@example.com",
        "created_at": "2026-11-18T09:30:00Z",
    } | columns
    marks = ", ".join(["%s"] * len(values))
    backend.sql(f"INSERT INTO imports ({', '.join(values)}) VALUES ({marks})", *values.values())
    return str(values["id"])


def described(backend: Backend, path: str, body: Any) -> bool:
    """Whether `/api/v2/openapi.json` describes the body of a 200 answer, with all its fields."""
    document = allow_only_described_fields(backend.client().get("/api/v2/openapi.json").json())
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema_rs.Draft202012Validator(
        schema | {"components": document["components"]}, validate_formats=True
    ).validate(body)
    return True


def test_imports_are_listed_newest_first_and_one_can_be_read(backend: Backend) -> None:
    tenant = backend.tenant()
    older = insert(backend, tenant, finished_at="2026-11-18T09:30:09Z", records=4, findings_new=3)
    newer = insert(
        *(backend, tenant),
        created_at="2026-11-18T09:30:01.5Z",
        status="failed",
        repo="https://git.example.com/acme/shop",
        commit_id="c0ffee",
        error_record=7,
        error_message="line 7: is not JSON",
    )
    insert(backend, tenant, status="receiving")
    insert(backend, backend.tenant())

    answer = tenant.client.get(LIST)
    assert answer.json()["meta"] == {"total": 2, "page": 1, "per_page": 25, "pages": 1}
    assert [entry["id"] for entry in answer.json()["data"]] == [newer, older]
    assert described(backend, LIST, answer.json())
    assert tenant.client.get(LIST, params={"per_page": 1, "page": 2}).json()["data"][0]["id"] == older
    assert tenant.client.get(LIST, params={"page": 9}).json()["data"] == []

    read = tenant.client.get(f"{LIST}/{newer}")
    assert described(backend, BY_ID, read.json())
    assert read.json()["data"] == {
        "id": newer,
        "status": "failed",
        "format": "gitleaks",
        "repo": "https://git.example.com/acme/shop",
        "commit": "c0ffee",
        "created_at": "2026-11-18T09:30:01+00:00",
        "finished_at": None,
        "records": 0,
        "findings_new": 0,
        "findings_updated": 0,
        "findings_unchanged": 0,
        "error": {"record": 7, "message": "line 7: is not JSON"},
    }
    assert tenant.client.head(f"{LIST}/{newer}/").status_code == 200


def test_an_import_of_nobody_or_of_somebody_else_is_not_found(backend: Backend) -> None:
    tenant, other = backend.tenant(), backend.tenant()
    theirs = insert(backend, other)
    receiving = insert(backend, tenant, status="receiving")
    answers = [tenant.client.get(f"{LIST}/{id_}") for id_ in (uuid4(), theirs, receiving)]
    assert [answer.status_code for answer in answers] == [404] * 3
    assert len({answer.content for answer in answers}) == 1
    wrong = tenant.client.get(f"{LIST}/7")
    assert (wrong.status_code, wrong.json()["detail"][0]["loc"]) == (422, ["path", "import_id"])


@pytest.mark.parametrize("query", ["page=0", "per_page=201", "per_page=", "page=1&page=1"])
def test_a_wrong_parameter_is_named(backend: Backend, query: str) -> None:
    answer = backend.tenant().client.get(f"{LIST}?{query}")
    name = query.partition("=")[0]
    assert (answer.status_code, answer.json()["detail"][0]["loc"]) == (422, ["query", name])


def test_version_2_has_the_order_of_checks_of_version_1(settings: Settings, keys: Keyring) -> None:
    secure = {"X-Forwarded-Proto": "https"}
    with (
        running_server(settings, base_url="https://outcrop.example.com", rate_limit=3) as server,
        Backend(settings, keys, server.base_url) as backend,
    ):
        starter, growth = backend.tenant(Plan.STARTER), backend.tenant()
        wrong = f"{LIST}/7?page=0"
        answers = [
            growth.client.delete(wrong),
            backend.client().delete(wrong, headers=secure),
            backend.client("wrong").delete(wrong, headers=secure),
            starter.client.delete(wrong, headers=secure),
            growth.client.delete(wrong, headers=secure),
            growth.client.get("/api/v2/nowhere", headers=secure),
            growth.client.get(wrong, headers=secure),
            growth.client.delete(wrong, headers=secure),
        ]
        first_window = growth.client.get("/api/v1/findings", headers=secure)  # the same minute
    assert [answer.status_code for answer in answers] == [308, 401, 401, 403, 405, 404, 422, 429]
    assert first_window.status_code == 429
    assert answers[4].headers["allow"] == "GET, HEAD"
    assert [answer.headers.get("ratelimit-remaining") for answer in answers[4:]] == ["2", "1", "0", "0"]
