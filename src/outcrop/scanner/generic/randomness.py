"""Estimate how random a value is, in bits, from the letters that follow one another.

Spelled in the letter pairs of language (`letter_pairs`), a word costs few bits and a random value costs many.
The cost as words minus the cost as random characters of the same alphabet is the evidence: above 0 for random
values, below 0 for words, identifiers and labels.
"""

from functools import lru_cache
from operator import add

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.letter_pairs import PAIRS

MAX_CHARS_READ = 72  # more characters of a long value do not change the result
_LETTER_RUN = regex(r"[A-Z]?[a-z]+|[A-Z]+")
_DIGIT_RUN = regex(r"[0-9]+")
_NO_HEX_LETTER = regex(r"[G-Zg-z]")
_BITS_PER_RUN = 2.0  # to begin a new word or number, in a value that is made of words
_BITS_PER_DIGIT = 3.4  # of a number in a value that is made of words
# Bits of the second letter of a pair; `^` is the beginning or the end of a word.
_BITS_OF_PAIR = {
    first + second: (ord(cost) - ord("0")) / 8
    for first, row in zip("abcdefghijklmnopqrstuvwxyz^", PAIRS, strict=True)
    for second, cost in zip("abcdefghijklmnopqrstuvwxyz^", row, strict=True)
}
# Bits of a random character (log2 of the size of its alphabet), by: has letters of both cases, has digits.
_BITS_OF_RANDOM = {(True, False): 5.7, (True, True): 5.95, (False, True): 5.17, (False, False): 4.7}
_BITS_OF_RANDOM_DIGIT = 3.32


@lru_cache(maxsize=256)  # several checks need the bits of the same value
def random_bits(value: str) -> float:
    """Return the evidence in bits that a value is random: above 0 if random, below 0 if made of words.

    Only letters and digits count, among the first MAX_CHARS_READ characters; 0 if there are none. The result
    is cached.
    """
    value = value[:MAX_CHARS_READ]
    words, numbers = _LETTER_RUN.findall(value), _DIGIT_RUN.findall(value)
    text = "^".join(words)
    letters, digits = len(text) - max(len(words) - 1, 0), sum(map(len, numbers))
    spelled = f"^{text.lower()}^"
    as_words = sum(map(_BITS_OF_PAIR.__getitem__, map(add, spelled, spelled[1:]))) if words else 0.0
    as_words += _BITS_PER_RUN * (len(words) + len(numbers)) + _BITS_PER_DIGIT * digits
    has_both_cases = not (text.isupper() or text.islower())
    per_character = _BITS_OF_RANDOM[has_both_cases, digits > 0] if words else _BITS_OF_RANDOM_DIGIT
    return as_words - (letters + digits) * per_character


def is_made_of_words(value: str) -> bool:
    """Whether a value that should be random is a path, an identifier or other words.

    That is so if `random_bits` is below 0 and at least a quarter of the characters are letters beyond `f`:
    others may be hexadecimal digits. 1 in 10,000 random values of 20 characters is taken for words.
    """
    return 4 * len(_NO_HEX_LETTER.findall(value)) >= len(value) and random_bits(value) < 0
