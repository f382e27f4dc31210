"""Read the authenticated body of a delivery, with bounded memory."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from outcrop.domain.errors import BadInputError, OutcropError
from outcrop.limits import HOOK_BODY_BYTES, HOOK_ESCAPES, HOOK_VALUES, MEGA

_FORM = "application/x-www-form-urlencoded"
_FIELD = b"payload="


class HookTooLargeError(OutcropError):
    code = "too_large"

    def __init__(self) -> None:
        super().__init__(f"a delivery may have at most {HOOK_BODY_BYTES // MEGA} MB")


class TooManyValuesError(Exception):
    """A body has more values than a push can have; parsing it would take too much memory."""


def read_payload(body: bytes | bytearray, content_type: str) -> Mapping[str, Any]:
    """Return the JSON object in a body, which may be a field of a form.

    Raise BadInputError if there is none, and TooManyValuesError.
    """
    text = _read_form(body) if content_type.partition(";")[0].strip().lower() == _FORM else body
    if sum(map(text.count, (b",", b"{", b"["))) > HOOK_VALUES:
        raise TooManyValuesError
    try:
        payload = orjson.loads(text)
    except ValueError:
        raise BadInputError("the body is not JSON") from None
    if not isinstance(payload, dict):
        raise BadInputError("the body is not a JSON object")
    return payload


def _read_form(body: bytes | bytearray) -> bytes:
    """Return the field `payload` of a form."""
    field = next((part for part in body.split(b"&", 100) if part.startswith(_FIELD)), None)
    if field is None:
        raise BadInputError("the form has no field `payload`")
    if field.count(b"%") > HOOK_ESCAPES:
        raise TooManyValuesError
    return unquote_to_bytes(bytes(field).removeprefix(_FIELD).replace(b"+", b" "))
