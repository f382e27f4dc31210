"""Draw the findings to label: all of a small repository, a seeded sample by rule and shape of a large one.

The order of the drawing is the order of a digest of seed, repository, path and value. It does not change when
other findings come or go.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from bench.accuracy.scans import Reported

SEED = "accuracy-1"
PER_REPOSITORY = 60
PER_RULE = 15  # in one repository, if it has more than PER_REPOSITORY
SECOND_SHARE = 0.12  # read by a second reader too

Key = TypeVar("Key", bound=Hashable)
Stratum = tuple[str, str, str, str]  # repository, rule, confidence, shape

_SHAPES = [
    (name, re.compile(pattern, re.DOTALL))
    for name, pattern in (
        ("pem", r"-----BEGIN.*"),
        ("address", r"[a-zA-Z][\w+.-]*://.*"),
        ("jwt", r"eyJ[\w-]+\..*"),
        ("uuid", r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
        ("digits", r"[\d.,:-]+"),
        ("hex", r"(0x)?[0-9a-fA-F]{16,}"),
        ("words", r"[A-Za-z]+([ _./:-][A-Za-z]+)*"),
        ("short", r"\S{1,15}"),
        ("base64", r"[\w+/=-]+"),
    )
]


def shape_of(value: str) -> str:
    """Return the name of the form of a value."""
    return next((name for name, pattern in _SHAPES if pattern.fullmatch(value)), "other")


def stratum_of(found: Reported) -> Stratum:
    """Return the stratum of a finding: findings of one stratum are drawn with the same probability."""
    return found.repo, found.rule, found.confidence, shape_of(found.value)


def order_of(*parts: str, seed: str = SEED) -> str:
    """Return a digest to sort by: a random order, but always the same."""
    return hashlib.sha256("\0".join([seed, *parts]).encode("utf-8", "surrogatepass")).hexdigest()


def draw(
    reported: Iterable[Reported], per_repository: int = PER_REPOSITORY, per_rule: int = PER_RULE
) -> list[Reported]:
    """Return the findings to label, repository by repository."""
    by_repository: dict[str, list[Reported]] = defaultdict(list)
    for found in reported:
        by_repository[found.repo].append(found)
    return [
        found
        for findings in by_repository.values()
        for found in (
            findings if len(findings) <= per_repository else _draw_some(findings, per_repository, per_rule)
        )
    ]


def _draw_some(findings: Sequence[Reported], count: int, per_rule: int) -> list[Reported]:
    """Return about `count` findings, spread over the rules and then over the strata of each rule."""
    by_rule: dict[str, list[Reported]] = defaultdict(list)
    for found in findings:
        by_rule[found.rule].append(found)
    shares = share_out(count, {rule: min(len(found), per_rule) for rule, found in by_rule.items()})
    drawn = []
    for rule, share in shares.items():
        strata: dict[Stratum, list[Reported]] = defaultdict(list)
        for found in by_rule[rule]:
            strata[stratum_of(found)].append(found)
        for stratum, part in share_out(share, {name: len(found) for name, found in strata.items()}).items():
            drawn += in_random_order(strata[stratum])[:part]
    return drawn


def share_out(total: int, sizes: Mapping[Key, int]) -> dict[Key, int]:
    """Return how much of `total` each part gets: the same for all, but never more than its size."""
    shares = {}
    waiting = sorted(sizes, key=lambda key: (sizes[key], str(key)))
    for position, key in enumerate(waiting):
        shares[key] = min(sizes[key], total // (len(waiting) - position))
        total -= shares[key]
    return shares


def in_random_order(findings: Iterable[Reported]) -> list[Reported]:
    """Return the findings in the order of the drawing."""
    return sorted(findings, key=lambda found: order_of(*found.key))


def draw_second(drawn: Iterable[Reported], share: float = SECOND_SHARE) -> list[Reported]:
    """Return the part of the drawn findings that is read a second time."""
    limit = int(share * 16**8)
    return [found for found in drawn if int(order_of("second", *found.key)[:8], 16) < limit]
