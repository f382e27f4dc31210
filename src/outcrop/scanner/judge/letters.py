"""How much a value looks drawn by chance rather than written: in bits, by the letters that follow one another.

A word is cheap to spell in the letter pairs of language, a random value is not; what a value costs as words, less what it
costs as random characters of its own alphabet, is the evidence. Words, identifiers and labels come out below zero.
"""

import re

from outcrop.scanner.judge.letter_pairs import PAIRS

_LOOKED_AT = 72  # more of a long value tells nothing new
_RUN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_NEW_RUN = 2.0  # a text begins a new word, number or mark here
_DIGIT, _SIGN = 3.4, 5.0
_PER = {
    first + second: (ord(cost) - ord("0")) / 8
    for first, row in zip("abcdefghijklmnopqrstuvwxyz^", PAIRS, strict=True)
    for second, cost in zip("abcdefghijklmnopqrstuvwxyz^", row, strict=True)
}
_BITS = {"a": 4.7, "A": 4.7, "aA": 5.7, "0": 3.32, "a0": 5.17, "A0": 5.17, "aA0": 5.95}


def random_bits(value: str) -> float:
    """Give the evidence that a value is random: above 0 it is cheaper as random characters than as words."""
    value = value[:_LOOKED_AT]
    words = 0.0
    lower = upper = digit = False
    signs = 0
    per = _PER
    for run in _RUN.findall(value):
        words += _NEW_RUN
        if run[-1].isdigit():
            digit = True
            words += _DIGIT * len(run)
        elif run[-1].isalpha() and run.isascii():
            small = run.lower()
            if run.isupper():
                upper = True
            else:
                lower = True
                upper = upper or run != small
            before = "^"
            for letter in small:
                words += per[before + letter]
                before = letter
            words += per[before + "^"]
        else:
            signs += len(run)
            words += _SIGN * len(run)
    alphabet = ("a" if lower else "") + ("A" if upper else "") + ("0" if digit else "")
    return words - (len(value) - signs) * _BITS.get(alphabet, 4.7) - signs * _SIGN
