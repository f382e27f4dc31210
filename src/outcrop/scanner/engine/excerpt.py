"""Make excerpts: the lines around a hit, with every value that was detected in the text masked.

An excerpt can be stored and shown. `excerpts_of_file` scans the file again, as values of low confidence are
masked too, and `make_excerpts` cuts out the lines. `masking` finds what must be masked.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.masking import (
    MIN_SEARCHED_VALUE,
    MaskedSpan,
    Span,
    find_masked_spans,
    is_encoded,
    possible_bytes,
    unique_secrets,
)
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import needs_unpacking

CONTEXT_LINES = 2  # before and after the hit's line
MAX_LINE_WIDTH = 200  # characters
MAX_EXCERPT_DISTANCE = 4_096  # bytes before and after a hit in which its lines are searched for
MAX_EXCERPTS = 2_000  # of one text: nobody reads a dump of more credentials line by line
ELLIPSIS = "…"


def excerpts_of_file(
    ruleset: RuleSet, content: bytes, path_hits: Sequence[tuple[bytes, Hit]]
) -> list[Excerpt | None]:
    """Return the excerpt of each hit of a file, in the order of `path_hits`; None for a hit without one.

    Each hit comes with the path of its file; that of a member of an archive ends with `!` and the member's
    name. `content` is the file's content; it is unpacked if it is an archive, and scanned for other values to
    mask.
    """
    excerpts: dict[int, Excerpt | None] = {}
    if not path_hits:
        return []
    members = unpack_texts(content, UnpackBudget()) if needs_unpacking(content) else iter([("", content)])
    for name, text in members:
        path_end = b"!" + name.encode("utf-8", "surrogateescape") if name else b""
        member_hits = [
            hit
            for path, hit in path_hits
            if path.endswith(path_end) and id(hit) not in excerpts and _can_be_in(hit, text)
        ]
        if member_hits:
            masked_hits = [*member_hits, *find(ruleset, text, Confidence.LOW)]
            member_excerpts = make_excerpts(text, masked_hits, member_hits)
            excerpts |= zip(map(id, member_hits), member_excerpts, strict=True)
        if len(excerpts) == len(path_hits):
            break
    return [excerpts.get(id(hit)) for _, hit in path_hits]


def _can_be_in(hit: Hit, text: bytes) -> bool:
    """Whether the hit can be one of this text: its value is at its offsets, or the hit is encoded.

    Two members of an archive can have the same name.
    """
    return is_encoded(hit) or text[hit.start : hit.end] in possible_bytes(hit.secret)


def make_excerpts(text: bytes, masked_hits: Sequence[Hit], hits: Sequence[Hit]) -> list[Excerpt | None]:
    """Return the excerpt of each of `hits`, in which the values of all `masked_hits` are masked.

    An excerpt is None if a value could still be read in it, and for all hits after the first MAX_EXCERPTS.
    """
    shown_hits = hits[:MAX_EXCERPTS]
    regions = [
        (max(0, hit.start - MAX_EXCERPT_DISTANCE), min(len(text), hit.start + MAX_EXCERPT_DISTANCE))
        for hit in shown_hits
    ]
    spans = find_masked_spans(text, masked_hits, regions)
    secrets = unique_secrets(masked_hits)
    excerpts: list[Excerpt | None] = []
    for hit, region in zip(shown_hits, regions, strict=True):
        excerpt = _make_excerpt(text, hit, region, spans)
        excerpts.append(None if _shows_secret(excerpt, secrets) else excerpt)
    return excerpts + [None] * (len(hits) - len(shown_hits))


def _shows_secret(excerpt: Excerpt, secrets: Iterable[Secret]) -> bool:
    """Whether one of the secrets can be read in the excerpt, plain or URL-encoded.

    Values below MIN_SEARCHED_VALUE characters do not count. Masking can itself write a secret: a value of
    asterisks, or one whose first character ends a %xx that is masked now.
    """
    text = "\n".join(excerpt.lines)
    url_decoded = unquote(text)
    return any(
        len(value) >= MIN_SEARCHED_VALUE and (value in text or value in url_decoded)
        for value in map(reveal, secrets)
    )


def _make_excerpt(text: bytes, hit: Hit, region: Span, spans: Sequence[MaskedSpan]) -> Excerpt:
    """Return the line of the hit and up to CONTEXT_LINES before and after it, if they are in `region`.

    The bytes of `spans` are masked. Lines that the ends of `region` may have cut are left out, except the
    hit's own.
    """
    low, high = region
    lines, hit_line = _split_lines(text, hit.start, low, high)
    # The first and the last line of the region may be cut, and a cut line can show the rest of a value. So
    # they are left out, unless they are the hit's own line or the region ends with the text.
    first = max(hit_line - CONTEXT_LINES, 0 if low == 0 else min(1, hit_line))
    last = min(hit_line + CONTEXT_LINES, len(lines) - (1 if high == len(text) else 2))
    last = max(last, hit_line)
    shown = [
        _mask_line(text, lines[number], spans, hit.start if number == hit_line else None)
        for number in range(first, last + 1)
    ]
    if high == len(text) and last == len(lines) - 1 and last > hit_line and lines[-1][0] == lines[-1][1]:
        shown.pop()  # the line break at the end of the text does not begin another line
    return Excerpt(hit.line - (hit_line - first), tuple(shown), hit_line - first)


def _split_lines(text: bytes, offset: int, low: int, high: int) -> tuple[list[Span], int]:
    """Return the spans of the lines in text[low:high], and the index of the line that contains `offset`."""
    lines, start = [], low
    while (end := text.find(b"\n", start, high)) >= 0:
        lines.append((start, end))
        start = end + 1
    lines.append((start, high))
    return lines, bisect_right([start for start, _ in lines], offset) - 1


def _mask_line(text: bytes, line: Span, spans: Sequence[MaskedSpan], centre: int | None) -> str:
    """Return the line at the span `line`, with the bytes of `spans` masked, cut to MAX_LINE_WIDTH.

    `spans` are in order. A longer line is cut around the masked value at the offset `centre`; at its end if
    `centre` is None. A value that is completely in the line is shown in its own masked form, a part of one as
    MASK.
    """
    line_start, line_end = line
    masked, centre_column, at = "", 0, line_start
    first = bisect_left(spans, line_start, key=lambda span: span[1])
    for number in range(first, len(spans)):
        start, end, secret = spans[number]
        if start >= line_end:
            break
        if end <= line_start:
            continue
        masked += _make_printable(text[at : max(at, start)])
        if centre is not None and start <= centre < max(end, start + 1):
            centre_column = len(masked)
        is_inside = line_start <= start and end <= line_end
        if secret is not None and is_inside:
            masked += _make_printable(secret.masked().encode("utf-8", "replace"))
        else:
            masked += MASK
        at = min(end, line_end)
    masked = (masked + _make_printable(text[at:line_end])).rstrip("\r")
    return _cut_around(masked, centre_column)


def _cut_around(text: str, centre: int) -> str:
    """Return at most MAX_LINE_WIDTH characters around the index `centre`, with an ellipsis added at each cut.

    A shorter text is returned as it is.
    """
    if len(text) <= MAX_LINE_WIDTH:
        return text
    start = max(0, min(centre - MAX_LINE_WIDTH // 2, len(text) - MAX_LINE_WIDTH))
    end = start + MAX_LINE_WIDTH
    return (ELLIPSIS if start else "") + text[start:end] + (ELLIPSIS if end < len(text) else "")


def _make_printable(piece: bytes) -> str:
    """Return the UTF-8 text with U+FFFD for bytes and characters that cannot be printed.

    Tab and CR are kept.
    """
    text = piece.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\t\r" else "\ufffd" for char in text)
