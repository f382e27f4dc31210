"""Authenticate as a GitHub App: sign a short-lived assertion, and exchange it for an installation token."""

import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import Secret, reveal
from outcrop.lazy_regex import regex

_LIFETIME, _EARLIER = 540, 60  # seconds: GitHub allows ten minutes, and clocks differ
_RENEW_BEFORE = 300.0  # seconds before an installation token expires
_ID = regex(r"[A-Za-z0-9._-]{1,100}")
_EXPECTED = (
    "the credential of a GitHub App is one line of JSON: "
    '{"app_id": …, "installation_id": …, "private_key": "-----BEGIN …"}'
)

Exchange = Callable[[str, Mapping[str, str]], Awaitable[object]]  # sends a POST request; returns its JSON


@dataclass(slots=True)
class GitHubApp:
    """An app with its installation, and the token that it has at the moment."""

    app_id: str
    installation_id: str
    key: RSAPrivateKey = field(repr=False)
    _token: str = field(default="", repr=False)
    _expires_at: float = 0.0

    async def token(self, exchange: Exchange, now: float) -> str:
        """Return a token of the installation; a new one if the last one expires soon."""
        if now > self._expires_at - _RENEW_BEFORE:
            path = f"/app/installations/{self.installation_id}/access_tokens"
            value = await exchange(path, {"Authorization": f"Bearer {self._assertion(now)}"})
            fields = value if isinstance(value, dict) else {}
            self._token = str(fields.get("token") or "")
            try:
                self._expires_at = datetime.fromisoformat(str(fields.get("expires_at"))).timestamp()
            except ValueError:
                self._expires_at = 0.0
        return self._token

    def _assertion(self, now: float) -> str:
        """Return a JSON Web Token (RS256) that says which app this is."""
        claims = {"iat": int(now) - _EARLIER, "exp": int(now) + _LIFETIME, "iss": self.app_id}
        parts = [_encode(orjson.dumps(part)) for part in ({"alg": "RS256", "typ": "JWT"}, claims)]
        signature = self.key.sign(".".join(parts).encode(), padding.PKCS1v15(), hashes.SHA256())
        return ".".join([*parts, _encode(signature)])


def parse_app(credential: Secret | None) -> GitHubApp | None:
    """Return the app that a credential describes; None for a token.

    Raise BadInputError, without the credential, if it begins like one of an app and is none.
    """
    text = "" if credential is None else reveal(credential).strip()
    if not text.startswith("{"):
        return None
    try:
        raw = orjson.loads(text)
        app_id, installation_id = str(raw["app_id"]), str(raw["installation_id"])
        key = serialization.load_pem_private_key(str(raw["private_key"]).encode(), password=None)
    except (ValueError, KeyError, TypeError, UnsupportedAlgorithm):
        raise BadInputError(_EXPECTED) from None
    if not (_ID.fullmatch(app_id) and installation_id.isascii() and installation_id.isdigit()):
        raise BadInputError(_EXPECTED)
    if not isinstance(key, RSAPrivateKey):
        raise BadInputError(_EXPECTED)
    return GitHubApp(app_id, installation_id, key)


def _encode(raw: bytes) -> str:
    """Return base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
