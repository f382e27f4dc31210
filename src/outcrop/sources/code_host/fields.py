"""Read the fields of a host's decoded JSON. A missing or invalid field is a `HostError`."""

import re
from dataclasses import dataclass
from typing import Any, TypeVar

from outcrop.lazy_regex import regex
from outcrop.limits import HOST_TEXT_LENGTH
from outcrop.sources.code_host.api import origin
from outcrop.sources.code_host.errors import HostError

_T = TypeVar("_T")
_CONTROL = regex(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Fields:
    """Reads the fields of one host's responses; `host` is its name in messages."""

    host: str

    def field(self, raw: Any, name: str, kind: type[_T]) -> _T:
        """Return the field `name` of decoded JSON; raise HostError if it is missing or not a `kind`.

        `raw` may be anything. A boolean is not an `int` here, and a text is short and without control
        characters, which no database and no terminal should get.
        """
        value = raw.get(name) if isinstance(raw, dict) else None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.missing(name)
        if isinstance(value, str) and (len(value) > HOST_TEXT_LENGTH or _CONTROL.search(value)):
            raise self.missing(name)
        return value

    def optional_text(self, raw: Any, name: str) -> str | None:
        """Return the text field `name`; None if it is missing or null, or if `raw` is not an object.

        Raise HostError if the field is not a text.
        """
        return self.field(raw, name, str) if isinstance(raw, dict) and raw.get(name) is not None else None

    def matching(self, raw: Any, name: str, pattern: re.Pattern[str]) -> str:
        """Return the text in the field `name`; raise HostError unless the pattern matches all of it."""
        value = self.field(raw, name, str)
        if not pattern.fullmatch(value):
            raise self.missing(name)
        return value

    def https_url(self, raw: Any, name: str) -> str:
        """Return the https URL in the field `name`, which is safe to clone from and to link to.

        Raise HostError if it is not https, or has a user name or characters that cannot be printed.
        """
        value = self.field(raw, name, str)
        if not is_plain_https(value):
            raise self.missing(name)
        return value

    def missing(self, name: str) -> HostError:
        """Return the error for a response whose field `name` is missing or invalid."""
        return HostError("malformed", f"a response of {self.host} has no valid {name}")


def is_plain_https(url: object) -> bool:
    """Whether a value is an https URL without a user name and without characters that cannot be printed."""
    if not isinstance(url, str):
        return False
    scheme, host = origin(url)
    return scheme == "https" and bool(host) and "@" not in host and url.isprintable()


def flag(raw: Any, name: str) -> bool:
    """Whether the field `name` of decoded JSON is true."""
    return isinstance(raw, dict) and raw.get(name) is True
