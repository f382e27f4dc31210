"""The lines around hits, with every value that was detected in the text masked, so that they can be kept and shown.

Everything is done on bytes: hits say where they stand in bytes, and what cannot be decoded cannot hide a value then.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import unquote, unquote_to_bytes

from outcrop.domain.excerpt import Excerpt
from outcrop.domain.finding import Confidence
from outcrop.domain.secret import MASK, Secret, reveal
from outcrop.scanner.engine.detect import find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.text.archives import UnpackBudget, unpack_texts
from outcrop.scanner.text.magic import needs_unpacking

CONTEXT_LINES = 2  # lines before and after
MAX_LINE_WIDTH = 200  # characters of a line
_REACH = 4_096  # bytes before and after a hit in which its lines are looked for
_SHORT = 4  # what is shorter is masked where it was detected only: it stands in ordinary words
_MOST = 2_000  # excerpts of one text: a dump of more credentials than these is not read line by line
_ENCODED = re.compile(rb"[0-9A-Za-z+/=_\\%&;#-]*")
_CUT = "…"

_Span = tuple[
    int, int, Secret | None
]  # where something is masked, and what stands there where that is exactly one value


def excerpts_of_file(
    ruleset: RuleSet, content: bytes, wanted: Sequence[tuple[bytes, Hit]]
) -> list[Excerpt | None]:
    """Give the excerpt of each hit of a file, whose path names its member of an archive after `!`; None where there is none to give.

    The text is looked at once more, for what is too unsure to be told but not too unsure to be masked.
    """
    given: dict[int, Excerpt | None] = {}
    if not wanted:
        return []
    members = unpack_texts(content, UnpackBudget()) if needs_unpacking(content) else iter([("", content)])
    for name, text in members:
        behind = b"!" + name.encode("utf-8", "surrogateescape") if name else b""
        mine = [
            hit
            for path, hit in wanted
            if path.endswith(behind) and id(hit) not in given and _stands(hit, text)
        ]
        if mine:
            hits = [*mine, *find(ruleset, text, Confidence.LOW)]
            given |= {
                id(hit): excerpt for hit, excerpt in zip(mine, make_excerpts(text, hits, mine), strict=True)
            }
        if len(given) == len(wanted):
            break
    return [given.get(id(hit)) for _, hit in wanted]


def _stands(hit: Hit, text: bytes) -> bool:
    """Tell whether a hit can be one of this text: two members may have one name."""
    return _is_encoded(hit) or text[hit.start : hit.end] in _written(hit.secret)


def _is_encoded(hit: Hit) -> bool:
    return bool(hit.encoding or hit.rule.decode)


def make_excerpts(text: bytes, hits: Sequence[Hit], wanted: Sequence[Hit]) -> list[Excerpt | None]:
    """Give the lines around some of a text's hits; whatever any of its hits has found in them is masked."""
    chosen = wanted[:_MOST]
    regions = [(max(0, hit.start - _REACH), min(len(text), hit.start + _REACH)) for hit in chosen]
    secrets = _secrets(hits)
    spans = _joined([*_where_hits_stand(text, hits), *_where_values_stand(text, secrets, regions)])
    given = [_excerpt(text, hit, region, spans) for hit, region in zip(chosen, regions, strict=True)]
    return [
        *(one if one is not None and not _tells(one, secrets) else None for one in given),
        *[None] * (len(wanted) - len(chosen)),
    ]


def mask_text(ruleset: RuleSet, text: str) -> str:
    """Give a text with everything masked in it that a scan would report, also where it stands there URL-encoded."""
    data = text.encode("utf-8", "surrogatepass")
    hits = find(ruleset, data)
    spans = _joined(
        [*_where_hits_stand(data, hits), *_where_values_stand(data, _secrets(hits), [(0, len(data))])]
    )
    out, at = b"", 0
    for start, end, secret in spans:
        out += data[at:start] + (MASK if secret is None else secret.masked()).encode("utf-8", "surrogatepass")
        at = end
    text = (out + data[at:]).decode("utf-8", "replace")
    if "%" in text:
        for secret in _secrets(find(ruleset, unquote(text).encode("utf-8", "surrogatepass"))):
            text = secret.masked_within(text)
    return text


def _secrets(hits: Iterable[Hit]) -> list[Secret]:
    return list(
        {reveal(secret): secret for hit in hits for secret in (hit.secret, *hit.parts.values())}.values()
    )


def _tells(excerpt: Excerpt, secrets: Iterable[Secret]) -> bool:
    """Tell whether masking itself has written a value: one of stars, or one whose first sign was the end of a % that is masked now."""
    text = "\n".join(excerpt.lines)
    decoded = unquote(text)
    return any(len(value) >= _SHORT and (value in text or value in decoded) for value in map(reveal, secrets))


# --- what is masked


def _where_hits_stand(text: bytes, hits: Iterable[Hit]) -> Iterator[_Span]:
    for hit in hits:
        start, end = hit.start, hit.end
        if _is_encoded(hit):  # nothing of the whole encoded word: its ends hold bits of the value
            start -= len(_ENCODED.match(text[max(0, start - _REACH) : start][::-1]).group())  # type: ignore[union-attr]  # matches always
            end = _ENCODED.match(text, end, end + _REACH).end()  # type: ignore[union-attr]
            yield start, end, None
        elif start < end:
            yield start, end, hit.secret if text[start:end] in _written(hit.secret) else None


def _where_values_stand(
    text: bytes, secrets: Sequence[Secret], regions: Sequence[tuple[int, int]]
) -> Iterator[_Span]:
    """Find every value, written plainly or URL-encoded, in the regions, all of them at once."""
    joined, begins, origins = _cut_out(text, regions)
    decoded = unquote_to_bytes(joined) if b"%" in joined else b""
    plus = joined.replace(b"+", b" ") if b"+" in joined else b""
    for secret in secrets:
        for value in _written(secret):
            if len(value) < _SHORT:
                continue
            places = list(_plainly(joined, value))
            if (
                b"%" in value
                or value in decoded
                or (b" " in value and (value in plus or value in decoded.replace(b"+", b" ")))
            ):
                places += _anyhow(joined, value)
            for start, end in places:
                at = bisect_right(begins, start) - 1
                moved = origins[at] - begins[at]
                yield start + moved, end + moved, secret


def _written(secret: Secret) -> set[bytes]:
    """Give the bytes that a value can have been: UTF-8, else byte for byte."""
    value = reveal(secret)
    forms = {value.encode("utf-8", "surrogatepass")}
    if not value.isascii() and max(value) <= "\xff":
        forms.add(value.encode("latin-1"))
    return forms


def _cut_out(text: bytes, regions: Sequence[tuple[int, int]]) -> tuple[bytes, list[int], list[int]]:
    """Give the regions, overlapping ones as one, in a row; where each begins in it, and in the text."""
    pieces: list[tuple[int, int]] = []
    for start, end in sorted(regions):
        if pieces and start <= pieces[-1][1]:
            pieces[-1] = pieces[-1][0], max(end, pieces[-1][1])
        else:
            pieces.append((start, end))
    begins, length = [], 0
    for start, end in pieces:
        begins.append(length)
        length += end - start + 1
    return b"\n".join(text[start:end] for start, end in pieces), begins, [start for start, _ in pieces]


def _plainly(text: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    at = text.find(value)
    while at >= 0:
        yield at, at + len(value)
        at = text.find(value, at + 1)


def _anyhow(text: bytes, value: bytes) -> Iterator[tuple[int, int]]:
    """Match the value with any of its bytes percent-encoded; matches may overlap."""
    pattern = b"".join(
        rb"(?:%s|%%(?i:%02x)%s)" % (re.escape(bytes([b])), b, rb"|\+" if b == 0x20 else b"") for b in value
    )
    for match in re.finditer(b"(?=(%s))" % pattern, text, re.DOTALL):
        yield match.span(1)


def _joined(spans: Iterable[_Span]) -> list[_Span]:
    """Let what overlaps be one: nothing of it is shown then, since the ends of one may be the whole of another."""
    joined: list[_Span] = []
    for start, end, secret in sorted(spans, key=lambda span: span[:2]):
        if joined and start < joined[-1][1]:
            before = joined[-1]
            same = (
                before[:2] == (start, end)
                and secret is not None
                and before[2] is not None
                and reveal(secret) == reveal(before[2])
            )
            joined[-1] = before[0], max(end, before[1]), before[2] if same else None
        else:
            joined.append((start, end, secret))
    return joined


# --- what is shown


def _excerpt(text: bytes, hit: Hit, region: tuple[int, int], spans: Sequence[_Span]) -> Excerpt:
    low, high = region
    lines, at = _lines(text, hit.start, low, high)
    # Neither end of the region may be in a line beside the hit's own: what is cut there could be a part of a value.
    first = max(at - CONTEXT_LINES, 0 if low == 0 else min(1, at))
    last = min(at + CONTEXT_LINES, len(lines) - (1 if high == len(text) else 2))
    last = max(last, at)
    shown = [
        _shown(text, line, spans, hit.start if n == at else None)
        for n, line in enumerate(lines)
        if first <= n <= last
    ]
    if high == len(text) and last == len(lines) - 1 and last > at and lines[-1][0] == lines[-1][1]:
        shown.pop()  # a line break ends the last line, it does not begin another
    return Excerpt(hit.line - (at - first), tuple(shown), at - first)


def _lines(text: bytes, start: int, low: int, high: int) -> tuple[list[tuple[int, int]], int]:
    """Give where the lines of a region begin and end, and which of them holds a place."""
    lines, begin = [], low
    while (end := text.find(b"\n", begin, high)) >= 0:
        lines.append((begin, end))
        begin = end + 1
    lines.append((begin, high))
    return lines, bisect_right([begin for begin, _ in lines], start) - 1


def _shown(text: bytes, line: tuple[int, int], spans: Sequence[_Span], around: int | None) -> str:
    """Write one line with what is masked in it, cut where it is too long: around the credential, else behind its beginning."""
    begin, end = line
    out, centre, at = "", 0, begin
    n = bisect_left(spans, begin, key=lambda span: span[1])
    while n < len(spans) and spans[n][0] < end:
        start, stop, secret = spans[n]
        n += 1
        if stop <= begin:
            continue
        out += _plain(text[at : max(at, start)])
        if around is not None and start <= around < max(stop, start + 1):
            centre = len(out)
        out += (
            _plain(secret.masked().encode("utf-8", "replace"))
            if secret is not None and begin <= start and stop <= end
            else MASK
        )
        at = min(stop, end)
    out = (out + _plain(text[at:end])).rstrip("\r")
    if len(out) <= MAX_LINE_WIDTH:
        return out
    left = max(0, min(centre - MAX_LINE_WIDTH // 2, len(out) - MAX_LINE_WIDTH))
    return (
        (_CUT if left else "")
        + out[left : left + MAX_LINE_WIDTH]
        + (_CUT if left + MAX_LINE_WIDTH < len(out) else "")
    )


def _plain(piece: bytes) -> str:
    """Give text that stays where it is put: no control characters, none that turn the direction of writing."""
    text = piece.decode("utf-8", "replace")
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() or c in "\t\r" else "\ufffd" for c in text)
    )
