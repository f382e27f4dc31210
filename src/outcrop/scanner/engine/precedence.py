"""Reduce overlapping hits to one per value."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from urllib.parse import unquote

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.confirm import Shares
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.rules.model import Strength

_RANK = {strength: rank for rank, strength in enumerate(Strength)}
_SURE = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}
_LOW, _GENERIC = Confidence.LOW, Strength.GENERIC


def _of_each(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Let each rule for certain files name a value once. Which of them applies is known later: until then none gives way to another."""
    by_rule: dict[str, list[Hit]] = {}
    for hit in hits:
        by_rule.setdefault(hit.rule.id, []).append(hit)
    for mine in by_rule.values():
        yield from keep_best(mine)


def _unpaired(hits: list[Hit], companions: dict[int, list[int]], floor: Confidence) -> list[Hit]:
    """Leave out the companions of a secret that is reported: they are told with it."""
    reported = [hit for hit in hits if hit.confidence is not _LOW and _SURE[hit.confidence] <= _SURE[floor]]
    taken = {(hit.rule.id, start) for hit in reported for start in companions.get(id(hit), ())}
    return [hit for hit in hits if hit.part is None or (hit.rule.id, hit.start) not in taken]


def keep_best(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Let each value be named once, by the surest rule: what overlaps a better hit is left out."""
    together: list[Hit] = []
    reached = 0
    for hit in sorted(hits, key=_start):
        if together and hit.start >= reached:
            yield from _best(together)
            together = []
        together.append(hit)
        reached = max(reached, hit.end) if len(together) > 1 else hit.end
    yield from _best(together)


def _start(hit: Hit) -> int:
    return hit.start


def _best(hits: list[Hit]) -> list[Hit]:
    if len(hits) < 2:  # as nearly always
        return hits
    kept: list[Hit] = []
    starts: list[int] = []
    spans: list[tuple[int, int]] = []
    for hit in sorted(
        hits,
        key=lambda h: (
            _RANK[h.strength],
            _is_doubtful(h),
            h.start - h.end,
            h.bare,
            _SURE[h.confidence],
            h.rule.id,
        ),
    ):
        at = bisect_left(starts, hit.start)
        if (at > 0 and spans[at - 1][1] > hit.start) or (at < len(spans) and spans[at][0] < hit.end):
            continue
        starts.insert(at, hit.start)
        spans.insert(at, (hit.start, hit.end))
        kept.append(hit)
    return kept


def _is_doubtful(hit: Hit) -> bool:
    """Tell whether a hit must hide no other: where doubtful values are not wanted they are not even made."""
    return hit.strength is _GENERIC and hit.confidence is _LOW


def _told_once(plain: list[Hit], decoded: list[Hit]) -> list[Hit]:
    """Add what is written in an encoding, unless its value is known already and the rule knows no more of it.

    Where a value and what it decodes to are both hits, a generic one gives way; of two generic ones the decoded one.
    A rule that has decoded the value itself gives way to one that names it, and what is doubtful to whatever else there is.
    """
    if not decoded:
        return plain
    _complete(plain, decoded)
    plain, decoded = _as_written_or_decoded(plain, decoded)
    named = _overlaps(
        hit.span for hit in decoded if hit.strength is not _GENERIC and hit.confidence is not _LOW
    )
    decoded = list(_not_known({reveal(hit.secret): _RANK[hit.strength] for hit in plain}, decoded))
    paired = {
        (hit.rule.id, reveal(part))
        for hit in decoded
        if hit.confidence is not _LOW
        for part in hit.parts.values()
    }
    plain = [hit for hit in plain if hit.part is None or (hit.rule.id, reveal(hit.secret)) not in paired]
    again = {reveal(hit.secret) for hit in decoded}
    plain = [
        hit
        for hit in plain
        if not ((hit.strength is _GENERIC or reveal(hit.secret) in again) and named(*hit.span))
    ]
    known = _overlaps(hit.span for hit in plain if not _is_doubtful(hit))
    every = plain + [hit for hit in decoded if hit.strength is not _GENERIC or not known(*hit.span)]
    surer = _overlaps(hit.span for hit in every if not _is_doubtful(hit))
    doubtful = keep_best(hit for hit in every if _is_doubtful(hit) and not surer(*hit.span))
    return [*(hit for hit in every if not _is_doubtful(hit)), *doubtful]


def _complete(plain: list[Hit], decoded: list[Hit]) -> None:
    """Give secrets that stand there plainly the companions that are written in an encoding."""
    known = {(hit.rule.id, hit.start): hit for hit in plain}
    for hit in decoded:
        if hit.parts and (same := known.get((hit.rule.id, hit.start))) is not None:
            same.parts = hit.parts | same.parts


def _as_written_or_decoded(plain: list[Hit], decoded: list[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Let what one rule finds at one place as it is written and decoded be told decoded; but an address writes its password in escapes."""
    known = {(hit.rule.id, hit.start): hit for hit in plain if hit.strength is not _GENERIC}
    less: set[int] = set()
    for hit in decoded:
        same = known.get((hit.rule.id, hit.start))
        if same is not None and hit.confidence is not _LOW:
            written = reveal(same.secret)
            is_right = same.confidence is not _LOW and reveal(hit.secret) in {written, unquote(written)}
            less.add(id(hit if is_right else same))
    return [hit for hit in plain if id(hit) not in less], [hit for hit in decoded if id(hit) not in less]


def _not_known(known: dict[str, int], hits: list[Hit]) -> Iterator[Hit]:
    """Give the hits whose value is not known yet, or not by a rule that knows as much of it."""
    for hit in hits:
        value, rank = reveal(hit.secret), _RANK[hit.strength]
        if rank < known.get(value, len(_RANK)):
            known[value] = rank
            yield hit


def _overlaps(spans: Iterable[tuple[int, int]]) -> Shares:
    """Give a function that tells whether a stretch shares a place with one of these."""
    order = sorted(spans)
    starts = [start for start, _ in order]
    reached = list(accumulate((end for _, end in order), max))

    def shares(start: int, end: int) -> bool:
        before = bisect_left(starts, end)
        return before > 0 and reached[before - 1] > start

    return shares
