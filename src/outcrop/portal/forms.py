"""What a form sends: read whole, bounded, as text."""

from urllib.parse import parse_qsl

from starlette.requests import Request

from outcrop.domain.errors import BadInputError

_LONGEST = 256 << 10
_FIELDS = 2_000


class Form:
    """Fields by name; a field may be there several times."""

    def __init__(self, pairs: list[tuple[str, str]] | None = None) -> None:
        self._pairs = pairs or []

    def get(self, name: str) -> str:
        """Give the first value without the space around it; an absent field is an empty one."""
        return next((value.strip() for key, value in self._pairs if key == name), "")

    def raw(self, name: str) -> str:
        """Give the first value as it was typed: a password may begin with a space."""
        return next((value for key, value in self._pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]

    def lines(self, name: str) -> list[str]:
        return [line.strip() for line in self.get(name).splitlines() if line.strip()]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self._pairs)


async def read_form(request: Request) -> Form:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST:
            raise BadInputError("the form is too large")
    try:
        pairs = parse_qsl(
            body.decode("utf-8"),
            keep_blank_values=True,
            max_num_fields=_FIELDS,
            errors="strict",
            encoding="utf-8",
        )
    except ValueError:
        raise BadInputError("the form cannot be read") from None
    if any("\0" in value for _, value in pairs):
        raise BadInputError("the form holds a NUL character")
    return Form(pairs)
