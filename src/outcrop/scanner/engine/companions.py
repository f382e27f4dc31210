"""Secrets and what belongs to them: each gets its companion of each kind, the nearest or the next in a row, and lacks none it requires."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

from outcrop.domain.secret import Secret
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.generic.placeholders import decode_value
from outcrop.scanner.patterns.re2_match import compile_with_group, find_spans
from outcrop.scanner.rules.model import CompanionSpec

Place = tuple[int, int]
Sides = tuple[Place | None, Place | None]

_ROW = 4_000  # characters of a row of pairs that are read to each side: the parts of a large file are read each by itself


def whole(hits: list[Hit], data: bytes) -> list[Hit]:
    """Leave out the hits that have not near them what they require."""
    lacking = {id(hit) for hit, _, place in _beside(hits, data, only_required=True) if place is None}
    return [hit for hit in hits if id(hit) not in lacking] if lacking else hits


def pair(hits: Iterable[Hit], data: bytes, is_told: Callable[[Hit], bool]) -> dict[int, list[int]]:
    """Give secrets that are told their companions; tell where those of each stand, by the hit's id. Every secret takes part in a row."""
    companions: dict[int, list[int]] = {}
    for hit, part, place in _beside(hits, data):
        if place is not None and is_told(hit):
            hit.parts[part.name] = Secret(decode_value(data[place[0] : place[1]]))
            companions.setdefault(id(hit), []).append(place[0])
    return companions


def _beside(
    hits: Iterable[Hit], data: bytes, *, only_required: bool = False
) -> Iterator[tuple[Hit, CompanionSpec, Place | None]]:
    """Give every hit with each kind of companion that its rule has, and where the nearest of that kind stands."""
    by_rule: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.rule.companions and hit.part is None:
            by_rule.setdefault(hit.rule.id, []).append(hit)
    for mine in by_rule.values():
        mine.sort(key=lambda hit: hit.start)
        for part in mine[0].rule.companions:
            if part.required or not only_required:
                yield from (
                    (hit, part, place) for hit, place in zip(mine, _nearest(part, mine, data), strict=True)
                )


def _nearest(part: CompanionSpec, hits: list[Hit], data: bytes) -> Iterator[Place | None]:
    """Give where the companion of each hit stands.

    Where each pair is followed by the next, the id of the next may be nearer to a secret than its own. Such a row is read from its ends:
    if it begins with a companion, or ends with a hit, each hit has the one before it. Of a row whose ends are far the same is assumed.
    """
    sides = list(_sides(part, hits, data))
    for at, (before, behind) in enumerate(sides):
        if before is None or behind is None:
            yield before or behind
            continue
        opens, closes = _goes_beyond(hits, sides, at, -1), _goes_beyond(hits, sides, at, 1)
        if opens is not None and opens == closes:
            yield before if hits[at].start - before[1] <= behind[0] - hits[at].end else behind
        else:
            yield behind if opens is False or closes else before


def _goes_beyond(hits: list[Hit], sides: list[Sides], at: int, step: int) -> bool | None:
    """Tell whether a row goes on with a companion beyond the last of its hits on a side; None where that is too far away to tell."""
    side = 0 if step < 0 else 1
    last = at
    while (
        0 <= last + step < len(hits)
        and abs(hits[last + step].start - hits[at].start) <= _ROW
        and sides[last][side] is not None
        and sides[last][side] == sides[last + step][1 - side]
    ):
        last += step
    if abs(hits[last].start - hits[at].start) > _ROW // 2:  # it may well go on where nothing is read
        return None
    return sides[last][side] is not None


def _sides(part: CompanionSpec, hits: list[Hit], data: bytes) -> Iterator[Sides]:
    """Give the companions before and behind each hit. A text may be full of both, so it is looked through once for all of them."""
    found = [
        match
        for window in _windows(part.within, hits, len(data))
        for match in _matches(part.regex, data, *window)
    ]
    lefts, rights = [place[0] for place, _ in found], [place[1] for place, _ in found]
    for hit in hits:
        before, behind = bisect_right(rights, hit.start) - 1, bisect_left(lefts, hit.end)
        is_before = before >= 0 and found[before][1][0] >= hit.start - part.within  # all that makes it one
        is_behind = behind < len(found) and found[behind][1][1] <= hit.end + part.within
        yield found[before][0] if is_before else None, found[behind][0] if is_behind else None


def _windows(within: int, hits: list[Hit], size: int) -> Iterator[Place]:
    """Give what stands around hits, neighbouring stretches as one."""
    start = stop = 0
    for hit in hits:
        if hit.start - within > stop:
            if stop:
                yield start, stop
            start = hit.start - within
        stop = min(max(stop, hit.end + within), size)
    if stop:
        yield start, stop


def _matches(regex: str, data: bytes, at: int, stop: int) -> Iterator[tuple[Place, Place]]:
    """Give where the values of a pattern stand, each with its whole match."""
    pattern, group = compile_with_group(regex)
    while (match := find_spans(pattern, data, at, stop)) is not None:
        left, right = match[group]
        at = max(right, match[0][0] + 1)
        if left < right:
            yield (left, right), match[0]
