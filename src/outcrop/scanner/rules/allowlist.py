"""What a rule of a gitleaks configuration lets pass: by the value, what stands around it, the file's path and the commit."""

from collections.abc import Iterator
from typing import NamedTuple

from outcrop.scanner.patterns.re2_match import compiled, spans

_LINE = 8_192  # what is looked at of a line, to either side


class Allowed(NamedTuple):
    """One list of what passes: where one of these holds, or all of those that are said."""

    every: bool = False
    paths: str = ""  # patterns, as one
    commits: tuple[str, ...] = ()
    regexes: str = ""
    target: str = "secret"  # what the patterns are looked for in: secret, match, line
    stopwords: tuple[str, ...] = ()


Span = tuple[int, int]


def spared(lists: tuple[Allowed, ...], data: bytes, value: Span, match: Span) -> tuple[int, ...] | None:
    """Give the lists by which a value passes where its path and commit are theirs as well; None where it passes by what it is."""
    by_place: list[int] = []
    for number, one in enumerate(lists):
        checks = list(_checks(one, data, value, match))
        placed = bool(one.paths or one.commits)
        if one.every and placed and all(checks):
            by_place.append(number)
        elif checks and (all(checks) and not placed if one.every else any(checks)):
            return None
    return tuple(by_place)


def _checks(one: Allowed, data: bytes, span: Span, match: Span) -> Iterator[bool]:
    value = data[slice(*span)]
    if one.regexes:
        stretch = {"match": data[slice(*match)].strip(b"\n"), "line": _line(data, match)}.get(
            one.target, value
        )
        yield spans(compiled(one.regexes), stretch, 0, len(stretch)) is not None
    if one.stopwords:
        text = value.decode("utf-8", "replace").lower()
        yield any(word in text for word in one.stopwords)


def _line(data: bytes, match: Span) -> bytes:
    left, right = max(0, match[0] - _LINE), match[1] + _LINE
    stop = data.find(b"\n", match[1], right)
    return data[max(left, data.rfind(b"\n", left, match[0]) + 1) : stop if stop >= 0 else right]


def passes_at(lists: tuple[Allowed, ...], by_place: tuple[int, ...], path: bytes, commit: str = "") -> bool:
    """Tell whether a value passes by where it stands."""
    for number, one in enumerate(lists):
        checks = [named(one.paths, path)] if one.paths else []
        checks += [commit in one.commits] if one.commits else []
        if checks and (number in by_place and all(checks) if one.every else any(checks)):
            return True
    return False


def named(pattern: str, path: bytes) -> bool:
    """Tell whether a pattern is found in a path."""
    return spans(compiled(pattern), path, 0, len(path)) is not None
