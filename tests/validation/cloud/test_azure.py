"""Google and Microsoft: what proves a key is checked by the stand-in as the documents say, and every answer means what it should."""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.checks import load_check, run_check
from tests.support.fake_https import FakeResponse, FakeServer, ReceivedRequest, serve_https

HOSTS = (
    "oauth2.googleapis.com", "cloudresourcemanager.googleapis.com", "login.microsoftonline.com", "management.azure.com",
    *(f"acme1.{kind}.core.windows.net" for kind in ("blob", "file", "queue", "table")),
)  # fmt: skip
KEY = rsa.generate_private_key(65537, 2048)
PEM = (
    KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    .decode()
    .strip()
)
EMAIL = "ci@acme-prod-1.iam.gserviceaccount.com"
STORAGE_KEY = base64.b64encode(bytes(range(64))).decode()
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeServer]:
    with serve_https(tmp_path_factory.mktemp("cloud"), HOSTS, lambda _: FakeResponse()) as running:
        yield running


@pytest.fixture(autouse=True)
def _fresh(stand_in):
    stand_in.requests.clear()


def told(data: object, status: int = 200) -> FakeResponse:
    return FakeResponse(status, JSON, json.dumps(data).encode())


def unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def token_of(claims: dict[str, object]) -> str:
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "RS256"}, claims, {})
    )


def google(asked: ReceivedRequest) -> FakeResponse:
    """Give a token for an assertion that the key has signed, and answer whoever shows it."""
    if asked.host == "oauth2.googleapis.com":
        form = parse_qs(asked.body.decode())
        head, claims, proof = form["assertion"][0].split(".")
        KEY.public_key().verify(
            unpadded(proof), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        said = json.loads(unpadded(claims))
        assert (said["iss"], said["aud"]) == (EMAIL, "https://oauth2.googleapis.com/token")
        assert said["scope"].endswith("read-only")
        assert json.loads(unpadded(head)) == {"alg": "RS256", "typ": "JWT", "kid": "f" * 40}
        return told({"access_token": "ya29.made-up"})
    assert asked.headers["Authorization"] == "Bearer ya29.made-up"
    if asked.path == "/v1/projects/acme-prod-1:testIamPermissions":
        wanted = json.loads(asked.body)["permissions"]
        return told(
            {"permissions": [name for name in wanted if name.startswith(("storage", "resourcemanager"))]}
        )
    assert asked.path == "/v1/projects/acme-prod-1:getIamPolicy"
    return told(
        {
            "bindings": [
                {"role": "roles/owner", "members": [f"serviceAccount:{EMAIL}"]},
                {"role": "roles/editor", "members": 7},
                3,
            ]
        }
    )


def service_account(stand_in: FakeServer, secret: str = PEM, **parts: str):
    given = {"client_email": EMAIL, "private_key_id": "f" * 40} | parts
    return run_check(stand_in.egress, load_check("google", "gcp_service_account"), secret, **given)


@pytest.mark.parametrize(
    "written", [PEM, PEM.replace("\n", "\\n"), PEM.replace("\n", "\n    "), PEM.replace("\n", '\\n" +\n  "')]
)
def test_a_service_account_gets_a_token_however_its_key_is_written(stand_in, written):
    stand_in.respond = google
    verdict = service_account(stand_in, written)
    assert (verdict.status, verdict.confidence) == ("valid", "high")
    assert verdict.services == ("gcp_iam", "gcp_iam_admin", "gcp_owner", "gcp_storage")


def test_the_token_endpoint_is_googles_whatever_the_file_says(stand_in):
    stand_in.respond = lambda _: told(
        {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, 400
    )
    verdict = service_account(stand_in, token_uri="https://evil.example/token")
    assert (verdict.status, verdict.confidence) == ("invalid", "high")
    assert [asked.host for asked in stand_in.requests] == ["oauth2.googleapis.com"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (
            told(
                {
                    "error": "invalid_grant",
                    "error_description": "Invalid JWT: Token must be a short-lived token (60 minutes)",
                },
                400,
            ),
            "error",
        ),
        (told({"error": "unauthorized_client"}, 401), "error"),
        (told({"error": "invalid_grant"}, 500), "error"),
        (told(["access_token"]), "error"),
        (FakeResponse(200, {"Content-Type": "text/html"}, b"<html>"), "error"),
        (FakeResponse(drop=True), "unreachable"),
    ],
)
def test_what_google_says_otherwise_is_no_verdict(stand_in, answer, status):
    stand_in.respond = lambda _: answer
    assert service_account(stand_in).status == status


@pytest.mark.parametrize(
    "secret", [PEM[:900], PEM.replace("A", "B", 40), "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----"]
)
def test_a_broken_key_is_not_sent_anywhere(stand_in, secret):
    verdict = service_account(stand_in, secret)
    assert (verdict.status, verdict.confidence, stand_in.requests) == ("invalid", "low", [])


def azure(asked: ReceivedRequest) -> FakeResponse:
    """Check the signature as the Storage documentation writes it: twelve lines, headers, resource; tables have four."""
    account, kind = asked.host.split(".")[:2]
    date = asked.headers["x-ms-date"]
    if kind == "table":
        lines = ["GET", "", "", date, f"/{account}{asked.path}"]
    else:
        lines = [
            "GET",
            *[""] * 11,
            f"x-ms-date:{date}",
            f"x-ms-version:{asked.headers['x-ms-version']}",
            f"/{account}{asked.path}",
            "comp:list",
        ]
    proof = base64.b64encode(
        hmac.digest(bytes(range(64)), "\n".join(lines).encode(), hashlib.sha256)
    ).decode()
    if asked.headers["Authorization"] != f"SharedKey {account}:{proof}":
        return FakeResponse(
            403, {"Content-Type": "application/xml"}, b"<Error><Code>AuthenticationFailed</Code></Error>"
        )
    if kind == "queue":
        return FakeResponse(
            403, {"Content-Type": "application/xml"}, b"<Error><Code>AuthorizationFailure</Code></Error>"
        )
    return FakeResponse(200, {"Content-Type": "application/xml"}, b"<EnumerationResults/>")


def storage(stand_in: FakeServer, secret: str = STORAGE_KEY):
    return run_check(stand_in.egress, load_check("azure", "azure_storage_key"), secret, account_name="acme1")


def test_a_storage_key_lists_what_it_opens(stand_in):
    stand_in.respond = azure
    verdict = storage(stand_in)
    assert (verdict.status, verdict.services) == ("valid", ("azure_blob", "azure_file", "azure_table"))


def test_a_wrong_storage_key_is_refused_and_no_more_is_asked(stand_in):
    stand_in.respond = azure
    verdict = storage(stand_in, base64.b64encode(bytes(64)).decode())
    assert (verdict.status, verdict.confidence, len(stand_in.requests)) == ("invalid", "high", 1)


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
def test_what_storage_says_is_what_is_told(stand_in, code, status):
    stand_in.respond = lambda _: FakeResponse(
        403, {"Content-Type": "application/xml"}, f"<Error>{code}</Error>".encode()
    )
    verdict = storage(stand_in)
    assert verdict.status == status
    assert STORAGE_KEY not in verdict.reason


def entra(stand_in: FakeServer):
    parts = {"tenant_id": "11111111-2222-3333-4444-555555555555", "client_id": "c" * 36}
    return run_check(
        stand_in.egress, load_check("azure", "azure_entra_client_secret"), "a secret~&=", **parts
    )


def microsoft(asked: ReceivedRequest) -> FakeResponse:
    if asked.host == "management.azure.com":
        assert asked.headers["Authorization"] == "Bearer for-management"
        return told({"value": [{"subscriptionId": "1"}]})
    form = parse_qs(asked.body.decode())
    assert asked.path == "/11111111-2222-3333-4444-555555555555/oauth2/v2.0/token"
    assert (form["client_id"], form["client_secret"], form["grant_type"]) == (
        ["c" * 36],
        ["a secret~&="],
        ["client_credentials"],
    )
    if form["scope"] == ["https://management.azure.com/.default"]:
        return told({"access_token": "for-management"})
    return told({"access_token": token_of({"roles": ["Application.ReadWrite.All", "Mail.Read", 5]})})


def test_an_entra_application_tells_what_it_may_do(stand_in):
    stand_in.respond = microsoft
    verdict = entra(stand_in)
    assert (verdict.status, verdict.services) == (
        "valid",
        ("azure_graph", "azure_graph_admin", "azure_management"),
    )


@pytest.mark.parametrize("token", ["x", "a.b.c", 5, None, {"a": 1}])
def test_an_odd_token_only_tells_less(stand_in, token):
    stand_in.respond = lambda asked: (
        told({"access_token": token}) if "microsoftonline" in asked.host else FakeResponse(403)
    )
    verdict = entra(stand_in)
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
def test_what_entra_says_is_what_is_told(stand_in, code, status, confidence):
    stand_in.respond = lambda _: told({"error": "invalid_client", "error_description": f"{code}: no"}, 401)
    verdict = entra(stand_in)
    assert (verdict.status, verdict.confidence) == (status, confidence)
