"""Check addresses and keys, read answers, and turn every failure into an error of `errors.py`."""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Any, TypeVar
from urllib.parse import urlsplit

from outcrop.client.calls import ApiCall
from outcrop.client.errors import (
    AuthError,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    OutcropApiError,
    PlanError,
    RateLimited,
    ServerError,
    TransportError,
)

T = TypeVar("T")

MAX_ANSWER_BYTES = 64 << 20
_FOREIGN = "the answer is not one of Outcrop"
_MAX_WAIT = 3_600.0  # seconds of a Retry-After that are believed
_AUTH = {
    "missing_authorization": "the request has no API key",
    "invalid_token": "the API key is unknown, expired or malformed",
    "revoked_token": "the API key was revoked",
}


@dataclass(frozen=True, slots=True)
class Address:
    """The base address of the service."""

    is_https: bool
    host: str
    port: int
    prefix: str  # of every path

    @property
    def url(self) -> str:
        """Return the address as a URL without a path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_https else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete answer of a server."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


def parse_address(url: str) -> Address:
    """Return the parts of a base address. Raise TransportError if it is none, or not https.

    Plain http is accepted only on loopback: others could read the key.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise TransportError("the address of the service is not a URL") from None
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None or parts.query:
        raise TransportError("the address of the service must be like https://outcrop.example.com")
    is_https = parts.scheme == "https"
    if not is_https and not _is_loopback(host):
        raise TransportError("the address of the service must begin with https://, except on this machine")
    return Address(is_https, host, port or (443 if is_https else 80), parts.path.rstrip("/"))


def check_key(key: str) -> str:
    """Return the key without white space around it. Raise AuthError if it cannot be one."""
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise AuthError("the API key is empty or has characters that no key has")
    return key


def read_answer(call: ApiCall[T], answer: Answer, key: str) -> T:
    """Return what the call asked for. Raise an OutcropApiError without the key if it is no success."""
    if not 200 <= answer.status < 300:
        raise _to_error(replace(answer, body=answer.body.replace(key.encode(), b"[API key]")))
    try:
        return call.read(json.loads(answer.body))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise TransportError(f"{_FOREIGN}: is the address right?", status=answer.status) from None


def retry_after(answer: Answer) -> float | None:
    """Return the seconds of a Retry-After; None if there is none in seconds."""
    text = answer.headers.get("retry-after", "").strip()
    return min(float(text), _MAX_WAIT) if text.isascii() and text.isdigit() else None


def describe_failure(error: Exception) -> str:
    """Return why a connection failed, in a few words."""
    if isinstance(error, socket.gaierror):
        return "its name is unknown"
    number = error.errno if isinstance(error, OSError) else None
    return "the connection was closed" if number is None or number < 1 else os.strerror(number).lower()


def _to_error(answer: Answer) -> OutcropApiError:
    """Return the error of an answer that is no success."""
    fields = _read_fields(answer.body)
    code = fields.get("error") if isinstance(fields.get("error"), str) else None
    message = fields.get("message") if isinstance(fields.get("message"), str) else None
    about: dict[str, Any] = {
        "status": answer.status,
        "code": code,
        "request_id": answer.headers.get("x-request-id"),
    }
    status = answer.status
    if 300 <= status < 400:
        return TransportError(f"the server redirects ({status}): use the address it redirects to", **about)
    if status == 429:
        limited = RateLimited("too many requests with this key", **about)
        limited.retry_after = retry_after(answer) or 60.0
        return limited
    if status >= 500:
        failed = ServerError(message or f"the server failed ({status})", **about)
        failed.retry_after = retry_after(answer)
        return failed
    if code is None and "detail" not in fields:
        return TransportError(f"{_FOREIGN} ({status}): is the address right?", status=status)
    return _to_refusal(fields, message, about)


def _to_refusal(fields: dict[str, Any], message: str | None, about: dict[str, Any]) -> OutcropApiError:
    """Return the error of a 4xx of the service."""
    status, code = about["status"], about["code"]
    if status == 401:
        return AuthError(_AUTH.get(code or "", "the API key is not accepted"), **about)
    if status == 403 and code == "plan_required":
        plan = PlanError("the account's plan has no API access", **about)
        plan.minimum = str(fields.get("minimum", plan.minimum))
        return plan
    if status == 404:
        return NotFound(message or "not found", **about)
    if code == "invalid_transition":
        return InvalidTransition(message or code, **about)
    refused = InvalidRequest(message or _describe(fields) or f"the request is refused ({status})", **about)
    if isinstance(detail := fields.get("detail"), list):
        refused.detail = tuple(entry for entry in detail if isinstance(entry, dict))
    return refused


def _read_fields(body: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object; none if the body is anything else."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _describe(fields: dict[str, Any]) -> str:
    """Return the first problem of a 422 as one line; an empty text if there is none."""
    try:
        problem = fields["detail"][0]
        place = ".".join(str(part) for part in problem["loc"][1:])
        return f"{place}: {problem['msg']}" if place else str(problem["msg"])
    except (LookupError, TypeError):
        return ""


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
