"""Bytes in, hits out: the first pass says where to look, the second looks, and every hit is judged."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.checksum import CHECKSUMS
from outcrop.scanner.decode import Piece, after_words, base64_pieces, base64_value, escape_pieces
from outcrop.scanner.entropy import bits_per_character
from outcrop.scanner.judge.candidate import LED_TO, Candidate, assigned, matched
from outcrop.scanner.placeholder import is_placeholder
from outcrop.scanner.rule import Form, Rule, Strength
from outcrop.scanner.ruleset import RuleSet, compiled

ALLOW = b"outcrop:allow"
_ALLOW_WITHIN = 1_000  # in a line of megabytes the mark must stand near
_DEPTH = 3  # text in text in text
_REMEMBERED, _REMEMBERED_WIDTH = 20_000, 4_096  # what the second pass found in a stretch, while it is likely to come again
_remembered: dict[tuple[int, bytes, bool, bool], tuple[Form, list["Hit"]]] = {}  # a form by its id, held so that the id stays its own
_CONTINUATION = bytes(range(0x80, 0xC0))
_RANK = {strength: rank for rank, strength in enumerate(Strength)}
_SURE = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}


@dataclass(slots=True)
class Hit:
    """A credential in a text. `start` and `end` are where its value stands; line and column count from 1."""

    rule: Rule
    secret: Secret
    start: int
    end: int
    strength: Strength
    confidence: Confidence
    placeholder: bool = False
    part: str | None = None
    parts: dict[str, Secret] = field(default_factory=dict)
    encoding: tuple[str, ...] = ()
    line: int = 0
    column: int = 0
    allowed: bool = False
    weighed: bool = False  # by what it looks like: any rule that knows its issuer knows more
    bare: bool = False  # unquoted: a value where configuration is written, an expression where code is

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end

    def moved(self, by: int) -> "Hit":
        """Give the same hit elsewhere, before it has companions and a line."""
        hit = Hit(self.rule, self.secret, self.start + by, self.end + by, self.strength, self.confidence, self.placeholder, self.part)
        hit.weighed, hit.bare = self.weighed, self.bare
        return hit


Seen = list[tuple[int, int]]  # where the first pass saw a trigger end, and the trigger's number


def first_pass(ruleset: RuleSet, data: bytes | memoryview) -> Seen:
    """Look for every trigger at once."""
    seen: Seen = []
    add = seen.append

    def matched(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        add((end, number))

    ruleset.database.scan(data, match_event_handler=matched, scratch=ruleset.scratch)  # type: ignore[type-var]  # takes any buffer
    return seen


def find(
    ruleset: RuleSet, data: bytes, floor: Confidence = Confidence.MEDIUM, *, at: tuple[int, int] = (1, 1), seen: Seen | None = None
) -> list[Hit]:
    """Find the credentials of one text that are at least as sure as the floor, in the order they stand in.

    `at` is the line and column of the text's first character, where it is a piece of a longer one.
    """
    seen = first_pass(ruleset, data) if seen is None else seen
    if not seen:
        return []
    hits = [hit for hit in _find(ruleset, data, seen, 0, floor) if _SURE[hit.confidence] <= _SURE[floor]]
    if hits:
        _place(hits, data, at)
    return hits


def _find(ruleset: RuleSet, data: bytes, seen: Seen, depth: int, floor: Confidence) -> list[Hit]:
    ends: dict[int, list[int]] = {}
    for end, number in seen:
        ends.setdefault(number, []).append(end)
    hits: list[Hit] = []
    generic: list[tuple[Rule, Form, int]] = []
    count = len(ruleset.triggered)
    for number in sorted(ends):
        for rule, form in ruleset.triggered[number] if number < count else ():
            if form.keywords and not _holds(data, form.keywords):
                continue
            if form.strength is Strength.GENERIC:
                generic.append((rule, form, number))
            else:
                hits += _confirm(rule, form, data, ends[number], _nowhere)
    # What a rule names by itself, found whole or wanting, need not be judged by one that knows less.
    named = _overlaps(hit.span for hit in hits if not (hit.part or hit.rule.parts or hit.rule.paths))
    for rule, form, number in generic:
        hits += (_led_to if form.judge in LED_TO else _confirm)(rule, form, data, ends[number], named)
    hits, companions = _pair(hits, data)
    # Whether a rule for certain file names applies is known later: until then it stands beside the others.
    hits = [*best(hit for hit in hits if not hit.rule.paths), *best(hit for hit in hits if hit.rule.paths)]
    hits = _unpaired(hits, companions, floor)
    if depth < _DEPTH:
        hits = _told_once(hits, _decoded(ruleset, data, ends, depth, hits, floor=floor))
    hits.sort(key=lambda hit: (hit.start, hit.end, hit.rule.id))
    return hits


def _holds(data: bytes, words: tuple[str, ...]) -> bool:
    text = data.lower()
    return any(word.encode() in text for word in words)


Shares = Callable[[int, int], bool]


def _nowhere(_start: int, _end: int) -> bool:
    return False


def _confirm(rule: Rule, form: Form, data: bytes, ends: list[int], taken: Shares) -> Iterator[Hit]:
    """Match the full pattern around the places where its beginning was seen, and not at one that is taken."""
    for start, stop in _windows(form, ends, len(data)):
        if stop - start > _REMEMBERED_WIDTH or taken(start, stop):
            yield from _matches(rule, form, data, (start, stop), taken)
            continue
        # Versions of one file repeat the same lines thousands of times.
        key = (id(form), data[start:stop], start == 0, stop == len(data))
        known = _remembered.get(key)
        if known is None:
            hits = [hit.moved(-start) for hit in _matches(rule, form, data, (start, stop), taken)]
            known = form, hits
            if len(_remembered) >= _REMEMBERED:
                _remembered.clear()
            _remembered[key] = known
        for hit in known[1]:
            yield hit.moved(start)


def _matches(rule: Rule, form: Form, data: bytes, window: tuple[int, int], taken: Shares) -> Iterator[Hit]:
    at, stop = window
    pattern = compiled(form.regex)
    group = pattern.groupindex[b"secret"]
    while (match := pattern.search(data, at, stop)) is not None:
        left, right = match.span(group)
        if left < 0 or taken(left, right):  # an alternative without the group
            at = max(match.end(), at + 1)
            continue
        hit = _judge(rule, form, data, left, right) if form.judge is None else _weighed(rule, form, data, matched(data, match, form.judge))
        if hit is not None:
            yield hit
        at = max(hit.end if hit else left, at + 1)  # a value that is none may hold the word before the next


def _windows(form: Form, ends: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Give the stretches in which a match can lie, overlapping ones as one."""
    start, stop = -1, -1
    before, after = form.reach
    for end in sorted(ends):
        left = max(0, end - before)
        if left > stop:
            if stop >= 0:
                yield start, stop
            start = left
        stop = max(stop, min(size, end + after))
    if stop >= 0:
        yield start, stop


def _judge(rule: Rule, form: Form, data: bytes, left: int, right: int) -> Hit | None:
    raw = data[left:right]
    if rule.decode == "base64":
        plain = base64_value(raw)
        if plain is None:
            return None
        raw = plain
    value = text_of(raw)
    if form.exclude is not None and compiled(form.exclude).fullmatch(raw):
        return None
    if form.entropy and bits_per_character(value) < form.entropy:
        return None
    confidence = form.confidence
    wrong = form.checksum is not None and not CHECKSUMS[form.checksum](value)
    placeholder = not wrong and is_placeholder(value)
    if wrong or placeholder:
        confidence = Confidence.LOW
    secret = Secret(value, wholly=rule.password)
    return Hit(rule, secret, left, right, form.strength, confidence, placeholder=placeholder, part=form.part)


def _led_to(rule: Rule, form: Form, data: bytes, ends: list[int], taken: Shares) -> Iterator[Hit]:
    """Judge the values that begin where the first pass saw their first characters after a name."""
    for found in assigned(data, ends, form.judge or ""):
        if not taken(found.left, found.right) and (hit := _weighed(rule, form, data, found)) is not None:
            yield hit


def _weighed(rule: Rule, form: Form, data: bytes, found: Candidate | None) -> Hit | None:
    """Let the judge of generic values say whether a candidate is one, and how sure that is."""
    if found is None or (confidence := found.verdict.confidence) is None:
        return None
    value = text_of(data[found.left : found.right])
    placeholder = is_placeholder(value)
    secret = Secret(value, wholly=rule.password)
    confidence = Confidence.LOW if placeholder else confidence
    return Hit(rule, secret, found.left, found.right, form.strength, confidence, placeholder=placeholder, weighed=True, bare=found.bare)


def text_of(raw: bytes) -> str:
    """Read a value as UTF-8, else byte for byte, so that every value has exactly one text."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _pair(hits: list[Hit], data: bytes) -> tuple[list[Hit], dict[int, list[int]]]:
    """Give secrets their companions, the nearest of each kind; one that lacks what it requires is none.

    Beside the hits comes where the companions of each stand, by the hit's id.
    """
    kept: list[Hit] = []
    companions: dict[int, list[int]] = {}
    for hit in hits:
        for part in hit.rule.parts if hit.part is None else ():
            place = _nearest(part.regex, data, hit, part.within)
            if place is not None:
                hit.parts[part.name] = Secret(text_of(data[place[0] : place[1]]))
                companions.setdefault(id(hit), []).append(place[0])
        if hit.part is not None or all(part.name in hit.parts for part in hit.rule.parts if part.required):
            kept.append(hit)
    return kept, companions


def _unpaired(hits: list[Hit], companions: dict[int, list[int]], floor: Confidence) -> list[Hit]:
    """Leave out the companions of a secret that is reported: they are told with it."""
    reported = [hit for hit in hits if hit.confidence is not Confidence.LOW and _SURE[hit.confidence] <= _SURE[floor]]
    taken = {(hit.rule.id, start) for hit in reported for start in companions.get(id(hit), ())}
    return [hit for hit in hits if hit.part is None or (hit.rule.id, hit.start) not in taken]


def _nearest(pattern: str, data: bytes, hit: Hit, within: int) -> tuple[int, int] | None:
    found = compiled(pattern)
    group = found.groupindex[b"secret"]
    best: tuple[int, int] | None = None
    distance = within + 1
    at, stop = max(0, hit.start - within), min(len(data), hit.end + within)
    while (match := found.search(data, at, stop)) is not None:
        left, right = match.span(group)
        at = max(right, at + 1)
        gap = max(hit.start - right, left - hit.end)
        if 0 <= gap < distance:
            best, distance = (left, right), gap
    return best


def best(hits: Iterable[Hit]) -> Iterator[Hit]:
    """Let each value be named once, by the surest rule: what overlaps a better hit is left out."""
    order = sorted(hits, key=lambda h: (_RANK[h.strength], h.weighed, h.start - h.end, _SURE[h.confidence], h.rule.id))
    starts: list[int] = []
    spans: list[tuple[int, int]] = []
    for hit in order:
        at = bisect_left(starts, hit.start)
        if (at > 0 and spans[at - 1][1] > hit.start) or (at < len(spans) and spans[at][0] < hit.end):
            continue
        starts.insert(at, hit.start)
        spans.insert(at, (hit.start, hit.end))
        yield hit


def _decoded(ruleset: RuleSet, data: bytes, ends: dict[int, list[int]], depth: int, known: list[Hit], *, floor: Confidence) -> list[Hit]:
    """Find what is written in an encoding; a value that is known already is told only by a rule that knows more of it."""
    count = len(ruleset.triggered)
    plain = {reveal(hit.secret): _RANK[hit.strength] for hit in known}
    found: list[Hit] = []
    pieces = list(base64_pieces(data, {phase: sorted(ends[count + phase]) for phase in range(4) if count + phase in ends}))
    escapes = [*ends.get(count + 4, ()), *after_words(data, ends.get(count + 5, []))]
    if escapes:
        pieces += escape_pieces(data, sorted(escapes))
    for piece in pieces:
        for hit in _find(ruleset, piece.text, _touched(ruleset, piece), depth + 1, floor):
            value, rank = reveal(hit.secret), _RANK[hit.strength]
            if rank < plain.get(value, len(_RANK)) and not piece.cuts(hit.start, hit.end):
                plain[value] = rank
                start = piece.origin(hit.start)
                found.append(replace(hit, start=start, end=max(start, piece.origin(hit.end)), encoding=(piece.encoding, *hit.encoding)))
    return found


def _touched(ruleset: RuleSet, piece: Piece) -> Seen:
    """Give what the first pass sees where decoding has changed something: the rest has been looked at as it stood."""
    seen = first_pass(ruleset, piece.text)
    if not piece.changes:
        return seen
    count = len(ruleset.triggered)
    reach = ruleset.reach
    return [(end, number) for end, number in seen if number >= count or piece.changed(end - reach[number][0], end + reach[number][1])]


def _told_once(plain: list[Hit], decoded: list[Hit]) -> list[Hit]:
    """Where a value and what it decodes to are both hits, a generic one gives way; of two generic ones the decoded one.

    A rule that has decoded the value itself gives way to one that names it.
    """
    if not decoded:
        return plain
    named = _overlaps(hit.span for hit in decoded if hit.strength is not Strength.GENERIC and hit.confidence is not Confidence.LOW)
    again = {reveal(hit.secret) for hit in decoded}
    plain = [hit for hit in plain if not ((hit.strength is Strength.GENERIC or reveal(hit.secret) in again) and named(*hit.span))]
    known = _overlaps(hit.span for hit in plain)
    return plain + [hit for hit in decoded if hit.strength is not Strength.GENERIC or not known(*hit.span)]


def _overlaps(spans: Iterable[tuple[int, int]]) -> Shares:
    """Give a function that tells whether a stretch shares a place with one of these."""
    order = sorted(spans)
    starts = [start for start, _ in order]
    reached = list(accumulate((end for _, end in order), max))

    def shares(start: int, end: int) -> bool:
        before = bisect_left(starts, end)
        return before > 0 and reached[before - 1] > start

    return shares


def characters(text: bytes) -> int:
    """Count the characters of UTF-8, however it was cut."""
    return len(text) if text.isascii() else len(text.translate(None, _CONTINUATION))


def _place(hits: list[Hit], data: bytes, at: tuple[int, int]) -> None:
    """Set line, column and whether the line says that the value is allowed."""
    line, column = at
    counted = begin = 0
    for hit in hits:  # in the order of their starts, so each byte is counted once
        if lines := data.count(b"\n", counted, hit.start):
            line += lines
            counted = begin = data.rfind(b"\n", counted, hit.start) + 1
            column = 1
        column += characters(data[counted : hit.start])
        counted = hit.start
        hit.line, hit.column = line, column
        stop = data.find(b"\n", hit.end, hit.end + _ALLOW_WITHIN)
        around = data[max(begin, hit.start - _ALLOW_WITHIN) : stop if stop >= 0 else hit.end + _ALLOW_WITHIN]
        hit.allowed = ALLOW in around
