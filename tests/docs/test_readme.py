"""The README is short, and shows what the commands print."""

import json
import re
from pathlib import Path

import pytest

from outcrop.domain.events import FIELDS, EventType
from tests.docs import readme
from tests.docs.inventory import schema_fields
from tests.docs.pages import first_column, section
from tests.support.command import run
from tests.support.fake_https import FakeResponse, ReceivedRequest, serve_https
from tests.support.rulesets import cached_in

MAX_LINES = 150
JSON = {"Content-Type": "application/json"}


def respond(request: ReceivedRequest) -> FakeResponse:
    """Answer as GitHub does for a valid token, and as Stripe does for a revoked key and a key for test data."""
    if request.host == "api.github.com":
        return FakeResponse(200, JSON | {"X-OAuth-Scopes": "repo, admin:org"}, b'{"login": "jo"}')
    if "sk_test_" in request.headers["Authorization"]:
        return FakeResponse(200, JSON, b'{"object": "account", "charges_enabled": true}')
    return FakeResponse(401, JSON, b'{"error": {"message": "Invalid API Key provided"}}')


def test_the_readme_is_short() -> None:
    assert readme.README.count("\n") <= MAX_LINES


@pytest.mark.slow  # it starts git
def test_the_scan_prints_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("api.github.com", "api.stripe.com")
    readme.make_repository(tmp_path / "shop")
    with serve_https(tmp_path, hosts, respond) as issuers:
        pairs = ",".join(f"{host}:443=127.0.0.1:{issuers.port}" for host in hosts)
        monkeypatch.setenv("OUTCROP_VALIDATE", "safe")
        monkeypatch.setenv("OUTCROP_EGRESS_CONNECT_TO", pairs)
        monkeypatch.setenv("OUTCROP_EGRESS_CLOSED", "true")
        monkeypatch.setenv("OUTCROP_EGRESS_CA_FILE", str(issuers.ca))
        ran = run("scan", "shop", folder=tmp_path, cache=cached_in(tmp_path / "cache"))
    assert ran.code == 1, ran.err
    printed = [line.rstrip() for line in ran.out.splitlines()]
    assert printed == readme.session(".venv/bin/outcrop scan shop").splitlines()


@pytest.mark.slow  # it starts git
def test_the_page_of_scanning_names_every_field_of_a_finding(tmp_path: Path) -> None:
    readme.make_repository(tmp_path / "shop")
    cache = cached_in(tmp_path / "cache")
    ran = run("scan", "--json", "--reveal", "--no-validate", "shop", folder=tmp_path, cache=cache)
    table = section("scanning.md", "Fields of JSON and JSON Lines")
    assert {*first_column(table), *schema_fields("FindingShape")} == set(ran.json[0])


def test_the_event_in_the_readme_has_the_fields_of_its_type() -> None:
    (body,) = re.findall(r"^```json\n(.*?)^```$", readme.README, re.MULTILINE | re.DOTALL)
    event = json.loads(body)
    assert list(event) == ["event", "delivered_at", "client_slug", "finding"]
    assert tuple(event["finding"]) == FIELDS[EventType(event["event"])]


def test_a_line_that_was_not_printed_is_reported() -> None:
    assert readme.missing_lines("a … c\nx\n…\n", "  a b c\n") == ["x"]
