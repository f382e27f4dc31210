"""Estimate shares from a sample by strata: weights, intervals and agreement of readers."""

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)

_Z = 1.959964  # 95 % of a normal distribution


@dataclass(frozen=True)
class Share:
    """An estimated share with its 95 % interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.0%} ({self.low:.0%} to {self.high:.0%})".replace("%", " %")


def wilson(share: float, count: float) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share of `count` independent values."""
    if count <= 0:
        return 0.0, 1.0
    square = _Z * _Z
    middle = share + square / (2 * count)
    reach = _Z * math.sqrt(share * (1 - share) / count + square / (4 * count * count))
    scale = 1 + square / count
    return max((middle - reach) / scale, 0.0), min((middle + reach) / scale, 1.0)


def estimate_share(weighted: Iterable[tuple[float, bool]]) -> Share | None:
    """Return the share of true values by weight, None without values.

    The interval is Wilson's for the effective number of values, (sum of weights)² / sum of squared weights.
    """
    values = list(weighted)
    total = sum(weight for weight, _ in values)
    if not total:
        return None
    share = sum(weight for weight, true in values if true) / total
    effective = total * total / sum(weight * weight for weight, _ in values)
    return Share(share, *wilson(share, effective))


def weigh(strata: Mapping[Item, Sequence[Hashable]], labelled: set[Item]) -> tuple[dict[Item, float], int]:
    """Return how many items each labelled item represents, and how many items nothing represents.

    `strata` has the names of the strata of each item, the finest first. The items of a stratum are shared out
    equally over its labelled items. Without a labelled one, they go to those of the next coarser stratum.
    """
    weights = dict.fromkeys((item for item in strata if item in labelled), 0.0)
    waiting = list(strata)
    for level in range(max(map(len, strata.values()), default=0)):
        readers: dict[Hashable, list[Item]] = defaultdict(list)
        for item in weights:
            readers[strata[item][level]].append(item)
        for name, count in Counter(strata[item][level] for item in waiting).items():
            for item in readers.get(name, ()):
                weights[item] += count / len(readers[name])
        waiting = [item for item in waiting if strata[item][level] not in readers]
    return weights, len(waiting)


def kappa(pairs: Sequence[tuple[str, str]]) -> float:
    """Return Cohen's kappa of two readers' labels of the same values: 1 for the same, 0 for chance."""
    if not pairs:
        return math.nan
    agreed = sum(first == second for first, second in pairs) / len(pairs)
    firsts, seconds = Counter(first for first, _ in pairs), Counter(second for _, second in pairs)
    by_chance = sum(firsts[label] * seconds[label] for label in firsts) / len(pairs) ** 2
    return 1.0 if by_chance == 1 else (agreed - by_chance) / (1 - by_chance)
