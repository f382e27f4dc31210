"""One file's content into hits, however large it is and whatever it is packed in."""

import marshal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from io import BytesIO
from typing import Any, NamedTuple

from outcrop.domain.finding import Confidence
from outcrop.domain.secret import Secret, reveal
from outcrop.scanner.engine.delta_scan import FileVersion, scan_versions_triggers
from outcrop.scanner.engine.detect import count_characters, find
from outcrop.scanner.engine.hit import Hit
from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import group_by_trigger, scan_joined_texts, scan_triggers
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.scanner.rules.model import Rule, Strength
from outcrop.scanner.text.magic import (
    PACKED_FIRST_BYTES,
    ends_with_zip,
    has_packed_header,
    has_utf16_strings,
    needs_unpacking,
)

STREAM_PIECE_SIZE = 32 << 20  # what is held in memory of a content that comes as a stream
MAX_PART_SIZE = 4 << 20  # what one process takes on of a large file, at most
_OVERLAP = 256 << 10  # no credential is longer than this
_CONTEXT = 64 << 10  # what stands before a credential and matters for it
_NEAR = (
    16 << 10
)  # no further from where a credential begins is what the first pass sees of it: a word may stand 8,000 characters away
_ARCHIVE = 256 << 20  # an archive is unpacked from memory
_ZIP_MEMBER = b"PK\3\4"  # where one is in a content, a zip may stand behind something else


@dataclass(slots=True)
class ScanResult:
    """What one file holds: hits, each with its name inside an archive, and what could not be read."""

    hits: list[tuple[str, Hit]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)


SerializedResult = bytes  # what one file holds as it travels from a scanning process to the one that reports, and is kept there: a fifth of the size

_APART = (
    "rule",
    "secret",
    "parts",
)  # written first: a Secret refuses to be serialised, so its parts go by name
_FIELDS = tuple(name for name in Hit.__dataclass_fields__ if name not in _APART)


def serialize_result(found: ScanResult) -> SerializedResult:
    hits = [
        (
            inner,
            hit.rule.id,
            reveal(hit.secret),
            {name: reveal(part) for name, part in hit.parts.items()},
            *_plain(hit),
        )
        for inner, hit in found.hits
    ]
    return marshal.dumps((hits, found.gaps))


def deserialize_result(wire: SerializedResult, rules: LazyRules) -> ScanResult:
    hits, gaps = marshal.loads(wire)  # noqa: S302 - one of our own processes wrote it
    return ScanResult(
        [(inner, _hit(rules[rules.ids[rule_id]], *fields)) for inner, rule_id, *fields in hits], gaps
    )


def _plain(hit: Hit) -> Iterator[Any]:
    values = (getattr(hit, name) for name in _FIELDS)
    return (value.value if isinstance(value, StrEnum) else value for value in values)


def _hit(rule: Rule, value: str, parts: dict[str, str], *plain: Any) -> Hit:
    fields = dict(zip(_FIELDS, plain, strict=True))
    fields |= {"strength": Strength(fields["strength"]), "confidence": Confidence(fields["confidence"])}
    return Hit(
        rule=rule,
        secret=Secret(value, mask_all=rule.password),
        parts={name: Secret(part) for name, part in parts.items()},
        **fields,
    )


def scan_content(ruleset: RuleSet, data: bytes, floor: Confidence) -> ScanResult:
    """Scan a content that is in memory."""
    if not needs_unpacking(data):
        return ScanResult([("", hit) for hit in find(ruleset, data, floor)])
    from outcrop.scanner.text.archives import UnpackBudget, unpack_texts  # noqa: PLC0415 - most scans meet nothing that is packed

    budget = UnpackBudget()
    hits = [(name, hit) for name, text in unpack_texts(data, budget) for hit in find(ruleset, text, floor)]
    return ScanResult(hits, budget.gaps)


class ContentBatch:
    """Many contents in one buffer, each by its name: a line break stands before each."""

    __slots__ = ("buffer", "contents", "length")

    def __init__(self, buffer: bytearray, length: int, contents: list[tuple[bytes, int, int]]) -> None:
        self.buffer = buffer
        self.length = length
        self.contents = contents

    @property
    def view(self) -> memoryview:
        return memoryview(self.buffer)[: self.length]

    def bytes(self, start: int, stop: int) -> bytes:
        return bytes(memoryview(self.buffer)[start:stop])


_NOTHING = ScanResult()


def scan_batch(
    ruleset: RuleSet, stretch: ContentBatch, floor: Confidence
) -> Iterator[tuple[bytes, ScanResult, int]]:
    """Scan many small contents by one first pass, and look closer at those in which it saw something; give each with its size."""
    seen = scan_joined_texts(ruleset, stretch.view)
    seen.append((stretch.length + 2, 0))
    buffer = stretch.buffer
    is_text = buffer.find(b"\0", 0, stretch.length) < 0
    at = 0
    for name, start, stop in stretch.contents:
        while seen[at][0] <= start:
            at += 1
        first = at
        while seen[at][0] <= stop + 1:
            at += 1
        if (buffer[start] in PACKED_FIRST_BYTES or not is_text) and needs_unpacking(buffer, start, stop):
            yield name, scan_content(ruleset, stretch.bytes(start, stop), floor), stop - start
        elif at > first:
            mine = group_by_trigger((min(end, stop) - start, number) for end, number in seen[first:at])
            at -= seen[at - 1][0] > stop  # what ends at the line break behind this one may belong to the next
            hits = find(ruleset, stretch.bytes(start, stop), floor, ends=mine)
            yield name, ScanResult([("", hit) for hit in hits]), stop - start
        else:
            yield name, _NOTHING, stop - start


def scan_versions(
    ruleset: RuleSet, versions: Sequence[tuple[bytes, FileVersion]], floor: Confidence
) -> Iterator[tuple[bytes, ScanResult, int]]:
    """Scan versions of files, each by its name and behind the one it was made of; give each with its size."""
    scan_versions_triggers(
        ruleset, [version for _, version in versions if not needs_unpacking(version.content)]
    )
    for name, version in versions:
        content = version.content
        if version.matches is None:
            yield name, scan_content(ruleset, content, floor), len(content)
        elif version.matches:
            yield (
                name,
                ScanResult(
                    [
                        ("", hit)
                        for hit in find(
                            ruleset, content, floor, ends=group_by_trigger(version.content_matches())
                        )
                    ]
                ),
                len(content),
            )
        else:
            yield name, _NOTHING, len(content)


def scan_stream(ruleset: RuleSet, read: Callable[[int], bytes], floor: Confidence) -> ScanResult:
    """Scan a content piece by piece; archives larger than a piece are unpacked from what fits."""
    piece = read(STREAM_PIECE_SIZE)
    if has_packed_header(piece) or has_utf16_strings(piece) or _ZIP_MEMBER in piece:
        whole = piece + read(_ARCHIVE - STREAM_PIECE_SIZE)
        if needs_unpacking(whole):
            found = scan_content(ruleset, whole, floor)
            if read(1):
                found.gaps.append("only the beginning of this archive was unpacked")
            return found
        piece, read = whole[:STREAM_PIECE_SIZE], _again(whole[STREAM_PIECE_SIZE:], read)
        del whole
    found = ScanResult()
    part = _FIRST
    while piece:
        more = read(STREAM_PIECE_SIZE - _OVERLAP - _CONTEXT)
        # What begins near the end of a piece is seen whole in the next one.
        stop = max(part.context, len(piece) - _OVERLAP) if more else len(piece) + 1
        found.hits += _hits_in(ruleset, piece, part, stop, floor)
        if not more and ends_with_zip(piece, before=part.offset):
            found.gaps.append("ends as an archive that is too large to be unpacked")
        kept = max(0, stop - _CONTEXT)
        part = TextPart(part.offset + kept, stop - kept, STREAM_PIECE_SIZE, _after(piece[:kept], part.at))
        piece = piece[kept:] + more if more else b""
    return found


def _again(data: bytes, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Give once more what was read too early, and then what follows it."""
    early = BytesIO(data)
    return lambda size: early.read(size) or read(size)


class TextPart(NamedTuple):
    """Where a stretch of a large content begins, and how much of its beginning is only there because it may matter for the rest."""

    offset: int
    context: int
    length: int  # of what is its own
    at: tuple[int, int]  # line and column

    @property
    def size(self) -> int:
        """Give how many bytes are needed to scan it: what begins in it may end behind it."""
        return self.context + self.length + _OVERLAP

    def own(self, size: int) -> int:
        """Give how many of so many bytes are its own."""
        return max(0, min(size - self.context, self.length))


_FIRST = TextPart(0, 0, STREAM_PIECE_SIZE, (1, 1))


def split_into_parts(read: Callable[[int], bytes], size: int, jobs: int = 1) -> Iterator[TextPart]:
    """Cut a content of this size into parts, which several processes can scan in any order: as many for each, unless they became small."""
    count = max(1, -(-size // MAX_PART_SIZE))
    even = -(-count // jobs) * jobs
    length = -(-size // even) if size // even >= max(MAX_PART_SIZE // 2, _CONTEXT) else MAX_PART_SIZE
    part = _FIRST._replace(length=length)
    yield part
    text = read(length - _CONTEXT)
    for begin in range(length, size, length):
        part = TextPart(begin - _CONTEXT, _CONTEXT, length, _after(text, part.at))
        yield part
        text = read(length)


def scan_part(ruleset: RuleSet, data: bytes, part: TextPart, floor: Confidence) -> ScanResult:
    """Scan one of the parts, given as many bytes from its offset on as it needs, or as there are."""
    return ScanResult(list(_hits_in(ruleset, data, part, part.context + part.length, floor)))


def _hits_in(
    ruleset: RuleSet, data: bytes, part: TextPart, stop: int, floor: Confidence
) -> Iterator[tuple[str, Hit]]:
    """Give the hits that begin behind a part's context and before a place in it: the others are told by its neighbours."""
    first = max(0, part.context - _NEAR)
    ends = scan_triggers(ruleset, memoryview(data)[first : stop + _NEAR], first)
    for hit in find(ruleset, data, floor, at=part.at, ends=ends):
        if part.context <= hit.start < stop:
            yield "", replace(hit, start=hit.start + part.offset, end=hit.end + part.offset)


def _after(text: bytes, at: tuple[int, int]) -> tuple[int, int]:
    """Give the line and column of what follows a text that begins at these."""
    lines = text.count(b"\n")
    return at[0] + lines, count_characters(text[text.rfind(b"\n") + 1 :]) + (1 if lines else at[1])
