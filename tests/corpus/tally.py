"""Compare findings with labels: count what was found, what was missed and the false positives."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from tests.corpus.make import Label, Made

Finding = tuple[int, str]  # line, value


@dataclass
class Tally:
    found: int = 0
    missed: int = 0
    wrong: int = 0  # findings that are no credential, whether a label names them or not
    negatives: int = 0
    flagged: int = 0  # negatives that a finding names
    misses: list[tuple[str, Label]] = field(default_factory=list)
    errors: list[tuple[str, Finding]] = field(default_factory=list)

    @property
    def recall(self) -> float:
        return self.found / max(self.found + self.missed, 1)

    @property
    def precision(self) -> float:
        return self.found / max(self.found + self.wrong, 1)

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / max(self.precision + self.recall, 1e-9)

    def __iadd__(self, other: "Tally") -> Self:
        for name in ("found", "missed", "wrong", "negatives", "flagged"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.misses += other.misses
        self.errors += other.errors
        return self


def tally(made: Made, findings: Iterable[Finding]) -> Tally:
    """Compare the findings of one file with its labels: same line, overlapping value."""
    findings = list(findings)
    result = Tally()
    right: set[Finding] = set()
    for label in made.labels:
        names = [finding for finding in findings if _names(finding, label)]
        if label.wanted:
            result.found += bool(names)
            result.missed += not names
            result.misses += [] if names else [(made.path, label)]
            right.update(names)
    for label in made.labels:
        if not label.wanted:
            result.negatives += 1
            result.flagged += any(finding not in right and _names(finding, label) for finding in findings)
    errors = [finding for finding in findings if finding not in right]
    result.wrong += len(errors)
    result.errors += [(made.path, finding) for finding in errors]
    return result


def _names(finding: Finding, label: Label) -> bool:
    line, value = finding
    lines = label.value.count("\n")
    return label.line <= line <= label.line + lines and (
        label.value in value or (len(value) >= 4 and value in label.value)
    )
