"""AWS Signature Version 4, as AWS documents it: who sends a request, proven without sending the key."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Keys:
    """An access key; temporary ones have a token as well."""

    key_id: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def sign(
    keys: Keys,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    service: str,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """Give the headers of a request with what proves it. Every header given is signed, `host` comes from the address."""
    parts = urlsplit(url)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "X-Amz-Date": stamp}
    if keys.token:
        sent["X-Amz-Security-Token"] = keys.token
    if service == "s3":  # the only one that wants the body's hash as a header
        sent["X-Amz-Content-Sha256"] = hashlib.sha256(body).hexdigest()
    signed = {"host": parts.netloc} | {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    names = ";".join(sorted(signed))
    request = "\n".join(
        [
            method,
            quote(parts.path or "/", safe="/~"),
            _query(parts.query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join([_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = f"AWS4{keys.secret}".encode()
    for step in scope.split("/"):
        key = _hmac(key, step)
    proof = _hmac(key, text).hex()
    return {
        **sent,
        "Authorization": f"{_ALGORITHM} Credential={keys.key_id}/{scope}, SignedHeaders={names}, Signature={proof}",
    }


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _query(text: str) -> str:
    pairs = [
        (quote(name, safe="~"), quote(value, safe="~"))
        for name, value in parse_qsl(text, keep_blank_values=True)
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))
