"""How random a value looks."""

import math
from collections import Counter


def bits_per_character(value: str) -> float:
    """Give the Shannon entropy of a value's characters."""
    length = len(value)
    return -sum(n / length * math.log2(n / length) for n in Counter(value).values()) if length else 0.0
