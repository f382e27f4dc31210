"""Score a value that may be a credential: add up the points of all reasons for and against it.

`weigh` does so in four steps:

1. The shape of the value, corrected where its letters contradict it (`_correct_shape`). Values of some shapes
   are rejected.
2. Points of the noun in the name, the shape, the place, and the reasons from the context.
3. Points of the letters: random, or words (`_score_letters`).
4. Points of the other features (`features.describe`).

Parameters of several functions:

- `value` is the value as bytes, `text` the same decoded as Latin-1.
- `noun` is the noun in the name of the value: the kind of credential that it would be.
- `shape` is the form of the value (`values.Shape`).
- `place` says how the value is written, such as `quoted` or `bare` (`candidate` lists the places).
- `is_direct`: only an operator is between the name and the value (DIRECT_ASSIGNMENT).
- `is_word`: the value is a plain word in a direct assignment, so that it may be a password.
"""

from functools import lru_cache
from typing import NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner.generic.features import describe, describe_words
from outcrop.scanner.generic.names import Noun, word_set
from outcrop.scanner.generic.randomness import MAX_CHARS_READ, random_bits
from outcrop.scanner.generic.typed import ASSIGNED, CONFIGURATION_LINE, SECRET_NAME, typed_confidence
from outcrop.scanner.generic.values import Shape, shape_of

# Reasons from the context of a value.
DIRECT_ASSIGNMENT = "direct assignment"  # only an operator is between the name and the value
CALL_ARGUMENT = "argument of a call"
EXPRESSION_PART = "part of an expression"
IN_SENTENCE = "in a sentence"
NO_POINTS = "it does not look like a credential under this name"

POINTS = {
    # The noun in the name.
    Noun.PASSWORD: 3.0,
    Noun.SECRET: 1.0,
    Noun.KEY: -2.0,
    # The shape of the value.
    Shape.HEX: 3.0,
    Shape.UUID: 2.5,
    Shape.ALPHANUMERIC: 1.0,
    Shape.OTHER: 1.0,
    Shape.NUMBERED_WORDS: 0.0,
    Shape.PHRASE: 0.0,
    Shape.LETTERS: -3.0,
    Shape.NUMBER: -1.5,
    # The place: how the value is written.
    "bare": 0.0,
    "element": 0.0,
    "quoted": 0.0,
    "option": 0.0,
    "command": 0.0,
    "said": -3.0,
    "below": -3.0,
    "header": 1.5,
    "call": -0.5,
    # The context.
    DIRECT_ASSIGNMENT: 0.0,
    CALL_ARGUMENT: -7.0,
    EXPRESSION_PART: -2.5,
    IN_SENTENCE: -3.0,
    ASSIGNED: 0.0,
    SECRET_NAME: 0.0,
    CONFIGURATION_LINE: 0.0,
    # Other features of the value.
    "a word in a direct assignment": 2.0,
    "very short": -2.0,
    "short": -1.0,
    "long": 1.0,
    "very long": 2.0,
    "only digits": 1.5,
    "letters and digits": 1.0,
    "both cases": 0.5,
    "special characters": 1.0,
    "mixed scripts": -3.0,
    "another script": -6.0,
    "looks like a name": -3.0,
    "contains a word for a credential": -4.0,
    "contains a common word": -1.5,
    "keyboard or sequence": -6.0,
    "repetitive": -4.0,
}
MIN_HIGH_POINTS, MIN_MEDIUM_POINTS, MIN_LOW_POINTS = 8.0, 2.0, 0.0

# --- shapes
_REJECTED_SHAPES = frozenset(
    {
        Shape.KNOWN_PUBLIC,
        Shape.REFERENCE,
        Shape.PUBLIC,
        Shape.ENCRYPTED,
        Shape.LOCATION,
        Shape.WORDS,
        Shape.CODE,
    }
)
_CERTAIN_SHAPES = frozenset({Shape.KNOWN_PUBLIC, Shape.ENCRYPTED})  # the digits of a hash look random
_SHAPES_BY_PUNCTUATION = frozenset({Shape.REFERENCE, Shape.WORDS, Shape.CODE})
_SHAPES_OF_WORDS = frozenset({Shape.LETTERS, Shape.WORDS})
_SHAPES_WITHOUT_WORDS = frozenset({Shape.HEX, Shape.UUID, Shape.NUMBER})
_MIN_LENGTH = {Noun.PASSWORD: 4, Noun.SECRET: 8, Noun.KEY: 12}
MIN_PHRASE_BITS_PER_CHAR = 1.5  # a phrase with less is in some language
MIN_BASE64_BITS = 8.0  # letters with less before the padding `=` are words
MIN_RANDOM_BITS = 16.0  # nobody writes words or names with so many bits
_MIN_BITS_OF_LETTERS = {Noun.PASSWORD: 6.0, Noun.SECRET: 12.0, Noun.KEY: 24.0}  # with less, they are words
_MIN_NOISE_LENGTH = 32  # in shorter values letters, digits and punctuation alternate by chance
_CHARACTER_CLASS = regex(r"\[\^?[A-Za-z0-9]-[A-Za-z0-9]")  # of a regular expression
_RUN = regex(rb"[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+")
# A value with such an ending is a file name, however random the name is.
_FILE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".zip", ".csv", ".json", ".html", ".txt")
_CONSTANT_NAME = regex(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+){2,}")
# Two words with a dot between them and digits at the end. In code that is a member of an object.
_DOTTED_WORDS = regex(r"[A-Za-z]{3,}\.[A-Za-z]{3,}[0-9]{2}")
_DOTTED_NAME = regex(r"[a-z]{3,}\.[A-Z][a-z]{2,}[0-9]")

# --- words as passwords
_MAX_CHOSEN_LENGTH = 64
_NEGATIONS = ("not-", "not_", "no-", "no_")  # "not-set" says that there is no password
# Labels begin with a capital letter and have no special characters between their letters.
_CHOSEN_WORD = regex(
    r"[a-z]{4,}[!?*]{0,2}|[a-z]{2,}(?:[-_][a-z]+)+"
    r"|(?=.*[a-z].*[a-z])[A-Za-z]+(?:[@!$*?+;~()#^]+[A-Za-z]+)+[!?*]{0,2}|[A-Z]{2,}(?:[!?*][A-Z]+)+"
)
# Values that are no password: types, states, ways to ask, and "password" in other languages.
_NO_PASSWORDS = word_set("""
    string str text varchar char bytes byte number integer int bool boolean object array any unknown
    function symbol required optional nullable confirmed hidden masked encrypted hashed plain plaintext
    cleartext secure prompt ask input always never present absent missing invalid incorrect wrong
    mismatch empty blank unset auto generated random automatic manual same digest remote internal
    external files compat define undef fail failed warn warning error incomplete mixed email phone
    username title keyring keychain stdin file expired changed updated omitted passthrough sensitive
    passwort heslo salasana haslo parola lozinka geslo sifre wachtwoord adgangskode kodeord losenord
    passord jelszo senha clave parool slaptazodis parole sandi codice contrasena motdepasse
""")

# --- points of the letters
_POINTS_PER_BIT, _MIN_LETTER_POINTS, _MAX_LETTER_POINTS = 1 / 8, -2.0, 4.0
_MAX_LETTER_POINTS_OF_NAME = 1.0  # abbreviations in names look random
_POINTS_PER_BIT_OF_LETTERS = {Noun.PASSWORD: 1 / 2, Noun.SECRET: 1 / 2, Noun.KEY: 1 / 8}
# The most that a value of letters can gain after step 2: 4 for bits, 2 for its length, 0.5 for both cases.
_MAX_GAIN_OF_LETTERS = 6.5
_MAX_ARGUMENT_LENGTH = 11  # of an argument's name in a manual: `--password PASSWORD`
_LONG_LETTER_RUN = regex(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_MAX_SYLLABLE_LENGTH = 4

# --- random values with symbols
_MIN_SYMBOL_LENGTH = 10
_CHARACTER_RUN = regex(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]")
_SYMBOL = regex(r"[^A-Za-z0-9]")
_DIGIT = regex(r"[0-9]")
# Of 137,000 strings from programs that look like code, 1 in 550 reaches both limits.
_MIN_RUNS_PER_CHAR, _MIN_BITS_PER_CHAR = 0.55, 0.3
# A range, a character class, a date or a template, however random its letters are.
_WRITTEN_BY_HAND = regex(
    r"a-z|A-Z|0-9|\\[dwsbux*&\[]|^\{[^{}]*\}?$|&#?\w+;|%[A-Za-z][^A-Za-z0-9]?%[A-Za-z]|[$#%@]\{|\{[\w.:-]*\}"
    r"|[$%]\(|\{\{|\}\}|<[%/]|%>|\(\?|://"
)


class ValueScore(NamedTuple):
    """The score of a value: its confidence (None: no credential), the sum of its points, and its reasons.

    Each reason is a pair of its text and its points. A value that is too short or has a rejected shape has
    only this reason, with 0 points.
    """

    confidence: Confidence | None
    points: float
    reasons: tuple[tuple[str, float], ...]


@lru_cache(maxsize=16_384)
def weigh(value: bytes, noun: Noun, place: str, context: tuple[str, ...] = ()) -> ValueScore:
    """Return the score of a value; its confidence is None if the value is no credential.

    A value that has too few points, but that a person may have typed, is of low confidence or, in a
    configuration, of medium confidence (`typed`). The parameters are those of `_add_up`. The result is
    cached.
    """
    score = _add_up(value, noun, place, context)
    if ASSIGNED not in context or score.confidence not in {None, Confidence.LOW}:
        return score
    text = value.decode("latin-1")
    typed = None if text.lower() in _NO_PASSWORDS else typed_confidence(text, shape_of(value), noun, context)
    if typed is None:
        return score
    return ValueScore(typed, score.points, (*score.reasons, ("typed by a person", 0.0)))


def _add_up(value: bytes, noun: Noun, place: str, context: tuple[str, ...]) -> ValueScore:
    """Return the score of a value by the points of its reasons; its confidence is None below 0 points.

    `noun` is the noun in the name of the value. `place` says how the value is written, such as `quoted`.
    `context` has reasons from the text around the value: DIRECT_ASSIGNMENT, CALL_ARGUMENT, EXPRESSION_PART,
    IN_SENTENCE, and those of `typed`.
    """
    if len(value) < _MIN_LENGTH[noun]:
        return ValueScore(None, 0.0, (("too short", 0.0),))
    shape, text = shape_of(value), value.decode("latin-1")
    is_direct = DIRECT_ASSIGNMENT in context
    is_word = is_direct and shape in _SHAPES_OF_WORDS and _is_chosen_word(text, place)
    shape = Shape.LETTERS if is_word else _correct_shape(value, text, shape, noun, place, is_direct=is_direct)
    if shape in _REJECTED_SHAPES:
        return ValueScore(None, 0.0, ((str(shape), 0.0),))
    reasons = [(str(reason), POINTS[reason]) for reason in (noun, shape, place, *context)]
    points = sum(points for _, points in reasons)
    if points + _MAX_GAIN_OF_LETTERS < MIN_LOW_POINTS and text.isalpha() and not is_word:
        return ValueScore(None, points, tuple(reasons))
    if shape not in _SHAPES_WITHOUT_WORDS:
        reasons.append(_score_letters(text, shape, noun, place, is_word=is_word))
    if is_word:
        features = ["a word in a direct assignment", *describe_words(text)]
    else:
        features = describe(text, shape, noun, is_direct=is_direct)
    reasons += [(feature, POINTS[feature]) for feature in features]
    points = sum(points for _, points in reasons)
    return ValueScore(_confidence_of(points), points, tuple(reasons))


def looks_generated(value: bytes) -> bool:
    """Whether a value has more than MIN_RANDOM_BITS random bits: no variable has so random a name."""
    return random_bits(value.decode("latin-1")) > MIN_RANDOM_BITS


def looks_generated_with_symbols(text: str) -> bool:
    """Whether a value looks like a generated password: symbols among letters of both cases, and no words.

    It has at least ten ASCII characters, and two different symbols if it has digits, otherwise three. Ranges,
    templates and escapes (_WRITTEN_BY_HAND) are never generated.
    """
    length = len(text)
    if length < _MIN_SYMBOL_LENGTH or len(_CHARACTER_RUN.findall(text)) < _MIN_RUNS_PER_CHAR * length:
        return False
    if not text.isascii() or text in {text.lower(), text.upper()}:
        return False
    min_symbols = 2 if _DIGIT.search(text) else 3
    if len(set(_SYMBOL.findall(text))) < min_symbols or _WRITTEN_BY_HAND.search(text):
        return False
    return random_bits(text) > _MIN_BITS_PER_CHAR * min(length, MAX_CHARS_READ)


def _confidence_of(points: float) -> Confidence | None:
    """Return the confidence for a sum of points; None below MIN_LOW_POINTS: the value is no credential."""
    if points >= MIN_HIGH_POINTS:
        return Confidence.HIGH
    if points >= MIN_MEDIUM_POINTS:
        return Confidence.MEDIUM
    return Confidence.LOW if points >= MIN_LOW_POINTS else None


def _correct_shape(
    value: bytes, text: str, shape: Shape, noun: Noun, place: str, *, is_direct: bool
) -> Shape:
    """Return `shape`, or another shape if the letters of the value contradict it.

    Random letters turn NUMBERED_WORDS into ALPHANUMERIC; a PHRASE that is not random becomes WORDS. Of a
    rejected shape that is not certain, a value that looks generated becomes OTHER, a dotted password
    NUMBERED_WORDS, and random words LETTERS or ALPHANUMERIC. `value` and `text` are the same value. `noun`,
    `place` and `is_direct` (set in a direct assignment) only matter for the shapes CODE and WORDS.
    """
    if shape is Shape.NUMBERED_WORDS:
        return Shape.ALPHANUMERIC if text.isalnum() and random_bits(text) > MIN_RANDOM_BITS else shape
    if shape is Shape.PHRASE:
        is_random = value.isascii() and random_bits(text) >= MIN_PHRASE_BITS_PER_CHAR * len(value)
        return Shape.PHRASE if is_random else Shape.WORDS
    if shape not in _REJECTED_SHAPES or shape in _CERTAIN_SHAPES:
        return shape
    if shape is Shape.CODE and noun is Noun.PASSWORD and _is_dotted_password(text, place, is_direct):
        return Shape.NUMBERED_WORDS
    if _looks_generated_despite(shape, value, text):
        return Shape.OTHER
    return _correct_words(text, noun) if shape is Shape.WORDS else shape


def _looks_generated_despite(shape: Shape, value: bytes, text: str) -> bool:
    """Whether a value of a rejected shape is so random that its punctuation is there by chance.

    `shape` is the rejected shape; `value` and `text` are the same value. False for a location that ends like
    a file name, and for a regular expression.
    """
    if shape is Shape.LOCATION and text.lower().endswith(_FILE_ENDINGS):
        return False
    if shape in _SHAPES_BY_PUNCTUATION and _CHARACTER_CLASS.search(text):
        return False
    if len(value) >= _MIN_NOISE_LENGTH and 2 * len(_RUN.findall(value)) > len(value):
        return True
    return shape in _SHAPES_BY_PUNCTUATION and looks_generated_with_symbols(text)


def _correct_words(text: str, noun: Noun) -> Shape:
    """Return the corrected shape of a value that matches the patterns of WORDS.

    ALPHANUMERIC for base64 of a few bytes with padding, LETTERS for random letters, otherwise WORDS. How
    random the letters must be depends on `noun`.
    """
    if not text.isascii() or _CONSTANT_NAME.fullmatch(text):
        return Shape.WORDS
    is_padded = text[-1] == "=" and len(text) % 4 == 0 and text.rstrip("=").isalpha()
    if is_padded and random_bits(text) > MIN_BASE64_BITS:
        return Shape.ALPHANUMERIC
    return Shape.LETTERS if _bits_of_long_words(text) >= _MIN_BITS_OF_LETTERS[noun] else Shape.WORDS


def _is_dotted_password(text: str, place: str, is_direct: bool) -> bool:
    """Whether a text such as `summer.Rain24` is a password, not a member of an object.

    It is two words with a dot between them and a number. An unquoted text (`place` is `bare`) must be in a
    direct assignment (`is_direct`) and end with two digits.
    """
    if place == "bare":
        return is_direct and _DOTTED_WORDS.fullmatch(text) is not None
    return (_DOTTED_WORDS.fullmatch(text) or _DOTTED_NAME.fullmatch(text)) is not None


def _is_chosen_word(text: str, place: str) -> bool:
    """Whether a value is a word that somebody may have chosen as a password.

    If `place` is `quoted`, it may also be several words with punctuation between them. Words that describe a
    password (`required`, `hidden`), words after `not-` and texts over _MAX_CHOSEN_LENGTH are not chosen.
    """
    if len(text) > _MAX_CHOSEN_LENGTH or text in _NO_PASSWORDS or text.startswith(_NEGATIONS):
        return False
    return (text.isalpha() or place == "quoted") and _CHOSEN_WORD.fullmatch(text) is not None


def _score_letters(text: str, shape: Shape, noun: Noun, place: str, *, is_word: bool) -> tuple[str, float]:
    """Return the reason for the letters of a value and its points: "random letters" or "letters as in words".

    A value that may be a name (`_may_be_name`) gets at most _MAX_LETTER_POINTS_OF_NAME. A plain word in a
    direct assignment (`is_word`) gets no negative points.
    """
    has_marks = shape is Shape.LETTERS and not text.isalpha()
    bits = _bits_of_long_words(text) if has_marks else random_bits(text)
    max_points = _MAX_LETTER_POINTS_OF_NAME if _may_be_name(text, shape, noun, place) else _MAX_LETTER_POINTS
    min_points = 0.0 if is_word else _MIN_LETTER_POINTS
    points = min(max(bits * _points_per_bit(text, shape, noun), min_points), max_points)
    return "random letters" if points > 0 else "letters as in words", points


def _bits_of_long_words(text: str) -> float:
    """Return the sum of the random bits of the words with over four letters; shorter ones are syllables."""
    return sum(random_bits(run) for run in _LONG_LETTER_RUN.findall(text) if len(run) > _MAX_SYLLABLE_LENGTH)


def _points_per_bit(text: str, shape: Shape, noun: Noun) -> float:
    """Return the points of one random bit in a value.

    More for a value of the shape LETTERS, depending on `noun`, unless it is in camel case and no password.
    """
    if shape is Shape.LETTERS and (noun is Noun.PASSWORD or text.isupper() or text[1:].islower()):
        return _POINTS_PER_BIT_OF_LETTERS[noun]
    return _POINTS_PER_BIT


def _may_be_name(text: str, shape: Shape, noun: Noun, place: str) -> bool:
    """Whether random letters in a value prove little, since names and manuals have such values too.

    True for words with numbers unless `noun` is PASSWORD; and for up to 11 capital letters without quotes, as
    manuals write them: `--password PASSWORD`.
    """
    if shape is Shape.NUMBERED_WORDS:
        return noun is not Noun.PASSWORD
    return (
        shape is Shape.LETTERS
        and place in {"bare", "option", "command"}
        and len(text) <= _MAX_ARGUMENT_LENGTH
        and text.isupper()
    )
