"""Google Cloud service accounts: a signed assertion is changed for a token, which is then asked what it may do.

The token endpoint is Google's own, whatever the key's file says.
"""

import asyncio
import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from outcrop.domain.finding import Confidence, Validation
from outcrop.net.http import HttpClient, HttpError
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import json_of, send, texts
from outcrop.validation.http.check import Turn
from outcrop.validation.http.response import judge
from outcrop.validation.pem import straighten
from outcrop.validation.verdict import Verdict, error, invalid, unreachable, unvalidated, with_services

_TOKEN = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_PROJECT = "https://cloudresourcemanager.googleapis.com/v1/projects/"
_SCOPE = (
    "https://www.googleapis.com/auth/cloud-platform.read-only"  # enough to ask, not enough to change anything
)
_LIFE = 300  # seconds
_LARGEST_KEY = 8192  # bits: signing with more takes long
_PERMISSIONS = {
    "resourcemanager.projects.setIamPolicy": "gcp_iam_admin",
    "storage.buckets.list": "gcp_storage",
    "compute.instances.list": "gcp_compute",
    "secretmanager.secrets.list": "gcp_secretmanager",
    "bigquery.jobs.create": "gcp_bigquery",
}
_ROLES = {"roles/owner": "gcp_owner", "roles/editor": "gcp_editor"}


async def gcp_service_account(
    http: HttpClient, check: CheckSpec, values: Mapping[str, str], turn: Turn
) -> Verdict:
    """Prove to be the account; where Google agrees, ask what the account may do in its project."""
    email = values["part.client_email"]
    made = await asyncio.to_thread(
        _assertion, values["secret"], email, values.get("part.private_key_id"), int(time.time())
    )
    if isinstance(made, Verdict):
        return made
    form = urlencode(
        {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": made}
    ).encode()
    try:
        answer = await send(
            http,
            turn,
            "POST",
            _TOKEN,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=form,
        )
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    if b"short-lived token" in answer.body or b"reasonable timeframe" in answer.body:
        return error("Google finds the time of the request wrong: is this machine's clock right?")
    verdict = judge(answer, check.answer)
    token = json_of(answer).get("access_token")
    if (
        verdict.status is not Validation.VALID
        or not isinstance(token, str)
        or not token.isprintable()
        or not token.isascii()
    ):
        return verdict
    turn.proven = verdict
    project = values.get("part.project_id") or email.partition("@")[2].partition(".")[0]
    labels = await _may(http, turn, token, project, email)
    return with_services(verdict, labels)


def _assertion(secret: str, email: str, key_id: str | None, now: int) -> str | Verdict:
    found = straighten(secret)
    if found is None:
        return invalid("the end of the key is missing", Confidence.LOW)
    try:
        key = serialization.load_pem_private_key(found[1], None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return invalid("is no whole key: it cannot be read", Confidence.LOW)
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size > _LARGEST_KEY:
        return unvalidated("is no key that Google gives out")
    header = {"alg": "RS256", "typ": "JWT"} | ({"kid": key_id} if key_id else {})
    claims = {"iss": email, "scope": _SCOPE, "aud": _TOKEN, "iat": now, "exp": now + _LIFE}
    text = f"{_base64(json.dumps(header).encode())}.{_base64(json.dumps(claims).encode())}"
    try:
        proof = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except ValueError:
        return invalid("is no whole key: its numbers do not fit each other", Confidence.LOW)
    return f"{text}.{_base64(proof)}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def _may(http: HttpClient, turn: Turn, token: str, project: str, email: str) -> set[str]:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def asked(what: str, question: Any) -> dict[str, Any]:
        body = json.dumps(question).encode()
        try:
            answer = await send(
                http, turn, "POST", f"{_PROJECT}{project}:{what}", headers=headers, body=body, further=True
            )
        except HttpError:
            return {}
        return json_of(answer) if answer.ok else {}

    granted = texts(
        (await asked("testIamPermissions", {"permissions": list(_PERMISSIONS)})).get("permissions")
    )
    labels = {_PERMISSIONS[name] for name in granted if name in _PERMISSIONS}
    labels |= {"gcp_iam"} if labels else set()
    bindings = (await asked("getIamPolicy", {})).get("bindings")
    for binding in bindings if isinstance(bindings, list) else ():
        if (
            isinstance(binding, dict)
            and f"serviceAccount:{email}" in texts(binding.get("members"))
            and binding.get("role") in _ROLES
        ):
            labels.add(_ROLES[binding["role"]])
    return labels
