"""Send a report to `/api/v2/imports` of an Outcrop service, and wait for the import."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

from outcrop.domain.errors import OperatorError
from outcrop.domain.line import one_line
from outcrop.limits import REPORT_ANSWER_BYTES
from outcrop.net.http import HttpClient, HttpError, HttpResponse

_PATH = "/api/v2/imports"
_MAX_MESSAGE = 300  # characters of the service's message that an error shows
_BUSY = {429, 503}
_REFUSED = {401: "the API key is not accepted", 403: "the account's plan has no API access"}


@dataclass(frozen=True, slots=True)
class Service:
    """The service that gets the report."""

    url: str  # base address
    key: str  # API key
    http: HttpClient
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    upload_seconds: float = 900.0
    answer_seconds: float = 30.0
    tries: int = 6  # of a request that the service is too busy for
    polls: int = 600  # until an import that is not finished is given up, one each second


@dataclass(frozen=True, slots=True)
class Imported:
    """A report that the service has accepted; the counts are None unless the import was waited for."""

    id: str
    new: int | None = None
    known: int | None = None


async def send_report(service: Service, report: bytes, idempotency_key: str, *, wait: bool) -> Imported:
    """Send a report in the format `outcrop`; with `wait`, return when it is merged.

    Raise OperatorError if the service does not accept it, cannot be reached or is no Outcrop service.
    """
    headers = {
        "Content-Encoding": "gzip",
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": idempotency_key,
    }
    body = gzip.compress(report, 5, mtime=0)
    answer = await _request(service, "POST", f"{_PATH}?format=outcrop", headers, body)
    import_id = _text(service, answer, "id")
    return await _wait(service, import_id) if wait else Imported(import_id)


async def _wait(service: Service, import_id: str) -> Imported:
    """Return the counts of an import when it has ended; raise OperatorError if it failed."""
    for _ in range(service.polls):
        found = await _request(service, "GET", f"{_PATH}/{import_id}", {}, None)
        match _text(service, found, "status"):
            case "completed":
                known = _count(service, found, "findings_updated") + _count(
                    service, found, "findings_unchanged"
                )
                return Imported(import_id, _count(service, found, "findings_new"), known)
            case "failed":
                error = found.get("error")
                reason = error.get("message") if isinstance(error, dict) else None
                raise _failure(service, f"import {one_line(import_id)} failed: {_shorten(reason)}")
        await service.sleep(1.0)
    raise _failure(service, f"import {one_line(import_id)} has not ended yet")


async def _request(
    service: Service, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> dict[str, Any]:
    """Send a request and return `data` of the answer; while the service is busy, try again."""
    for tries_left in reversed(range(service.tries)):
        response = await _send(service, method, path, headers, body)
        if response.status in _BUSY and tries_left:
            await service.sleep(_retry_after(response))
            continue
        break
    content = _parse(service, response)
    if response.status in {200, 202} and isinstance(data := content.get("data"), dict):
        return data
    reason = _REFUSED.get(response.status) or _shorten(content.get("message") or content.get("error"))
    raise _failure(service, f"{reason} (status {response.status})")


async def _send(
    service: Service, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> HttpResponse:
    """Send one request; raise OperatorError if there is no complete answer."""
    try:
        return await service.http.request(
            method,
            service.url + path,
            headers={"Authorization": f"Bearer {service.key}", **headers},
            body=body,
            max_bytes=REPORT_ANSWER_BYTES,
            seconds=service.answer_seconds if body is None else service.upload_seconds,
        )
    except HttpError as error:
        raise _failure(service, str(error)) from None


def _parse(service: Service, response: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of an answer; raise OperatorError if it is anything else, such as a page."""
    if 300 <= response.status < 400:
        raise _failure(
            service, f"the answer is a redirect (status {response.status}): give the final address"
        )
    try:
        content = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        content = None
    if not isinstance(content, dict):
        raise _failure(service, f"the answer is not one of Outcrop (status {response.status})")
    return content


def _retry_after(response: HttpResponse) -> float:
    """Return the seconds to wait before the next try, at most a minute."""
    text = response.headers.get("Retry-After", "")
    return float(min(int(text), 60)) if text.isdecimal() and len(text) < 10 else 1.0


def _text(service: Service, data: dict[str, Any], name: str) -> str:
    """Return a text of an answer."""
    if not isinstance(value := data.get(name), str):
        raise _failure(service, f"the answer has no {name}")
    return value


def _count(service: Service, data: dict[str, Any], name: str) -> int:
    """Return a number of an answer."""
    if not isinstance(value := data.get(name), int):
        raise _failure(service, f"the answer has no {name}")
    return value


def _shorten(message: object) -> str:
    """Return a message of the service as one line."""
    return one_line(str(message))[:_MAX_MESSAGE] if message else "the service gives no reason"


def _failure(service: Service, reason: str) -> OperatorError:
    """Return the error for a report that was not sent or not merged. It names the host, and no key."""
    return OperatorError(f"the report to {urlsplit(service.url).netloc} failed: {reason}")
