"""Search versions of files for triggers; text that a version has copied from its base is not searched again.

`scan_new_text` does so for many versions with one Hyperscan pass:

1. `_plan_ranges` divides each version into ranges of new text and ranges that are copied from its base.
2. The new text of all versions is joined and searched.
3. Each version's matches are put together from those in its new text and those of its base.

Offsets count in the version's content with a line break before and after it: that is the text which is
searched.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import TriggerMatch, find_trigger_matches

MAX_TRIGGER_WIDTH = 2_048  # bytes; with wider triggers too little of a version could be skipped
MIN_SKIPPED = 256  # bytes; to skip less than this costs more time than to search it
MIN_COPIED_RANGE = 2 * MIN_SKIPPED  # bytes; shorter copied ranges are of no use

CopiedRange = tuple[int, int, int]  # (start, stop, start in the base)


class FileVersion:
    """The content of a file, the ranges that are copied from its base, and its trigger matches.

    `matches` is None until the content was searched.
    """

    __slots__ = ("base", "content", "copied", "matches")

    def __init__(
        self, content: bytes, base: "FileVersion | None" = None, copied: Sequence[CopiedRange] = ()
    ) -> None:
        self.content = content
        self.base = base
        self.copied = copied
        self.matches: list[TriggerMatch] | None = None

    def drop_base(self) -> None:
        """Drop the references to the base and to the ranges copied from it.

        The last of a thousand versions would keep all of them in memory.
        """
        self.base, self.copied = None, ()

    def content_matches(self) -> list[TriggerMatch]:
        """Return the trigger matches with offsets in the content itself; [] if it was not searched."""
        size = len(self.content)
        return [(min(end - 1, size), number) for end, number in self.matches or ()]


class _Range(NamedTuple):
    """A range of match ends in a version, and the list in which its matches are."""

    first: int
    last: int
    shift: int  # added to an offset, gives the offset in `matches`; of new text: where to begin to search
    matches: list[TriggerMatch] | None  # those of the base; None: new text


def scan_new_text(ruleset: RuleSet, versions: Sequence[FileVersion]) -> None:
    """Set `matches` of each version; search only text that is not copied from its base.

    A base comes before its versions in `versions`, or was searched earlier. If the base was not searched, all
    of the version is.
    """
    new_text: list[bytes | memoryview] = []
    size = 0
    plans: list[list[_Range]] = []
    for version in versions:
        plan: list[_Range] = []
        for planned in _plan_ranges(version, ruleset.rules.max_trigger_width + 2):
            if planned.matches is not None:
                plan.append(planned)
                continue
            start, stop = max(0, planned.first + planned.shift), planned.last + 1
            new_text += _cut_out(version.content, start, stop)
            plan.append(planned._replace(shift=size - start))
            size += min(stop, len(version.content) + 2) - start
        plans.append(plan)
        version.matches = []  # plans of later versions refer to this list; it is filled below, in order
    new_matches = find_trigger_matches(ruleset, b"".join(new_text))
    for version, plan in zip(versions, plans, strict=True):
        assert version.matches is not None  # noqa: S101 - for the type checker
        for first, last, shift, base_matches in plan:
            matches = new_matches if base_matches is None else base_matches
            start = bisect_left(matches, (first + shift,))
            stop = bisect_left(matches, (last + shift + 1,), start)
            if start < stop:
                version.matches += [(end - shift, number) for end, number in matches[start:stop]]


def _plan_ranges(version: FileVersion, margin: int) -> list[_Range]:
    """Return the ranges of a version: those whose matches are copied from its base, and those to search.

    A match depends on the `margin` bytes before its end and on one byte after it. So a copied match must be
    that far inside the copied text, and a search begins `margin` bytes before its range. Without a searched
    base, or with a margin above MAX_TRIGGER_WIDTH, one range has all of the version.
    """
    base = version.base
    size = len(version.content) + 2
    if base is None or base.matches is None or margin > MAX_TRIGGER_WIDTH:
        return [_Range(2, size, -2, None)]
    ranges: list[_Range] = []
    at = 2
    for start, stop, base_start in version.copied:
        is_beginning = start == base_start == 0
        is_end = stop + 2 == size and base_start + stop - start == len(base.content)
        first, last = 2 if is_beginning else start + 1 + margin, size if is_end else stop
        if last - first > margin + MIN_SKIPPED:
            if at < first:
                ranges.append(_Range(at, first - 1, -margin, None))
            ranges.append(_Range(first, last, base_start - start, base.matches))
            at = last + 1
    if at <= size:
        ranges.append(_Range(at, size, -margin, None))
    return ranges


def _cut_out(content: bytes, start: int, stop: int) -> list[bytes | memoryview]:
    """Return pieces that, joined, are [start:stop] of the content with a line break before and after it."""
    is_first, is_last = start == 0, stop >= len(content) + 2
    if is_first and is_last:
        return [b"\n", content, b"\n"]
    piece = memoryview(content)[max(0, start - 1) : stop - 1]
    return [b"\n", piece] if is_first else [piece, b"\n"] if is_last else [piece]
