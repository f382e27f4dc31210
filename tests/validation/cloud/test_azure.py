"""Azure storage keys and Entra client secrets, against a fake Azure that verifies signatures and forms."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest

from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https

HOSTS = (
    "login.microsoftonline.com",
    "management.azure.com",
    *(f"acme1.{kind}.core.windows.net" for kind in ("blob", "file", "queue", "table")),
)
STORAGE_KEY = base64.b64encode(bytes(range(64))).decode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("azure"), HOSTS, lambda _: FakeResponse()) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer):
    fake_issuer.requests.clear()


def json_response(data: object, status: int = 200) -> FakeResponse:
    return FakeResponse(status, JSON, json.dumps(data).encode())


def make_token(claims: dict[str, object]) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "RS256"}, claims, {})
    )


def respond_as_storage(request: ReceivedRequest) -> FakeResponse:
    """Verify the signature as Azure's documentation describes it: twelve lines, headers and the resource.

    For tables, the signed text has four lines and the resource.
    """
    account, kind = request.host.split(".")[:2]
    date = request.headers["x-ms-date"]
    if kind == "table":
        lines = ["GET", "", "", date, f"/{account}{request.path}"]
    else:
        lines = [
            "GET",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{request.headers['x-ms-version']}",
            f"/{account}{request.path}",
            "comp:list",
        ]
    signature = base64.b64encode(
        hmac.digest(bytes(range(64)), "\n".join(lines).encode(), hashlib.sha256)
    ).decode()
    if request.headers["Authorization"] != f"SharedKey {account}:{signature}":
        return FakeResponse(
            403, {"Content-Type": "application/xml"}, b"<Error><Code>AuthenticationFailed</Code></Error>"
        )
    if kind == "queue":
        return FakeResponse(
            403, {"Content-Type": "application/xml"}, b"<Error><Code>AuthorizationFailure</Code></Error>"
        )
    return FakeResponse(200, {"Content-Type": "application/xml"}, b"<EnumerationResults/>")


def storage(fake_issuer: FakeServer, secret: str = STORAGE_KEY):
    return run_check(
        fake_issuer.egress, load_check("azure", "azure_storage_key"), secret, account_name="acme1"
    )


def test_a_storage_key_reports_the_services_that_it_can_list(fake_issuer):
    fake_issuer.respond = respond_as_storage
    verdict = storage(fake_issuer)
    assert (verdict.status, verdict.services) == ("valid", ("azure_blob", "azure_file", "azure_table"))


def test_a_wrong_storage_key_is_invalid_after_one_request(fake_issuer):
    fake_issuer.respond = respond_as_storage
    verdict = storage(fake_issuer, base64.b64encode(bytes(64)).decode())
    assert (verdict.status, verdict.confidence, len(fake_issuer.requests)) == ("invalid", "high", 1)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("<Code>KeyBasedAuthenticationNotPermitted</Code>", "invalid"),
        ("<Code>AccountIsDisabled</Code>", "invalid"),
        ("<Code>AuthorizationFailure</Code>", "error"),
        ("<Code>AuthenticationFailed</Code><AuthenticationErrorDetail>Request date header too old", "error"),
        ("<Code>Other</Code>", "error"),
    ],
)
def test_each_storage_error_has_its_verdict(fake_issuer, code, status):
    fake_issuer.respond = lambda _: FakeResponse(
        403, {"Content-Type": "application/xml"}, f"<Error>{code}</Error>".encode()
    )
    verdict = storage(fake_issuer)
    assert verdict.status == status
    assert STORAGE_KEY not in verdict.reason


def entra(fake_issuer: FakeServer):
    companions = {"tenant_id": "11111111-2222-3333-4444-555555555555", "client_id": "c" * 36}
    return run_check(
        fake_issuer.egress, load_check("azure", "azure_entra_client_secret"), "a secret~&=", **companions
    )


def respond_as_entra(request: ReceivedRequest) -> FakeResponse:
    if request.host == "management.azure.com":
        assert request.headers["Authorization"] == "Bearer for-management"
        return json_response({"value": [{"subscriptionId": "1"}]})
    form = parse_qs(request.body.decode())
    assert request.path == "/11111111-2222-3333-4444-555555555555/oauth2/v2.0/token"
    assert (form["client_id"], form["client_secret"], form["grant_type"]) == (
        ["c" * 36],
        ["a secret~&="],
        ["client_credentials"],
    )
    if form["scope"] == ["https://management.azure.com/.default"]:
        return json_response({"access_token": "for-management"})
    return json_response(
        {"access_token": make_token({"roles": ["Application.ReadWrite.All", "Mail.Read", 5]})}
    )


def test_an_entra_secret_reports_roles_and_subscriptions(fake_issuer):
    fake_issuer.respond = respond_as_entra
    verdict = entra(fake_issuer)
    assert (verdict.status, verdict.services) == (
        "valid",
        ("azure_graph", "azure_graph_admin", "azure_management"),
    )


@pytest.mark.parametrize("token", ["x", "a.b.c", 5, None, {"a": 1}])
def test_an_unreadable_token_only_means_fewer_services(fake_issuer, token):
    fake_issuer.respond = lambda request: (
        json_response({"access_token": token}) if "microsoftonline" in request.host else FakeResponse(403)
    )
    verdict = entra(fake_issuer)
    assert (verdict.status, verdict.services) == ("error" if token is None else "valid", ())


@pytest.mark.parametrize(
    ("code", "status", "confidence"),
    [
        ("AADSTS7000215", "invalid", "high"),
        ("AADSTS7000222", "invalid", "high"),
        ("AADSTS700016", "invalid", "medium"),
        ("AADSTS90002", "invalid", "medium"),
        ("AADSTS53003", "error", "low"),
    ],
)
def test_each_entra_error_has_its_verdict(fake_issuer, code, status, confidence):
    fake_issuer.respond = lambda _: json_response(
        {"error": "invalid_client", "error_description": f"{code}: no"}, 401
    )
    verdict = entra(fake_issuer)
    assert (verdict.status, verdict.confidence) == (status, confidence)
