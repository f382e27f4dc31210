"""Sign webhook requests; in a receiver, verify that a request is authentic, unchanged and recent.

Needs only Python's standard library, so that a receiver can copy this file. The service signs with it too.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

WINDOW = 300.0  # seconds that the time in a request may differ from the receiver's clock
USER_AGENT = "Service-Webhook/1.0"

_SCHEME, _VERSION = "sha256=", "v1"


class VerificationError(ValueError):
    """The request must be rejected. The text is the reason and contains no part of the secret."""


def sign(body: bytes, secret: str, *, id_: str, timestamp: int, others: Sequence[str] = ()) -> dict[str, str]:
    """Return the signature headers of a body: X-Service-Signature, and the three of Standard Webhooks.

    While the secret is being changed, `others` are the next or the last one: `webhook-signature` has a value
    for each of them too.
    """
    standard = [_sign_standard(body, key, id_, str(timestamp)) for key in (secret, *others)]
    return {
        "X-Service-Signature": _SCHEME + _sign_plain(body, secret),
        "webhook-id": id_,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"{_VERSION},{signature}" for signature in standard),
    }


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    now: float | None = None,
    window: float = WINDOW,
) -> dict[str, Any]:
    """Return the event of a request; raise VerificationError if the request must be rejected.

    At least one signature header must be present, and every signature that is present must be correct.
    `body` is the raw body, `headers` may have names in any case, and `secret` is the text that was shown
    when the webhook was saved, or several texts while it is being changed: each signature must be that of
    one of them. `now` is a Unix time, for tests. The request may be at most `window` seconds old or early.
    """
    if isinstance(body, str):
        raise TypeError("pass the raw body as bytes: decoded or re-serialised text has another signature")
    values = {name.lower(): value for name, value in headers.items()}
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(secrets):
        raise VerificationError("the secret is empty")
    moment = datetime.now(UTC).timestamp() if now is None else now
    plain, standard = values.get("x-service-signature"), values.get("webhook-signature")
    if plain is None and standard is None:
        raise VerificationError("there is no X-Service-Signature header")
    if plain is not None:
        _check_plain(body, plain, secrets)
    if standard is not None:
        _check_standard(body, standard, secrets, values)
        _check_age(float(values["webhook-timestamp"]), moment, window, "webhook-timestamp")
    event = _parse_event(body)
    _check_age(_parse_delivered_at(event), moment, window, "delivered_at")
    return event


def _check_plain(body: bytes, header: str, secrets: Sequence[str]) -> None:
    """Raise VerificationError unless the X-Service-Signature header signs the body."""
    if not header.startswith(_SCHEME):
        raise VerificationError("X-Service-Signature does not begin with sha256=")
    given = header.removeprefix(_SCHEME)
    if not any([_equal(given, _sign_plain(body, secret)) for secret in secrets]):  # noqa: C419 - in constant time
        raise VerificationError("X-Service-Signature does not match: another secret, or changed content")


def _check_standard(body: bytes, header: str, secrets: Sequence[str], headers: Mapping[str, str]) -> None:
    """Raise VerificationError unless a signature in the webhook-signature header signs id, time and body."""
    id_, timestamp = headers.get("webhook-id"), headers.get("webhook-timestamp")
    if id_ is None or timestamp is None:
        raise VerificationError("webhook-signature needs the headers webhook-id and webhook-timestamp")
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        raise VerificationError("webhook-timestamp is not a number of seconds")
    expected = [_sign_standard(body, secret, id_, timestamp) for secret in secrets]
    # The header may hold several signatures, one for each valid secret. All are compared, in constant time.
    versions = [part.partition(",") for part in header.split(" ")]
    given = [signature for version, _, signature in versions if version == _VERSION]
    if not any([_equal(signature, right) for signature in given for right in expected]):  # noqa: C419
        raise VerificationError("webhook-signature does not match: another secret, or changed content")


def _check_age(at: float, moment: float, window: float, name: str) -> None:
    """Raise VerificationError, which names the field, if `at` and `moment` differ by more than `window`."""
    if at < moment - window:
        raise VerificationError(
            f"{name} is more than {window:g} seconds ago: the request may be a replay of an old one"
        )
    if at > moment + window:
        raise VerificationError(
            f"{name} is more than {window:g} seconds ahead: one of the two clocks is wrong"
        )


def _parse_event(body: bytes) -> dict[str, Any]:
    """Parse the body as a JSON object."""
    try:
        event = json.loads(body)
    except ValueError:
        raise VerificationError("the body is not JSON") from None
    if not isinstance(event, dict):
        raise VerificationError("the body is not a JSON object")
    return event


def _parse_delivered_at(event: Mapping[str, Any]) -> float:
    """Return the event's `delivered_at` as a Unix time."""
    try:
        at = datetime.fromisoformat(event["delivered_at"])
    except (KeyError, TypeError, ValueError):
        raise VerificationError("the body has no delivered_at") from None
    if at.tzinfo is None:
        raise VerificationError("delivered_at has no UTC offset")
    return at.timestamp()


def _sign_plain(body: bytes, secret: str) -> str:
    """Return the hexadecimal HMAC of the body. The key is the secret's text itself."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _sign_standard(body: bytes, secret: str, id_: str, timestamp: str) -> str:
    """Return the base64 HMAC of id, time and body as Standard Webhooks defines it.

    Its libraries decode the secret's text as base64 to get the key.
    """
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        raise VerificationError(
            "the secret is not the one that was shown: 64 hexadecimal characters"
        ) from None
    signed = b"%s.%s.%s" % (id_.encode(), timestamp.encode(), body)
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _equal(given: str, expected: str) -> bool:
    """Whether two signatures are equal, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())
