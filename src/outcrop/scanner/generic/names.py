"""What a name says about the value that is assigned to it: the noun in it, and the words that turn it into something else."""

import re
from enum import StrEnum
from functools import lru_cache

from outcrop.scanner.generic.words import WORDS

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Noun(StrEnum):
    """What the name calls the value, by how little else such a name is used for."""

    PASSWORD = "password"  # noqa: S105 - the value may be one that a person made up
    SECRET = "secret"  # noqa: S105 - the value must not be a plain word
    KEY = "key"  # the value must look drawn by chance


_NOUN = {word: Noun(noun) for noun, words in WORDS["nouns"].items() for word in words}
_ENDINGS = {
    Noun.PASSWORD: ("password", "passwd", "passphrase", "passwort", "pwd", "pass"),
    Noun.SECRET: ("secret", "token", "apikey", "accesskey", "secretkey", "authkey"),
    Noun.KEY: ("key", "salt", "nonce"),
}
_OPENS_NOTHING = frozenset(
    {"public", "pub", "pubkey", "encrypted", "crypted"}
)  # anywhere in the last part of a name with points
_NAMES = WORDS["names"]


@lru_cache(maxsize=8_192)
def noun_of(name: bytes) -> Noun | None:
    """Read a name: the noun that its value goes by, None where it is no credential's name."""
    words = _words_of(name)
    if words[-2:] == ["identified", "by"]:
        return Noun.PASSWORD
    if not _OPENS_NOTHING.isdisjoint(_words_of(name.rpartition(b".")[2]) if b"." in name else words):
        return None
    for at in range(len(words) - 1, -1, -1):
        noun = _noun(words[at])
        if noun is not None:
            before, after = words[at - 1] if at else "", words[at + 1] if at + 1 < len(words) else ""
            return _as_named(noun, words[at], before, after)
        if words[at] in _NAMES["not_before"]:
            return None
    return None


def _words_of(name: bytes) -> list[str]:
    return [word.lower() for word in _WORD.findall(name.decode("utf-8", "replace"))]


def is_noun(name: bytes) -> bool:
    """Tell whether a name ends with a noun itself: `setPassword`, not `splitpasswd` or `passValue`."""
    words = _words_of(name)
    return bool(words) and words[-1] in _NOUN


def is_about(name: bytes) -> bool:
    """Tell whether a name ends with a word for what is known of a credential: `clientId`, `token_url`."""
    words = _words_of(name)
    return bool(words) and words[-1] in _NAMES["not_before"]


def _as_named(noun: Noun, word: str, before: str, after: str) -> Noun | None:
    """Read a noun with the words beside it."""
    if before in _NAMES["not_after"] or (
        word == "pass" and after and after not in _NAMES["neutral"]
    ):  # to pass something is a verb
        return None
    if before in _NAMES["verbs"]:
        return Noun.KEY
    other = _noun(before) if before else None
    if noun is Noun.KEY and word in {"key", "keys"} and (before in _NAMES["opens"] or other):
        return Noun.SECRET
    return other if noun is Noun.KEY and other else noun


def _noun(word: str) -> Noun | None:
    noun = _NOUN.get(word)
    if noun is None and len(word) > 3 and word not in _NAMES["other"]:
        if len(word) == 4:  # skey, nkey: a letter says which
            return Noun.KEY if word.endswith("key") else None
        return next((noun for noun, endings in _ENDINGS.items() if word.endswith(endings)), None)
    return noun
