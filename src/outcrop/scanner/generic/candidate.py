"""Judge a value whose span and noun are known: cut it at its end, score it, check for placeholders."""

import re
from typing import NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.placeholders import decode_value, is_placeholder
from outcrop.scanner.generic.score import weigh

# The end of a value without quotes: the next parameter of a URL or of a list, an escape, an HTML entity,
# punctuation or brackets at the end.
VALUE_END = re.compile(
    rb"&(?:amp;)?[\w.\[\]-]+=|;[ \t]*[\w .-]+=|,[ \t]*[\w.-]+[=:]|\\+[nrt\"']|[;,]$|[)}\]]+[;,]*$"
    rb"|&(?:quot|[lr][sd]quo|nbsp|#3[49]);|%26|\|$"
)
_PLACES_WITHOUT_QUOTES = frozenset({"bare", "option", "command", "said", "element"})
_UNICODE_ESCAPE = re.compile(rb"\\u([0-9A-Fa-f]{4})")
_PRINTABLE_ASCII = bytes(range(0x20, 0x7F))
_MAX_LATIN1_LETTERS = 2  # of a password in an older charset; more are binary data


class Candidate(NamedTuple):
    """A value that may be a credential, with its span.

    `bare` says that it is unquoted where code has an expression: in a source file it is none.
    """

    confidence: Confidence
    start: int
    end: int
    bare: bool = False
    placeholder: bool = False


def judge_value(  # noqa: PLR0917 - the value, its name, its place
    data: bytes, start: int, end: int, noun: Noun, place: str, context: tuple[str, ...] = ()
) -> Candidate | None:
    """Score the value between `start` and `end`; return None if it is no credential.

    `place` says how the value is written, such as `quoted`. `context` has reasons from the text around it.
    """
    if place in _PLACES_WITHOUT_QUOTES and (value_end := VALUE_END.search(data, start, end)):
        end = value_end.start()
    value = data[start:end]
    if b"\\u" in value:
        value = _UNICODE_ESCAPE.sub(
            lambda escape: chr(int(escape[1], 16)).encode("utf-8", "surrogatepass"), value
        )
    if not value.isascii() and not _is_text(value):
        return None
    return make_candidate(data, start, end, weigh(value, noun, place, context).confidence)


def make_candidate(data: bytes, start: int, end: int, confidence: Confidence | None) -> Candidate | None:
    """Return the candidate for a scored span; None without a confidence. Placeholders get low confidence."""
    if confidence is None:
        return None
    placeholder = is_placeholder(decode_value(data[start:end]))
    return Candidate(Confidence.LOW if placeholder else confidence, start, end, placeholder=placeholder)


def _is_text(value: bytes) -> bool:
    """Whether a value is printable UTF-8, or ASCII with at most two letters in Latin-1."""
    try:
        return value.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        letters = value.translate(None, _PRINTABLE_ASCII)
        return len(letters) <= _MAX_LATIN1_LETTERS and letters.decode("latin-1").isalpha()
