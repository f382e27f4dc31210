"""Apply the allowlists of gitleaks rules: values that a rule must not report.

The value's own conditions are tested when it is found (`match_allowlists`). Path and commit are known later;
then `is_allowed_at` decides.
"""

from collections.abc import Iterator
from typing import NamedTuple

from outcrop.scanner.patterns.re2_match import compile_cached, find_spans

_MAX_LINE_BYTES = 8_192  # read on either side of a match for `regexTarget = "line"`

Span = tuple[int, int]


class Allowlist(NamedTuple):
    """One allowlist: it allows a value if one of the given conditions is true, or with `needs_all` all."""

    needs_all: bool = False
    path_regex: str = ""
    commits: tuple[str, ...] = ()
    regex: str = ""
    regex_target: str = "secret"  # the text that `regex` is searched in: secret, match or line
    stopwords: tuple[str, ...] = ()  # in lower case; the value contains one of them


def match_allowlists(
    allowlists: tuple[Allowlist, ...], data: bytes, value: Span, match: Span
) -> tuple[int, ...] | None:
    """Return None if an allowlist allows the value by its conditions on the value alone.

    Otherwise return the indexes of the allowlists that allow it in their paths and commits only: those that
    need all conditions, and whose conditions on the value are true. `value` and `match` are the spans of the
    value and of the whole match in `data`.
    """
    indexes: list[int] = []
    for index, allowlist in enumerate(allowlists):
        conditions = list(_test_value(allowlist, data, value, match))
        has_place = bool(allowlist.path_regex or allowlist.commits)
        if allowlist.needs_all and has_place and all(conditions):
            indexes.append(index)
        elif conditions and (all(conditions) and not has_place if allowlist.needs_all else any(conditions)):
            return None
    return tuple(indexes)


def _test_value(allowlist: Allowlist, data: bytes, span: Span, match: Span) -> Iterator[bool]:
    """Yield whether a value meets each condition that an allowlist has on values: `regex` and `stopwords`.

    Conditions that are not set are skipped. `span` and `match` are the spans of the value and of the whole
    match in `data`.
    """
    value = data[slice(*span)]
    if allowlist.regex:
        text = value
        if allowlist.regex_target == "match":
            text = data[slice(*match)].strip(b"\n")
        elif allowlist.regex_target == "line":
            text = _lines_around(data, match)
        yield find_spans(compile_cached(allowlist.regex), text, 0, len(text)) is not None
    if allowlist.stopwords:
        lower_value = value.decode("utf-8", "replace").lower()
        yield any(word in lower_value for word in allowlist.stopwords)


def _lines_around(data: bytes, match: Span) -> bytes:
    """Return the lines that a match is in, with at most _MAX_LINE_BYTES before and after the match."""
    left, right = max(0, match[0] - _MAX_LINE_BYTES), match[1] + _MAX_LINE_BYTES
    stop = data.find(b"\n", match[1], right)
    return data[max(left, data.rfind(b"\n", left, match[0]) + 1) : stop if stop >= 0 else right]


def is_allowed_at(
    allowlists: tuple[Allowlist, ...], value_matches: tuple[int, ...], path: bytes, commit: str = ""
) -> bool:
    """Whether an allowlist allows a value in this path and commit.

    `value_matches` is the result of `match_allowlists` for the value: an allowlist that needs all conditions
    must be in it. Allowlists without paths and commits do not count, as `match_allowlists` has applied them.
    """
    for index, allowlist in enumerate(allowlists):
        conditions = [path_matches(allowlist.path_regex, path)] if allowlist.path_regex else []
        conditions += [commit in allowlist.commits] if allowlist.commits else []
        value_and_place = index in value_matches and all(conditions)
        if conditions and (value_and_place if allowlist.needs_all else any(conditions)):
            return True
    return False


def path_matches(regex: str, path: bytes) -> bool:
    """Whether a regular expression matches anywhere in a path."""
    return find_spans(compile_cached(regex), path, 0, len(path)) is not None
