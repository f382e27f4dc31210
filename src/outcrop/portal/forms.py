"""Parse form bodies, with limits on size and number of fields."""

import asyncio
from urllib.parse import parse_qsl

from starlette.requests import Request

from outcrop.domain.errors import BadInputError
from outcrop.limits import FORM_BYTES, FORM_FIELDS, FORM_LINES

_MAX_QUICK_BYTES = 8 << 10  # a longer form is parsed in a thread


class Form:
    """Fields of a form by name; a name may occur several times."""

    def __init__(self, pairs: list[tuple[str, str]] | None = None) -> None:
        self._pairs = pairs or []

    def get(self, name: str) -> str:
        """Return the first value without surrounding white space; an empty text if the field is absent."""
        return next((value.strip() for key, value in self._pairs if key == name), "")

    def raw(self, name: str) -> str:
        """Return the first value unchanged: a password may begin with a space."""
        return next((value for key, value in self._pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [value for key, value in self._pairs if key == name]

    def lines(self, name: str) -> list[str]:
        """Return the non-empty lines of a text area."""
        return [line.strip() for line in self.get(name).split("\n", FORM_LINES) if line.strip()]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)


async def read_form(request: Request) -> Form:
    """Read and parse the request body; raise BadInputError if it is too large or malformed."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES:
            raise BadInputError("the form is too large")
    if len(body) > _MAX_QUICK_BYTES:
        return await asyncio.to_thread(_parse_form, body)
    return _parse_form(body)


def _parse_form(body: bytearray) -> Form:
    """Parse a request body; raise BadInputError if it is malformed."""
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=FORM_FIELDS,
            errors="strict",
            encoding="utf-8",
        )
    except ValueError:
        raise BadInputError("the form is malformed") from None
    if any("\0" in value for _, value in pairs):
        raise BadInputError("the form contains a NUL character")
    return Form(pairs)
