"""Sign requests with AWS Signature Version 4, which proves the key without sending it.

1. The canonical request has a fixed form of method, path, query, headers and body (`_canonical_request`).
2. The string to sign is its hash, with the time and the scope: day, region and service.
3. The signing key is derived from the secret key and the scope; its HMAC of the string is the signature.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import SplitResult, parse_qsl, quote, urlsplit

from outcrop.validation.cloud.aws_keys import AwsAccessKey

_ALGORITHM = "AWS4-HMAC-SHA256"


def sign_request(
    key: AwsAccessKey,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    service: str,
    region: str,
    now: datetime,
) -> dict[str, str]:
    """Return a copy of `headers` with the headers added that sign the request for AWS.

    All returned headers but Authorization, and the host of `url`, are signed. `service` is the short name of
    the AWS service, `now` is the time of the signature, in UTC.
    """
    timestamp = now.strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "X-Amz-Date": timestamp}
    if key.session_token:
        sent["X-Amz-Security-Token"] = key.session_token
    if service == "s3":  # the only service that requires the hash of the body as a header
        sent["X-Amz-Content-Sha256"] = hashlib.sha256(body).hexdigest()
    parts = urlsplit(url)
    signed = {"host": parts.netloc} | {name.lower(): " ".join(value.split()) for name, value in sent.items()}
    signed_names = ";".join(sorted(signed))
    canonical_request = _canonical_request(method, parts, signed, body)
    scope = f"{timestamp[:8]}/{region}/{service}/aws4_request"
    request_hash = hashlib.sha256(canonical_request.encode()).hexdigest()
    string_to_sign = f"{_ALGORITHM}\n{timestamp}\n{scope}\n{request_hash}"
    signing_key = f"AWS4{key.secret}".encode()
    for step in scope.split("/"):
        signing_key = _hmac_sha256(signing_key, step)
    signature = _hmac_sha256(signing_key, string_to_sign).hex()
    credential = f"Credential={key.key_id}/{scope}"
    return {
        **sent,
        "Authorization": f"{_ALGORITHM} {credential}, SignedHeaders={signed_names}, Signature={signature}",
    }


def _canonical_request(method: str, url: SplitResult, signed_headers: Mapping[str, str], body: bytes) -> str:
    """Return the canonical request of Signature Version 4, whose hash is signed.

    `signed_headers` has the headers by name; the names must be in lower case.
    """
    return "\n".join(
        [
            method,
            quote(url.path or "/", safe="/~"),
            _canonical_query(url.query),
            *(f"{name}:{signed_headers[name]}" for name in sorted(signed_headers)),
            "",
            ";".join(sorted(signed_headers)),
            hashlib.sha256(body).hexdigest(),
        ]
    )


def _canonical_query(query: str) -> str:
    """Return a URL's query with its parameters percent-encoded as AWS requires, and sorted."""
    pairs = [
        (quote(name, safe="~"), quote(value, safe="~"))
        for name, value in parse_qsl(query, keep_blank_values=True)
    ]
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _hmac_sha256(key: bytes, text: str) -> bytes:
    """Return the HMAC-SHA256 of the text with this key."""
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
