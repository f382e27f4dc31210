"""Judge JSON Web Tokens by their header and claims."""

import base64
import json
import math
import time
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.validation.attempt import Attempt
from outcrop.validation.verdict import Verdict, invalid, unvalidated

_SHARED_KEY_ALGORITHMS = {"HS256", "HS384", "HS512"}


async def check_jwt(attempt: Attempt) -> Verdict:
    """Return the verdict on the attempt's JSON Web Token at the current time, without any request."""
    return judge_jwt(attempt.secret, time.time())


def judge_jwt(token: str, now: float) -> Verdict:
    """Return `invalid` for a token that is expired, unsigned or incomplete, else `unvalidated`.

    A token that is not valid yet is `unvalidated`. The signature is not verified: only the issuer can do
    that. `now` is in seconds since 1970.
    """
    header_text, claims_text, signature = [*token.split("."), "", ""][:3]
    header, claims = _decode_object(header_text), _decode_object(claims_text)
    if header is None or claims is None:
        return invalid("is not a complete token: its header or claims cannot be read", Confidence.LOW)
    expires, not_before = _as_time(claims.get("exp")), _as_time(claims.get("nbf"))
    if expires is not None and expires <= now:
        return invalid("has expired")
    algorithm = str(header.get("alg", ""))
    if not signature or algorithm.lower() == "none":
        return invalid("is not signed, so no service should accept it", Confidence.LOW)
    if not_before is not None and not_before > now:
        return unvalidated("is not valid yet")
    lifetime = "never expires" if expires is None else "has not expired"
    if algorithm in _SHARED_KEY_ALGORITHMS:
        return unvalidated(f"{lifetime}; it is signed with a shared key, which only its issuer can verify")
    return unvalidated(f"{lifetime}; its signature was not verified")


def _decode_object(text: str) -> dict[str, Any] | None:
    """Decode a part of a JWT, which is base64url of a JSON object; return None if it is anything else."""
    try:
        data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _as_time(value: Any) -> float | None:
    """Return the value of a JWT claim as seconds since 1970; None if it is not a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer with hundreds of digits
        return None
