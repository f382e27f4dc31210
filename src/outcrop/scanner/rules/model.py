"""A rule: how one type of credential is recognised. Rules are data; this file says what they are made of.

They are tuples, since a scan begins by making all of them from the cache, and a tuple is made at once.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.scanner.rules.allowlist import Allowed

BUILT_IN_RULES = (
    Path(__file__).parents[2] / "rules"
)  # the folder of the rule files that are installed with the program
JUDGED_BEFORE, JUDGED_AFTER = 128, 420  # what a judge sees around a match


class Strength(StrEnum):
    """What a hit stands on, the surest first: it decides which of two rules names a value, and feeds the score."""

    CHECKSUM = "checksum"  # the issuer's own checksum holds
    PREFIX = "prefix"  # a beginning that nobody else uses
    STRUCTURED = "structured"  # a shape that is rare by itself
    CONTEXT = "context"  # a plain value beside a word that names the issuer
    GENERIC = "generic"  # a plain value beside a word such as password


class Impact(StrEnum):
    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Form(NamedTuple):
    """One way in which the credential is written: issuers change formats and old ones stay valid."""

    regex: str  # linear-time; the value is the group `secret`
    trigger: str  # what the first pass looks for
    trigger_min: int
    trigger_max: int
    longest: int  # no match is followed further than this
    exact: int  # the pattern without its far bounds gives the same match where that is no longer than this
    strength: Strength
    confidence: Confidence
    entropy: float = 0.0  # bits per character that the value must have
    checksum: str | None = None
    exclude: str | None = None  # values that match this wholly are something else
    before: int = (
        0  # with `near`: how far from the trigger the value may stand, to either side, any number of times
    )
    after: int = 0
    until: str | None = None  # where this stands, no window goes on
    keywords: tuple[str, ...] = ()  # one of these must stand anywhere in the text, in any case
    part: str | None = None  # the form is a companion that is worth a finding when no partner stands near
    judge: str | None = None  # how the value stands beside its name, where the two are weighed
    whole: bool = False  # the trigger ends where the match ends
    behind: int | None = None  # then, how many characters stand between the end of the value and there
    width: int = 0  # of a value that is all of its pattern, the boundaries aside; 0 where the first pass does not tell where one stands
    narrowest: int = 0  # as its width, where it is always as wide
    begins: tuple[str, ...] = ()  # otherwise, how it begins
    literals: tuple[str, ...] = ()  # what every match has, one after the other
    drawn: bool = False  # the value is made by chance: one that is spelled in words is something else
    value_at: int = 0  # where in the pattern the value begins, behind what leads to it: without one there, that need not be followed
    joining: str = ""  # with a width: what may not follow the value beside letters, digits and _
    in_line: bool = False  # all that it looks at stands in one line, but for the line breaks that bound it

    @property
    def widest(self) -> int:
        """Give how many characters the trigger can have where it leads to something: elsewhere one that does not count may have more."""
        return self.trigger_max if self.before or self.after else min(self.trigger_max, self.longest)

    @property
    def reach(self) -> tuple[int, int]:
        """Give how far before and after a trigger's end a match, and what bounds it, can lie."""
        beyond = 0 if self.whole else self.longest - self.trigger_min
        before, after = (self.before or self.trigger_max) + 1, (self.after or beyond) + 2
        return (before + JUDGED_BEFORE, after + JUDGED_AFTER) if self.judge else (before, after)


class Part(NamedTuple):
    """A companion of the secret: an id, a host, an account, found near it."""

    name: str
    regex: str
    within: int  # characters between the two
    required: bool = False  # without it there is no finding


class Rule(NamedTuple):
    id: str
    name: str
    secret_type: str
    issuer: str
    impact: Impact
    forms: tuple[Form, ...]
    parts: tuple[Part, ...] = ()
    paths: tuple[str, ...] = ()  # only in files of these names; none: everywhere
    password: bool = False  # chosen by a person: not even its ends are shown
    decode: str | None = None  # the value is written in this encoding
    origin: str = ""  # file and line, for messages
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()
    only: str = (
        ""  # only in files whose path has this pattern in it; of these two, a gitleaks configuration's own
    )
    allowed: tuple[Allowed, ...] = ()

    @property
    def placed(self) -> bool:
        """Tell whether it is the file's path that decides if the rule speaks."""
        return bool(self.paths or self.only or (self.allowed and any(one.paths for one in self.allowed)))

    @property
    def requires(self) -> bool:
        """Tell whether a value alone, without something else near it, is nothing."""
        return bool(self.parts) and any(part.required for part in self.parts)

    @property
    def unproved(self) -> "Rule":
        """Give the rule without its proof, which no scan needs and which is most of it."""
        return self._replace(examples=(), counterexamples=())

    @property
    def bare(self) -> "Rule":
        """Give what the rule says, wherever it was read: by this two are the same."""
        return self._replace(origin="", examples=(), counterexamples=())


class RuleError(OperatorError):
    """A rule that cannot be used; the message begins with file and line."""


def files_of(path: Path) -> list[str]:
    """Give the rule files of a folder and the folders in it, in the order of their paths; or the one file."""
    if not path.is_dir():
        return [str(path)]
    found = []
    folders = [str(path)]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            raise RuleError(f"{folder}: {error.strerror}") from None
        for entry in entries:
            if entry.name.endswith(".toml"):
                found.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    if not found:
        raise RuleError(f"{path}: no .toml file in this folder")
    return sorted(found)
