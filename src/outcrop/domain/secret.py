"""Hold raw credentials in memory. They print masked everywhere; only `reveal` returns the raw value."""

import re
from enum import StrEnum
from typing import NewType, NoReturn
from urllib.parse import quote, unquote

from outcrop.lazy_regex import regex

MASK = "*" * 8
MIN_LENGTH_TO_MASK_IN_TEXT = 8  # shorter values occur in ordinary words too often

# Text typed by a user, with the credentials in it masked. Only `outcrop.notes` creates such texts, and
# only such texts are stored.
MaskedText = NewType("MaskedText", str)

_LOOKS_MASKED = regex(r"[^*]{0,8}\*{4,}[^*]{0,8}", re.DOTALL)


class KeepSecrets(StrEnum):
    """Which credentials of findings are stored, encrypted."""

    ACTIVE = "active"  # those of findings that were closed less than 30 days ago, or are open
    NONE = "none"


class Secret:
    """One raw credential. str(), repr(), format() and local variables in a traceback show it masked."""

    __slots__ = ("_value", "mask_all")

    def __init__(self, value: str, *, mask_all: bool = False) -> None:
        self._value = value
        self.mask_all = mask_all  # passwords: not even the first and last characters are shown

    def masked(self) -> str:
        """Return the credential with at most four characters visible at each end."""
        shown = 0 if self.mask_all else min(4, len(self._value) // 8)
        return self._value[:shown] + MASK + self._value[len(self._value) - shown :]

    def masked_within(self, text: str) -> str:
        """Return `text` with each occurrence of this credential masked, also if it is URL-encoded."""
        if len(self._value) < MIN_LENGTH_TO_MASK_IN_TEXT or len(self._value) > len(text):
            return text
        text = text.replace(self._value, self.masked())
        # The pattern is as long as the credential, so it is built only if the decoded text contains it.
        if "%" in self._value or self._value.replace("+", " ") in unquote(text).replace("+", " "):
            text = _percent_encoded_pattern(self._value).sub(lambda _: self.masked(), text)
        return text

    def __repr__(self) -> str:
        return f"Secret({self.masked()})"

    __str__ = masked

    def __format__(self, spec: str) -> str:
        return format(self.masked(), spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not serialised")


def reveal(secret: Secret) -> str:
    """Return the raw credential. No other code reads it, so every use is found by this name."""
    return secret._value  # noqa: SLF001


def is_password(secret_type: str) -> bool:
    """Whether credentials of this type are chosen by people, so that no character of them may be shown."""
    return "password" in secret_type.lower()


def is_masked(text: str) -> bool:
    """Whether `text` is already masked: at most eight characters at each end of a run of stars."""
    return _LOOKS_MASKED.fullmatch(text) is not None


def _percent_encoded_pattern(value: str) -> re.Pattern[str]:
    """Return a pattern that matches the value with any of its characters percent-encoded."""
    return re.compile("".join(_character(c) for c in value))


def _character(char: str) -> str:
    """Return a pattern for one character, plain or percent-encoded; a space also as `+`."""
    encoded = quote(char, safe="") if ord(char) >= 128 else f"%{ord(char):02X}"
    plus = r"|\+" if char == " " else ""
    return f"(?:{re.escape(char)}|(?i:{encoded}){plus})"
