"""The first pass over versions of files: what a version has from the one it was made of is not looked at again.

Places are counted in a version's text with a line break before it, and another one behind it: that is what the first pass reads.
"""

from bisect import bisect_left
from collections.abc import Sequence

from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import TriggerMatch, scan_joined_texts

_WIDEST = 2_048  # with a trigger that is wider, too little of a version would be passed over
_WORTH = 256  # characters that must be passed over in one go, beyond those that are read again around them
MIN_COPIED_RANGE = 2 * _WORTH  # characters that must be copied in one go to be of any use

CopiedRange = tuple[
    int, int, int
]  # what a version has from another one: where it begins and ends in it, and where it began in the other


class FileVersion:
    """A text, what it has from another one, and what the first pass has seen in it, once it has."""

    __slots__ = ("base", "content", "copied", "matches")

    def __init__(
        self, content: bytes, base: "FileVersion | None" = None, copied: Sequence[CopiedRange] = ()
    ) -> None:
        self.content = content
        self.base = base
        self.copied = copied
        self.matches: list[TriggerMatch] | None = None

    def drop_base(self) -> None:
        """Forget what it was made of: otherwise the last of a thousand versions would hold them all."""
        self.base, self.copied = None, ()

    def content_matches(self) -> list[TriggerMatch]:
        """Give what was seen, by where it ends in the content itself."""
        length = len(self.content)
        return [(min(end - 1, length), number) for end, number in self.matches or ()]


# From where to where what was seen counts, how much further it is where it was seen, and where: in the base, or in what is read now.
_Part = tuple[int, int, int, list[TriggerMatch] | None]


def scan_versions_triggers(ruleset: RuleSet, versions: Sequence[FileVersion]) -> None:
    """Let the first pass look at what is new in these versions, by one call; each stands behind the one it was made of."""
    text: list[bytes | memoryview] = []
    at = 0
    plans: list[list[_Part]] = []
    for version in versions:
        plan: list[_Part] = []
        for first, last, shift, base in _parts(version, ruleset.rules.max_trigger_width + 2):
            if base is not None:
                plan.append((first, last, shift, base))
            else:
                begin, stop = max(0, first + shift), last + 1
                text += _cut(version.content, begin, stop)
                plan.append((first, last, at - begin, None))
                at += min(stop, len(version.content) + 2) - begin
        plans.append(plan)
        version.matches = []  # to be filled before what was made of it
    seen = scan_joined_texts(ruleset, b"".join(text))
    for version, plan in zip(versions, plans, strict=True):
        assert version.matches is not None  # noqa: S101 - for the type checker
        for first, last, shift, base in plan:
            source = seen if base is None else base
            start = bisect_left(source, (first + shift,))
            stop = bisect_left(source, (last + shift + 1,), start)
            if start < stop:
                version.matches += [(end - shift, number) for end, number in source[start:stop]]


def _parts(version: FileVersion, margin: int) -> list[_Part]:
    """Tell which ends of matches a version has from its base, and which are to be looked for, reading begins a margin before them.

    What a match has stands within the margin before its end, and one character behind it may matter too.
    """
    base = version.base
    length = len(version.content) + 2
    if base is None or base.matches is None or margin > _WIDEST:
        return [(2, length, -2, None)]
    parts: list[_Part] = []
    at = 2
    for start, stop, origin in version.copied:
        first = 2 if start == origin == 0 else start + 1 + margin
        ends = stop + 2 == length and origin + stop - start == len(base.content)
        last = length if ends else stop
        if last - first > margin + _WORTH:
            if at < first:
                parts.append((at, first - 1, -margin, None))
            parts.append((first, last, origin - start, base.matches))
            at = last + 1
    if at <= length:
        parts.append((at, length, -margin, None))
    return parts


def _cut(content: bytes, begin: int, stop: int) -> list[bytes | memoryview]:
    """Cut a stretch out of a text with its line breaks."""
    is_first, is_last = begin == 0, stop >= len(content) + 2
    if is_first and is_last:
        return [b"\n", content, b"\n"]
    cut = memoryview(content)[max(0, begin - 1) : stop - 1]
    return [b"\n", cut] if is_first else [cut, b"\n"] if is_last else [cut]
