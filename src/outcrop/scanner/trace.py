"""Record what the detector decides about the values of a text, for `outcrop why`.

The functions that decide call `note` when they reject a value, and those that know its place call `record`.
Outside of `recording` both do nothing. One text is recorded at a time, in the process of the command.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from outcrop.domain.secret import Secret

Reasons = tuple[tuple[str, float], ...]  # pairs of a reason and its points; 0.0 for a reason without points
# What decides the confidence of a value, beside the evidence of its rule.
WRONG_CHECKSUM, PLACEHOLDER, KIND = "wrong checksum", "placeholder", "kind:"
OffsetMap = Callable[[int], int]  # from an offset in decoded text to one in the text around it


class Step(NamedTuple):
    """One decision against a value: by which rule, and why.

    `start` and `end` are offsets in the text that was scanned, also for a value that was decoded. Without a
    value, only the beginning of what the rule looks for was found, at `end`.
    """

    start: int
    end: int
    rule: str
    reason: str
    points: Reasons = ()  # what was for and against the value
    value: Secret | None = None
    encoding: tuple[str, ...] = ()


@dataclass(slots=True)
class Trace:
    """The decisions about the values of one text."""

    steps: list[Step] = field(default_factory=list)
    rule: str = ""  # the rule whose form is being confirmed
    reason: str = ""  # of the last rejection, until it is recorded with its place
    points: Reasons = ()
    _layers: list[tuple[str, OffsetMap]] = field(default_factory=list)

    @contextmanager
    def decoding(self, encoding: str, original_offset: OffsetMap) -> Iterator[None]:
        """Map the offsets of a decoded text to those of the text that it was decoded from."""
        self._layers.append((encoding, original_offset))
        try:
            yield
        finally:
            self._layers.pop()

    def add(self, start: int, end: int, rule: str, reason: str, value: Secret | None) -> None:
        """Add a decision about a value at offsets of the text that is being scanned."""
        encoding = tuple(name for name, _ in self._layers)
        for _, original_offset in reversed(self._layers):
            start = original_offset(start)
            end = max(start, original_offset(end))
        self.steps.append(Step(start, end, rule, reason, self.points, value, encoding))
        self.reason, self.points = "", ()


active: Trace | None = None  # the recording that is under way


@contextmanager
def recording() -> Iterator[Trace]:
    """Record the decisions of all scans in this block."""
    global active  # noqa: PLW0603 - a parameter would pass through thirty functions that scan without it
    active = trace = Trace()
    try:
        yield trace
    finally:
        active = None


_NO_RECORDING = nullcontext()


def decoding(encoding: str, original_offset: OffsetMap) -> AbstractContextManager[None]:
    """Return a block in which a decoded text is scanned; `original_offset` maps its offsets."""
    return _NO_RECORDING if active is None else active.decoding(encoding, original_offset)


def begin(rule: str) -> None:
    """Remember the rule whose form is confirmed next."""
    if active is not None:
        active.rule = rule


def note(reason: str, points: Sequence[tuple[str, float]] = ()) -> None:
    """Remember why a value is rejected, until `record` adds it with its place."""
    if active is not None:
        active.reason, active.points = reason, tuple(points)


def record(start: int, end: int, *, rule: str = "", reason: str = "", value: Secret | None = None) -> None:
    """Add a decision against the value from `start` to `end`.

    Without a reason it is the one that was noted last. Without a rule it is the one that is being confirmed.
    """
    if active is not None and (why := reason or active.reason):
        active.add(start, end, rule or active.rule, why, value)
