"""Azure shared access signatures: a signed address is asked for a list or for its properties, as far as its own words allow."""

import html
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs

from outcrop.domain.finding import Confidence
from outcrop.net.http import HttpClient, HttpError, HttpResponse
from outcrop.scanner.rules.check_spec import CheckSpec
from outcrop.validation.attempt import send
from outcrop.validation.http.check import Turn
from outcrop.validation.http.response import judge
from outcrop.validation.verdict import Verdict, invalid, unreachable, unvalidated, valid

_ADDRESS = re.compile(
    r"https://[0-9a-z]{3,24}\.(blob|file|queue)\.core\.windows\.net(/[\x21\x24-\x3e\x40-\x7e]{0,300})?"
)
_SIGNED = re.compile(r"[\x21\x24-\x7e]{20,1000}")
# What is asked of the service itself, of a container in it, and of a thing in that: the signature covers no other form of request.
_LISTS = {
    "blob": "restype=container&comp=list&maxresults=1",
    "file": "restype=directory&comp=list&maxresults=1",
    "queue": "comp=metadata",
}
_SERVICE_LIST = "comp=list&maxresults=1"
_RIGHTS = {"r": "read", "l": "list", "w": "write", "c": "write", "a": "write", "d": "delete"}
# Told only after the signature has been found right.
_SIGNATURE_IS_RIGHT = {
    "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch", "AuthorizationProtocolMismatch",
    "AuthorizationSourceIPMismatch", "UnauthorizedBlobOverwrite", "BlobNotFound", "ContainerNotFound", "QueueNotFound", "ShareNotFound",
    "ResourceNotFound", "ParentNotFound",
}  # fmt: skip
_REFUSED = {
    "AuthenticationFailed": "Azure refuses the signature: its key was changed, or its policy withdrawn"
}


async def azure_sas(
    http: HttpClient, _check: CheckSpec, values: Mapping[str, str], turn: Turn, *, now: datetime | None = None
) -> Verdict:
    """Ask the address that stands with the signature; one whose time has run out is not asked about."""
    signed = html.unescape(values["secret"])
    address = _ADDRESS.fullmatch(values["part.url"].rstrip("/"))
    if address is None or not _SIGNED.fullmatch(signed):
        return unvalidated(
            "its address is none that is asked: a container, a share or a queue of Azure Storage"
        )
    said = {name: texts[0] for name, texts in parse_qs(signed).items()}
    if (end := _time(said.get("se", ""))) and end < (now or datetime.now(UTC)):
        return invalid(f"its time ran out on {end:%Y-%m-%d}")
    kind = address[1]
    depth = len([part for part in (address[2] or "").split("/") if part])
    method, asked = "GET", _SERVICE_LIST
    if depth:
        method, asked = ("GET", _LISTS[kind]) if depth == 1 else ("HEAD", "")
    try:
        answer = await send(
            http,
            turn,
            method,
            f"{address[0]}{'' if depth else '/'}?{asked}{'&' if asked else ''}{signed}",
            headers={},
        )
    except HttpError as failure:
        return unreachable(f"the storage account cannot be reached: {failure}")
    return _judged(answer, kind, said.get("sp", ""))


def _judged(answer: HttpResponse, kind: str, rights: str) -> Verdict:
    code = answer.headers.get("x-ms-error-code", "")
    labels = tuple(
        {f"azure_{kind}", *(f"azure_{kind}_{_RIGHTS[right]}" for right in rights if right in _RIGHTS)}
    )
    if answer.ok and "x-ms-request-id" in answer.headers:
        return valid("Azure accepts the signature", services=labels, asked=True)
    if code in _SIGNATURE_IS_RIGHT:
        return valid(
            f"Azure accepts the signature, but not for what was asked ({code})",
            Confidence.MEDIUM,
            labels,
            asked=True,
        )
    if code in _REFUSED:
        return invalid(_REFUSED[code])
    return judge(answer, [])


def _time(text: str) -> datetime | None:
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        return None
    return made if made.tzinfo else made.replace(tzinfo=UTC)
