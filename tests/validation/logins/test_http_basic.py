"""Addresses with a login in them, against a server that asks for one, or does not."""

import base64
from collections.abc import Iterator

import pytest

from outcrop.net.guard import Egress
from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

PASSWORD = "S3cr3t!pw"
RIGHT = "Basic " + base64.b64encode(f"deploy:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("basic"), ("ci.example",), lambda _: FakeResponse()) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(stand_in):
    stand_in.requests.clear()


def checked(
    egress: Egress,
    password: str = PASSWORD,
    login: str = "https://deploy",
    server: str = "ci.example/job/build",
):
    return run_check(egress, load_check("basic_auth", "basic_auth_url"), password, login=login, server=server)


def answers(without: int, with_right: int, with_wrong: int = 401):
    def respond(asked):
        given = asked.headers.get("Authorization")
        return FakeResponse(without if given is None else with_right if given == RIGHT else with_wrong)

    return respond


@pytest.mark.parametrize(
    ("respond", "password", "status", "confidence", "requests"),
    [
        (answers(401, 200), PASSWORD, "valid", "high", 2),
        (answers(401, 200), "wrong", "invalid", "high", 2),
        (answers(401, 403), PASSWORD, "invalid", "high", 2),
        (answers(200, 200), PASSWORD, "unvalidated", "low", 1),
        (answers(404, 200), PASSWORD, "unvalidated", "low", 1),
        (answers(302, 200), PASSWORD, "unvalidated", "low", 1),
        (answers(401, 302), PASSWORD, "error", "low", 2),
        (answers(401, 429), PASSWORD, "error", "low", 2),
        (answers(503, 200), PASSWORD, "error", "low", 1),
    ],
)
def test_only_the_difference_tells(stand_in, respond, password, status, confidence, requests):
    stand_in.respond = respond
    verdict = checked(stand_in.egress, password)
    assert (verdict.status, verdict.confidence, len(stand_in.requests)) == (status, confidence, requests), (
        verdict.reason
    )
    assert {(asked.method, asked.host, asked.path, asked.query) for asked in stand_in.requests} == {
        ("GET", "ci.example", "/job/build", "")
    }
    assert PASSWORD not in verdict.reason


def test_what_the_path_holds_cannot_become_anything_else(stand_in):
    stand_in.respond = answers(401, 200)
    assert checked(stand_in.egress, server="ci.example/a?delete=1#x").status == "valid"
    assert checked(stand_in.egress, server="ci.example").status == "valid"
    assert [(asked.path, asked.query) for asked in stand_in.requests] == [("/a", "")] * 2 + [("/", "")] * 2


@pytest.mark.parametrize(
    ("login", "server"),
    [
        ("ftp://deploy", "ci.example"), ("https://a%3Ab", "ci.example"), ("https://deploy", "ci.example/a\r\nX: 1"),
        ("https://deploy", "${HOST}/a"), ("https://deploy", ""), ("", "ci.example"), ("https://deploy", "evil.example\\@ci.example"),
    ],
)  # fmt: skip
def test_what_is_no_web_address_is_not_asked(stand_in, login, server):
    assert checked(stand_in.egress, login=login, server=server).status == "unvalidated"
    assert stand_in.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1.2.3", "localhost"])
def test_a_private_address_is_not_connected_to(stand_in, host):
    verdict = checked(Egress(), server=f"{host}:{stand_in.port}/")
    assert (verdict.status, stand_in.requests) == ("unreachable", [])
    assert "not a public address" in verdict.reason
