"""Recognise passwords that are guessed first: common ones, repeated ones, sequences."""

from functools import cache
from importlib.resources import files

MIN_LENGTH = 12
_MIN_DISTINCT = 5  # different characters
# Lower-case runs, forwards and backwards: the alphabet, digits, and the rows and columns of a keyboard.
_SEQUENCES = [
    direction * 3
    for run in (
        "abcdefghijklmnopqrstuvwxyz",
        "0123456789",
        "1234567890",
        "qwertyuiopasdfghjklzxcvbnm",
        "qwertyuiop[]asdfghjkl;'zxcvbnm,./",
        "1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik,9ol.0p;/",
    )
    for direction in (run, run[::-1])
]


def is_guessable(password: str) -> bool:
    """Whether a password is common, part of a sequence, or made of few characters or a repeated short text.

    Upper and lower case count as equal. A password with fewer than MIN_LENGTH characters is not looked up.
    """
    text = password.casefold()
    return (
        len(set(text)) < _MIN_DISTINCT
        or text in _common_passwords()
        or any(text in sequence for sequence in _SEQUENCES)
        or _shortest_period(text) < MIN_LENGTH
    )


@cache
def _common_passwords() -> frozenset[str]:
    """Return the common passwords of at least MIN_LENGTH characters, in lower case."""
    lines = files("outcrop.domain").joinpath("common_passwords.txt").read_text("utf-8").splitlines()
    return frozenset(line.casefold() for line in lines if not line.startswith("# "))


def _shortest_period(text: str) -> int:
    """Return the length of the shortest text whose repetition, the last one perhaps cut off, is `text`.

    A text that repeats nothing is its own period. A period over half the length is no repetition.
    """
    for period in range(1, len(text) // 2 + 1):
        if text.startswith(text[period:]):
            return period
    return len(text)
