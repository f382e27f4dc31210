"""How much a value looks drawn by chance rather than written: in bits, by the letters that follow one another.

A word is cheap to spell in the letter pairs of language, a random value is not; what a value costs as words, less what it
costs as random characters of its own alphabet, is the evidence. Words, identifiers and labels come out below zero.
"""

import re
from functools import lru_cache
from operator import add

from outcrop.scanner.generic.letter_pairs import PAIRS

LOOKED_AT = 72  # more of a long value tells nothing new
_LETTERS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_DIGITS = re.compile(r"[0-9]+")
_BEYOND_HEX = re.compile(r"[G-Zg-z]")
_NEW_RUN = 2.0  # a text begins a new word or number here
_DIGIT = 3.4
_PER = {
    first + second: (ord(cost) - ord("0")) / 8
    for first, row in zip("abcdefghijklmnopqrstuvwxyz^", PAIRS, strict=True)
    for second, cost in zip("abcdefghijklmnopqrstuvwxyz^", row, strict=True)
}
_OTHERWISE = 4.7  # bits of a letter of one case
_BITS = {
    (True, False): 5.7,
    (True, True): 5.95,
    (False, True): 5.17,
    (False, False): _OTHERWISE,
}  # by: both cases, digits too


@lru_cache(maxsize=256)  # of one value it is asked several times
def random_bits(value: str) -> float:
    """Give the evidence that a value is random: above 0 it is cheaper as random characters than as words; signs say nothing."""
    value = value[:LOOKED_AT]
    words, numbers = _LETTERS.findall(value), _DIGITS.findall(value)
    text = "^".join(words)
    letters, digits = len(text) - max(len(words) - 1, 0), sum(map(len, numbers))
    spelled = f"^{text.lower()}^"
    as_words = sum(map(_PER.__getitem__, map(add, spelled, spelled[1:]))) if words else 0.0
    as_words += _NEW_RUN * (len(words) + len(numbers)) + _DIGIT * digits
    both = not (text.isupper() or text.islower())
    each = _BITS[both, digits > 0] if words else 3.32
    return as_words - (letters + digits) * each


def is_made_of_words(value: str) -> bool:
    """Tell whether a value that should be random is made of words: a path, an identifier. Of 20 random characters 1 in 10,000 values is.

    Hexadecimal digits spell nothing, though as letters they would.
    """
    return 4 * len(_BEYOND_HEX.findall(value)) >= len(value) and random_bits(value) < 0
