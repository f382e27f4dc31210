"""What a trial is, and what it reports."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class NotTriedError(Exception):
    """This machine cannot run a part of a trial; the message says why."""


@dataclass
class Report:
    """What a trial has tried, with its failures and what it could not try."""

    tried: int = 0
    failures: list[str] = field(default_factory=list)
    not_tried: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # what was done how often, such as kills

    def check(self, holds: object, failure: str) -> bool:
        """Count one check; `failure` says what is wrong if it does not hold."""
        self.tried += 1
        if not holds:
            self.failures.append(failure)
        return bool(holds)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count of this report."""
        self.counts[what] = self.counts.get(what, 0) + number

    def skip(self, what: str) -> None:
        """Record a part that could not be tried, with the reason."""
        self.not_tried.append(what)


@dataclass(frozen=True)
class Setting:
    """What a trial gets: its random numbers, its time, and an empty folder."""

    seed: int
    seconds: float  # for the repeated part; setting up and checking come on top
    folder: Path
    short: bool

    def random(self) -> random.Random:
        """Return the random numbers of this trial, the same for the same seed."""
        return random.Random(self.seed)

    def deadline(self) -> float:
        """Return the time of `time.monotonic` at which the repeated part ends."""
        return time.monotonic() + self.seconds


@dataclass(frozen=True)
class Trial:
    """A trial and its name in the table."""

    name: str
    run: Callable[[Setting, Report], None]
    weight: int = 1  # its share of the minutes, beside those of other trials
    in_short: bool = True  # whether it has a form that takes a few seconds
