"""The scoring function of the generic detector: what speaks for a value and what against it, added up.

Every reason has its points in one table. The sum decides: enough for a finding, enough to be sure, or not a credential.
"""

import re
from functools import cache, lru_cache
from operator import sub
from typing import Any, NamedTuple

import re2  # type: ignore[import-untyped]

from outcrop.domain.finding import Confidence
from outcrop.scanner.generic.names import WORDS, Noun
from outcrop.scanner.generic.randomness import LOOKED_AT, random_bits
from outcrop.scanner.generic.values import Shape, shape_of
from outcrop.scanner.patterns.entropy import bits_per_character

POINTS = {
    # what the name calls it
    Noun.PASSWORD: 3.0, Noun.SECRET: 1.0, Noun.KEY: -2.0,
    # what the value is
    Shape.HEX: 3.0, Shape.UUID: 2.5, Shape.PLAIN: 1.0, Shape.OTHER: 1.0, Shape.NUMBERED: 0.0, Shape.PHRASE: 0.0, Shape.LETTERS: -3.0,
    Shape.NUMBER: -1.5,
    # how it stands there
    "bare": 0.0, "element": 0.0, "quoted": 0.0, "option": 0.0, "command": 0.0, "said": -3.0, "header": 1.5, "call": -0.5,
    # what else it is like
    "short": -1.0, "very short": -2.0, "long": 1.0, "very long": 2.0, "letters and digits": 1.0, "signs": 1.0, "both cases": 0.5,
    "a plain name": -3.0, "holds a noun": -4.0, "holds a common word": -1.5, "keyboard or sequence": -6.0, "repeats itself": -4.0,
    "result of a call": -7.0, "part of an expression": -2.5, "said in a sentence": -3.0, "nothing but digits": 1.5,
    "mixed scripts": -3.0, "another script": -6.0, "a word set outright": 2.0,
}  # fmt: skip
OUTRIGHT = (
    "set outright"  # read off the surroundings: nothing stands between the name and its value but a sign
)
SURE, ENOUGH, DOUBTFUL = 8.0, 2.0, 0.0
_PER_BIT, _LEAST_BITS, _MOST_BITS = 1 / 8, -2.0, 4.0
_PER_BIT_OF_LETTERS = {Noun.PASSWORD: 1 / 2, Noun.SECRET: 1 / 2, Noun.KEY: 1 / 8}  # where nothing else tells
_UNSPELLED = {
    Noun.PASSWORD: 6.0,
    Noun.SECRET: 12.0,
    Noun.KEY: 24.0,
}  # bits from which on letters with marks between them are no words
_MOST_OF_LETTERS = (
    6.5  # all that the letters of a word and its length may add: 4 for bits, 2 for length, 0.5 for both cases
)
_MOST_BITS_OF_A_NAME = 1.0  # abbreviations look drawn by chance
_SHORTEST = {Noun.PASSWORD: 4, Noun.SECRET: 8, Noun.KEY: 12}
_DRAWN = frozenset({Shape.HEX, Shape.UUID, Shape.NUMBER})  # no letters that could spell a word
_OF_WORDS = frozenset({Shape.LETTERS, Shape.WORDS})
_UNSPOKEN = 1.5  # bits a character from which on a phrase is of no language
_UNPADDED = 8.0  # bits from which on letters before a padding are no words
_UNWRITTEN = 16.0  # bits: whatever its numbers look like, nobody wrote this
_NEVER = frozenset(
    {Shape.KNOWN, Shape.REFERENCE, Shape.PUBLIC, Shape.SEALED, Shape.PLACE, Shape.WORDS, Shape.CODE}
)
_MARKED_UP = frozenset({Shape.REFERENCE, Shape.WORDS, Shape.CODE})  # by its signs
_RUNS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_CHANGES = re.compile(rb"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
_KINDS = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")
_SIGN = re.compile(r"[^A-Za-z0-9]")
# What is written so is a range, a class of characters, a date or a template, however its letters look.
_WRITTEN = re.compile(
    r"a-z|A-Z|0-9|\\[dwsbux*&\[]|^\{[^{}]*\}?$|&#?\w+;|%[A-Za-z][^A-Za-z0-9]?%[A-Za-z]|[$#%@]\{|\{[\w.:-]*\}|[$%]\(|\{\{|\}\}|<[%/]|%>"
    r"|\(\?|://"
)
_WITH_SIGNS = 10  # characters from which on it shows
_KINDS_A_CHARACTER, _BITS_A_CHARACTER = (
    0.55,
    0.3,
)  # of 137,000 texts from programs with the marks of code 1 in 550 has so many
_LONG = 32
_UPLOADED = (
    ".png",
    ".jpg",
    ".jpeg",
    ".gif",
    ".svg",
    ".pdf",
    ".zip",
    ".csv",
    ".json",
    ".html",
    ".txt",
)  # whatever a file's name is made of
_LONGEST_WITH_NOUN, _LONGEST_OF_WORDS = 80, 24  # in a longer one they stand by chance
_MARKED = re.compile(r"[-_./:]")
_LONG_RUNS = re.compile(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_SYLLABLE = 4
_WORDLIKE = 2.0  # bits
_NOUNS = "passw(?:or|0r)?d|passwort|passphrase|passcode|secret|token|api[_-]?key|credential|authoriz|private|encrypt|bearer|username"
_COMMON, _FILLER, _INSTEAD = (WORDS["values"][name] for name in ("common", "filler", "instead"))
# As people choose a password: labels begin with a capital, and have no signs inside.
_LONGEST_CHOSEN = 64
_NOT = ("not-", "not_", "no-", "no_")  # "not-set" says that there is none
_A_WORD = re.compile(
    r"[a-z]{4,}[!?*]{0,2}|[a-z]{2,}(?:[-_][a-z]+)+"
    r"|(?=.*[a-z].*[a-z])[A-Za-z]+(?:[@!$*?+;~()#^]+[A-Za-z]+)+[!?*]{0,2}|[A-Z]{2,}(?:[!?*][A-Z]+)+"
)
# Two words with a point between them and digits behind them: a member of an object where code may stand, elsewhere a password.
_DOTTED = re.compile(r"[A-Za-z]{3,}\.[A-Za-z]{3,}[0-9]{2}")
_DOTTED_TEXT = re.compile(r"[a-z]{3,}\.[A-Z][a-z]{2,}[0-9]")
_WITH_DIGITS = re.compile(r"[0-9]{0,6}([A-Za-z@$]{4,})[0-9]{1,8}[!?.*#@$]{0,2}")
_ROWS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890", "abcdefghijklmnopqrstuvwxyz", "1qaz2wsx3edc4rfv5tgb", "qazwsxedcrfv", "9abcdef",
)  # fmt: skip
_WALKS = frozenset(
    way[at : at + 4] for row in _ROWS for way in (row, row[::-1]) for at in range(len(row) - 3)
)
_LONG_ARGUMENT = 12
_CONSTANT = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+){2,}")
_HAS_NOUN, _HAS_WALK = 0, 1
_DIGITS = {Noun.PASSWORD: 6, Noun.SECRET: 16}  # from so many on a number counts nothing
_DIGIT = re.compile(r"[0-9]")
_HEX = frozenset("0123456789ABCDEFabcdef")
_FOREIGN = re.compile(r"[\x80-\xff]")


class Verdict(NamedTuple):
    """How sure it is, and why: each reason with its points."""

    confidence: Confidence | None
    points: float
    reasons: tuple[tuple[str, float], ...]


@lru_cache(maxsize=16_384)
def weigh(value: bytes, noun: Noun, place: str, around: tuple[str, ...] = ()) -> Verdict:
    """Weigh a value that stands in a place beside a name with this noun; `around` are reasons read off the surroundings."""
    shape, text = shape_of(value), value.decode("latin-1")
    outright = OUTRIGHT in around
    is_word = outright and shape in _OF_WORDS and _is_word(text, place)
    if shape is Shape.CODE and noun is Noun.PASSWORD and _is_dotted(text, place, outright=outright):
        shape = Shape.NUMBERED
    shape = Shape.LETTERS if is_word else _by_its_letters(value, text, shape, noun)
    if shape in _NEVER or len(value) < _SHORTEST[noun]:
        return Verdict(None, 0.0, ((shape, 0.0),))
    reasons = [(str(noun), POINTS[noun]), (str(shape), POINTS[shape]), (place, POINTS[place])]
    reasons += [(reason, POINTS[reason]) for reason in around if reason != OUTRIGHT]
    so_far = sum(points for _, points in reasons)
    if so_far + _MOST_OF_LETTERS < DOUBTFUL and text.isalpha() and not is_word:
        return Verdict(None, so_far, tuple(reasons))
    bits = _bits(text, shape)
    if shape is Shape.PHRASE and not (value.isascii() and bits >= _UNSPOKEN * len(value)):
        return Verdict(None, 0.0, ((shape, 0.0),))
    if shape is Shape.NUMBERED and bits > _UNWRITTEN and text.isalnum():
        shape = Shape.PLAIN
        reasons[1] = (str(shape), POINTS[shape])
    if shape not in _DRAWN:
        most = _MOST_BITS_OF_A_NAME if _may_be_name(text, shape, noun, place) else _MOST_BITS
        points = min(max(bits * _per_bit(text, shape, noun), 0.0 if is_word else _LEAST_BITS), most)
        reasons.append(("letters as drawn by chance" if points > 0 else "letters as in words", points))
    likeness = (
        ["a word set outright", *_words_in(text)]
        if is_word
        else _likeness(text, shape, noun, outright=outright)
    )
    reasons += [(reason, POINTS[reason]) for reason in likeness]
    points = sum(points for _, points in reasons)
    return Verdict(_confidence(points), points, tuple(reasons))


def _by_its_letters(value: bytes, text: str, shape: Shape, noun: Noun) -> Shape:
    """Give the shape of a value whose letters tell that it only has the marks of something else."""
    if shape is Shape.KNOWN or (shape is Shape.PLACE and text.lower().endswith(_UPLOADED)):
        return shape
    if shape in _NEVER and (
        (len(value) >= _LONG and _is_noise(value)) or (shape in _MARKED_UP and is_drawn_with_signs(text))
    ):
        return Shape.OTHER
    if shape is Shape.WORDS and value.isascii() and not _CONSTANT.fullmatch(text):
        if (
            text[-1] == "="
            and len(text) % 4 == 0
            and text.rstrip("=").isalpha()
            and random_bits(text) > _UNPADDED
        ):
            return Shape.PLAIN  # base64 of a few bytes
        if _bits_of_words(text) >= _UNSPELLED[noun]:
            return Shape.LETTERS
    return shape


def _is_dotted(text: str, place: str, *, outright: bool) -> bool:
    if place == "bare":
        return outright and _DOTTED.fullmatch(text) is not None
    return (_DOTTED.fullmatch(text) or _DOTTED_TEXT.fullmatch(text)) is not None


def is_drawn(value: bytes) -> bool:
    """Tell whether nobody would call a variable so."""
    return random_bits(value.decode("latin-1")) > _UNWRITTEN


def _bits(text: str, shape: Shape) -> float:
    if shape in _DRAWN:
        return 0.0
    return _bits_of_words(text) if shape is Shape.LETTERS and not text.isalpha() else random_bits(text)


def _bits_of_words(text: str) -> float:
    """Give how much the longer words of a value look drawn by chance; its marks and syllables say nothing."""
    return sum(random_bits(word) for word in _LONG_RUNS.findall(text) if len(word) > _SYLLABLE)


def _per_bit(text: str, shape: Shape, noun: Noun) -> float:
    """Give what a bit is worth: more where letters are all there is, unless they are names that were put together."""
    return (
        _PER_BIT_OF_LETTERS[noun]
        if shape is Shape.LETTERS and (noun is Noun.PASSWORD or text.isupper() or text[1:].islower())
        else _PER_BIT
    )


def _may_be_name(text: str, shape: Shape, noun: Noun, place: str) -> bool:
    """Tell whether a value may stand for another, however its letters look: a name with a number, or what a manual calls an argument."""
    if shape is Shape.NUMBERED:
        return noun is not Noun.PASSWORD
    return (
        shape is Shape.LETTERS
        and place in {"bare", "option", "command"}
        and len(text) < _LONG_ARGUMENT
        and text.isupper()
    )


def is_drawn_with_signs(text: str) -> bool:
    """Tell whether a value was drawn from all that a keyboard has: signs among letters of both cases that spell nothing."""
    length = len(text)
    if length < _WITH_SIGNS or len(_KINDS.findall(text)) < _KINDS_A_CHARACTER * length or not text.isascii():
        return False
    signs = len(set(_SIGN.findall(text)))
    if (
        text in {text.lower(), text.upper()}
        or signs < (2 if _DIGIT.search(text) else 3)
        or _WRITTEN.search(text)
    ):
        return False
    return random_bits(text) > _BITS_A_CHARACTER * min(length, LOOKED_AT)


def _is_noise(value: bytes) -> bool:
    """Tell whether letters, digits and signs change so often that nobody wrote it."""
    return 2 * len(_CHANGES.findall(value)) > len(value)


def _confidence(points: float) -> Confidence | None:
    if points >= SURE:
        return Confidence.HIGH
    if points >= ENOUGH:
        return Confidence.MEDIUM
    return Confidence.LOW if points >= DOUBTFUL else None


def _is_word(text: str, place: str) -> bool:
    """Tell whether a value is a word, or a few in quotes, that somebody may have chosen: nothing that says what would stand there."""
    if (
        len(text) > _LONGEST_CHOSEN
        or text in _INSTEAD
        or text.startswith(_NOT)
        or not (text.isalpha() or place == "quoted")
    ):
        return False
    return _A_WORD.fullmatch(text) is not None


def _likeness(text: str, shape: Shape, noun: Noun, *, outright: bool) -> list[str]:
    """Name what a value is like besides its shape."""
    found = _length(text, noun)
    lower, upper = text.lower(), text.upper()
    if lower != upper and _DIGIT.search(text):
        found.append("letters and digits")
    if lower != text != upper:
        found.append("both cases")
    if not text.isascii():
        found.append("another script" if 2 * len(_FOREIGN.findall(text)) >= len(text) else "mixed scripts")
    if (
        shape is Shape.OTHER
        and not text.replace("-", "").replace("_", "").replace(".", "").rstrip("=").isalnum()
    ):
        found.append("signs")
    if noun is not Noun.PASSWORD and (shape is Shape.NUMBERED or (shape is Shape.OTHER and _is_name(text))):
        found.append("a plain name")
    if shape is Shape.HEX:
        found += ["keyboard or sequence"] if _counts(text) else []
    elif shape is not Shape.UUID:
        found += _words_in(text, outright=outright)
    if _repeats(text):
        found.append("repeats itself")
    return found


def _length(text: str, noun: Noun) -> list[str]:
    """Name what a value's length says of it."""
    length = len(text)
    found = []
    if length < 8:
        found.append("short" if noun is Noun.PASSWORD and length > 4 else "very short")
    elif length >= 16:
        found.append("very long" if length >= 32 else "long")
    if noun in _DIGITS and text.isdigit() and length >= _DIGITS[noun] and not text.endswith("000"):
        found.append("nothing but digits")
    return found


def _counts(text: str) -> bool:
    """Tell whether most bytes of a value differ from the next by the same step, as where somebody filled it in."""
    if len(text) % 2 or not set(text) <= _HEX:
        return False
    value = bytes.fromhex(text)
    steps = [step & 255 for step in map(sub, value[1:], value)]
    return 2 * max(map(steps.count, set(steps))) >= len(value)


def _repeats(text: str) -> bool:
    length = len(text)
    return 2 * len(set(text)) < length + 4 and bits_per_character(text) < (
        1.5 if length < 8 else 2.0 if length < 10 else 2.5
    )


def _is_name(text: str) -> bool:
    """Tell whether a value with marks in it has a word among what they divide."""
    return (
        "+" not in text
        and _MARKED.search(text) is not None
        and any(random_bits(word) < _WORDLIKE for word in _LONG_RUNS.findall(text))
    )


def _words_in(text: str, *, outright: bool = False) -> list[str]:
    found = []
    if outright and (chosen := _WITH_DIGITS.fullmatch(text)) and chosen[1].lower() not in _FILLER:
        text = chosen[1]  # numbers behind a word are what makes it a password
        if text.lower() in _COMMON:
            return []
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
