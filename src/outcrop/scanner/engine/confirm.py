"""Confirm trigger matches with a form's regular expression and checks, and return the hits.

`confirm` takes one of two ways:

- `_confirm_by_layout`: the trigger is the whole form, so the value's start is computed from the trigger's
  end.
- `_confirm_by_regex`: RE2 searches a window around each trigger match (`_match_window`).

`confirm_generic` hands the values of generic forms to `scanner.generic`, which judges a value by its name.

A file can have a near miss on every line. So as little as possible is done for each trigger match.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret
from outcrop.scanner import trace
from outcrop.scanner.engine.hit import Hit, OverlapTest
from outcrop.scanner.generic.candidate import Candidate
from outcrop.scanner.generic.find import (
    LEAD_IN_CHARS,
    LEAD_IN_JUDGES,
    MANY_MATCHES,
    find_assigned,
    find_in_collections,
    find_in_tables,
    judge_match,
)
from outcrop.scanner.generic.placeholders import decode_value, is_placeholder, is_sequence
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
from outcrop.scanner.rules.model import CredentialForm, Rule, Strength, ValueChecks, ValueLayout
from outcrop.scanner.text.encodings import decode_base64_value

MAX_CACHED_WINDOWS = 500  # enough for versions of one file, which repeat the same lines thousands of times
MAX_CACHED_WINDOW = 4_096  # bytes
MAX_LEAD_IN = 512  # bytes from a name to its value: more than `scanner.generic` reads
_LOW = Confidence.LOW  # an enum member costs a lookup at each use
# What decides the confidence of a hit.
_REASONS: dict[Strength, trace.Reasons] = {strength: ((str(strength), 0.0),) for strength in Strength}
_REASONS_AGAINST: trace.Reasons = ((trace.WRONG_CHECKSUM, 0.0),)
_REASONS_OF_PLACEHOLDER: trace.Reasons = ((trace.PLACEHOLDER, 0.0),)

Span = tuple[int, int]  # (start, end)

# (id of the form, the window's bytes, whether it begins the text, whether it ends the text)
# -> (the form, so that its id is not used for another one; the window's start; its hits)
_window_cache: dict[tuple[int, bytes, bool, bool], tuple[CredentialForm, int, list[Hit]]] = {}


def confirm(
    rule: Rule, form: CredentialForm, data: bytes, ends: list[int], taken: OverlapTest | None = None
) -> Iterator[Hit]:
    """Return an iterator over the hits of `form` around the trigger matches that end at the offsets `ends`.

    `taken` says whether a span overlaps a value that another rule has found. Such hits are left out.
    """
    if form.layout is not None and taken is None:
        return _confirm_by_layout(rule, form, data, ends)
    if taken is not None and (after_value := form.trigger.after_value) is not None:
        # All values of the form end this many bytes before the end of the trigger.
        ends = [end for end in ends if not taken(end - after_value - 1, end - after_value)]
    return _confirm_by_regex(rule, form, data, ends, taken)


def confirm_generic(
    rule: Rule,
    form: CredentialForm,
    data: bytes,
    ends: list[int],
    taken: OverlapTest | None,
    *,
    include_low: bool,
) -> Iterator[Hit]:
    """Yield the hits of a generic form around the trigger matches that end at `ends`.

    `taken` says whether a span overlaps a value that another rule has found. Such hits are left out. Unless
    `include_low`, leave out values of low confidence too, except for forms whose pattern matches the complete
    value.
    """
    if form.judge not in LEAD_IN_JUDGES:
        yield from confirm(rule, form, data, ends, taken)
        return
    is_taken = taken or _is_never_taken

    def is_led_to(end: int) -> bool:
        """Whether the form's regular expression has a match that ends at `end`.

        The trigger, which ends there too, is less exact. Only MAX_LEAD_IN bytes before `end` are read.
        """
        lead_in = data[max(0, end - MAX_LEAD_IN) : end]
        return ends_with_match(lead_in, form.pattern.regex, form.pattern.exact_up_to)

    candidates: Iterable[Candidate]
    if form.judge in LEAD_IN_CHARS:
        candidates = find_assigned(data, ends, form.judge, is_taken, is_led_to, include_low=include_low)
    elif form.judge == "table":
        candidates = find_in_tables(data, ends, is_taken, include_low=include_low)
    else:
        candidates = find_in_collections(data, ends, is_taken, include_low=include_low)
    for candidate in candidates:
        if not is_taken(candidate.start, candidate.end):
            yield _candidate_hit(rule, form, data, candidate)


def _is_never_taken(_start: int, _end: int) -> bool:
    """Return False: the test to use if no other rule has found a value."""
    return False


def _confirm_by_layout(rule: Rule, form: CredentialForm, data: bytes, ends: list[int]) -> Iterator[Hit]:
    """Yield the hits of a form with a layout, from which the value's start is computed.

    `ends` are the end offsets of the trigger matches. The regular expression runs only where the start is
    ambiguous.
    """
    layout = form.layout
    assert layout is not None  # noqa: S101 - the caller checks
    continuing = _continuing_bytes(layout.joining)
    size, last_end, previous_end = len(data), -1, 0
    for end in ends:
        # The trigger ends one byte after the value, or at the end of the text.
        right = end if end == size and data[end - 1] in continuing else end - 1
        if right < size and data[right] in continuing:
            continue
        # A byte that ends a value can only be among the first `min_width` bytes of another value. So the
        # value that ends here begins at most that many bytes before the previous one's end.
        least = max(last_end, right - layout.max_width, previous_end - layout.min_width)
        previous_end = right
        left = (
            right - layout.max_width
            if layout.min_width == layout.max_width
            else _find_value_start(layout, data, least, right)
        )
        if left is None:
            yield from _match_window(rule, form, data, (max(0, least - 2), min(end + 1, size)))
        elif (
            left > last_end
            # The trigger allows n, r and t before the value; they must be an escape such as \n.
            and not (left > 0 and data[left - 1] in b"nrt" and data[max(0, left - 2) : left - 1] != b"\\")
            and (hit := _check_value(rule, form, data, (left, right))) is not None
        ):
            last_end = right
            yield hit


def _find_value_start(layout: ValueLayout, data: bytes, least: int, right: int) -> int | None:
    """Return the only offset from `least` on at which a value that ends at `right` can begin.

    The value has a prefix and at least the width of `layout`. None if there is no such offset, or more than
    one.
    """
    start = None
    least, most = max(0, least), right - layout.min_width
    for prefix in _encode(layout.prefixes):
        at = data.find(prefix, least, most + len(prefix))
        if at >= 0:
            if start is not None or data.find(prefix, at + 1, most + len(prefix)) >= 0:
                return None
            start = at
    return start


@lru_cache(maxsize=64)
def _continuing_bytes(joining: str) -> bytes:
    """Return the bytes that cannot follow a value: letters, digits, _ and the characters of `joining`.

    The result is cached.
    """
    return WORD_BYTES + joining.encode()


def _confirm_by_regex(
    rule: Rule, form: CredentialForm, data: bytes, ends: list[int], taken: OverlapTest | None = None
) -> Iterator[Hit]:
    """Yield the hits of the form's regular expression in the windows around the trigger matches.

    `ends` are the end offsets of the trigger matches. `taken` says whether a span overlaps a value that
    another rule has found. Such hits are left out. The hits of small windows are kept in `_window_cache`, and
    copied from there if a window has the same bytes.
    """
    size = len(data)
    # An allowlist may read the rest of the line, which can be outside of the window.
    use_cache = (
        len(ends) <= MANY_MATCHES
        and trace.active is None
        and not (rule.allowlists and any(allowlist.regex_target == "line" for allowlist in rule.allowlists))
    )
    windows = _windows(form, ends, size)
    if form.window.until is not None:
        windows = _cut_windows(windows, form.window.until, data, ends)
    for start, stop in windows:
        if not use_cache or stop - start > MAX_CACHED_WINDOW or (taken and taken(start, stop)):
            yield from _match_window(rule, form, data, (start, stop), taken)
            continue
        key = (id(form), data[start:stop], start == 0, stop == size)
        cached = _window_cache.get(key)
        if cached is not None:
            yield from [hit.shifted(start - cached[1]) for hit in cached[2]]
            continue
        hits = list(_match_window(rule, form, data, (start, stop), taken))
        if len(_window_cache) >= MAX_CACHED_WINDOWS:
            _window_cache.clear()
        _window_cache[key] = form, start, hits
        yield from hits


def _windows(form: CredentialForm, ends: list[int], size: int) -> Iterator[Span]:
    """Yield the spans of a text of `size` bytes in which the form can match; overlapping ones are joined.

    `ends` are the end offsets of the trigger matches.
    """
    before, after = form.reach
    start = stop = -1
    for end in ends:
        left = end - before
        if left > stop or stop < 0:
            if stop >= 0:
                yield start, stop
            start = max(0, left)
        stop = min(end + after, size)
    if stop >= 0:
        yield start, stop


def _cut_windows(windows: Iterable[Span], until: str, data: bytes, ends: list[int]) -> Iterator[Span]:
    """Cut each window at the matches of the regular expression `until`; yield the parts with a trigger's end.

    `ends` are the end offsets of the trigger matches. A match of `until` belongs to the parts on both sides
    of it.
    """
    regex = compile_cached(until)
    for window_start, window_stop in windows:
        bounds: list[Span] = []
        at = window_start
        while (groups := find_spans(regex, data, at, window_stop)) is not None:
            bounds.append(groups[0])
            at = max(groups[0][1], at + 1)
        starts = [window_start, *(left for left, _ in bounds)]
        stops = [*(right for _, right in bounds), window_stop]
        for start, stop in zip(starts, stops, strict=True):
            if bisect_right(ends, stop) > bisect_right(ends, start):
                yield start, stop


def _match_window(
    rule: Rule, form: CredentialForm, data: bytes, window: Span, taken: OverlapTest | None = None
) -> Iterator[Hit]:
    """Yield the hits of the form's regular expression in the span `window`.

    `taken` says whether a span overlaps a value that another rule has found. Such hits are left out.
    """
    start, stop = window
    pattern = form.pattern
    if not form.trigger.ends_match and not _contains_in_order(_encode(pattern.literals), data, start, stop):
        return
    # The pattern of the value alone is ten times as fast as one that follows a context word through the text.
    if (
        pattern.value_at
        and find_spans(compile_loosened(pattern.regex[pattern.value_at :])[0], data, start, stop) is None
    ):
        return
    make_hit = _check_value if form.judge is None else _judge_value
    (regex, value_group), exact_up_to = compile_loosened(pattern.regex), pattern.exact_up_to
    while (groups := find_spans(regex, data, start, stop)) is not None:
        left, right = groups[0]
        if right - left > exact_up_to:  # from here on only the exact pattern will do
            regex, exact_up_to = compile_cached(pattern.regex), stop
            continue
        value = groups[value_group] if value_group else _first_filled_group(groups)
        if value[0] >= value[1] or (taken and taken(*value)):  # empty: an alternative without the group
            start = max(right, start + 1)
            continue
        hit = make_hit(rule, form, data, value, groups)
        if hit is not None:
            yield hit
        # A value that was dropped can contain the context word of the next one.
        start = max(hit.end if hit else value[0], start + 1)


def _first_filled_group(groups: list[Span]) -> Span:
    """Return the span of the first group of a match that is not empty; if there is none, of the whole match.

    `groups` are the spans of the whole match and of its groups.
    """
    return next((span for span in groups[1:] if span[0] < span[1]), groups[0])


def _contains_in_order(literals: list[bytes], data: bytes, start: int, stop: int) -> bool:
    """Whether all `literals` are in data[start:stop], one after the other."""
    for literal in literals:
        start = data.find(literal, start, stop) + len(literal)
        if start < len(literal):
            return False
    return True


@lru_cache(maxsize=4096)
def _encode(literals: tuple[str, ...]) -> list[bytes]:
    """Return the literals of a rule as the bytes that they match; the result is cached."""
    return [literal.encode("latin-1") for literal in literals]


def _check_value(
    rule: Rule, form: CredentialForm, data: bytes, value: Span, groups: Sequence[Span] = ()
) -> Hit | None:
    """Return the hit at the span `value`; None if a check of the form or an allowlist of the rule drops it.

    If the rule's values are base64, the decoded value is checked and reported; None if it cannot be decoded.
    A wrong checksum or a placeholder lowers the confidence. `groups` are the spans of the match's groups, the
    whole match first; without them, allowlists are not applied.
    """
    raw = data[value[0] : value[1]]
    if rule.decode == "base64":
        decoded = decode_base64_value(raw)
        if decoded is None:
            return _reject(rule, value, raw, "it is no base64 of a text")
        raw = decoded
    text = decode_value(raw)
    checks = form.checks
    reason = _failed_check(checks, text, raw)
    # A value that counts or repeats itself is a placeholder: it is reported with low confidence.
    if reason and not is_sequence(text):
        return _reject(rule, value, raw, reason)
    has_wrong_checksum = checks.checksum is not None and not CHECKSUMS[checks.checksum](text)
    placeholder = not has_wrong_checksum and is_placeholder(text)
    confidence = _LOW if has_wrong_checksum or placeholder else form.confidence
    secret = Secret(text, mask_all=rule.password)
    hit = Hit(rule, secret, *value, form.strength, confidence, placeholder, form.companion)
    hit.reasons = _REASONS_AGAINST if has_wrong_checksum else _REASONS[form.strength]
    if placeholder:
        hit.reasons = _REASONS_OF_PLACEHOLDER
    return _apply_allowlists(hit, data, value, groups[0]) if rule.allowlists and groups else hit


def _failed_check(checks: ValueChecks, text: str, raw: bytes) -> str:
    """Return why a value is not what a form looks for, by its checks; "" if it passes them.

    `text` and `raw` are the same value.
    """
    if checks.exclude is not None and matches_fully(compile_cached(checks.exclude), raw):
        return "the rule excludes values of this form"
    if checks.min_entropy and not has_entropy(text, checks.min_entropy):
        return "its characters are not random enough (entropy)"
    if checks.not_words and is_made_of_words(text):
        return "it is made of words"
    return ""


def _reject(rule: Rule, value: Span, raw: bytes, reason: str) -> Hit | None:
    """Return None, and record why the value at the span `value` is not what the rule finds."""
    if trace.active is not None:
        secret = Secret(decode_value(raw), mask_all=rule.password)
        trace.record(*value, rule=rule.id, reason=reason, value=secret)
    return None


def _apply_allowlists(hit: Hit, data: bytes, value: Span, match: Span) -> Hit | None:
    """Set the hit's `allowlist_numbers` and return the hit; None if an allowlist of its rule allows it.

    `value` and `match` are the spans of the value and of the whole match.
    """
    allowlist_numbers = match_allowlists(hit.rule.allowlists, data, value, match)
    if allowlist_numbers is None:
        raw = data[value[0] : value[1]]
        return _reject(hit.rule, value, raw, "an allowlist of the rule allows it")
    hit.allowlist_numbers = allowlist_numbers
    return hit


def _judge_value(
    rule: Rule, form: CredentialForm, data: bytes, value: Span, groups: Sequence[Span]
) -> Hit | None:
    """Return the hit of a value of a generic form; None if `judge_match` finds that it is no credential.

    `value` is the value's span. `groups` are the spans of the whole match and of its groups. The group `name`
    of the regular expression, if there is one, is the value's name; without it the value is judged as a
    password.
    """
    name_group = _name_group(form.pattern.regex)
    name = groups[name_group] if name_group else None
    assert form.judge is not None  # noqa: S101 - the caller checks
    candidate = judge_match(data, value, name, form.judge)
    if candidate is None:
        trace.record(*value, value=Secret(decode_value(data[value[0] : value[1]]), mask_all=True))
        return None
    return _candidate_hit(rule, form, data, candidate)


@lru_cache(maxsize=64)
def _name_group(regex: str) -> int:
    """Return the number of the regular expression's group `name`; 0 if it has none. The result is cached."""
    return int(compile_cached(regex).groupindex.get(b"name", 0))


def _candidate_hit(rule: Rule, form: CredentialForm, data: bytes, candidate: Candidate) -> Hit:
    """Return the hit of a value that `scanner.generic` has accepted, marked as judged.

    Its confidence is that of the candidate, its strength that of the form.
    """
    start, end = candidate.start, candidate.end
    secret = Secret(decode_value(data[start:end]), mask_all=rule.password)
    hit = Hit(rule, secret, start, end, form.strength, candidate.confidence, candidate.placeholder)
    hit.judged, hit.bare, hit.reasons = True, candidate.bare, candidate.reasons
    return hit
