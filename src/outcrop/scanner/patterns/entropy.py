"""How random a value looks."""

import math
from functools import lru_cache

_SHARES = [
    0.0,
    *(n * math.log2(n) for n in range(1, 1_000)),
]  # most values are short, and this is asked of every candidate


def bits_per_character(value: str) -> float:
    """Give the Shannon entropy of a value's characters."""
    if not (length := len(value)):
        return 0.0
    counts = map(value.count, set(value))
    if length < len(_SHARES):
        return math.log2(length) - sum([_SHARES[n] for n in counts]) / length
    return -sum(n / length * math.log2(n / length) for n in counts)


def has_entropy(value: str, bits: float) -> bool:
    """Tell whether a value has so many bits per character. Mostly the number of different characters says it, without a count of each."""
    too_few, enough, too_often = _bounds(length := len(value), bits)
    different = len(set(value))
    if different >= enough:
        return True
    return (
        different > too_few
        and value.count(value[length // 2]) < too_often
        and bits_per_character(value) >= bits
    )


@lru_cache(maxsize=4096)
def _bounds(length: int, bits: float) -> tuple[int, int, int]:
    """Give how many different characters are surely too few and how many surely enough, and how often none of them may stand there."""
    if not 0 < length < len(_SHARES):
        return -1 if length else 0, length + 1, length + 1
    too_few = max((count for count in range(length + 1) if math.log2(count or 1) < bits - 1e-9), default=0)
    # The least even spread: all but one stand once. The most even one beside a character that stands often: all others stand once.
    spread = (
        count
        for count in range(1, length + 1)
        if math.log2(length) - _SHARES[length - count + 1] / length >= bits + 1e-9
    )
    often = (
        count for count in range(1, length + 1) if math.log2(length) - _SHARES[count] / length < bits - 1e-9
    )
    return too_few, next(spread, length + 1), next(often, length + 1)
