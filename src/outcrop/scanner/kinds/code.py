"""Names of settings, fields and constants in source code, which have a word for a credential in them."""

import re
from itertools import pairwise

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import word_set
from outcrop.scanner.generic.randomness import random_bits
from outcrop.scanner.generic.score import looks_generated_with_symbols
from outcrop.scanner.kinds.kind import Kind, Sample

CONSTANT_NAME = Kind("constant-name", "the name under which a program stores or finds something")
ENTRY_KEY = Kind("entry-key", "the key of an entry in a map: a name that says only `key`")
PUBLIC_KEY = Kind("public-key", "a public key or an id, by its name")
ADDRESS = Kind("address", "an address or a path")
NAME_LIST = Kind("name-list", "a list of names")
OTHER_ARGUMENT = Kind(
    "other-argument", "the argument after a text or a host that contains a word for a credential"
)
CODE = Kind("code", "an expression of a program: a member, a call or a comparison")

# Names such as REQUEST_KEY, PREF_PASSCODE and EXTRA_TOKEN are those of keys in a map.
_FIRST_WORDS = word_set("""
    pref prefs preference preferences extra request bundle arg argument param intent storage cache column
    field header
""")
_MEMBER = regex(r"[A-Za-z_$][\w$]*(?:\??\.[A-Za-z_$][\w$]*)+(?:[(:?].*)?")
_OPERATORS = regex(r".*(?:===?|!==?|&&|\|\||=>|\?\?|\+\+).*", re.DOTALL)
_MAX_RANDOM_BITS = 10.0
_HOST_NAME = regex(r"(?:[\w-]+\.)+(?:com|org|net|io|dev|app|co|ai)")
_ADDRESS = regex(r"(?i)(?:https?|wss?|ftp|file|s3|gs)://[^\s@]{3,}|(?:refs|\.{1,2})/[\w./*:-]+")
_STRING_WITH_NAME = regex(rb"[\"'][A-Za-z][^\"'\n=:]{0,60} [^\"'\n=:]{1,60}[\"'],\s{0,40}[\"']$")
_LIST_OF_NAMES = regex(r"[\w.-]+(?:[,;|][ ]?[\w.-]+){3,}")
_LAST_STRING = regex(rb"[\"']([^\"'\s]{4,80})[\"'],\s{0,40}[\"']$")
_ENTRY = regex(
    rb"(?:^[ \t\\\"'`]*|[{,(<\[\"'`;.]\s*|\s(?:val|var|const|let|static)\s+|<\w+\s+)_?keys?\\?[\"'`]?\s{0,3}"
    rb"(?::|=>|=)\s{0,3}\\?[\"'`]?$"
)
_LABEL = regex(rb"[A-Z][a-z]+ Key\W*$")  # `Repository Key: …`, as commands print it
_ENTRY_KEYS = frozenset({"key", "keys", "_key"})


def is_constant_name(sample: Sample) -> bool:
    """Whether the name is that of a key in a map or a store: `REQUEST_KEY`, `PREF_PASSCODE`."""
    words = sample.name_words
    return (
        sample.is_generic
        and len(words) > 1
        and words[0] in _FIRST_WORDS
        and sample.name.isupper()
        and (random_bits(sample.value) < _MAX_RANDOM_BITS or words[-1] == "key")
    )


def is_code(sample: Sample) -> bool:
    """Whether the value is a member of an object or has an operator of a programming language."""
    value = sample.value
    return (
        sample.is_generic
        and len(value) < 200
        and not looks_generated_with_symbols(value)
        and (
            (
                _MEMBER.fullmatch(value) is not None
                and random_bits(value) < _MAX_RANDOM_BITS
                and not value[-1].isdigit()
            )
            or (_OPERATORS.fullmatch(value) is not None and random_bits(value) < _MAX_RANDOM_BITS)
        )
    )


def is_entry_key(sample: Sample) -> bool:
    """Whether the name says only `key`, as the entries of maps do, and their identifiers."""
    if not sample.is_generic or sample.name.lower() not in _ENTRY_KEYS or sample.name.isupper():
        return False
    if sample.name[0] == "K":
        return _LABEL.search(sample.before) is not None
    return _ENTRY.search(sample.before) is not None


def is_public_key(sample: Sample) -> bool:
    """Whether the name says that the key is public: `disqusPublicKey`, `site_key`."""
    words = sample.name_words
    return "secret" not in words and any(
        first in {"public", "pub", "publishable", "site"} and second in {"key", "keys", "token"}
        for first, second in pairwise(words)
    )


def is_address(sample: Sample) -> bool:
    """Whether the value is an address without a user, or a path."""
    return sample.is_generic and _ADDRESS.fullmatch(sample.value) is not None


def is_name_list(sample: Sample) -> bool:
    """Whether the value is a list of at least four names."""
    value = sample.value
    return (
        sample.is_generic
        and _LIST_OF_NAMES.fullmatch(value) is not None
        and random_bits(value) < _MAX_RANDOM_BITS
    )


def is_other_argument(sample: Sample) -> bool:
    """Whether the name is a word in a text, or a part of a host, and the value is the argument after it."""
    if not sample.is_generic:
        return False
    found = _LAST_STRING.search(sample.before)
    return _STRING_WITH_NAME.search(sample.before) is not None or (
        found is not None and _HOST_NAME.fullmatch(found[1].decode("latin-1")) is not None
    )
