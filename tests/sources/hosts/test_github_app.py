"""A GitHub App authenticates with a signed assertion, and uses the token of its installation."""

import asyncio
import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import Secret
from outcrop.net.http import open_http
from outcrop.sources.code_host.errors import HostError
from outcrop.sources.code_host.options import ApiOptions
from outcrop.sources.hosts.github import GitHub
from outcrop.sources.hosts.github_app import parse_app
from tests.support.fake_https import FakeResponse, ReceivedRequest, serve_https
from tests.support.tls import rsa_key

START = 1_700_000_000.0
KEY = rsa_key()
API = "api.github.com"


def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


CREDENTIAL = json.dumps({"app_id": 7, "installation_id": 42, "private_key": pem(KEY)})


def decode(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_the_installation_token_is_used_and_renewed_before_it_expires(tmp_path: Path) -> None:
    now = [START]
    issued: list[str] = []

    def respond(request: ReceivedRequest) -> FakeResponse:
        sent = request.headers["Authorization"].removeprefix("Bearer ")
        if request.path == "/app/installations/42/access_tokens":
            head, claims, signature = sent.split(".")
            KEY.public_key().verify(
                decode(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
            payload = json.loads(decode(claims))
            assert (payload["iss"], payload["exp"] - payload["iat"]) == ("7", 600)
            assert payload["iat"] <= now[0] < payload["exp"]
            issued.append(f"ghs_made_up_{len(issued)}")
            body = {
                "token": issued[-1],
                "expires_at": "2023-11-14T23:13:20Z" if now[0] == START else "2023-11-15T00:13:20Z",
            }
            return FakeResponse(201, {}, json.dumps(body).encode())
        assert sent == issued[-1]
        refused = {"message": f"Resource not accessible by integration: {sent}"}
        return FakeResponse(403, {}, json.dumps(refused).encode())

    async def main(egress: object) -> None:
        async with open_http(egress) as http:  # type: ignore[arg-type]
            options = ApiOptions(clock=lambda: now[0])
            github = GitHub(http, f"https://{API}", Secret(CREDENTIAL, mask_all=True), options=options)
            github._api.now = lambda: now[0]  # type: ignore[method-assign]
            assert await github.login() == ("x-access-token", "ghs_made_up_0")
            assert await github.login() == ("x-access-token", "ghs_made_up_0")
            now[0] += 3_400
            assert await github.login() == ("x-access-token", "ghs_made_up_1")
            assert (await github.token_owner()) == (None, ())
            with pytest.raises(HostError, match="Resource not accessible") as caught:
                await github.repository("acme/shop")
            assert issued[-1] not in caught.value.message

    with serve_https(tmp_path, (API,), respond) as server:
        asyncio.run(main(server.egress))
    assert len(issued) == 2


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        json.dumps({"app_id": 7, "installation_id": 42, "private_key": "no key"}),
        json.dumps({"app_id": 7, "installation_id": "42/../1", "private_key": pem(KEY)}),
        json.dumps(
            {"app_id": 7, "installation_id": 42, "private_key": pem(ec.generate_private_key(ec.SECP256R1()))}
        ),
    ],
)
def test_a_credential_of_no_valid_app_is_refused_without_its_text(text: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_app(Secret(text, mask_all=True))
    assert "no key" not in caught.value.message


def test_a_token_is_no_app() -> None:
    assert parse_app(None) is None
    assert parse_app(Secret("ghp_made_up", mask_all=True)) is None
