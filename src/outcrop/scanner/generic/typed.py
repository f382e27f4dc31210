"""Recognise values that a person typed: words, with a number or a symbol behind them.

The score of such a value is low, as names and labels look the same. It is still reported: as `medium` where
the name says that the value is secret and its line is one of a configuration, otherwise as `low`.
"""

from outcrop.domain.finding import Confidence
from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun
from outcrop.scanner.generic.values import Shape

# Reasons from the context of a value.
ASSIGNED = "assigned by an operator"  # only an operator is between the name and the value
SECRET_NAME = "name of a secret"  # noqa: S105 - the name has a word beside the noun: `DB_PASSWORD`
CONFIGURATION_LINE = "line of a configuration"  # `NAME=value` at the beginning of a line

_TYPED_SHAPES = frozenset(
    {
        Shape.LETTERS,
        Shape.WORDS,
        Shape.NUMBERED_WORDS,
        Shape.ALPHANUMERIC,
        Shape.OTHER,
        Shape.NUMBER,
        Shape.CODE,
        Shape.HEX,
        Shape.UUID,
    }
)
_TYPED = regex(r"[A-Za-z0-9@$!#][A-Za-z0-9!@#$%^&*_.+?~=-]{3,127}")
_CODE = regex(r"[A-Za-z_]+(?:\.[A-Za-z_]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[@#$][A-Za-z_-]+|.*[.]{2}.*|.*&&.*")
_DIGITS_OF_PASSWORD = regex(r"[0-9]{4,16}")
_MIN_DIGITS_OF_SECRET = 12
_MARK = regex(r"[0-9!@#$%^&*+?~]")
_WORD_AFTER_WORD = regex(r"[a-z][A-Z]|[A-Za-z][-_.][A-Za-z]")
_MIN_LENGTH = {Noun.PASSWORD: 4, Noun.SECRET: 6, Noun.KEY: 8}


def typed_confidence(text: str, shape: Shape, noun: Noun, context: tuple[str, ...]) -> Confidence | None:
    """Return the confidence of a value whose score is too low; None if it is not typed or not assigned.

    A value with the noun KEY or SECRET must have a number, a symbol or two words: many names have words as
    their values.
    """
    if ASSIGNED not in context or len(text) < _MIN_LENGTH[noun] or not _looks_typed(text, shape, noun):
        return None
    has_mark = _MARK.search(text) is not None
    if noun is not Noun.PASSWORD and not has_mark and _WORD_AFTER_WORD.search(text) is None:
        return None
    if noun is Noun.KEY and not has_mark:
        return None
    # The names of objects that hold a secret have no digits: `pullSecret: crm-credentials`.
    may_be_certain = noun is Noun.PASSWORD or (noun is Noun.SECRET and has_mark)
    is_certain = may_be_certain and SECRET_NAME in context and CONFIGURATION_LINE in context
    return Confidence.MEDIUM if is_certain else Confidence.LOW


def _looks_typed(text: str, shape: Shape, noun: Noun) -> bool:
    """Whether a value has the characters of a typed password, and is no member, constant or short number."""
    if shape not in _TYPED_SHAPES or _TYPED.fullmatch(text) is None or _CODE.fullmatch(text) is not None:
        return False
    if shape is Shape.NUMBER:
        return (noun is Noun.SECRET and len(text) >= _MIN_DIGITS_OF_SECRET) or (
            noun is Noun.PASSWORD and _DIGITS_OF_PASSWORD.fullmatch(text) is not None
        )
    return True
