"""Scan the content of files: in memory, many at once, versions of a file, streams, and parts of large files.

| function | content |
|---|---|
| `scan_content` | one file in memory; archives are unpacked |
| `scan_batch` | many small files in one buffer, with one Hyperscan pass |
| `scan_versions` | versions of files; text that a version shares with its base is not searched again |
| `scan_stream` | a file of any size, read piece by piece |
| `scan_part` | one part of a large file (`split_into_parts`), for several processes |

All return a `ScanResult`, which other processes get as bytes (`serialize_result`).
"""

import marshal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import BytesIO
from typing import Any, NamedTuple

from outcrop.domain.finding import Confidence, FindingContext
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine.delta_scan import FileVersion, scan_new_text
from outcrop.scanner.engine.detect import Position, count_characters, find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import find_trigger_matches, group_matches, scan_triggers
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.scanner.rules.model import Rule, Strength
from outcrop.scanner.text.magic import (
    PACKED_FIRST_BYTES,
    ends_with_zip,
    has_packed_header,
    has_utf16_strings,
    needs_unpacking,
)

_ZIP_MEMBER = b"PK\3\4"  # the header of a file in a zip; a zip can follow other data


@dataclass(frozen=True, slots=True)
class ScanSizes:
    """The sizes, in bytes, with which large contents are divided."""

    piece: int = 32 << 20  # of a stream that is in memory at once
    part: int = 4 << 20  # of a large file that one process scans at once
    credential: int = 256 << 10  # at most
    context: int = 64 << 10  # before a credential, that can decide about it
    trigger_distance: int = 16 << 10  # from a credential to its trigger: a word can be 8,000 bytes away
    archive: int = 256 << 20  # at most: an archive is unpacked from memory


SCAN_SIZES = ScanSizes()


@dataclass(slots=True)
class ScanResult:
    """The hits in one content, each with its path inside an archive or "", and the gaps."""

    hits: list[tuple[str, Hit]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


_EMPTY_RESULT = ScanResult()

SerializedResult = bytes  # a ScanResult, for another process; it takes a fifth of the memory

# A rule is written as its id and a secret as its text, since a Secret refuses to be serialized.
_CONVERTED_FIELDS = ("rule", "secret", "companions")
_PLAIN_FIELDS = tuple(name for name in Hit.__dataclass_fields__ if name not in _CONVERTED_FIELDS)


def serialize_result(result: ScanResult) -> SerializedResult:
    """Return the result as bytes, which contain the secrets in clear text."""
    hits = [
        (
            inner,
            hit.rule.id,
            reveal(hit.secret),
            {name: reveal(companion) for name, companion in hit.companions.items()},
            *_plain_values(hit),
        )
        for inner, hit in result.hits
    ]
    return marshal.dumps((hits, result.gaps))


def deserialize_result(serialized: SerializedResult, rules: LazyRules) -> ScanResult:
    """Return the result that `serialize_result` has written in a process with the same rules.

    `rules` are these rules: the hits refer to them.
    """
    hits, gaps = marshal.loads(serialized)  # noqa: S302 - one of our own processes wrote it
    return ScanResult(
        [(inner, _make_hit(rules[rules.ids[rule_id]], *values)) for inner, rule_id, *values in hits], gaps
    )


def _plain_values(hit: Hit) -> Iterator[Any]:
    """Return an iterator over the hit's values of _PLAIN_FIELDS, enum members as strings."""
    values = (getattr(hit, name) for name in _PLAIN_FIELDS)
    return (value.value if isinstance(value, StrEnum) else value for value in values)


def _make_hit(rule: Rule, value: str, companions: dict[str, str], *plain_values: Any) -> Hit:
    """Return a hit from its secret's text, its companions' texts and the values of _PLAIN_FIELDS."""
    fields = dict(zip(_PLAIN_FIELDS, plain_values, strict=True))
    fields |= {"strength": Strength(fields["strength"]), "confidence": Confidence(fields["confidence"])}
    fields["floor"] = Confidence(fields["floor"])
    fields["context_hint"] = fields["context_hint"] and FindingContext(fields["context_hint"])
    return Hit(
        rule=rule,
        secret=Secret(value, mask_all=rule.password),
        companions={name: Secret(text) for name, text in companions.items()},
        **fields,
    )


def scan_content(ruleset: RuleSet, data: bytes, min_confidence: Confidence) -> ScanResult:
    """Return the hits in a file, with at least `min_confidence`, and the gaps.

    `data` is the file's content. It is unpacked if it is an archive or in UTF-16 or UTF-32.
    """
    if not needs_unpacking(data):
        return ScanResult([("", hit) for hit in find(ruleset, data, min_confidence)])
    from outcrop.scanner.text.archive_members import DecodedText, UnpackBudget  # noqa: PLC0415 - rarely needed
    from outcrop.scanner.text.archives import unpack_texts  # noqa: PLC0415

    budget = UnpackBudget()
    hits: list[tuple[str, Hit]] = []
    known: set[str] = set()  # values in the text before its decoded texts
    for name, text in unpack_texts(data, budget):
        found = find(ruleset, text, min_confidence)
        if isinstance(text, DecodedText):
            found = [hit for hit in found if reveal(hit.secret) not in known]
        else:
            known = {reveal(hit.secret) for hit in found}
        hits += [(name, hit) for hit in found]
    return ScanResult(hits, budget.gaps)


@dataclass(slots=True)
class ContentBatch:
    """Many contents in one buffer, with a line break before each."""

    buffer: bytearray
    length: int  # bytes of the buffer that are used
    contents: list[tuple[bytes, int, int]]  # (name, start, stop)

    def copy_bytes(self, start: int, stop: int) -> bytes:
        """Return a copy of the bytes of the buffer from `start` to `stop`."""
        return bytes(memoryview(self.buffer)[start:stop])


def scan_batch(
    ruleset: RuleSet, batch: ContentBatch, min_confidence: Confidence
) -> Iterator[tuple[bytes, ScanResult, int]]:
    """Yield name, result and size in bytes of each content of a batch; one Hyperscan pass searches all.

    The results have hits with at least `min_confidence`. Contents without a trigger share one empty result:
    callers must not change it.
    """
    buffer = batch.buffer
    matches = find_trigger_matches(ruleset, memoryview(buffer)[: batch.length])
    matches.append((batch.length + 2, 0))  # ends the loops below
    is_text = buffer.find(b"\0", 0, batch.length) < 0
    at = 0
    for name, start, stop in batch.contents:
        while matches[at][0] <= start:
            at += 1
        first = at
        while matches[at][0] <= stop + 1:
            at += 1
        if (buffer[start] in PACKED_FIRST_BYTES or not is_text) and needs_unpacking(buffer, start, stop):
            yield name, scan_content(ruleset, batch.copy_bytes(start, stop), min_confidence), stop - start
        elif at > first:
            ends = group_matches((min(end, stop) - start, number) for end, number in matches[first:at])
            # A match that ends with the line break after this content may belong to the next one too.
            at -= matches[at - 1][0] > stop
            hits = find(ruleset, batch.copy_bytes(start, stop), min_confidence, ends=ends)
            yield name, ScanResult([("", hit) for hit in hits]), stop - start
        else:
            yield name, _EMPTY_RESULT, stop - start


def scan_versions(
    ruleset: RuleSet, versions: Sequence[tuple[bytes, FileVersion]], min_confidence: Confidence
) -> Iterator[tuple[bytes, ScanResult, int]]:
    """Yield name, result and size in bytes of each of `versions`, which are pairs of name and version.

    A version comes after its base, so that text it shares with the base is not searched again. `matches` of
    the versions is set, unless they need unpacking. Versions without a trigger share one empty result:
    callers must not change it.
    """
    scan_new_text(ruleset, [version for _, version in versions if not needs_unpacking(version.content)])
    for name, version in versions:
        content = version.content
        if version.matches is None:
            result = scan_content(ruleset, content, min_confidence)
        elif version.matches:
            ends = group_matches(version.content_matches())
            result = ScanResult([("", hit) for hit in find(ruleset, content, min_confidence, ends=ends)])
        else:
            result = _EMPTY_RESULT
        yield name, result, len(content)


def scan_stream(
    ruleset: RuleSet,
    read: Callable[[int], bytes],
    min_confidence: Confidence,
    sizes: ScanSizes = SCAN_SIZES,
) -> ScanResult:
    """Scan the bytes that `read(size)` returns, piece by piece, until it returns b""; return hits and gaps.

    Of an archive, only the first `sizes.archive` bytes are unpacked; a gap says so if there are more.
    """
    piece = read(sizes.piece)
    if has_packed_header(piece) or has_utf16_strings(piece) or _ZIP_MEMBER in piece:
        beginning = piece + read(sizes.archive - sizes.piece)
        if needs_unpacking(beginning):
            result = scan_content(ruleset, beginning, min_confidence)
            if read(1):
                result.gaps.append("only the beginning of this archive was unpacked")
            return result
        piece, read = beginning[: sizes.piece], _read_first(beginning[sizes.piece :], read)
        del beginning
    result = ScanResult()
    part = TextPart(0, 0, sizes.piece, (1, 1), sizes)
    while piece:
        next_piece = read(sizes.piece - sizes.credential - sizes.context)
        # A credential that begins near the end of a piece is completely in the next one.
        stop = max(part.context, len(piece) - sizes.credential) if next_piece else len(piece) + 1
        result.hits += _find_in_part(ruleset, piece, part, stop, min_confidence)
        if not next_piece and ends_with_zip(piece, before=part.offset):
            result.gaps.append("ends with a zip archive that is too large to be unpacked")
        kept_from = max(0, stop - sizes.context)
        position = _position_after(piece[:kept_from], part.position)
        part = TextPart(part.offset + kept_from, stop - kept_from, sizes.piece, position, sizes)
        piece = piece[kept_from:] + next_piece if next_piece else b""
    return result


def _read_first(data: bytes, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a function like `read` that returns the bytes of `data` first; one call never returns both."""
    stream = BytesIO(data)
    return lambda size: stream.read(size) or read(size)


class TextPart(NamedTuple):
    """A part of a large content.

    Its first `context` bytes belong to the part before it; they can decide about the hits after them.
    """

    offset: int  # of the context, in the content
    context: int
    length: int  # without the context
    position: Position  # of the first byte
    sizes: ScanSizes = SCAN_SIZES

    @property
    def size(self) -> int:
        """The number of bytes from `offset` on that are needed to scan the part.

        They are more than the part itself, as a credential can end after it.
        """
        return self.context + self.length + self.sizes.credential

    def own_size(self, size: int) -> int:
        """Return how many of `size` bytes, read from `offset` on, are the part itself.

        The others are its context and what follows it.
        """
        return max(0, min(size - self.context, self.length))


def split_into_parts(
    read: Callable[[int], bytes], size: int, jobs: int = 1, sizes: ScanSizes = SCAN_SIZES
) -> Iterator[TextPart]:
    """Yield the parts of a content of `size` bytes, to be scanned by `jobs` processes.

    `read(count)` returns the next bytes of the content; they are read to count lines. A part has at most
    `sizes.part` bytes of its own. The number of parts is a multiple of `jobs`, unless the parts would be too
    small.
    """
    count = max(1, -(-size // sizes.part))
    even_count = -(-count // jobs) * jobs
    is_large = size // even_count >= max(sizes.part // 2, sizes.context)
    length = -(-size // even_count) if is_large else sizes.part
    part = TextPart(0, 0, length, (1, 1), sizes)
    yield part
    text = read(length - sizes.context)
    for start in range(length, size, length):
        position = _position_after(text, part.position)
        part = TextPart(start - sizes.context, sizes.context, length, position, sizes)
        yield part
        text = read(length)


def scan_part(ruleset: RuleSet, data: bytes, part: TextPart, min_confidence: Confidence) -> ScanResult:
    """Return the hits that begin in one part of a large content, at their offsets in the content.

    `data` are `part.size` bytes from `part.offset` on, or fewer at the content's end. Archives are not
    unpacked.
    """
    return ScanResult(list(_find_in_part(ruleset, data, part, part.context + part.length, min_confidence)))


def _find_in_part(
    ruleset: RuleSet, data: bytes, part: TextPart, stop: int, min_confidence: Confidence
) -> Iterator[tuple[str, Hit]]:
    """Yield the hits that begin after the part's context and before `stop`, at their offsets in the content.

    `data` begins with the context, and `stop` is an offset in it. The other hits belong to the parts before
    and after this one.
    """
    distance = part.sizes.trigger_distance
    start = max(0, part.context - distance)
    ends = scan_triggers(ruleset, memoryview(data)[start : stop + distance], start)
    for hit in find(ruleset, data, min_confidence, position=part.position, ends=ends):
        if part.context <= hit.start < stop:
            yield "", replace(hit, start=hit.start + part.offset, end=hit.end + part.offset)


def _position_after(text: bytes, position: Position) -> Position:
    """Return the line and column of the byte after a text whose first byte is at `position`."""
    line, column = position
    lines = text.count(b"\n")
    return line + lines, count_characters(text[text.rfind(b"\n") + 1 :]) + (1 if lines else column)
