"""What a kind is, and the value with its surroundings that the functions of all kinds get."""

import re
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex

MAX_LINE_BEFORE = 400  # bytes of a line that are read before a value: some files have only one line
MAX_LINE_AFTER = 400
_BYTES_AROUND = 2_000
_NAME = regex(rb"([A-Za-z_$][\w$.-]*|[\x80-\xff]+)[\"'`\\)\]]{0,4}\s*(?:=>|:=|[-=]>|[:=(>|]|\s)[^\w,]{0,12}$")
_XML_VALUE = regex(
    rb"(?:name|key|id)\s*=\s*[\"']([^\"'<>]{1,80})[\"'][^<>\"']{0,60}(?:value|content)\s*=\s*[\"']$"
)
_WORD = regex(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_HTML = regex(rb"(?i)\s*(?:<!--.{0,200}-->\s*)?(?:<!doctype html|<html[\s>]|<head[\s>])", re.DOTALL)
_HTML_BYTES = 4_096


class Kind(NamedTuple):
    """A kind of text that is no credential.

    `id` is stable: `outcrop why` prints it. `reason` says in plain words what the value is. `limit` is the
    highest confidence with which a value of this kind is reported; None: it is not reported at all.
    """

    id: str
    reason: str
    limit: Confidence | None = Confidence.LOW

    @property
    def is_dropped(self) -> bool:
        """Whether values of this kind are not reported."""
        return self.limit is None


class Sample:
    """A value that a rule has found, with the text around it.

    `data` is the text that was scanned, `start` and `end` the span of the value in it, `value` the value
    (decoded, if the rule decodes it), `rule_id` the rule. `is_generic` says that the value was found by its
    name, `has_prefix` that its own form proves its issuer: a prefix or a checksum.
    """

    def __init__(
        self,
        data: bytes,
        span: tuple[int, int],
        value: str,
        rule_id: str,
        *,
        is_generic: bool,
        has_prefix: bool = False,
    ) -> None:
        """Keep the value and where it is; the properties are computed when they are asked for."""
        self.data = data
        self.start, self.end = span
        self.value = value
        self.rule_id = rule_id
        self.is_generic = is_generic
        self.has_prefix = has_prefix

    @cached_property
    def before(self) -> bytes:
        """The text of the line before the value, at most MAX_LINE_BEFORE bytes."""
        least = max(0, self.start - MAX_LINE_BEFORE)
        line_start = self.data.rfind(b"\n", least, self.start) + 1
        return self.data[max(least, line_start) : self.start]

    @cached_property
    def after(self) -> bytes:
        """The text of the line after the value, at most MAX_LINE_AFTER bytes."""
        stop = self.data.find(b"\n", self.end, self.end + MAX_LINE_AFTER)
        return self.data[self.end : stop if stop >= 0 else self.end + MAX_LINE_AFTER]

    @cached_property
    def around(self) -> bytes:
        """The text on both sides of the value, at most _BYTES_AROUND bytes each, without the value."""
        left = self.data[max(0, self.start - _BYTES_AROUND) : self.start]
        return left + b"\n" + self.data[self.end : self.end + _BYTES_AROUND]

    @cached_property
    def name(self) -> str:
        """The name directly before the value, or "" if none is there: `db.password`."""
        before = self.before or self.data[max(0, self.start - 200) : self.start]
        found = _XML_VALUE.search(before) or _NAME.search(before[-200:])
        return found[1].decode("utf-8", "replace") if found else ""

    @cached_property
    def name_words(self) -> list[str]:
        """The words of the name in lower case."""
        return [word.lower() for word in split_words(self.name)]

    @cached_property
    def is_in_html(self) -> bool:
        """Whether the text is a complete HTML page."""
        return _HTML.match(self.data, 0, _HTML_BYTES) is not None

    @cached_property
    def line_length(self) -> int:
        """The number of bytes in the line of the value, as far as they are read."""
        return len(self.before) + (self.end - self.start) + len(self.after)


def split_words(name: str) -> list[str]:
    """Return the words and numbers in a name: `dbPassword2` is ["db", "Password", "2"]."""
    return _WORD.findall(name)


Recognizer = Callable[[Sample], bool]  # whether a sample is of a certain kind
