"""For receivers: tells whether a request came from this service, was not changed on its way, and is not an old one played again.

Needs nothing but Python's standard library, so that it can be copied or installed anywhere. The service signs with it too.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

WINDOW = 300.0  # seconds that a request may be old, or early
USER_AGENT = "Service-Webhook/1.0"

_SCHEME, _VERSION = "sha256=", "v1"


class VerificationError(ValueError):
    """A request that must not be believed; the text says why and holds nothing of the secret."""


def sign(body: bytes, secret: str, *, id_: str, timestamp: int) -> dict[str, str]:
    """Give the headers that prove a body: the service's own, and those of Standard Webhooks."""
    return {
        "X-Service-Signature": _SCHEME + _plain(body, secret),
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"{_VERSION},{_standard(body, secret, id_, str(timestamp))}",
    }


def verify(
    body: bytes, headers: Mapping[str, str], secret: str, *, now: float | None = None, window: float = WINDOW
) -> dict[str, Any]:
    """Check a request by its raw body, its headers (names in any case) and the secret that was shown when the webhook was saved.

    Every signature that is there must be right, and one must be there. Give the event; raise VerificationError otherwise.
    """
    if isinstance(body, str):
        raise TypeError(
            "give the raw body as bytes: text that was decoded, or parsed and written again, has another signature"
        )
    given = {name.lower(): value for name, value in headers.items()}
    if not secret:
        raise VerificationError("the secret is empty")
    moment = datetime.now(UTC).timestamp() if now is None else now
    plain, standard = given.get("x-service-signature"), given.get("webhook-signature")
    if plain is None and standard is None:
        raise VerificationError("there is no X-Service-Signature header")
    if plain is not None:
        _check_plain(body, plain, secret)
    if standard is not None:
        _check_standard(body, standard, secret, given)
        _check_age(float(given["webhook-timestamp"]), moment, window, "webhook-timestamp")
    event = _event(body)
    _check_age(_delivered_at(event), moment, window, "delivered_at")
    return event


def _check_plain(body: bytes, header: str, secret: str) -> None:
    if not header.startswith(_SCHEME):
        raise VerificationError("X-Service-Signature does not begin with sha256=")
    if not _same(header.removeprefix(_SCHEME), _plain(body, secret)):
        raise VerificationError("X-Service-Signature does not fit: another secret, or the body was changed")


def _check_standard(body: bytes, header: str, secret: str, given: Mapping[str, str]) -> None:
    id_, timestamp = given.get("webhook-id"), given.get("webhook-timestamp")
    if id_ is None or timestamp is None:
        raise VerificationError("webhook-signature needs webhook-id and webhook-timestamp beside it")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise VerificationError("webhook-timestamp is no number of seconds")
    right = _standard(body, secret, id_, timestamp)
    # Several may stand there, one for each secret that is good at the moment; all are compared.
    versions = [part.partition(",") for part in header.split(" ")]
    if not any([_same(signature, right) for version, _, signature in versions if version == _VERSION]):  # noqa: C419
        raise VerificationError("webhook-signature does not fit: another secret, or the request was changed")


def _check_age(at: float, moment: float, window: float, name: str) -> None:
    if at < moment - window:
        raise VerificationError(
            f"{name} is more than {window:g} seconds ago: it may be an old request, played again"
        )
    if at > moment + window:
        raise VerificationError(
            f"{name} is more than {window:g} seconds ahead: one of the two clocks is wrong"
        )


def _event(body: bytes) -> dict[str, Any]:
    try:
        event = json.loads(body)
    except ValueError:
        raise VerificationError("the body is no JSON") from None
    if not isinstance(event, dict):
        raise VerificationError("the body is no JSON object")
    return event


def _delivered_at(event: Mapping[str, Any]) -> float:
    try:
        at = datetime.fromisoformat(event["delivered_at"])
    except (KeyError, TypeError, ValueError):
        raise VerificationError("the body has no delivered_at") from None
    if at.tzinfo is None:
        raise VerificationError("delivered_at has no offset")
    return at.timestamp()


def _plain(body: bytes, secret: str) -> str:
    """Key the signature with the shown text itself."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _standard(body: bytes, secret: str, id_: str, timestamp: str) -> str:
    """Key the signature as Standard Webhooks libraries do: with what the shown text says in base64."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise VerificationError(
            "the secret is not the one that was shown: 64 hexadecimal characters"
        ) from None
    signed = b"%s.%s.%s" % (id_.encode(), timestamp.encode(), body)
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _same(given: str, right: str) -> bool:
    """Compare in a time that tells nothing of where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), right.encode())
