"""Check Azure shared access signatures (SAS): URLs of Azure Storage with a signature in their query.

The signature permits only certain requests, so the request depends on what the URL addresses: the account, a
container (or share, or queue), or a file in it.
"""

import html
from datetime import UTC, datetime
from urllib.parse import parse_qs

from outcrop.domain import clock
from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.net.http import HttpError, HttpResponse
from outcrop.validation.attempt import Attempt
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, valid

_STORAGE_URL = regex(
    r"https://[0-9a-z]{3,24}\.(blob|file|queue)\.core\.windows\.net(/[\x21\x24-\x3e\x40-\x7e]{0,300})?"
)
_SIGNED_QUERY = regex(r"[\x21\x24-\x7e]{20,1000}")
_ACCOUNT_QUERY = "comp=list&maxresults=1"
_CONTAINER_QUERIES = {
    "blob": "restype=container&comp=list&maxresults=1",
    "file": "restype=directory&comp=list&maxresults=1",
    "queue": "comp=metadata",
}
_PERMISSIONS = {"r": "read", "l": "list", "w": "write", "c": "write", "a": "write", "d": "delete"}
# Azure returns these only after it has verified the signature.
_ERRORS_AFTER_SIGNATURE = {
    "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch",
    "AuthorizationProtocolMismatch", "AuthorizationSourceIPMismatch", "UnauthorizedBlobOverwrite",
    "BlobNotFound", "ContainerNotFound", "QueueNotFound", "ShareNotFound", "ResourceNotFound",
    "ParentNotFound",
}  # fmt: skip
_WRONG_SIGNATURE = "AuthenticationFailed"


async def check_azure_sas(attempt: Attempt, *, now: datetime | None = None) -> Verdict:
    """Send a request with the signature to the URL found with it and return the verdict.

    A signature that has expired at `now` (None: the current time) is `invalid` without a request; one without
    a URL of Azure Storage is `unvalidated`. The verdict is `unreachable` if there is no response.
    """
    signed_query = html.unescape(attempt.secret)
    url = _STORAGE_URL.fullmatch(attempt.values["part.url"].rstrip("/"))
    if url is None or not _SIGNED_QUERY.fullmatch(signed_query):
        return unvalidated("its URL is not a container, a share or a queue of Azure Storage")
    parameters = {name: values[0] for name, values in parse_qs(signed_query).items()}
    expires = _parse_time(parameters.get("se", ""))
    if expires and expires < (now or clock.now()):
        return invalid(f"expired on {expires:%Y-%m-%d}")
    kind, path = url[1], url[2] or ""
    depth = len([part for part in path.split("/") if part])  # 0 the account, 1 a container, 2 a file
    method, query = "GET", f"{_ACCOUNT_QUERY}&"
    if depth == 1:
        query = f"{_CONTAINER_QUERIES[kind]}&"
    elif depth > 1:
        method, query = "HEAD", ""
    slash = "" if depth else "/"
    try:
        response = await attempt.send(method, f"{url[0]}{slash}?{query}{signed_query}", headers={})
    except HttpError as failure:
        return unreachable(f"the storage account cannot be reached: {failure}")
    return _judge_response(response, kind, parameters.get("sp", ""))


def _judge_response(response: HttpResponse, kind: str, permissions: str) -> Verdict:
    """Return the verdict for Azure's response to a signed request.

    A success, or an error that Azure sends only after it has verified the signature, is `valid`; a refused
    signature is `invalid`; anything else is `error`. `kind` is `blob`, `file` or `queue`. `permissions` are
    the letters of the signature's `sp` parameter; each known letter adds a service label to a valid verdict.
    """
    code = response.headers.get("x-ms-error-code", "")
    labels = {f"azure_{kind}_{_PERMISSIONS[letter]}" for letter in permissions if letter in _PERMISSIONS}
    labels.add(f"azure_{kind}")
    if response.ok and "x-ms-request-id" in response.headers:
        return valid("Azure accepts the signature", labels)
    if code in _ERRORS_AFTER_SIGNATURE:
        return valid(
            f"Azure accepts the signature, but not for this request ({code})", labels, Confidence.MEDIUM
        )
    if code == _WRONG_SIGNATURE:
        return invalid("Azure refuses the signature: its key was changed or its policy withdrawn")
    return judge(response, [])


def _parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, as UTC if it has no time zone; return None if the text is not such a time."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
