"""A credential found in a text, and the test whether byte ranges overlap."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from outcrop.domain.finding import Confidence, FindingContext
from outcrop.domain.secret import Secret
from outcrop.scanner import trace
from outcrop.scanner.kinds.classify import KINDS
from outcrop.scanner.rules.model import Rule, Strength

_LOW, _GENERIC = Confidence.LOW, Strength.GENERIC  # an enum member costs a lookup at each use
OverlapTest = Callable[[int, int], bool]  # whether the range from start to end overlaps one of some ranges


@dataclass(slots=True)
class Hit:
    """A credential found in a text.

    `start` and `end` are the byte offsets of its value. Line and column count from 1; `find` sets them last.
    """

    rule: Rule
    secret: Secret
    start: int
    end: int
    strength: Strength
    confidence: Confidence
    placeholder: bool = False  # the value is a stand-in for a credential, such as `changeme`
    companion_name: str | None = None  # the hit is this companion of a secret; None: it is a secret itself
    companions: dict[str, Secret] = field(default_factory=dict)  # of a secret: by their names
    encoding: tuple[str, ...] = ()  # the encodings that the value is written in, the outermost first
    line: int = 0
    column: int = 0
    allow_mark: str = ""  # the comment in its line that allows it, such as outcrop:allow
    lines: tuple[int, ...] = ()  # of a value on several lines: all of them, at most FINDING_LINES
    lines_total: int = 1
    context_hint: FindingContext | None = None  # by its name and its value; its path is not known here
    judged: bool = False  # by its name and its characters: a rule that knows the issuer is preferred
    bare: bool = False  # without quotes: a value in a configuration file, an expression in code
    floor: Confidence = Confidence.LOW  # the least confidence that was asked for
    kind: str = ""  # the id of the kind of text that is no credential (`scanner.kinds`), or ""
    allowlist_numbers: tuple[
        int, ...
    ] = ()  # allowlists that allow the value in the paths and commits they name
    reasons: trace.Reasons = ()  # what decided its confidence: for and against it, with points

    @property
    def allowed(self) -> bool:
        """Whether its line has an allow mark."""
        return bool(self.allow_mark)

    @property
    def all_lines(self) -> tuple[int, ...]:
        """The lines of the value in its file, ascending, at most FINDING_LINES."""
        return self.lines or (self.line,)

    @property
    def is_doubtful(self) -> bool:
        """Whether the hit is generic and of low confidence: it must not hide another hit."""
        return self.strength is _GENERIC and self.confidence is _LOW

    @property
    def is_dropped(self) -> bool:
        """Whether the hit is of a kind that is not reported at all; `find` returns it only to explain."""
        return self.kind != "" and KINDS[self.kind].is_dropped

    @property
    def reason_ids(self) -> list[list[Any]]:
        """What is stored with a finding: pairs of a reason's id and its points, no part of the value."""
        reasons: list[list[Any]] = [[reason, round(points, 1)] for reason, points in self.reasons]
        if self.placeholder and (trace.PLACEHOLDER, 0.0) not in self.reasons:
            reasons.append([trace.PLACEHOLDER, 0.0])
        if self.kind:
            reasons.append([trace.KIND + self.kind, 0.0])
        return reasons

    def shifted(self, by: int) -> "Hit":
        """Return a copy of the hit `by` bytes further on.

        The copy has no companions, encoding, lines, column, allow mark and hint of its context.
        """
        hit = Hit(
            self.rule,
            self.secret,
            self.start + by,
            self.end + by,
            self.strength,
            self.confidence,
            self.placeholder,
            self.companion_name,
        )
        hit.judged, hit.bare, hit.allowlist_numbers = self.judged, self.bare, self.allowlist_numbers
        hit.kind, hit.floor, hit.reasons = self.kind, self.floor, self.reasons
        return hit


def record_lost(hit: Hit, reason: str) -> None:
    """Record why a hit is not reported, for `outcrop why`."""
    trace.record(hit.start, hit.end, rule=hit.rule.id, reason=reason, value=hit.secret)


def overlap_test(ranges: Iterable[tuple[int, int]]) -> OverlapTest:
    """Return a function that says whether the range from `start` to `end` overlaps one of `ranges`.

    The end of a range is exclusive: ranges that only touch do not overlap.
    """
    in_order = sorted(ranges)
    starts = [start for start, _ in in_order]
    furthest_ends = list(accumulate((end for _, end in in_order), max))

    def overlaps(start: int, end: int) -> bool:
        """Whether the range from `start` to `end` overlaps one of `ranges`."""
        before = bisect_left(starts, end)
        return before > 0 and furthest_ends[before - 1] > start

    return overlaps
