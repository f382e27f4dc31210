"""Choose by path and rule what a local scan reports: `--include`, `--exclude`, `--rule`, `--no-rule`."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from outcrop.sources.gitignore import IgnorePatterns


class Selection(NamedTuple):
    """The files and rules whose findings are reported. By default these are all."""

    include: IgnorePatterns | None = None  # only files that these patterns match
    exclude: IgnorePatterns | None = None  # no files that these patterns match
    files: frozenset[bytes] | None = None  # only these files
    rules: frozenset[str] | None = None  # ids; None means all rules

    @classmethod
    def from_options(cls, include: Sequence[str] | None, exclude: Sequence[str] | None) -> "Selection":
        """Return the selection of patterns in the syntax of .gitignore; without patterns, all files."""
        return cls(_read_patterns(include), _read_patterns(exclude))

    def skips(self, path: bytes) -> bool:
        """Whether a walk skips the path; that of a folder ends with a slash.

        A folder is skipped only if it is excluded: one that is not included may have files that are.
        """
        if path.endswith(b"/"):
            return self.exclude is not None and self.exclude.ignores(path)
        return not self.selects(path)

    def selects(self, path: bytes | None) -> bool:
        """Whether the file at this path is scanned. No pattern matches None, an unreachable object."""
        if path is None:
            return self.include is None and self.files is None
        return (
            (self.files is None or path in self.files)
            and (self.include is None or self.include.ignores(path))
            and (self.exclude is None or not self.exclude.ignores_path_or_parent(path))
        )

    def selects_rule(self, rule_id: str) -> bool:
        """Whether findings of this rule are reported."""
        return self.rules is None or rule_id in self.rules


def _read_patterns(patterns: Sequence[str] | None) -> IgnorePatterns | None:
    """Return the patterns as one file of them, whose last match decides; None if there are none."""
    lines = [os.fsencode(pattern) for pattern in patterns or ()]
    return IgnorePatterns(b"\n".join(lines)) if lines else None


def select_rules(
    known: Iterable[str], wanted: Sequence[str], unwanted: Sequence[str]
) -> frozenset[str] | None:
    """Return the ids of the rules that are reported; None for all of them."""
    if not wanted and not unwanted:
        return None
    return (frozenset(wanted) if wanted else frozenset(known)) - frozenset(unwanted)
