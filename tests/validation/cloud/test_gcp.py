"""Keys of Google service accounts, against a fake Google that verifies the signed assertion."""

import base64
import json
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding

from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https
from tests.support.tls import rsa_key

HOSTS = ("oauth2.googleapis.com", "cloudresourcemanager.googleapis.com")
KEY = rsa_key()
PEM = (
    KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    .decode()
    .strip()
)
EMAIL = "ci@acme-prod-1.iam.gserviceaccount.com"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def fake_issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("google"), HOSTS, lambda _: FakeResponse()) as server:
        yield server


@pytest.fixture(autouse=True)
def _clear_requests(fake_issuer):
    fake_issuer.requests.clear()


def json_response(data: object, status: int = 200) -> FakeResponse:
    return FakeResponse(status, JSON, json.dumps(data).encode())


def decode_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def respond_as_google(request: ReceivedRequest) -> FakeResponse:
    """Exchange an assertion signed with KEY for a token, and answer requests that carry the token."""
    if request.host == "oauth2.googleapis.com":
        form = parse_qs(request.body.decode())
        header, claims, signature = form["assertion"][0].split(".")
        KEY.public_key().verify(
            decode_base64url(signature), f"{header}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        claim_values = json.loads(decode_base64url(claims))
        assert (claim_values["iss"], claim_values["aud"]) == (EMAIL, "https://oauth2.googleapis.com/token")
        assert claim_values["scope"].endswith("read-only")
        assert json.loads(decode_base64url(header)) == {"alg": "RS256", "typ": "JWT", "kid": "f" * 40}
        return json_response({"access_token": "ya29.made-up"})
    assert request.headers["Authorization"] == "Bearer ya29.made-up"
    if request.path == "/v1/projects/acme-prod-1:testIamPermissions":
        tested = json.loads(request.body)["permissions"]
        return json_response(
            {"permissions": [name for name in tested if name.startswith(("storage", "resourcemanager"))]}
        )
    assert request.path == "/v1/projects/acme-prod-1:getIamPolicy"
    return json_response(
        {
            "bindings": [
                {"role": "roles/owner", "members": [f"serviceAccount:{EMAIL}"]},
                {"role": "roles/editor", "members": 7},
                3,
            ]
        }
    )


def check_service_account(fake_issuer: FakeServer, secret: str = PEM, **parts: str):
    companions = {"client_email": EMAIL, "private_key_id": "f" * 40} | parts
    return run_check(fake_issuer.egress, load_check("google", "gcp_service_account"), secret, **companions)


@pytest.mark.parametrize(
    "notation", [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\n    "), PEM.replace("\n", '\\n" +\n  "')]
)
def test_a_key_is_accepted_in_every_notation(fake_issuer, notation):
    fake_issuer.respond = respond_as_google
    verdict = check_service_account(fake_issuer, notation)
    assert (verdict.status, verdict.confidence) == ("valid", "high")
    assert verdict.services == ("gcp_iam", "gcp_iam_admin", "gcp_owner", "gcp_storage")


def test_the_token_endpoint_of_the_key_file_is_ignored(fake_issuer):
    fake_issuer.respond = lambda _: json_response(
        {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400
    )
    verdict = check_service_account(fake_issuer, token_uri="https://evil.example/token")
    assert (verdict.status, verdict.confidence) == ("invalid", "high")
    assert [request.host for request in fake_issuer.requests] == ["oauth2.googleapis.com"]


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (
            json_response(
                {
                    "error": "invalid_grant",
                    "error_description": "Invalid JWT: Token must be a short-lived token (60 minutes)",
                },
                400,
            ),
            "error",
        ),
        (json_response({"error": "unauthorized_client"}, 401), "error"),
        (json_response({"error": "invalid_grant"}, 500), "error"),
        (json_response(["access_token"]), "error"),
        (FakeResponse(200, {"Content-Type": "text/html"}, b"<html>"), "error"),
        (FakeResponse(drop=True), "unreachable"),
    ],
)
def test_other_responses_of_google_are_not_a_verdict(fake_issuer, response, status):
    fake_issuer.respond = lambda _: response
    assert check_service_account(fake_issuer).status == status


@pytest.mark.parametrize(
    "secret", [PEM[:900], PEM.replace("A", "B", 40), "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----"]
)
def test_a_broken_key_is_not_sent(fake_issuer, secret):
    verdict = check_service_account(fake_issuer, secret)
    assert (verdict.status, verdict.confidence, fake_issuer.requests) == ("invalid", "low", [])
