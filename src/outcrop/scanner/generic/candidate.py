"""Decide whether a value is a credential if its span and the noun in its name are known.

`judge_value` cuts the value at its end, scores it, and checks for placeholders. `place` says how a value is
written; each place has points in `score.POINTS`:

- `quoted`, `bare`: with or without quotes;
- `element`: the content of an XML element, a value in the line below its name, or text after `;` or `[`;
- `option`, `command`: the argument of an option of a command, or of the command itself;
- `said`: in a sentence such as `user x, password y`;
- `below`: in a line of its own, below the line with its name;
- `header`: in an HTTP header; `call`: the argument of a call that is known to take a credential.
"""

from typing import NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner import trace
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.placeholders import decode_value, is_placeholder
from outcrop.scanner.generic.score import NO_POINTS, ValueScore, weigh

# The end of a value without quotes: the next parameter of a URL or of a list, an escape, an HTML entity,
# punctuation or brackets at the end.
VALUE_END = regex(
    rb"&(?:amp;)?[\w.\[\]-]+=|;[ \t]*[\w .-]+=|,[ \t]*[\w.-]+[=:]|\\+[nrt\"']|[;,]$|[)}\]]+[;,]*$"
    rb"|&(?:quot|[lr][sd]quo|nbsp|#3[49]);|%26|\|$"
)
_PLACES_WITHOUT_QUOTES = frozenset({"bare", "option", "command", "said", "below", "element"})
_UNICODE_ESCAPE = regex(rb"\\u([0-9A-Fa-f]{4})")
_PRINTABLE_ASCII = bytes(range(0x20, 0x7F))
_MAX_LATIN1_LETTERS = 2  # of a password in an older charset; more are binary data


class Candidate(NamedTuple):
    """A value that may be a credential: its confidence and its span in the text.

    `bare` says that it is unquoted where code has an expression: in a source file it is no credential.
    `placeholder` says that it is a placeholder, always with low confidence. `reasons` are those of its score.
    """

    confidence: Confidence
    start: int
    end: int
    bare: bool = False
    placeholder: bool = False
    reasons: trace.Reasons = ()


def reject(reason: str, points: trace.Reasons = ()) -> Candidate | None:
    """Return None, and remember why the value is no credential."""
    trace.note(reason, points)
    return None


def judge_value(  # noqa: PLR0917 - the value, its name, its place
    data: bytes, start: int, end: int, noun: Noun, place: str, context: tuple[str, ...] = ()
) -> Candidate | None:
    """Return the value between `start` and `end` as a candidate; None if it is no credential or no text.

    `noun` is the noun in the name of the value: the kind of credential. `place` says how the value is written
    (see the module). Without quotes, the value is cut where other text follows it (VALUE_END). `context` has
    reasons from the text around the value, such as DIRECT_ASSIGNMENT. Unicode escapes in the value are
    decoded before it is scored.
    """
    if place in _PLACES_WITHOUT_QUOTES and (value_end := VALUE_END.search(data, start, end)):
        end = value_end.start()
    value = data[start:end]
    if b"\\u" in value:
        value = _UNICODE_ESCAPE.sub(
            lambda escape: chr(int(escape[1], 16)).encode("utf-8", "surrogatepass"), value
        )
    if not value.isascii() and not _is_text(value):
        return reject("it is no readable text")
    return make_candidate(data, start, end, weigh(value, noun, place, context))


def make_candidate(data: bytes, start: int, end: int, score: ValueScore) -> Candidate | None:
    """Return a candidate with this span of `data` and score; None if the score is too low.

    A placeholder is marked as one and gets low confidence instead.
    """
    confidence = score.confidence
    if confidence is None:
        return reject(NO_POINTS, score.reasons)
    placeholder = is_placeholder(decode_value(data[start:end]))
    if placeholder:
        confidence = Confidence.LOW
    return Candidate(confidence, start, end, placeholder=placeholder, reasons=score.reasons)


def _is_text(value: bytes) -> bool:
    """Whether a value is printable UTF-8, or printable ASCII with one or two letters in Latin-1 among it."""
    try:
        return value.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        letters = value.translate(None, _PRINTABLE_ASCII)
        return len(letters) <= _MAX_LATIN1_LETTERS and letters.decode("latin-1").isalpha()
