"""The scoring function of the generic detector: what speaks for a value and what against it, added up.

Every reason has its points in one table. The sum decides: enough for a finding, enough to be sure, or not a credential.
"""

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from outcrop.domain.finding import Confidence
from outcrop.scanner.entropy import bits_per_character
from outcrop.scanner.judge.letters import random_bits
from outcrop.scanner.judge.name import Noun
from outcrop.scanner.judge.value import Shape, shape_of
from outcrop.scanner.judge.words import WORDS

POINTS = {
    # what the name calls it
    Noun.PASSWORD: 3.0, Noun.SECRET: 1.0, Noun.KEY: -2.0,
    # what the value is
    Shape.HEX: 3.0, Shape.UUID: 2.5, Shape.PLAIN: 1.0, Shape.OTHER: 1.0, Shape.NUMBERED: 0.0, Shape.LETTERS: -2.5, Shape.NUMBER: -1.5,
    # how it stands there
    "bare": 0.0, "element": 0.0, "quoted": 0.0, "option": 0.0, "header": 1.5, "call": -0.5,
    # what else it is like
    "short": -1.0, "very short": -2.5, "long": 1.0, "very long": 2.0, "letters and digits": 1.0, "signs": 1.0, "both cases": 0.5,
    "a plain name": -3.0, "holds a noun": -4.0, "holds a common word": -1.5, "keyboard or sequence": -6.0, "repeats itself": -4.0,
    "result of a call": -7.0, "part of an expression": -2.5, "mixed scripts": -3.0,
}  # fmt: skip
SURE, ENOUGH, DOUBTFUL = 8.0, 2.0, 0.0
_PER_BIT, _LEAST_BITS, _MOST_BITS = 1 / 8, -2.0, 4.0
_MOST_BITS_OF_A_NAME = 1.0  # abbreviations look drawn by chance
_SHORTEST = {Noun.PASSWORD: 5, Noun.SECRET: 8, Noun.KEY: 12}
_DRAWN = frozenset({Shape.HEX, Shape.UUID, Shape.NUMBER})  # no letters that could spell a word
_UNWRITTEN = 16.0  # bits: whatever its numbers look like, nobody wrote this
_NEVER = frozenset({Shape.REFERENCE, Shape.PUBLIC, Shape.SEALED, Shape.PLACE, Shape.WORDS, Shape.CODE})
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CHANGES = re.compile(rb"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
_LONG = 32
_LONGEST_WITH_NOUN, _LONGEST_OF_WORDS = 80, 24  # in a longer one they stand by chance
_MARKED = re.compile(r"[-_./:]")
_LONG_RUNS = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_WORDLIKE = 2.0  # bits
_NOUNS = "passw(?:or|0r)?d|passwort|passphrase|passcode|secret|token|api[_-]?key|credential|authoriz|private|encrypt|bearer|username"
_COMMON = WORDS["values"]["common"]
_ROWS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890", "abcdefghijklmnopqrstuvwxyz", "1qaz2wsx3edc4rfv5tgb", "qazwsxedcrfv", "9abcdef",
)  # fmt: skip
_WALKS = frozenset(way[at : at + 4] for row in _ROWS for way in (row, row[::-1]) for at in range(len(row) - 3))
_HAS_NOUN, _HAS_WALK = 0, 1
_DIGIT = re.compile(r"[0-9]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How sure it is, and why: each reason with its points."""

    confidence: Confidence | None
    points: float
    reasons: tuple[tuple[str, float], ...]


@lru_cache(maxsize=16_384)
def weigh(value: bytes, noun: Noun, place: str, doubts: tuple[str, ...] = ()) -> Verdict:
    """Weigh a value that stands in a place beside a name with this noun; `doubts` are reasons read off the surroundings."""
    shape = shape_of(value)
    if shape in _NEVER and len(value) >= _LONG and _is_noise(value):
        shape = Shape.OTHER  # by chance it has the marks of something else
    if shape in _NEVER or len(value) < _SHORTEST[noun]:
        return Verdict(None, 0.0, ((shape, 0.0),))
    text = value.decode("latin-1")
    bits = 0.0 if shape in _DRAWN else random_bits(text)
    if shape is Shape.NUMBERED and bits > _UNWRITTEN and text.isalnum():
        shape = Shape.PLAIN
    reasons = [(str(noun), POINTS[noun]), (str(shape), POINTS[shape]), (place, POINTS[place])]
    reasons += [(doubt, POINTS[doubt]) for doubt in doubts]
    if shape not in _DRAWN:
        most = _MOST_BITS_OF_A_NAME if shape is Shape.NUMBERED and noun is not Noun.PASSWORD else _MOST_BITS
        points = min(max(bits * _PER_BIT, _LEAST_BITS), most)
        reasons.append(("letters as drawn by chance" if points > 0 else "letters as in words", points))
    reasons += [(reason, POINTS[reason]) for reason in _likeness(text, shape, noun)]
    points = sum(points for _, points in reasons)
    return Verdict(_confidence(points), points, tuple(reasons))


def _is_noise(value: bytes) -> bool:
    """Tell whether letters, digits and signs change so often that nobody wrote it."""
    return 2 * len(_CHANGES.findall(value)) > len(value)


def _confidence(points: float) -> Confidence | None:
    if points >= SURE:
        return Confidence.HIGH
    if points >= ENOUGH:
        return Confidence.MEDIUM
    return Confidence.LOW if points >= DOUBTFUL else None


def _likeness(text: str, shape: Shape, noun: Noun) -> list[str]:
    """Name what a value is like besides its shape."""
    found = []
    length = len(text)
    if length < 8:
        found.append("short" if noun is Noun.PASSWORD else "very short")
    elif length >= 16:
        found.append("very long" if length >= 32 else "long")
    lower, upper = text.lower(), text.upper()
    if lower != upper and _DIGIT.search(text):
        found.append("letters and digits")
    if lower != text != upper:
        found.append("both cases")
    if not text.isascii():
        found.append("mixed scripts")
    if shape is Shape.OTHER and not text.replace("-", "").replace("_", "").replace(".", "").rstrip("=").isalnum():
        found.append("signs")
    if noun is not Noun.PASSWORD and (shape is Shape.NUMBERED or (shape is Shape.OTHER and _is_name(text))):
        found.append("a plain name")
    if shape not in {Shape.HEX, Shape.UUID}:
        found += _words_in(text)
    if 2 * len(set(text)) < length + 4 and bits_per_character(text) < (2.0 if length < 10 else 2.5):
        found.append("repeats itself")
    return found


def _is_name(text: str) -> bool:
    """Tell whether a value with marks in it has a word among what they divide."""
    return "+" not in text and _MARKED.search(text) is not None and any(random_bits(word) < _WORDLIKE for word in _LONG_RUNS.findall(text))


def _words_in(text: str) -> list[str]:
    found = []
    holds = _telling().Match(text.encode("latin-1")) or ()
    if _HAS_NOUN in holds and len(text) < _LONGEST_WITH_NOUN:
        found.append("holds a noun")
    elif len(text) < _LONGEST_OF_WORDS and not _COMMON.isdisjoint(run.lower() for run in _RUNS.findall(text)):
        found.append("holds a common word")
    if _HAS_WALK in holds:
        small = text.lower()
        walked = sum(small[at : at + 4] in _WALKS for at in range(min(len(small), 40) - 3))
        if walked * 2 >= len(small) - 3 or (walked >= 2 and len(small) <= 12):
            found.append("keyboard or sequence")
    return found


@cache
def _telling() -> Any:
    """Compile what is looked for anywhere in a value into one automaton."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    patterns = re2.Set.SearchSet(options)
    for pattern in (_NOUNS, "|".join(sorted(_WALKS))):
        patterns.Add(pattern.encode())
    patterns.Compile()
    return patterns
