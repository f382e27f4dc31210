"""A rule's request with what was found in it: a value goes where it belongs, and cannot become anything else there."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from outcrop.scanner.rules.check_spec import RequestSpec

_PLACE = re.compile(r"\{(secret|part\.[a-z0-9_]+)((?:\|[a-z0-9]+)?)\}")
_HEADER = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


class UnfitError(Exception):
    """A value that cannot be sent in this place."""


@dataclass(frozen=True, slots=True)
class Ready:
    """A request as it goes out. It holds the credential and is never shown."""

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


def fill(request: RequestSpec, values: Mapping[str, str]) -> Ready:
    """Put the values into a request. `values` has `secret`, and `part.NAME` for each companion."""
    try:
        return _filled(request, values)
    except UnicodeEncodeError:
        raise UnfitError("it is no text") from None


def _filled(request: RequestSpec, values: Mapping[str, str]) -> Ready:
    headers = {name: _header(text, values) for name, text in request.headers.items()}
    if request.basic is not None:
        user, password = (_plain(text, values) for text in request.basic)
        if ":" in user:
            raise UnfitError("its name holds a colon, which the scheme cannot send")
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    body: bytes | None = None
    if request.form:
        body = urlencode({name: _plain(text, values) for name, text in request.form.items()}).encode()
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    elif request.send:
        body = json.dumps(_nested(request.send, values)).encode()
        headers.setdefault("Content-Type", "application/json")
    elif request.body:
        body = _plain(request.body, values).encode()
    return Ready(request.method, _url(request.url, values), headers, body)


def _value(match: re.Match[str], values: Mapping[str, str]) -> str:
    try:
        text = values[match[1]]
    except KeyError:
        raise UnfitError(f"its {match[1].removeprefix('part.').replace('_', ' ')} was not found") from None
    match match[2]:
        case "|base64":
            return base64.b64encode(text.encode()).decode()
        case "|lower":
            return text.lower()
        case "|https":
            return "https://" + text.partition("://")[2] if "://" in text else f"https://{text}"
        case "|last":
            return text.rpartition("-")[2]
        case "":
            return text
        case other:
            raise UnfitError(f"the rule has an unknown filter {other}")


def _plain(text: str, values: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda match: _value(match, values), text)


def _nested(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _plain(value, values)
    if isinstance(value, dict):
        return {key: _nested(item, values) for key, item in value.items()}
    return [_nested(item, values) for item in value] if isinstance(value, list) else value


def _header(text: str, values: Mapping[str, str]) -> str:
    made = _plain(text, values)
    if not _HEADER.fullmatch(made):
        raise UnfitError("it holds characters that no header can carry")
    return made


def _url(text: str, values: Mapping[str, str]) -> str:
    """Write values into an address: escaped, so that the path and the host stay the rule's own.

    Where the rule's address is nothing but a value, the value is an address itself.
    """
    if _PLACE.fullmatch(text):
        return _whole(_plain(text, values))
    host_end = _end_of_host(text)
    host = _PLACE.sub(lambda match: _host_label(_value(match, values)), text[:host_end])
    return host + _PLACE.sub(lambda match: quote(_value(match, values), safe=""), text[host_end:])


def _end_of_host(text: str) -> int:
    start = text.find("://")
    return (
        min((at for at in (text.find(sign, start + 3) for sign in "/?#") if at >= 0), default=len(text))
        if start >= 0
        else 0
    )


def _host_label(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::\d{1,5})?", text):
        raise UnfitError("the host that stands with it is none")
    return text


def _whole(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"https", "http"} or not parts.hostname or not _HEADER.fullmatch(text):
        raise UnfitError("it is no address")
    return text
