"""The second pass: the full pattern where the first pass saw something, and a judgement of every value that it gives.

A file may hold something that is almost a credential on every line, so what is done for each place is as little as possible.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.generic.candidate import Candidate
from outcrop.scanner.generic.find import (
    LEAD_IN_CHARS,
    MANY_MATCHES,
    find_assigned,
    find_in_collections,
    find_in_tables,
    judge_match,
)
from outcrop.scanner.generic.placeholders import decode_value, is_placeholder
from outcrop.scanner.generic.randomness import is_made_of_words
from outcrop.scanner.patterns.checksums import CHECKSUMS
from outcrop.scanner.patterns.entropy import has_entropy
from outcrop.scanner.patterns.re2_match import (
    compile_cached,
    compile_loosened,
    ends_with_match,
    find_spans,
    matches_fully,
)
from outcrop.scanner.patterns.regex_ast import WORD_BYTES
from outcrop.scanner.rules.allowlist import match_allowlists
from outcrop.scanner.rules.model import CredentialForm, Rule, ValueLayout
from outcrop.scanner.text.encodings import decode_base64_value

_REMEMBERED, _REMEMBERED_WIDTH = 500, 4_096  # what was found in a stretch, while it is likely to come again
_LED = 512  # bytes in which a pattern leads from a name to its value: more than a judge sees
_LOW = Confidence.LOW  # a member is looked up at each use
# A form by its id, held so that the id stays its own; where the stretch began; the hits in it.
_remembered: dict[tuple[int, bytes, bool, bool], tuple[CredentialForm, int, list[Hit]]] = {}


Shares = Callable[[int, int], bool]


def nowhere(_start: int, _end: int) -> bool:
    return False


def confirm(
    rule: Rule, form: CredentialForm, data: bytes, ends: list[int], taken: Shares = nowhere
) -> Iterator[Hit]:
    """Give the hits of a form around the places where its trigger ended, and none at a place that is taken."""
    if form.layout is not None and taken is nowhere:
        yield from _alone(rule, form, data, ends)
        return
    if taken is not nowhere and (behind := form.trigger.after_value) is not None:
        ends = [
            end for end in ends if not taken(end - behind - 1, end - behind)
        ]  # all of its matches end there
    by_line = bool(rule.allowlists) and any(
        one.regex_target == "line" for one in rule.allowlists
    )  # of which a window may hold only a part
    for start, stop in _windows(form, data, ends):
        if stop - start > _REMEMBERED_WIDTH or by_line or len(ends) > MANY_MATCHES or taken(start, stop):
            yield from _matches(rule, form, data, (start, stop), taken)
            continue
        # Versions of one file repeat the same lines thousands of times.
        key = (id(form), data[start:stop], start == 0, stop == len(data))
        known = _remembered.get(key)
        if known is not None:
            yield from [hit.moved(start - known[1]) for hit in known[2]]
            continue
        hits = list(_matches(rule, form, data, (start, stop), taken))
        if len(_remembered) >= _REMEMBERED:
            _remembered.clear()
        _remembered[key] = form, start, hits
        yield from hits


def _alone(rule: Rule, form: CredentialForm, data: bytes, ends: list[int]) -> Iterator[Hit]:
    """Give the hits of a form that is all trigger: the first pass has matched it, and its width or its beginning says where it began."""
    layout = form.layout
    assert layout is not None  # noqa: S101 - the caller asks
    size, last, before = len(data), -1, 0
    inside = _inside(layout.joining)
    for end in ends:
        # The trigger ends behind the mark that ends the value, or at the end of the text.
        right = end if end == size and data[end - 1] in inside else end - 1
        if right < size and data[right] in inside:
            continue
        # Such a mark stands in no value but near its beginning: none goes from before the one that came before to here.
        least, before = max(last, right - layout.max_width, before - layout.min_width), right
        left = (
            right - layout.max_width
            if layout.min_width == layout.max_width
            else _beginning(layout, data, least, right)
        )
        if left is None:
            yield from _matches(rule, form, data, (max(0, least - 2), min(end + 1, size)), nowhere)
        elif (
            left > last
            and not _goes_before(data, left)
            and (hit := _judge(rule, form, data, left, right)) is not None
        ):
            last = right
            yield hit


def _goes_before(data: bytes, left: int) -> bool:
    """Tell whether a letter stands before a value that is not an escaped one: the first pass looks for the letter only."""
    return left > 0 and data[left - 1] in b"nrt" and data[max(0, left - 2) : left - 1] != b"\\"


def _beginning(layout: ValueLayout, data: bytes, least: int, right: int) -> int | None:
    """Give where a value begins that ends here: at the only beginning of one; None where there are several."""
    found = None
    least, most = max(0, least), right - layout.min_width
    for literal in _encoded(layout.prefixes):
        at = data.find(literal, least, most + len(literal))
        if at >= 0:
            if found is not None or data.find(literal, at + 1, most + len(literal)) >= 0:
                return None
            found = at
    return found


@lru_cache(maxsize=64)
def _inside(joining: str) -> bytes:
    return WORD_BYTES + joining.encode()


def _matches(
    rule: Rule, form: CredentialForm, data: bytes, window: tuple[int, int], taken: Shares
) -> Iterator[Hit]:
    at, stop = window
    if not form.trigger.ends_match and not _has_all(_encoded(form.pattern.literals), data, at, stop):
        return
    if (
        form.pattern.value_at
        and find_spans(compile_loosened(form.pattern.regex[form.pattern.value_at :])[0], data, at, stop)
        is None
    ):
        return  # to follow a word through all that may stand behind it costs ten times as much
    (pattern, group), exact = compile_loosened(form.pattern.regex), form.pattern.exact_up_to
    while (found := find_spans(pattern, data, at, stop)) is not None:
        left, right = found[0]
        if right - left > exact:
            pattern, exact = compile_cached(form.pattern.regex), stop
            continue
        left, right = found[group] if group else _first(found)
        if left >= right or taken(left, right):  # an alternative without the group
            at = max(found[0][1], at + 1)
            continue
        if form.judge is None:
            hit = _judge(rule, form, data, left, right)
            hit = _unless_allowed(hit, data, found[0]) if hit is not None and rule.allowlists else hit
        else:
            name = _name(form.pattern.regex)
            candidate = judge_match(data, (left, right), found[name] if name else None, form.judge)
            hit = _weighed(rule, form, data, candidate) if candidate else None
        if hit is not None:
            yield hit
        at = max(hit.end if hit else left, at + 1)  # a value that is none may hold the word before the next


def _unless_allowed(hit: Hit, data: bytes, match: tuple[int, int]) -> Hit | None:
    by_place = match_allowlists(hit.rule.allowlists, data, hit.span, match)
    if by_place is None:
        return None
    hit.spared = by_place
    return hit


def _first(found: list[tuple[int, int]]) -> tuple[int, int]:
    """Give the first group that holds anything, else the whole match."""
    return next((span for span in found[1:] if span[0] < span[1]), found[0])


@lru_cache(maxsize=64)
def _name(text: str) -> int:
    """Give the number of the group that holds what the value is called; 0 where there is none."""
    return int(compile_cached(text).groupindex.get(b"name", 0))


@lru_cache(maxsize=4096)
def _encoded(literals: tuple[str, ...]) -> list[bytes]:
    return [text.encode("latin-1") for text in literals]


def _has_all(words: list[bytes], data: bytes, at: int, stop: int) -> bool:
    """Tell whether these stand in a stretch, one after the other: a beginning without its end need not be matched."""
    for word in words:
        at = data.find(word, at, stop) + len(word)
        if at < len(word):
            return False
    return True


def _windows(form: CredentialForm, data: bytes, ends: list[int]) -> Iterator[tuple[int, int]]:
    """Give the stretches in which a match can lie, overlapping ones as one, up to where the form says that they end."""
    windows = _around(form, ends, len(data))
    if form.window.until is None:
        yield from windows
        return
    for window in windows:
        for start, stop in _between(compile_cached(form.window.until), data, window):
            if bisect_right(ends, stop) > bisect_right(ends, start):
                yield start, stop


def _between(bound: Any, data: bytes, window: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Cut a stretch at each of its bounds; a bound belongs to what stands on either side of it."""
    start, stop = window
    at = start
    while (found := find_spans(bound, data, at, stop)) is not None:
        left, right = found[0]
        yield start, right
        start, at = left, max(right, at + 1)
    yield start, stop


def _around(form: CredentialForm, ends: list[int], size: int) -> Iterator[tuple[int, int]]:
    start, stop = -1, -1
    before, after = form.reach
    for end in ends:
        left = end - before
        if left > stop or stop < 0:
            if stop >= 0:
                yield start, stop
            start = max(0, left)
        stop = end + after
        stop = min(stop, size)
    if stop >= 0:
        yield start, stop


def _judge(rule: Rule, form: CredentialForm, data: bytes, left: int, right: int) -> Hit | None:
    raw = data[left:right]
    if rule.decode == "base64":
        plain = decode_base64_value(raw)
        if plain is None:
            return None
        raw = plain
    value = decode_value(raw)
    checks = form.checks
    if checks.exclude is not None and matches_fully(compile_cached(checks.exclude), raw):
        return None
    if (checks.min_entropy and not has_entropy(value, checks.min_entropy)) or (
        checks.not_words and is_made_of_words(value)
    ):
        return None
    confidence = form.confidence
    wrong = checks.checksum is not None and not CHECKSUMS[checks.checksum](value)
    placeholder = not wrong and is_placeholder(value)
    if wrong or placeholder:
        confidence = _LOW
    return Hit(
        rule,
        Secret(value, mask_all=rule.password),
        left,
        right,
        form.strength,
        confidence,
        placeholder,
        form.companion,
    )


def led_to(
    rule: Rule, form: CredentialForm, data: bytes, ends: list[int], taken: Shares, *, include_low: bool
) -> Iterator[Hit]:
    """Judge the values to which a pattern leads; the first pass may also have seen what only looks like one from afar."""
    for found in _led_to(form, data, ends, taken, include_low=include_low):
        if not taken(found.start, found.end):
            yield _weighed(rule, form, data, found)


def _led_to(
    form: CredentialForm, data: bytes, ends: list[int], taken: Shares, *, include_low: bool
) -> Iterator[Candidate]:
    if form.judge not in LEAD_IN_CHARS:
        return (find_in_tables if form.judge == "table" else find_in_collections)(
            data, ends, taken, include_low=include_low
        )

    def leads(end: int) -> bool:
        return ends_with_match(data[max(0, end - _LED) : end], form.pattern.regex, form.pattern.exact_up_to)

    return find_assigned(data, ends, form.judge, taken, leads, include_low=include_low)


def _weighed(rule: Rule, form: CredentialForm, data: bytes, found: Candidate) -> Hit:
    secret = Secret(decode_value(data[found.start : found.end]), mask_all=rule.password)
    hit = Hit(rule, secret, found.start, found.end, form.strength, found.confidence, found.placeholder)
    hit.weighed, hit.bare = True, found.bare
    return hit
