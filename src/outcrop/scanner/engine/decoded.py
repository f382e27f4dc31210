"""Search decoded pieces of a text for triggers.

Base64 hides all of a piece, so all triggers are searched for (`scan_pieces`). Decoded escapes change only a
few characters, and the rest of the piece was scanned before it was decoded. So only the trigger matches that
a decoded character can have changed are returned (`scan_changed_text`).
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from hashlib import blake2b

from outcrop.domain.finding import Confidence
from outcrop.scanner.engine.ruleset import MAX_NEAR, SAME_LINE, RuleSet
from outcrop.scanner.engine.triggers import EndsByTrigger, find_trigger_matches, group_matches, scan_triggers
from outcrop.scanner.generic.find import has_name_in_line
from outcrop.scanner.text.encodings import DecodedPiece

Lines = tuple[list[int], list[int]]  # start offsets, end offsets


def scan_pieces(ruleset: RuleSet, pieces: list[DecodedPiece]) -> Iterator[EndsByTrigger]:
    """Yield the trigger matches of each decoded piece, in the order of `pieces`.

    One Hyperscan call searches all pieces, as a text can be full of base64.
    """
    if len(pieces) == 1:
        yield scan_triggers(ruleset, pieces[0].text)
        return
    matches = find_trigger_matches(ruleset, b"\n".join(piece.text for piece in pieces)) if pieces else []
    first = start = 0
    for piece in pieces:
        stop = start + len(piece.text)
        # A match that ends with the line break after the piece may be one that ends with the piece.
        last = bisect_left(matches, (stop + 2, 0), first)
        yield group_matches(
            (min(end, stop) - start, number) for end, number in matches[first:last] if end > start
        )
        first, start = last, stop + 1


def hash_escaped_range(data: bytes, start: int, stop: int, depth: int, min_confidence: Confidence) -> bytes:
    """Return a hash of data[start:stop] and of everything else that decides which hits its escapes have.

    That is whether there is text before and after the range, `depth` and `min_confidence`.
    """
    context = f"{start > 0:d}{stop < len(data):d} {depth} {min_confidence}"
    return blake2b(data[start:stop], digest_size=16, person=context.encode()).digest()


def scan_changed_text(ruleset: RuleSet, piece: DecodedPiece, ends: EndsByTrigger) -> EndsByTrigger:
    """Return the trigger matches in a piece with decoded escapes that a decoded character can have changed.

    `ends` are the trigger matches of the text before decoding. Matches of archives are left out.
    """
    lines = piece.decoded_lines()
    changed: EndsByTrigger = {}
    for number, offsets in _scan_changed_lines(ruleset, piece, lines, ends).items():
        kept = offsets
        if number < ruleset.trigger_count:
            reach = ruleset.reach[number]
            if reach.line_gap is None:
                kept = [end for end in offsets if piece.has_decoded(end - reach.before, end + reach.after)]
            else:
                kept = list(_in_changed_lines(piece.text, lines, offsets, reach.line_gap, reach.judge))
        elif number < ruleset.escape_trigger:  # base64
            kept = [end for end in offsets if piece.has_decoded_in_base64_run(end)]
        elif number == ruleset.archive_trigger:  # archives are unpacked from the text before decoding
            kept = []
        if kept:
            changed[number] = kept
    return changed


def _scan_changed_lines(
    ruleset: RuleSet, piece: DecodedPiece, lines: Lines, ends: EndsByTrigger
) -> EndsByTrigger:
    """Return the trigger matches within MAX_NEAR bytes of `lines`, the lines with decoded characters.

    `ends` are the trigger matches before decoding. Those of triggers with a far reach are returned too if
    they are in the piece, at their offsets after decoding.
    """
    near: EndsByTrigger = defaultdict(list)
    text = memoryview(piece.text)
    for start, stop in _windows(*lines):
        for number, offsets in scan_triggers(ruleset, text[start:stop], start).items():
            near[number] += offsets
    start, stop = piece.start, piece.original_offset(len(text))
    for number, offsets in ends.items():
        if number < ruleset.trigger_count and ruleset.reach[number].is_far:
            in_piece = offsets[bisect_right(offsets, start) : bisect_right(offsets, stop)]
            near[number] = sorted({*near[number], *map(piece.decoded_offset, in_piece)})
    return near


def _windows(starts: list[int], stops: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the spans of lines with MAX_NEAR bytes around them; overlapping spans are joined.

    `starts` and `stops` are the offsets of the lines, in order; there is at least one line. The last span can
    end after the text.
    """
    first, last = max(0, starts[0] - MAX_NEAR), stops[0] + MAX_NEAR
    for start, stop in zip(starts, stops, strict=True):
        if start - MAX_NEAR > last:
            yield first, last
            first = start - MAX_NEAR
        last = stop + MAX_NEAR
    yield first, last


def _in_changed_lines(text: bytes, lines: Lines, ends: list[int], line_gap: int, judge: str) -> Iterator[int]:
    """Yield those of `ends` that are in one of `lines`, or at most `line_gap` bytes after one.

    `ends` and `lines` are in order. `judge` names the generic form's judge, "" for none. With a judge, skip a
    match after such a line if the value's name is in the value's own line, which is unchanged.
    """
    starts, stops = lines
    row, last_row = -1, len(starts) - 1
    for end in ends:
        while row < last_row and starts[row + 1] < end:  # the last changed line that begins before `end`
            row += 1
        gap = end - stops[row] if row >= 0 else end + line_gap + 1
        if gap <= SAME_LINE or (gap <= line_gap and not (judge and has_name_in_line(text, end, judge))):
            yield end
