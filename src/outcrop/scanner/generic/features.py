"""Describe what a value looks like besides its shape: its length, its characters, the words in it.

`describe` and `describe_words` return features. Each feature is a text such as "both cases", with points in
`score.POINTS`. In all functions `text` is the value, decoded as Latin-1, `shape` its corrected shape
(`score`), and `noun` the noun in its name: the kind of credential that it would be.
"""

from functools import cache
from operator import sub
from typing import Any

import re2  # type: ignore[import-untyped]

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun, word_set
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.generic.values import Shape
from outcrop.scanner.patterns.entropy import bits_per_character

# Words that show a placeholder, or a name.
COMMON_WORDS = word_set("""
    test tests testing tester user users admin administrator root guest example demo sample foo bar baz
    default temp tmp abc abcd abcde hello world change changeme some value string name dummy fake mock
    none null true false undefined key pass pwd auth login account client server service local localhost
    dev prod production staging public private data config id ref type url host database mysql postgres
    redis mongo oracle welcome letmein master super qwerty qwe asd asdf zxc xxx field input button form
    label text title version base64 utf sha md5 hmac rsa aes cbc ecdsa http https html json xml yaml
    request response header param enabled disabled oidc saml ldap kerberos smtp imap jdbc odbc sudo ajax
    kube rsvp uuid asap fyi
""")
# The common words that show a placeholder even with digits after them. To the others people add a year.
_FILLER_WORDS = word_set("""
    test tests testing tester example demo sample foo bar baz temp tmp abc abcd abcde some value string
    name dummy fake mock none null true false undefined qwerty qwe asd asdf zxc xxx
""")
_CREDENTIAL_WORDS = (
    "passw(?:or|0r)?d|passwort|passphrase|passcode|secret|token|api[_-]?key|credential|authoriz|private"
    "|encrypt|bearer|username"
)
# In longer values these words are there by chance.
_MAX_LENGTH_FOR_CREDENTIAL_WORD, _MAX_LENGTH_FOR_COMMON_WORD = 80, 24
_KEYBOARD_ROWS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890", "abcdefghijklmnopqrstuvwxyz", "1qaz2wsx3edc4rfv5tgb",
    "qazwsxedcrfv", "9abcdef",
)  # fmt: skip
# All steps of four keys along a row, forwards and backwards.
_KEYBOARD_WALKS = frozenset(
    walk[at : at + 4] for row in _KEYBOARD_ROWS for walk in (row, row[::-1]) for at in range(len(row) - 3)
)
_CREDENTIAL_WORD_PATTERN, _WALK_PATTERN = 0, 1  # numbers of the patterns in `_compile_patterns`

_WORD_WITH_DIGITS = regex(r"[0-9]{0,6}([A-Za-z@$]{4,})[0-9]{1,8}[!?.*#@$]{0,2}")
_LETTER_RUN = regex(r"[A-Z]?[a-z]+|[A-Z]+")
_LONG_LETTER_RUN = regex(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
_NAME_SEPARATOR = regex(r"[-_./:]")
_MAX_BITS_OF_NAME_PART = 2.0
_DIGIT = regex(r"[0-9]")
_HEX_DIGITS = frozenset("0123456789ABCDEFabcdef")
_BEYOND_ASCII = regex(r"[\x80-\xff]")
_MIN_DIGITS = {Noun.PASSWORD: 6, Noun.SECRET: 16}  # a shorter number is a count, a size or a port


def describe(text: str, shape: Shape, noun: Noun, *, is_direct: bool) -> list[str]:
    """Return the features of a value, each a key of `score.POINTS`; an empty list if it has none.

    `shape` is the corrected shape of the value, `noun` the noun in its name. `is_direct` says that the value
    is set in a direct assignment: only an operator is between its name and the value.
    """
    features = _describe_length(text, noun)
    features += _describe_characters(text, shape)
    if noun is not Noun.PASSWORD and (
        shape is Shape.NUMBERED_WORDS or (shape is Shape.OTHER and _has_words_between_separators(text))
    ):
        features.append("looks like a name")
    if shape is Shape.HEX:
        if _is_byte_sequence(text):
            features.append("keyboard or sequence")
    elif shape is not Shape.UUID:
        features += describe_words(text, is_direct=is_direct)
    if _is_repetitive(text):
        features.append("repetitive")
    return features


def describe_words(text: str, *, is_direct: bool = False) -> list[str]:
    """Return the features of the words in a value: a word for a credential, a common word, a keyboard walk.

    In a direct assignment (`is_direct`) digits around a word do not count: people add them to make a
    password. So `Welcome1` has no features then, but `test1` still has.
    """
    if is_direct and (numbered := _WORD_WITH_DIGITS.fullmatch(text)):
        word = numbered[1].lower()
        if word not in _FILLER_WORDS:
            text = numbered[1]
            if word in COMMON_WORDS:
                return []
    patterns = _compile_patterns().Match(text.encode("latin-1")) or ()
    features = []
    if _CREDENTIAL_WORD_PATTERN in patterns and len(text) < _MAX_LENGTH_FOR_CREDENTIAL_WORD:
        features.append("contains a word for a credential")
    elif len(text) < _MAX_LENGTH_FOR_COMMON_WORD and not COMMON_WORDS.isdisjoint(
        run.lower() for run in _LETTER_RUN.findall(text)
    ):
        features.append("contains a common word")
    if _WALK_PATTERN in patterns and _is_keyboard_walk(text.lower()):
        features.append("keyboard or sequence")
    return features


def _describe_length(text: str, noun: Noun) -> list[str]:
    """Return the features of the length: at most one of four, and "only digits" if there are enough.

    Below 8 characters a value is "very short", but a password of 5 to 7 is "short". From 16 on it is "long",
    from 32 on "very long". Digits are a feature of passwords from 6 and of secrets from 16 on, unless they
    end with `000`.
    """
    length = len(text)
    features = []
    if length < 8:
        features.append("short" if noun is Noun.PASSWORD and length > 4 else "very short")
    elif length >= 16:
        features.append("very long" if length >= 32 else "long")
    if noun in _MIN_DIGITS and text.isdigit() and length >= _MIN_DIGITS[noun] and not text.endswith("000"):
        features.append("only digits")
    return features


def _describe_characters(text: str, shape: Shape) -> list[str]:
    """Return the features of the characters: digits with letters, both cases, other scripts, symbols.

    Symbols ("special characters") are only a feature of the shape OTHER. Dashes, underscores, dots and final
    `=` do not count as symbols.
    """
    features = []
    lower, upper = text.lower(), text.upper()
    if lower != upper and _DIGIT.search(text):
        features.append("letters and digits")
    if lower != text != upper:
        features.append("both cases")
    if not text.isascii():
        is_mostly_foreign = 2 * len(_BEYOND_ASCII.findall(text)) >= len(text)
        features.append("another script" if is_mostly_foreign else "mixed scripts")
    if shape is Shape.OTHER:
        without_separators = text.replace("-", "").replace("_", "").replace(".", "").rstrip("=")
        if not without_separators.isalnum():
            features.append("special characters")
    return features


def _has_words_between_separators(text: str) -> bool:
    """Whether a value has a separator (`-_./:`), no plus, and a run of letters that is a word.

    Names of resources have this form.
    """
    return (
        "+" not in text
        and _NAME_SEPARATOR.search(text) is not None
        and any(random_bits(run) < _MAX_BITS_OF_NAME_PART for run in _LONG_LETTER_RUN.findall(text))
    )


def _is_byte_sequence(text: str) -> bool:
    """Whether at least half of the bytes of a hexadecimal value have the same step to the next: `00010203`.

    The value has at least two bytes. False if it has other characters, such as a prefix, or an odd number of
    digits.
    """
    if len(text) % 2 or not set(text) <= _HEX_DIGITS:
        return False
    value = bytes.fromhex(text)
    steps = [step & 255 for step in map(sub, value[1:], value)]
    return 2 * max(map(steps.count, set(steps))) >= len(value)


def _is_keyboard_walk(text: str) -> bool:
    """Whether at least half of a lower-case text follows a keyboard row or the alphabet, in any direction.

    In a text of up to 12 characters, two pieces of four keys in a row (they may overlap) are enough. Only 40
    characters are read.
    """
    steps = sum(text[at : at + 4] in _KEYBOARD_WALKS for at in range(min(len(text), 40) - 3))
    return steps * 2 >= len(text) - 3 or (steps >= 2 and len(text) <= 12)


def _is_repetitive(text: str) -> bool:
    """Whether a value has few different characters for its length, and few bits of entropy per character.

    Few are less than half of the length plus two characters; and less than 1.5 bits below a length of 8, 2.0
    below 10, otherwise 2.5.
    """
    length = len(text)
    return 2 * len(set(text)) < length + 4 and bits_per_character(text) < (
        1.5 if length < 8 else 2.0 if length < 10 else 2.5
    )


@cache
def _compile_patterns() -> Any:
    """Return an RE2 set of two patterns, compiled on first use: words for a credential, and keyboard walks.

    Their numbers in the set are _CREDENTIAL_WORD_PATTERN and _WALK_PATTERN.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.case_sensitive = False
    patterns = re2.Set.SearchSet(options)
    for pattern in (_CREDENTIAL_WORDS, "|".join(sorted(_KEYBOARD_WALKS))):
        patterns.Add(pattern.encode())
    patterns.Compile()
    return patterns
