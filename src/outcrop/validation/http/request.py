"""Put a credential into the request that a rule file describes.

The values come from scanned text, which an attacker may have written. Each value is escaped or checked for
its position, so that it cannot change the host or the path, add a header or break out of JSON.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from outcrop.lazy_regex import regex
from outcrop.scanner.rules.check_spec import RequestSpec
from outcrop.validation.attempt import UncheckableError

_PLACEHOLDER = regex(r"\{(secret|part\.[a-z0-9_]+)((?:\|[a-z0-9]+)?)\}")  # {secret}, {part.NAME|filter}
_HEADER_VALUE = regex(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_HOST = regex(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class FilledRequest:
    """A request as it is sent. It contains the credential, so its repr shows the method only."""

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(repr=False)


def fill_request(request: RequestSpec, values: Mapping[str, str]) -> FilledRequest:
    """Return the request with its placeholders replaced by `values`.

    `values` has `secret`, and `part.NAME` for each companion. Raise UncheckableError if a value is missing or
    not allowed in its position.
    """
    try:
        headers, body = _fill_headers_and_body(request, values)
        return FilledRequest(request.method, _fill_url(request.url, values), headers, body)
    except UnicodeEncodeError:
        raise UncheckableError("it is not valid text") from None


def _fill_headers_and_body(
    request: RequestSpec, values: Mapping[str, str]
) -> tuple[dict[str, str], bytes | None]:
    """Return the filled headers and the filled body (None if the request has no body).

    Authorization is added for basic authentication; Content-Type for a form or JSON, unless the rule sets it.
    Raise UncheckableError if a value is missing or not allowed.
    """
    headers = {name: _fill_header(text, values) for name, text in request.headers.items()}
    if request.basic is not None:
        user, password = (_fill(text, values) for text in request.basic)
        if ":" in user:
            raise UncheckableError("its user name contains a colon, which basic authentication cannot send")
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    body: bytes | None = None
    if request.form:
        body = urlencode({name: _fill(text, values) for name, text in request.form.items()}).encode()
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    elif request.send:
        body = json.dumps(_fill_json(request.send, values)).encode()
        headers.setdefault("Content-Type", "application/json")
    elif request.body:
        body = _fill(request.body, values).encode()
    return headers, body


def _value_of(placeholder: re.Match[str], values: Mapping[str, str]) -> str:
    """Return the value that a match of _PLACEHOLDER names, changed by its filter, such as `|lower`.

    Raise UncheckableError if `values` does not have it, or if the filter is unknown.
    """
    try:
        text = values[placeholder[1]]
    except KeyError:
        name = placeholder[1].removeprefix("part.").replace("_", " ")
        raise UncheckableError(f"its {name} was not found") from None
    match placeholder[2]:
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
            raise UncheckableError(f"the rule has an unknown filter {other}")


def _fill(text: str, values: Mapping[str, str]) -> str:
    """Return the text with its placeholders replaced by `values`, which are not escaped.

    Raise UncheckableError if a value is missing.
    """
    return _PLACEHOLDER.sub(lambda placeholder: _value_of(placeholder, values), text)


def _fill_json(value: Any, values: Mapping[str, str]) -> Any:
    """Return a JSON value with the placeholders in its strings replaced, but not in its keys.

    Raise UncheckableError if a value is missing.
    """
    if isinstance(value, str):
        return _fill(value, values)
    if isinstance(value, dict):
        return {key: _fill_json(item, values) for key, item in value.items()}
    return [_fill_json(item, values) for item in value] if isinstance(value, list) else value


def _fill_header(text: str, values: Mapping[str, str]) -> str:
    """Return a header value with its placeholders replaced.

    Raise UncheckableError if a value is missing, or if the result is not printable ASCII without spaces at
    its ends.
    """
    header = _fill(text, values)
    if not _HEADER_VALUE.fullmatch(header):
        raise UncheckableError("it contains characters that an HTTP header cannot carry")
    return header


def _fill_url(text: str, values: Mapping[str, str]) -> str:
    """Return a URL with its placeholders replaced; values after the host are percent-encoded.

    A value in the host must be a host name or a part of one. If the URL is a single placeholder, its value
    must be a whole http or https URL. Raise UncheckableError if a value is missing or not allowed.
    """
    if _PLACEHOLDER.fullmatch(text):
        return _checked_url(_fill(text, values))
    host_end = _end_of_host(text)
    start = _PLACEHOLDER.sub(
        lambda placeholder: _checked_host(_value_of(placeholder, values)), text[:host_end]
    )
    rest = _PLACEHOLDER.sub(
        lambda placeholder: quote(_value_of(placeholder, values), safe=""), text[host_end:]
    )
    return start + rest


def _end_of_host(url: str) -> int:
    """Return the offset of the first `/`, `?` or `#` after `://`, else the URL's length; 0 without `://`."""
    scheme_end = url.find("://")
    if scheme_end < 0:
        return 0
    ends = (url.find(sign, scheme_end + 3) for sign in "/?#")
    return min((end for end in ends if end >= 0), default=len(url))


def _checked_host(text: str) -> str:
    """Return the text; raise UncheckableError unless it is a host or part of one; a port may follow."""
    if not _HOST.fullmatch(text):
        raise UncheckableError("the host found with it is not a valid host name")
    return text


def _checked_url(text: str) -> str:
    """Return the text; raise UncheckableError unless it is an http or https URL of printable ASCII."""
    parts = urlsplit(text)
    if parts.scheme not in {"https", "http"} or not parts.hostname or not _HEADER_VALUE.fullmatch(text):
        raise UncheckableError("it is not a URL")
    return text
