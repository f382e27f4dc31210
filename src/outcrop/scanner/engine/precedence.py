"""Decide which hits are kept where several overlap or have the same value.

**Between overlapping hits of one text** (`keep_best`) the one that comes first by these criteria is kept:

1. the stronger evidence: checksum, prefix, structured, context, generic
2. not doubtful (a doubtful hit is generic and of low confidence)
3. the longer value
4. in quotes, not bare
5. the higher confidence
6. the rule's id, in alphabetical order

A hit of a gitleaks configuration loses to a hit of another rule with exactly the same value, whatever the
evidence, unless that one has a lower confidence than medium and would not be reported.

Rules that apply only to files of certain paths are an exception (`keep_best_by_scope`). Which of them apply
is known later, when the path is. Until then a hit of such a rule competes only with hits of the same rule.

**Between hits in the text as written (plain) and in its decoded pieces (decoded)** `merge_decoded` drops, in
this order:

1. of a plain and a decoded hit of the same specific rule at the same offset, the plain one; but the decoded
   one if the plain one is not of low confidence and its value is the same, or is the decoded value
   URL-encoded
2. a decoded hit with a value that a plain or another decoded hit with evidence at least as strong has too
3. a plain companion that is attached to a decoded secret
4. a plain hit that overlaps a decoded hit of a specific rule, also one that 2 has dropped, if the plain hit
   is generic or its value is among the decoded ones
5. a generic decoded hit that overlaps a plain hit that is not doubtful
6. a doubtful hit that overlaps any hit that is not; doubtful hits that overlap each other are reduced by
   `keep_best`

In 1, 3 and 4 decoded hits of low confidence do not count.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from operator import attrgetter
from urllib.parse import unquote

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import reveal
from outcrop.scanner.engine.companions import CompanionOffsets
from outcrop.scanner.engine.hit import Hit, OverlapTest, overlap_test, record_lost
from outcrop.scanner.rules.model import Strength

OVERLAPPED = "another rule is preferred for this value"
DECODED_TOO = "the same value is reported as written, or decoded"
_LOW, _GENERIC = Confidence.LOW, Strength.GENERIC  # an enum member costs a lookup at each use
_STRENGTH_RANK = {strength: rank for rank, strength in enumerate(Strength)}  # 0 is the strongest


def _precedence(hit: Hit) -> tuple[int, bool, int, bool, int, str]:
    """Return the sort key by which overlapping hits compete: the hit with the least key is kept.

    It compares, in this order: strength, whether the hit is doubtful, length of the value, quotes, confidence
    and the id of the rule.
    """
    return (
        _STRENGTH_RANK[hit.strength],
        hit.is_doubtful,
        hit.start - hit.end,
        hit.bare,
        hit.confidence.rank,
        hit.rule.id,
    )


def keep_best(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits without those that overlap a hit with a higher precedence which is kept itself."""
    kept: list[Hit] = []
    overlapping: list[Hit] = []
    reached = 0
    for hit in sorted(_prefer_own_rules(hits), key=attrgetter("start")):
        if overlapping and hit.start >= reached:
            kept += overlapping if len(overlapping) == 1 else _keep_best_of(overlapping)
            overlapping, reached = [], 0
        overlapping.append(hit)
        reached = max(reached, hit.end)
    return kept + (overlapping if len(overlapping) == 1 else _keep_best_of(overlapping))


def _prefer_own_rules(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits without those of a gitleaks configuration whose value another rule found too."""
    hits = list(hits)
    if not any(hit.rule.is_from_gitleaks for hit in hits):
        return hits
    own = {
        (hit.start, hit.end)
        for hit in hits
        if not hit.rule.is_from_gitleaks and hit.companion_name is None and hit.confidence is not _LOW
    }
    kept, lost = _split(hits, lambda hit: hit.rule.is_from_gitleaks and (hit.start, hit.end) in own)
    for hit in lost:
        record_lost(hit, "a rule of our own has found the same value")
    return kept


def _keep_best_of(hits: list[Hit]) -> list[Hit]:
    """Return the hits that overlap no hit with a higher precedence which is kept itself, the best first."""
    kept: list[Hit] = []
    starts: list[int] = []
    ends: list[int] = []
    for hit in sorted(hits, key=_precedence):
        at = bisect_left(starts, hit.start)
        if (at > 0 and ends[at - 1] > hit.start) or (at < len(starts) and starts[at] < hit.end):
            record_lost(hit, OVERLAPPED)
            continue
        starts.insert(at, hit.start)
        ends.insert(at, hit.end)
        kept.append(hit)
    return kept


def keep_best_by_scope(hits: list[Hit]) -> list[Hit]:
    """Return the hits that `keep_best` keeps, with rules that depend on a path kept apart.

    The hits of all rules that do not depend on a path compete with each other; the hits of a rule that
    depends on a path only among themselves.
    """
    everywhere: list[Hit] = []
    by_rule: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.rule.depends_on_path:
            by_rule.setdefault(hit.rule.id, []).append(hit)
        else:
            everywhere.append(hit)
    kept = keep_best(everywhere)
    for rule_hits in by_rule.values():
        kept += keep_best(rule_hits)
    return kept


def drop_reported_companions(hits: list[Hit], offsets: CompanionOffsets) -> list[Hit]:
    """Return the hits without those that are attached to another hit as its companion, such as a key id.

    `offsets` says where the companions of each secret begin. Companions of a secret with low confidence are
    kept.
    """
    if not offsets:
        return hits
    attached = {
        (hit.rule.id, offset)
        for hit in hits
        if hit.confidence is not _LOW
        for offset in offsets.get(id(hit), ())
    }
    kept, lost = _split(
        hits, lambda hit: hit.companion_name is not None and (hit.rule.id, hit.start) in attached
    )
    for hit in lost:
        record_lost(hit, "it belongs to another credential, and is reported with it")
    return kept


def merge_decoded(plain: list[Hit], decoded: list[Hit]) -> list[Hit]:
    """Return the plain and decoded hits that are kept by the rules in the module docstring.

    A plain hit also gets the companions that were found for its decoded counterpart only.
    """
    if not decoded:
        return plain
    plain, decoded = _drop_same_start(plain, decoded)
    overlaps_specific = overlap_test(
        (hit.start, hit.end) for hit in decoded if hit.strength is not _GENERIC and hit.confidence is not _LOW
    )
    decoded = _drop_known_values(plain, decoded)
    plain = _drop_found_decoded(plain, decoded, overlaps_specific)
    overlaps_plain = overlap_test((hit.start, hit.end) for hit in plain if not hit.is_doubtful)
    decoded, lost = _split(
        decoded, lambda hit: hit.strength is _GENERIC and overlaps_plain(hit.start, hit.end)
    )
    for hit in lost:
        record_lost(hit, OVERLAPPED)
    hits = plain + decoded
    return _drop_hidden_doubtful(hits) if any(hit.is_doubtful for hit in hits) else hits


def _drop_same_start(plain: list[Hit], decoded: list[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Drop one of a plain and a decoded hit of the same rule at the same offset (step 1); return both lists.

    First the plain hit gets the companions of the decoded one that it lacks. The decoded hit is dropped if
    the plain one is not of low confidence and has the same value, or that value URL-encoded; otherwise the
    plain one. Both are kept if they are generic or the decoded hit is of low confidence.
    """
    plain_hits = {(hit.rule.id, hit.start): hit for hit in plain}
    dropped: set[int] = set()
    for hit in decoded:
        same = plain_hits.get((hit.rule.id, hit.start))
        if same is None:
            continue
        same.companions = hit.companions | same.companions
        if same.strength is not _GENERIC and hit.confidence is not _LOW:
            written = reveal(same.secret)
            # A password in a URL is percent-encoded, and is used like that.
            keep_plain = same.confidence is not _LOW and reveal(hit.secret) in {written, unquote(written)}
            lost = hit if keep_plain else same
            dropped.add(id(lost))
            record_lost(lost, DECODED_TOO)
    return [hit for hit in plain if id(hit) not in dropped], [
        hit for hit in decoded if id(hit) not in dropped
    ]


def _drop_known_values(plain: list[Hit], decoded: list[Hit]) -> list[Hit]:
    """Return the decoded hits without those whose value is known already (step 2).

    A value is known if a plain or an earlier decoded hit with evidence at least as strong has it.
    """
    ranks = {reveal(hit.secret): _STRENGTH_RANK[hit.strength] for hit in plain}
    kept: list[Hit] = []
    for hit in decoded:
        value, rank = reveal(hit.secret), _STRENGTH_RANK[hit.strength]
        if rank < ranks.get(value, len(_STRENGTH_RANK)):
            ranks[value] = rank
            kept.append(hit)
        else:
            record_lost(hit, DECODED_TOO)
    return kept


def _drop_found_decoded(plain: list[Hit], decoded: list[Hit], overlaps_specific: OverlapTest) -> list[Hit]:
    """Return the plain hits without those that a decoded hit replaces (steps 3 and 4).

    Drop a companion that is attached to a decoded secret, and a hit that overlaps a decoded hit of a specific
    rule (`overlaps_specific(start, end)`) if it is generic or its value is one of the decoded ones.
    """
    attached = {
        (hit.rule.id, reveal(companion))
        for hit in decoded
        if hit.confidence is not _LOW
        for companion in hit.companions.values()
    }
    decoded_values = {reveal(hit.secret) for hit in decoded}
    kept: list[Hit] = []
    for hit in plain:
        value = reveal(hit.secret)
        is_attached = hit.companion_name is not None and (hit.rule.id, value) in attached
        is_generic_or_decoded = hit.strength is _GENERIC or value in decoded_values
        if not is_attached and not (is_generic_or_decoded and overlaps_specific(hit.start, hit.end)):
            kept.append(hit)
        else:
            record_lost(hit, DECODED_TOO)
    return kept


def _drop_hidden_doubtful(hits: list[Hit]) -> list[Hit]:
    """Return the hits without doubtful ones (generic, low confidence) that overlap one that is not (step 6).

    Doubtful hits that overlap only each other are reduced by `keep_best`.
    """
    certain = [hit for hit in hits if not hit.is_doubtful]
    overlaps_certain = overlap_test((hit.start, hit.end) for hit in certain)
    doubtful, hidden = _split(
        [hit for hit in hits if hit.is_doubtful], lambda hit: overlaps_certain(hit.start, hit.end)
    )
    for hit in hidden:
        record_lost(hit, OVERLAPPED)
    return certain + keep_best(doubtful)


def _split(hits: Iterable[Hit], is_lost: Callable[[Hit], bool]) -> tuple[list[Hit], list[Hit]]:
    """Return the hits that are kept, and those that are lost."""
    kept: list[Hit] = []
    lost: list[Hit] = []
    for hit in hits:
        (lost if is_lost(hit) else kept).append(hit)
    return kept, lost
