"""How random a value looks."""

import math
from collections import Counter

_SHARES = [0.0, *(n * math.log2(n) for n in range(1, 1_000))]  # most values are short, and this is asked of every candidate


def bits_per_character(value: str) -> float:
    """Give the Shannon entropy of a value's characters."""
    if not (length := len(value)):
        return 0.0
    counts = Counter(value).values()
    if length < len(_SHARES):
        return math.log2(length) - sum([_SHARES[n] for n in counts]) / length
    return -sum(n / length * math.log2(n / length) for n in counts)
