"""JSON Web Tokens: what one says of itself, read without asking anybody."""

import base64
import json
import math
import time
from collections.abc import Mapping
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.http.check import Turn
from outcrop.validation.verdict import Verdict, invalid, unvalidated

_SHARED = {"HS256", "HS384", "HS512"}


async def jwt(_http: HttpClient, _check: CheckSpec, values: Mapping[str, str], _turn: Turn) -> Verdict:
    """Tell whether a token has run out; whether its signature holds, only its issuer knows."""
    return read(values["secret"], time.time())


def read(token: str, now: float) -> Verdict:
    """Judge a token by its header and its claims."""
    header_text, claims_text, proof = [*token.split("."), "", ""][:3]
    header, claims = _object(header_text), _object(claims_text)
    if header is None or claims is None:
        return invalid("is no whole token: its header or its claims cannot be read", Confidence.LOW)
    expires, begins = _time(claims.get("exp")), _time(claims.get("nbf"))
    if expires is not None and expires <= now:
        return invalid("has expired")
    algorithm = str(header.get("alg", ""))
    if not proof or algorithm.lower() == "none":
        return invalid("is not signed, and nobody should accept it", Confidence.LOW)
    if begins is not None and begins > now:
        return unvalidated("is not valid yet")
    life = "never expires" if expires is None else "has not expired"
    if algorithm in _SHARED:
        return unvalidated(
            f"{life}; it is signed with a shared key, so only its issuer can tell whether it holds"
        )
    return unvalidated(f"{life}; whether its signature holds was not asked of its issuer")


def _object(text: str) -> dict[str, Any] | None:
    try:
        data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _time(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # a number with hundreds of digits
        return None
