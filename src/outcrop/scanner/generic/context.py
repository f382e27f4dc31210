"""The name that leads to a value: the nearest one before it, and whether what stands between them leads from one to the other."""

import re
from functools import lru_cache
from typing import NamedTuple

from outcrop.scanner.generic.between import PASSED, goes_with, is_parameter
from outcrop.scanner.generic.names import Noun, noun_of

# The last word of a kind in what stands before a value.
LAST_WORD = {
    "noun": re.compile(
        rb"(?s:.*)(pass|pwd|pswd|secret|token|cred|psk|api[_.-]?key|contrase|kennwort|wachtwoord|senha|pw|identified by)"
    ),
    "key": re.compile(
        rb"(?s:.*)(key|auth|salt|pepper|nonce|seed|jwt|bearer|cipher|hmac|session|licen[cs]e|otp)"
    ),
}
LAST_PLURAL = re.compile(rb"(?s:.*)(passwords|passwds|secrets|tokens|keys)")
IN_NAMES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_.-" + bytes(range(0x80, 0x100))
_TAIL = re.compile(rb"[0-9A-Za-z_.\x80-\xff-]*")


class Name(NamedTuple):
    """A name, where it begins, what it says that its value is, what stands behind it, and before it in its line."""

    start: int
    name: bytes
    noun: Noun
    gap: bytes
    line: bytes


ELSEWHERE = Name(0, b"", Noun.KEY, b"", b"")  # it, or what makes it a name, stands in another line


@lru_cache(maxsize=4_096)  # what stands before values comes again where they do not
def led_from(before: bytes, kind: str, is_bare: bool, is_line: bool) -> Name | None:
    """Give the nearest name before a value; None where it is no credential's or does not lead to what stands here, whatever that is."""
    start, end = nearest_name(before, LAST_WORD[kind])
    name = before[start:end]
    noun = noun_of(name)
    if noun is None:
        return None if end else ELSEWHERE
    gap, line = before[end:], before[before.rfind(b"\n", 0, start) + 1 : start]
    if (
        is_bare and name in PASSED and is_line
    ):  # whether it is how a test ended is told by what stands around it
        return ELSEWHERE
    if is_bare and is_parameter(line, gap):
        return None
    if not goes_with(name, gap, before[:start], line):
        return ELSEWHERE if name.lower() == b"identified by" else None
    return Name(start, name, noun, gap, line)


def nearest_name(before: bytes, last_word: re.Pattern[bytes]) -> tuple[int, int]:
    """Give where the last name with such a word in it stands."""
    small = before.lower()
    word = last_word.match(small)
    if word is None:
        return 0, 0
    at = word.start(1)
    start = len(before[:at].rstrip(IN_NAMES))
    if small.startswith(b"identified by", at):
        return start, at + len(b"identified by")
    tail = _TAIL.match(before, at)
    return start, len(before[: tail.end() if tail else at].rstrip(b".-"))
