"""Find the companions of secrets, such as the key id that belongs to a secret key.

A rule says which companions its secrets have, and how near they must be. `drop_incomplete` drops secrets
without a companion that they require; `attach_companions` stores the others' companions in their hits.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret
from outcrop.scanner import trace
from outcrop.scanner.engine.hit import Hit, record_lost
from outcrop.scanner.generic.placeholders import decode_value
from outcrop.scanner.patterns.re2_match import compile_with_group, find_spans
from outcrop.scanner.rules.model import CompanionSpec

Span = tuple[int, int]  # (start, end)
Neighbours = tuple[Span | None, Span | None]  # the companions before and after a hit, if they are near enough
CompanionOffsets = dict[int, list[int]]  # id(hit) -> start offsets of its companions

# Bytes to each side of a hit in which a row of pairs is followed: parts of a large file are scanned
# separately, so the rest of the row may not be in memory.
MAX_ROW = 4_000


def drop_incomplete(hits: list[Hit], data: bytes) -> list[Hit]:
    """Return the hits without those that lack, nearby in `data`, a companion that their rule requires."""
    incomplete: set[int] = set()
    for hit, spec, companion in _find_companions(hits, data, only_required=True):
        if companion is None:
            incomplete.add(id(hit))
            if trace.active is not None:
                record_lost(hit, f"its companion is missing: no {spec.name} within {spec.within} bytes")
    return [hit for hit in hits if id(hit) not in incomplete] if incomplete else hits


def attach_companions(hits: Iterable[Hit], data: bytes, min_confidence: Confidence) -> CompanionOffsets:
    """Store the companions of each hit in the hit; return the start offsets of the companions by id(hit).

    Hits below `min_confidence` get no companions, but count as members of a row of pairs. Hits without a
    companion are not in the result.
    """
    offsets: CompanionOffsets = {}
    for hit, spec, companion in _find_companions(hits, data):
        if companion is not None and hit.confidence.at_least(min_confidence):
            start, end = companion
            hit.companions[spec.name] = Secret(decode_value(data[start:end]))
            offsets.setdefault(id(hit), []).append(start)
    return offsets


def _find_companions(
    hits: Iterable[Hit], data: bytes, *, only_required: bool = False
) -> Iterator[tuple[Hit, CompanionSpec, Span | None]]:
    """Yield each secret with each companion that its rule describes, and the span of that companion.

    The span is None if no such companion is near. With `only_required`, skip companions that are optional.
    Hits that are companions themselves are skipped.
    """
    by_rule: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.rule.companions and hit.companion_name is None:
            by_rule.setdefault(hit.rule.id, []).append(hit)
    for secrets in by_rule.values():
        secrets.sort(key=lambda hit: hit.start)
        for spec in secrets[0].rule.companions:
            if spec.required or not only_required:
                neighbours = _find_neighbours(spec, secrets, data)
                rows, starts = _find_rows(neighbours), [hit.start for hit in secrets]
                for number, hit in enumerate(secrets):
                    yield hit, spec, _choose_companion(secrets, neighbours, rows, starts, number)


def _choose_companion(
    hits: list[Hit], neighbours: list[Neighbours], rows: list[Span], starts: list[int], number: int
) -> Span | None:
    """Return the companion of `hits[number]`: the one before it, the one after it, or None.

    In a row of pairs the id of the next pair can be nearer to a secret than its own id. So the ends of the
    row decide:

    - The row begins with a companion, or ends with a secret: the companion before the secret.
    - The row begins with a secret, or ends with a companion: the companion after the secret.
    - The two ends contradict each other, as the row has a companion too many or too few: the nearer
      companion.
    - Both ends are too far away: the companion before the secret.

    `rows` is the result of `_find_rows`; `starts` has the start of each hit.
    """
    before, after = neighbours[number]
    if before is None or after is None:
        return before or after
    first, last = rows[number]
    first = max(first, bisect_left(starts, starts[number] - MAX_ROW))
    last = min(last, bisect_right(starts, starts[number] + MAX_ROW) - 1)
    # The row may go on in text that is not read.
    is_near_start = starts[number] - starts[first] <= MAX_ROW // 2
    is_near_end = starts[last] - starts[number] <= MAX_ROW // 2
    begins_with_companion = neighbours[first][0] is not None if is_near_start else None
    ends_with_companion = neighbours[last][1] is not None if is_near_end else None
    if begins_with_companion is not None and begins_with_companion == ends_with_companion:
        hit = hits[number]
        return before if hit.start - before[1] <= after[0] - hit.end else after
    return after if begins_with_companion is False or ends_with_companion else before


def _find_rows(neighbours: list[Neighbours]) -> list[Span]:
    """Return, for each hit, the numbers of the first and the last hit of its row of pairs.

    Neighbouring hits of a row share the companion between them.
    """
    breaks = [
        number
        for number in range(1, len(neighbours))
        if neighbours[number][0] is None or neighbours[number - 1][1] != neighbours[number][0]
    ]
    rows: list[Span] = []
    for first, following in pairwise([0, *breaks, len(neighbours)]):
        rows += [(first, following - 1)] * (following - first)
    return rows


def _find_neighbours(spec: CompanionSpec, hits: list[Hit], data: bytes) -> list[Neighbours]:
    """Return, for each hit, the value spans of the nearest companions before and after it.

    A span is None if the whole match of that companion is not within `spec.within` bytes of the hit. `hits`
    are in order. A text can be full of pairs, so each part of it is searched once for all hits.
    """
    matches = list(_search_near(spec, hits, data))
    starts, ends = [value[0] for value, _ in matches], [value[1] for value, _ in matches]
    neighbours: list[Neighbours] = []
    for hit in hits:
        before, after = bisect_right(ends, hit.start) - 1, bisect_left(starts, hit.end)
        is_before = before >= 0 and matches[before][1][0] >= hit.start - spec.within
        is_after = after < len(matches) and matches[after][1][1] <= hit.end + spec.within
        neighbours.append(
            (matches[before][0] if is_before else None, matches[after][0] if is_after else None)
        )
    return neighbours


def _search_near(spec: CompanionSpec, hits: list[Hit], data: bytes) -> Iterator[tuple[Span, Span]]:
    """Yield the spans of the value and of the whole match of each companion near `hits`.

    `hits` are in order.
    """
    regex, value_group = compile_with_group(spec.regex)
    for start, stop in _windows(spec.within, hits, len(data)):
        at = start
        while (groups := find_spans(regex, data, at, stop)) is not None:
            value = groups[value_group]
            at = max(value[1], groups[0][0] + 1)
            if value[0] < value[1]:
                yield value, groups[0]


def _windows(within: int, hits: list[Hit], size: int) -> Iterator[Span]:
    """Yield the span up to `within` bytes around each hit, in a text of `size` bytes; overlaps are joined.

    `hits` are in order.
    """
    start = stop = 0
    for hit in hits:
        if hit.start - within > stop:
            if stop:
                yield start, stop
            start = hit.start - within
        stop = min(max(stop, hit.end + within), size)
    if stop:
        yield start, stop
