"""Check keys of Google Cloud service accounts.

1. The key signs a JWT, which Google's token endpoint exchanges for an access token (`_sign_assertion`). The
   endpoint is fixed: the one in the key file is not used, because an attacker may have written it.
2. With the token, the permissions and roles of the account in its project are read (`_find_services`).
"""

import asyncio
import base64
import json
import time
from typing import Any
from urllib.parse import urlencode

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from outcrop.domain.finding import Confidence, Validation
from outcrop.limits import KEY_BITS
from outcrop.net.http import HttpError
from outcrop.validation.attempt import Attempt
from outcrop.validation.http.response import json_object_of, judge, strings_of
from outcrop.validation.pem import restore_pem
from outcrop.validation.verdict import Verdict, error, invalid, unreachable, unvalidated, with_services

_TOKEN_URL = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
_PROJECT_URL = "https://cloudresourcemanager.googleapis.com/v1/projects/"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform.read-only"  # a token that cannot change anything
_ASSERTION_SECONDS = 300
_PERMISSION_LABELS = {
    "resourcemanager.projects.setIamPolicy": "gcp_iam_admin",
    "storage.buckets.list": "gcp_storage",
    "compute.instances.list": "gcp_compute",
    "secretmanager.secrets.list": "gcp_secretmanager",
    "bigquery.jobs.create": "gcp_bigquery",
}
_ROLE_LABELS = {"roles/owner": "gcp_owner", "roles/editor": "gcp_editor"}


async def check_gcp_service_account(attempt: Attempt) -> Verdict:
    """Exchange an assertion signed with the key for an access token; return the verdict on the key.

    If Google issues a token, the verdict has the services that the account can access. The verdict on a key
    that cannot sign is that of `_sign_assertion`. The verdict is `unreachable` without a response, and
    `error` if Google considers our clock wrong.
    """
    email = attempt.values["part.client_email"]
    assertion = await asyncio.to_thread(
        _sign_assertion, attempt.secret, email, attempt.companion("private_key_id"), int(time.time())
    )
    if isinstance(assertion, Verdict):
        return assertion
    form = {"grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion": assertion}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    try:
        response = await attempt.send("POST", _TOKEN_URL, headers=headers, body=urlencode(form).encode())
    except HttpError as failure:
        return unreachable(f"the issuer cannot be reached: {failure}")
    if b"short-lived token" in response.body or b"reasonable timeframe" in response.body:
        return error("Google considers the time of the request wrong: is this machine's clock right?")
    verdict = judge(response, attempt.check.answer)
    token = json_object_of(response).get("access_token")
    if verdict.status is not Validation.VALID or not isinstance(token, str) or not _fits_header(token):
        return verdict
    attempt.proven = verdict
    project = attempt.companion("project_id") or email.partition("@")[2].partition(".")[0]
    return with_services(verdict, await _find_services(attempt, token, project, email))


def _sign_assertion(secret: str, email: str, key_id: str | None, now: int) -> str | Verdict:
    """Return a JWT that claims to be the account, signed with its key.

    If the key cannot sign, return a verdict instead: `invalid` if it is not complete, `unvalidated` if Google
    does not issue such keys. `secret` contains the key as PEM, `email` is the account, `key_id` goes into the
    JWT's header unless it is None, and `now` is in seconds since 1970.
    """
    restored = restore_pem(secret)
    if restored is None:
        return invalid("the end of the key is missing", Confidence.LOW)
    try:
        key = serialization.load_pem_private_key(restored[1], None, unsafe_skip_rsa_key_validation=True)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return invalid("is not a complete key: it cannot be read", Confidence.LOW)
    if not isinstance(key, rsa.RSAPrivateKey) or key.key_size > KEY_BITS:
        return unvalidated("is not a kind of key that Google issues")
    header = {"alg": "RS256", "typ": "JWT"} | ({"kid": key_id} if key_id else {})
    claims = {"iss": email, "scope": _SCOPE, "aud": _TOKEN_URL, "iat": now, "exp": now + _ASSERTION_SECONDS}
    unsigned = f"{_base64url(json.dumps(header).encode())}.{_base64url(json.dumps(claims).encode())}"
    try:
        signature = key.sign(unsigned.encode(), padding.PKCS1v15(), hashes.SHA256())
    except ValueError:
        return invalid("is not a complete key: its numbers do not fit each other", Confidence.LOW)
    return f"{unsigned}.{_base64url(signature)}"


def _fits_header(token: str) -> bool:
    """Whether the token is printable ASCII, so that it can be sent in an HTTP header."""
    return token.isprintable() and token.isascii()


def _base64url(data: bytes) -> str:
    """Return the data in base64url without padding, as in a JWT."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


async def _find_services(attempt: Attempt, token: str, project: str, email: str) -> set[str]:
    """Return the labels of the permissions and roles that the account `email` has in the project.

    `gcp_iam` is added if there is a permission. `token` is the account's access token. A call that fails adds
    no labels.
    """
    test = await _call_project(
        attempt, token, f"{project}:testIamPermissions", {"permissions": list(_PERMISSION_LABELS)}
    )
    granted = strings_of(test.get("permissions"))
    labels = {_PERMISSION_LABELS[name] for name in granted if name in _PERMISSION_LABELS}
    labels |= {"gcp_iam"} if labels else set()
    policy = await _call_project(attempt, token, f"{project}:getIamPolicy", {})
    bindings = policy.get("bindings")
    for binding in bindings if isinstance(bindings, list) else ():
        if (
            isinstance(binding, dict)
            and f"serviceAccount:{email}" in strings_of(binding.get("members"))
            and binding.get("role") in _ROLE_LABELS
        ):
            labels.add(_ROLE_LABELS[binding["role"]])
    return labels


async def _call_project(attempt: Attempt, token: str, method: str, parameters: Any) -> dict[str, Any]:
    """Call a method of Google's Resource Manager API and return its JSON object.

    Return {} if the call fails or the response is no JSON object. `method` is the project and the method's
    name, such as `my-project:getIamPolicy`. `parameters` is sent as JSON.
    """
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps(parameters).encode()
    try:
        response = await attempt.send(
            "POST", f"{_PROJECT_URL}{method}", headers=headers, body=body, after_verdict=True
        )
    except HttpError:
        return {}
    return json_object_of(response) if response.ok else {}
