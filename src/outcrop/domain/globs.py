"""Match texts with glob patterns: the include and exclude patterns of targets, and the paths of rules."""

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches_any(patterns: Sequence[str], *texts: str) -> bool:
    """Whether one of the glob patterns matches one of the texts. Case matters."""
    return any(fnmatchcase(text, pattern) for text in texts for pattern in patterns)


def is_included(include: Sequence[str], exclude: Sequence[str], *texts: str) -> bool:
    """Whether a pattern of `include` matches one of the texts, and no pattern of `exclude` matches any.

    Without `include` patterns, all texts are included.
    """
    return (not include or matches_any(include, *texts)) and not matches_any(exclude, *texts)
