"""URLs with a login in them, against servers that require one or do not."""

import base64
from collections.abc import Iterator

import pytest

from outcrop.net.guard import Egress
from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, serve_https

PASSWORD = "S3cr3t!pw"
RIGHT = "Basic " + base64.b64encode(f"deploy:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("basic"), ("ci.example",), lambda _: FakeResponse()) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer):
    fake_issuer.requests.clear()


def check_url(
    egress: Egress,
    password: str = PASSWORD,
    login: str = "https://deploy",
    server: str = "ci.example/job/build",
):
    return run_check(egress, load_check("basic_auth", "basic_auth_url"), password, login=login, server=server)


def respond_by_login(without: int, with_right: int, with_wrong: int = 401):
    """Return a function that responds with one of these statuses, depending on the login in the request."""

    def respond(request):
        authorization = request.headers.get("Authorization")
        return FakeResponse(
            without if authorization is None else with_right if authorization == RIGHT else with_wrong
        )

    return respond


@pytest.mark.parametrize(
    ("respond", "password", "status", "confidence", "requests"),
    [
        (respond_by_login(401, 200), PASSWORD, "valid", "high", 2),
        (respond_by_login(401, 200), "wrong", "invalid", "high", 2),
        (respond_by_login(401, 403), PASSWORD, "invalid", "high", 2),
        (respond_by_login(200, 200), PASSWORD, "unvalidated", "low", 1),
        (respond_by_login(404, 200), PASSWORD, "unvalidated", "low", 1),
        (respond_by_login(302, 200), PASSWORD, "unvalidated", "low", 1),
        (respond_by_login(401, 302), PASSWORD, "error", "low", 2),
        (respond_by_login(401, 429), PASSWORD, "error", "low", 2),
        (respond_by_login(503, 200), PASSWORD, "error", "low", 1),
    ],
)
def test_the_responses_with_and_without_the_login_decide(
    fake_issuer, respond, password, status, confidence, requests
):
    fake_issuer.respond = respond
    verdict = check_url(fake_issuer.egress, password)
    assert (verdict.status, verdict.confidence, len(fake_issuer.requests)) == (
        status,
        confidence,
        requests,
    ), verdict.reason
    assert {
        (request.method, request.host, request.path, request.query) for request in fake_issuer.requests
    } == {("GET", "ci.example", "/job/build", "")}
    assert PASSWORD not in verdict.reason


def test_query_and_fragment_of_the_url_are_not_sent(fake_issuer):
    fake_issuer.respond = respond_by_login(401, 200)
    assert check_url(fake_issuer.egress, server="ci.example/a?delete=1#x").status == "valid"
    assert check_url(fake_issuer.egress, server="ci.example").status == "valid"
    assert [(request.path, request.query) for request in fake_issuer.requests] == [("/a", "")] * 2 + [
        ("/", "")
    ] * 2


@pytest.mark.parametrize(
    ("login", "server"),
    [
        ("ftp://deploy", "ci.example"),
        ("https://a%3Ab", "ci.example"),
        ("https://deploy", "ci.example/a\r\nX: 1"),
        ("https://deploy", "${HOST}/a"),
        ("https://deploy", ""),
        ("", "ci.example"),
        ("https://deploy", "evil.example\\@ci.example"),
    ],
)
def test_a_text_that_is_not_a_url_is_not_requested(fake_issuer, login, server):
    assert check_url(fake_issuer.egress, login=login, server=server).status == "unvalidated"
    assert fake_issuer.requests == []


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "127.1.2.3", "localhost"])
def test_a_url_with_a_private_address_is_not_connected_to(fake_issuer, host):
    verdict = check_url(Egress(), server=f"{host}:{fake_issuer.port}/")
    assert (verdict.status, fake_issuer.requests) == ("unreachable", [])
    assert "address that is not public" in verdict.reason
