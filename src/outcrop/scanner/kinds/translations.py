"""Texts of a user interface: translations, labels and messages beside a word for a credential."""

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.kinds.kind import Kind, Sample

MESSAGE = Kind("message", "a text for people: the entries beside it are sentences")
TABLE_WORD = Kind("table-word", "a word in the cell of a table after a word for a credential")
MARKER = Kind("translation-marker", "a marker that a translation service puts in place of a text", None)
LABEL = Kind("label", "a text in another script")

_ENTRY = regex(
    rb"(?m)^[ \t]*(?:[\"'<]?[\w.\-\[\]/ ]{1,120}[\"']?[ \t]*(?:=>|[:=])[ \t]*[\"']?"
    rb"|<(?:string|item|value|entry|source|target|data|key)\b[^<>]*>"
    rb"|msg(?:str|id)[ \t]+\"|\"[^\"\n]{1,200}\"[ \t]*[:=][ \t]*\")([^\n]{0,300})"
)
_SENTENCE = regex(rb"[^\s\"'<>]{2,}[ ][^\s\"'<>=:]{1,}[ ]?[^\n\"'<>]*")
_MIN_SENTENCES = 3
_MAX_RANDOM_BITS = 8.0


_MARKER = regex(r"crwdns[0-9]+:.*crwdne[0-9]+:[0-9]")  # what Crowdin puts in place of texts


def is_marker(sample: Sample) -> bool:
    """Whether the value is a marker of a translation service: `crwdns12:0crwdne12:0`."""
    return sample.is_generic and _MARKER.fullmatch(sample.value) is not None


def is_message(sample: Sample) -> bool:
    """Whether a value of words is among entries that are mostly sentences."""
    if not sample.is_generic or not _is_words(sample.value):
        return False
    entries = _ENTRY.findall(sample.around)
    if len(entries) < _MIN_SENTENCES:
        return False
    sentences = sum(_SENTENCE.match(entry) is not None for entry in entries)
    return sentences >= _MIN_SENTENCES and 3 * sentences >= len(entries)


def is_table_word(sample: Sample) -> bool:
    """Whether a word of letters is the next cell after the word for a credential, and more cells follow."""
    return (
        sample.is_generic
        and sample.value.isalpha()
        and sample.before.rstrip(b" \t").endswith(b"|")
        and sample.name != ""
        and sample.after.count(b"|") > 1
    )


def is_label(sample: Sample) -> bool:
    """Whether most characters of the value are letters beyond ASCII: a text, not a password."""
    foreign = sum(not char.isascii() and char.isalpha() for char in sample.value)
    return sample.is_generic and foreign > len(sample.value) / 2


def _is_words(value: str) -> bool:
    """Whether a value has no digits and no random letters."""
    letters = value.encode("ascii", "ignore").decode()
    return not any(map(str.isdigit, value)) and random_bits(letters) < _MAX_RANDOM_BITS
