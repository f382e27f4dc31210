"""Bytes in, hits out: the first pass says where to look, the second looks, and every value is told once and in its place."""

from bisect import bisect_left, bisect_right
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.companions import pair, whole
from outcrop.scanner.engine.confirm import Shares, confirm, led_to, nowhere
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.precedence import _of_each, _overlaps, _told_once, _unpaired, keep_best
from outcrop.scanner.engine.ruleset import IN_LINE, NEAR, RuleSet
from outcrop.scanner.engine.triggers import EndsByTrigger, group_by_trigger, scan_joined_texts, scan_triggers
from outcrop.scanner.generic.find import LEAD_IN_JUDGES, has_name_in_line
from outcrop.scanner.rules.model import CredentialForm, Rule, Strength
from outcrop.scanner.text.base64_archives import unpack_base64_archives
from outcrop.scanner.text.encodings import (
    DecodedPiece,
    decode_base64_runs,
    decode_escapes,
    find_escaped_ranges,
    is_quoted_printable_equals,
    keep_after_credential_words,
)

ALLOW_MARK = b"outcrop:allow"
_ALLOW_WITHIN = 1_000  # in a line of megabytes the mark must stand near
_DEPTH = 3  # text in text in text
_CONTINUATION = bytes(range(0x80, 0xC0))
_SURE = {Confidence.HIGH: 0, Confidence.MEDIUM: 1, Confidence.LOW: 2}
_LOW, _GENERIC = (
    Confidence.LOW,
    Strength.GENERIC,
)  # a member is looked up at each use, and these are used for every near miss


Lines = tuple[list[int], list[int]]  # where they begin and end


def find(
    ruleset: RuleSet,
    data: bytes,
    floor: Confidence = Confidence.MEDIUM,
    *,
    at: tuple[int, int] = (1, 1),
    ends: EndsByTrigger | None = None,
) -> list[Hit]:
    """Find the credentials of one text that are at least as sure as the floor, in the order they stand in.

    `at` is the line and column of the text's first character, where it is a piece of a longer one; `ends` what was seen in it.
    """
    ends = scan_triggers(ruleset, data) if ends is None else ends
    if not ends:
        return []
    hits = [hit for hit in _find(ruleset, data, ends, 0, floor) if _SURE[hit.confidence] <= _SURE[floor]]
    if hits:
        _place(hits, data, at)
    return hits


def _find(ruleset: RuleSet, data: bytes, ends: EndsByTrigger, depth: int, floor: Confidence) -> list[Hit]:
    hits: list[Hit] = []
    generic: list[tuple[Rule, CredentialForm, int]] = []
    named: list[tuple[int, int]] = []
    count = ruleset.count
    lowered = b""
    for number in sorted(ends):
        for rule, form in ruleset.triggered(number) if number < count else ():
            if form.trigger.keywords:
                lowered = lowered or data.lower()
                if not any(word.encode() in lowered for word in form.trigger.keywords):
                    continue
            if form.strength is _GENERIC:
                generic.append((rule, form, number))
                continue
            mine = list(confirm(rule, form, data, ends[number]))
            hits += mine
            if not (rule.depends_on_path or rule.requires_companion):
                named += [(hit.start, hit.end) for hit in mine]
    if generic:
        hits += _generic(
            generic, data, ends, _overlaps(named) if named else nowhere, include_low=floor is _LOW
        )
    decoded = _decoded(ruleset, data, ends, depth, floor) if depth < _DEPTH and max(ends) >= count else []
    if floor is not _LOW and all(hit.confidence is _LOW for hit in (*decoded, *hits)):
        return []  # nothing but near misses, which a file may be full of
    hits = _told_once(
        [hit for hit in _told_apart(hits, data, floor) if not _is_cut_wrong(hit, data)], decoded
    )
    hits.sort(key=lambda hit: (hit.start, hit.end, hit.rule.id))
    return hits


def _generic(
    forms: list[tuple[Rule, CredentialForm, int]],
    data: bytes,
    ends: EndsByTrigger,
    named: Shares,
    *,
    include_low: bool,
) -> Iterator[Hit]:
    """Give what generic rules find. What another names by itself, found whole or wanting, need not be judged by one that knows less."""
    for rule, form, number in forms:
        if form.judge in LEAD_IN_JUDGES:
            yield from led_to(rule, form, data, ends[number], named, include_low=include_low)
        else:
            yield from confirm(rule, form, data, ends[number], named)


def _told_apart(hits: list[Hit], data: bytes, floor: Confidence) -> list[Hit]:
    """Let each value be told once, by the rule that knows most of it and with its companions."""
    hits = whole(hits, data)
    hits = [
        *keep_best(hit for hit in hits if not hit.rule.depends_on_path),
        *_of_each(hit for hit in hits if hit.rule.depends_on_path),
    ]
    companions = pair(hits, data, lambda hit: _SURE[hit.confidence] <= _SURE[floor])
    return _unpaired(hits, companions, floor)


def _is_cut_wrong(hit: Hit, data: bytes) -> bool:
    """Tell whether a value begins inside an escape, behind which it is found too."""
    return (
        hit.strength is _GENERIC
        and data.startswith(b"3D", hit.start)
        and is_quoted_printable_equals(data, hit.start)
    )


def _decoded(ruleset: RuleSet, data: bytes, ends: EndsByTrigger, depth: int, floor: Confidence) -> list[Hit]:
    """Find what is written in an encoding."""
    count = ruleset.count
    found: list[Hit] = []
    pieces = list(
        decode_base64_runs(data, {phase: ends[count + phase] for phase in range(4) if count + phase in ends})
    )
    for piece, seen in zip(pieces, _seen_in(ruleset, pieces), strict=True):
        found += _inside(ruleset, piece, seen, depth, floor)
    escapes = [*ends.get(count + 4, ()), *keep_after_credential_words(data, ends.get(count + 5, []))]
    for start, stop in find_escaped_ranges(data, sorted(escapes)):
        name = _name_of(data, start, stop, f"{depth} {floor}")
        if name not in ruleset.barren and (plain := decode_escapes(data, start, stop)) is not None:
            hits = _inside(ruleset, plain, _touched(ruleset, plain, ends), depth, floor)
            if not hits:
                ruleset.note_barren(name)
            found += hits
    if depth < _DEPTH - 1 and count + 6 in ends:
        found += _unpacked(ruleset, data, ends[count + 6], floor)
    return found


def _unpacked(ruleset: RuleSet, data: bytes, ends: list[int], floor: Confidence) -> Iterator[Hit]:
    """Find what is in archives that stand in a text; in what they hold no further ones are looked for."""
    for text, start, stop, encoding in unpack_base64_archives(data, ends):
        seen = scan_triggers(ruleset, text)
        for hit in _find(ruleset, text, seen, _DEPTH - 1, floor) if seen else ():
            yield replace(hit, start=start, end=stop, encoding=(*encoding, *hit.encoding))


def _inside(
    ruleset: RuleSet, piece: DecodedPiece, ends: EndsByTrigger, depth: int, floor: Confidence
) -> list[Hit]:
    """Give what a decoded stretch holds by where it stands in the text it was decoded from."""
    found = []
    for hit in _find(ruleset, piece.text, ends, depth + 1, floor) if ends else ():
        if not piece.cuts(hit.start, hit.end):
            start = piece.origin(hit.start)
            found.append(
                replace(
                    hit,
                    start=start,
                    end=max(start, piece.origin(hit.end)),
                    encoding=(piece.encoding, *hit.encoding),
                )
            )
    return found


def _name_of(data: bytes, start: int, stop: int, more: str) -> bytes:
    """Name a stretch by all that matters for what is found in it."""
    return blake2b(
        data[start:stop], digest_size=16, person=f"{start > 0:d}{stop < len(data):d} {more}".encode()
    ).digest()


def _seen_in(ruleset: RuleSet, pieces: list[DecodedPiece]) -> Iterator[EndsByTrigger]:
    """Give what the first pass sees in each piece, in all of them by one call: of base64 a text may be full."""
    seen = scan_joined_texts(ruleset, b"\n".join(piece.text for piece in pieces)) if pieces else []
    at = start = 0
    for piece in pieces:
        stop = start + len(piece.text)
        first, at = (
            at,
            bisect_left(seen, (stop + 2, 0), at),
        )  # what ends with the line break behind a piece may end with the piece
        yield group_by_trigger(
            (min(end, stop) - start, number) for end, number in seen[first:at] if end > start
        )
        start = stop + 1


def _touched(ruleset: RuleSet, piece: DecodedPiece, ends: EndsByTrigger) -> EndsByTrigger:
    """Give what is seen in a text where its decoded characters matter; the rest has been looked at as it stood, with these ends."""
    count = ruleset.count
    lines = piece.changed_lines()
    touched = {}
    for number, mine in _around(ruleset, piece, lines, ends).items():
        if number >= count + 6:
            continue  # an archive is unpacked as it stands
        if number >= count:  # base64, or an escape that is itself one
            kept = mine if number >= count + 4 else [end for end in mine if piece.changed_in_run(end)]
        elif (reach := ruleset.reach(number)).back is None:
            kept = [end for end in mine if piece.changed(end - reach.before, end + reach.after)]
        else:
            kept = list(_in_changed_lines(piece.text, lines, mine, reach.back, reach.judge))
        if kept:
            touched[number] = kept
    return touched


def _around(ruleset: RuleSet, piece: DecodedPiece, lines: Lines, ends: EndsByTrigger) -> EndsByTrigger:
    """Look for every trigger around the lines that have decoded characters. Those that look further than that were seen as it stood."""
    near: EndsByTrigger = defaultdict(list)
    text = memoryview(piece.text)
    for first, last in _windows(*lines):
        for number, mine in scan_triggers(ruleset, text[first:last], first).items():
            near[number] += mine
    start, stop = piece.start, piece.origin(len(text))
    for number, mine in ends.items():
        if number < ruleset.count and ruleset.reach(number).is_far:
            far = map(piece.place, mine[bisect_right(mine, start) : bisect_right(mine, stop)])
            near[number] = sorted({*near[number], *far})
    return near


def _windows(starts: list[int], stops: list[int]) -> Iterator[tuple[int, int]]:
    """Give lines with what is near them, neighbouring ones as one."""
    first, last = max(0, starts[0] - NEAR), stops[0] + NEAR
    for start, stop in zip(starts, stops, strict=True):
        if start - NEAR > last:
            yield first, last
            first = start - NEAR
        last = stop + NEAR
    yield first, last


def _in_changed_lines(text: bytes, lines: Lines, ends: list[int], back: int, judge: str) -> Iterator[int]:
    """Give those that stand in a line with a decoded character, or so near behind one that it matters."""
    starts, stops = lines
    row, last = -1, len(starts) - 1
    for end in ends:
        while row < last and starts[row + 1] < end:  # the last such line that begins before it
            row += 1
        behind = end - stops[row] if row >= 0 else end + back + 1
        if behind <= IN_LINE or (behind <= back and not (judge and has_name_in_line(text, end, judge))):
            yield end


def count_characters(text: bytes) -> int:
    """Count the characters of UTF-8, however it was cut."""
    return len(text) if text.isascii() else len(text.translate(None, _CONTINUATION))


def _place(hits: list[Hit], data: bytes, at: tuple[int, int]) -> None:
    """Set line, column and whether the line says that the value is allowed."""
    line, column = at
    counted = begin = (
        len(BOM_UTF8) if at == (1, 1) and data.startswith(BOM_UTF8) else 0
    )  # no editor shows that mark
    for hit in hits:  # in the order of their starts, so each byte is counted once
        if lines := data.count(b"\n", counted, hit.start):
            line += lines
            counted = begin = data.rfind(b"\n", counted, hit.start) + 1
            column = 1
        column += count_characters(data[counted : hit.start])
        counted = hit.start
        hit.line, hit.column = line, column
        stop = data.find(b"\n", hit.end, hit.end + _ALLOW_WITHIN)
        around = data[max(begin, hit.start - _ALLOW_WITHIN) : stop if stop >= 0 else hit.end + _ALLOW_WITHIN]
        hit.allowed = ALLOW_MARK in around
