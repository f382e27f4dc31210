"""A raw credential in memory: it prints masked everywhere, and one function reveals it."""

import re
from typing import NewType, NoReturn
from urllib.parse import quote, unquote

MASK = "*" * 8
MASK_WITHIN_FROM = 8  # shorter values stand in ordinary words too often to be replaced inside other texts

# What a person has typed, with the credentials in it masked: only `outcrop.notes` makes one, and only such a text is stored.
Clean = NewType("Clean", str)

_LOOKS_MASKED = re.compile(r"[^*]{0,8}\*{4,}[^*]{0,8}", re.DOTALL)


class Secret:
    """Holds one raw credential. str(), repr(), format() and a traceback's locals show the mask only."""

    __slots__ = ("_value", "wholly")

    def __init__(self, value: str, *, wholly: bool = False) -> None:
        self._value = value
        self.wholly = wholly  # passwords: not even the ends are shown

    def masked(self) -> str:
        shown = 0 if self.wholly else min(4, len(self._value) // 8)
        return self._value[:shown] + MASK + self._value[len(self._value) - shown :]

    def masked_within(self, text: str) -> str:
        """Replace this credential in `text`, written plainly or URL-encoded, wholly or in part."""
        if len(self._value) < MASK_WITHIN_FROM or len(self._value) > len(text):
            return text
        text = text.replace(self._value, self.masked())
        # The pattern is as long as the credential: it is made only where decoding shows that the credential is there.
        if "%" in self._value or self._value.replace("+", " ") in unquote(text).replace("+", " "):
            text = _anyhow_written(self._value).sub(lambda _: self.masked(), text)
        return text

    def __repr__(self) -> str:
        return f"Secret({self.masked()})"

    __str__ = masked

    def __format__(self, spec: str) -> str:
        return format(self.masked(), spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret is not serialised")


def reveal(secret: Secret) -> str:
    """Give the raw credential: the only way to it, so that every use can be found by this name."""
    return secret._value  # noqa: SLF001


def is_password(secret_type: str) -> bool:
    """Tell whether credentials of this type are chosen by people, so that not even their ends may be shown."""
    return "password" in secret_type.lower()


def is_masked(text: str) -> bool:
    """Tell whether `text` shows at most a few characters at each end of a run of stars."""
    return _LOOKS_MASKED.fullmatch(text) is not None


def _anyhow_written(value: str) -> re.Pattern[str]:
    """Match the value with any of its characters percent-encoded."""
    return re.compile("".join(_character(c) for c in value))


def _character(char: str) -> str:
    encoded = quote(char, safe="") if ord(char) >= 128 else f"%{ord(char):02X}"
    plus = r"|\+" if char == " " else ""
    return f"(?:{re.escape(char)}|(?i:{encoded}){plus})"
