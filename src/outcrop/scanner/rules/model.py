"""The types that a rule is made of: how one type of credential is recognised.

A `Rule` has one or more `CredentialForm`s (ways in which the credential is written) and `CompanionSpec`s (ids
and hosts that belong to it). All are tuples: a scan reads them from the cache of compiled rules, and nothing
is built faster than a tuple.
"""

import os
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from outcrop.domain.errors import OperatorError
from outcrop.domain.finding import Confidence
from outcrop.scanner.rules.allowlist import Allowlist

BUILT_IN_RULES = Path(__file__).parents[2] / "rules"  # the rule files that are installed with the program
PACKAGED_RULES = Path(__file__).parents[2] / "compiled"  # the same compiled, if the installation has them
JUDGED_BEFORE, JUDGED_AFTER = 128, 420  # bytes around a match that `scanner.generic` reads to judge a value


class Strength(StrEnum):
    """The kind of evidence behind a hit, the strongest first.

    It decides which of two rules reports a value, and is part of the risk score.
    """

    CHECKSUM = "checksum"  # the issuer's own checksum is correct
    PREFIX = "prefix"  # a prefix that only this issuer uses
    STRUCTURED = "structured"  # a format that is rare by itself
    CONTEXT = "context"  # a plain value next to a word that names the issuer
    GENERIC = "generic"  # a plain value next to a word such as password


class Impact(StrEnum):
    """The damage that a valid credential of this type can do."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class FormPattern(NamedTuple):
    """The regular expression of a form, with facts about its matches."""

    regex: str  # for RE2; the group `secret`, if there is one, is the value
    longest: int  # bytes; a longer match is not searched for
    exact_up_to: int  # a match of `loosen(regex)` that is at most this long is a match of `regex` too
    literals: tuple[str, ...] = ()  # texts that are in every match, in this order
    value_at: int = 0  # offset in `regex` behind the context words and the gap; 0 without context words


class FormTrigger(NamedTuple):
    """The pattern that the Hyperscan pass searches for, in place of the whole form."""

    pattern: str
    min_width: int
    max_width: int
    ends_match: bool = False  # the trigger ends where the form's match ends
    after_value: int | None = None  # then: bytes from the value's end to the trigger's, if always the same
    keywords: tuple[str, ...] = ()  # lower case; one of these must be anywhere in the text


class SearchWindow(NamedTuple):
    """The text around a trigger match in which the form's values are searched for."""

    before: int = 0  # bytes, of a rule with `near`; 0: only as far as the trigger itself reaches
    after: int = 0  # bytes, of a rule with `near` or `after`; 0: only as far as the pattern reaches
    until: str | None = None  # a regular expression; the window ends at its nearest match
    single_line: bool = False  # a match is in one line, apart from the line breaks before and behind it


class ValueChecks(NamedTuple):
    """Conditions on a value that the regular expression has matched."""

    exclude: str | None = None  # drop the value if all of it matches this regular expression
    min_entropy: float = 0.0  # drop the value if it has fewer bits per character
    not_words: bool = False  # drop the value if it is spelled in words: the issuer generates it at random
    checksum: str | None = None  # a key of `CHECKSUMS`; a value with a wrong one has low confidence


class ValueLayout(NamedTuple):
    """Facts that give the start of a value from the end of its trigger match, without running the regex.

    Only forms whose trigger ends with the match and whose value is the whole pattern have a layout.
    """

    min_width: int
    max_width: int
    prefixes: tuple[str, ...] = ()  # if the width varies: the value begins with one of these
    joining: str = ""  # characters besides letters, digits and _ that may not follow the value


class _FormFields(NamedTuple):
    """The fields of CredentialForm: a class that is itself a NamedTuple cannot cache properties."""

    pattern: FormPattern
    trigger: FormTrigger
    window: SearchWindow
    checks: ValueChecks
    strength: Strength
    confidence: Confidence
    layout: ValueLayout | None = None
    companion: str | None = None  # the form finds this companion, which is reported if no secret is near
    judge: str | None = None  # how `scanner.generic` judges the value by its name; None: it does not


class CredentialForm(_FormFields):
    """One way in which a credential is written: issuers change formats, and old ones stay valid."""

    @cached_property
    def reach(self) -> tuple[int, int]:
        """The number of bytes before and after the end of a trigger match that can decide about a match."""
        beyond = 0 if self.trigger.ends_match else self.pattern.longest - self.trigger.min_width
        before, after = (self.window.before or self.trigger.max_width) + 1, (self.window.after or beyond) + 2
        return (before + JUDGED_BEFORE, after + JUDGED_AFTER) if self.judge else (before, after)

    @property
    def max_trigger_width(self) -> int:
        """The width in bytes of the longest trigger match that can lead to a match of the form."""
        if self.window.before or self.window.after:
            return self.trigger.max_width
        return min(self.trigger.max_width, self.pattern.longest)


class CompanionSpec(NamedTuple):
    """A companion of the secret that is searched for near it, such as a key id, a host or an account."""

    name: str
    regex: str
    within: int  # bytes between the secret and the companion
    required: bool = False  # without it there is no finding


class _RuleFields(NamedTuple):
    """The fields of Rule: a class that is itself a NamedTuple cannot cache properties."""

    id: str
    name: str
    secret_type: str
    issuer: str
    impact: Impact
    forms: tuple[CredentialForm, ...]
    companions: tuple[CompanionSpec, ...] = ()
    paths: tuple[str, ...] = ()  # globs; the rule applies only to files that match one; none: to all files
    password: bool = False  # a person chose the value: a masked form shows none of its characters
    decode: str | None = None  # the encoding of the value
    origin: str = ""  # rule file and line, for messages
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()
    path_regex: str = ""  # of a gitleaks rule: it applies only to files whose path matches
    allowlists: tuple[Allowlist, ...] = ()  # of a gitleaks rule


GITLEAKS_ISSUER = "gitleaks configuration"  # of rules that a gitleaks configuration defines


class Rule(_RuleFields):
    """A rule that recognises one type of credential."""

    @property
    def is_from_gitleaks(self) -> bool:
        """Whether a gitleaks configuration defines the rule: another rule for the same value wins."""
        return self.issuer == GITLEAKS_ISSUER

    @cached_property
    def depends_on_path(self) -> bool:
        """Whether the path of the file decides if the rule applies: by globs, a pattern or an allowlist."""
        return bool(
            self.paths or self.path_regex or any(allowlist.path_regex for allowlist in self.allowlists)
        )

    @cached_property
    def requires_companion(self) -> bool:
        """Whether a value is only reported together with a companion."""
        return any(companion.required for companion in self.companions)

    @cached_property
    def settles_values(self) -> bool:
        """Whether generic rules skip the values that this rule finds."""
        return not (self.depends_on_path or self.requires_companion or self.is_from_gitleaks)

    def without_examples(self) -> "Rule":
        """Return a copy of the rule without its examples.

        No scan needs the examples, and they are most of a rule's size.
        """
        return self._replace(examples=(), counterexamples=())

    def without_origin(self) -> "Rule":
        """Return a copy of the rule without origin and examples: rules that find the same are then equal."""
        return self._replace(origin="", examples=(), counterexamples=())


class RuleError(OperatorError):
    """A rule that cannot be used; the message begins with file and line."""


def list_rule_files(path: Path) -> list[str]:
    """Return the `.toml` files below the folder `path`, sorted; or only `path` itself if it is no folder.

    Raise RuleError if a folder cannot be read or there is no such file in it.
    """
    if not path.is_dir():
        return [str(path)]
    files = []
    folders = [str(path)]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as error:
            raise RuleError(f"{folder}: {error.strerror}") from None
        for entry in entries:
            if entry.name.endswith(".toml"):
                files.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    if not files:
        raise RuleError(f"{path}: no .toml file in this folder")
    return sorted(files)
