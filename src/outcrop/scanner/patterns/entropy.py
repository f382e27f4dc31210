"""Measure how random a value looks: the Shannon entropy of its characters."""

import math
from functools import lru_cache

# n * log2(n) for the counts in short values: the entropy of every candidate is computed, and most are short.
_N_LOG2_N = [0.0, *(n * math.log2(n) for n in range(1, 1_000))]
_ROUNDING = 1e-9  # bits; more than the rounding error of a sum of logarithms


def bits_per_character(value: str) -> float:
    """Return the Shannon entropy of the characters of a value, in bits per character; 0.0 for ""."""
    if not (length := len(value)):
        return 0.0
    counts = map(value.count, set(value))
    if length < len(_N_LOG2_N):
        return math.log2(length) - sum([_N_LOG2_N[n] for n in counts]) / length
    return -sum(n / length * math.log2(n / length) for n in counts)


def has_entropy(value: str, bits: float) -> bool:
    """Whether a value has a Shannon entropy of at least `bits` bits per character; always False for "".

    The number of different characters mostly decides; only if it does not, the entropy is computed.
    """
    too_few, enough, too_often = _entropy_bounds(length := len(value), bits)
    different = len(set(value))
    if different >= enough:
        return True
    return (
        different > too_few
        and value.count(value[length // 2]) < too_often
        and bits_per_character(value) >= bits
    )


@lru_cache(maxsize=4096)
def _entropy_bounds(length: int, bits: float) -> tuple[int, int, int]:
    """Return three numbers that decide about a value of this length without computing its entropy.

    A value with no more different characters than the first has less than `bits` bits per character. A value
    with at least as many as the second has enough. A value that has one character at least as often as the
    third has too little. For lengths from 1,000 on the numbers decide nothing. Results are cached.
    """
    if not 0 < length < len(_N_LOG2_N):
        return -1 if length else 0, length + 1, length + 1
    low, high = bits - _ROUNDING, bits + _ROUNDING
    too_few = max((count for count in range(length + 1) if math.log2(count or 1) < low), default=0)
    # The least entropy for so many different characters: all but one of them occur once.
    enough = (
        count
        for count in range(1, length + 1)
        if math.log2(length) - _N_LOG2_N[length - count + 1] / length >= high
    )
    # The most entropy beside a character that occurs so often: all others occur once.
    too_often = (
        count for count in range(1, length + 1) if math.log2(length) - _N_LOG2_N[count] / length < low
    )
    return too_few, next(enough, length + 1), next(too_often, length + 1)
