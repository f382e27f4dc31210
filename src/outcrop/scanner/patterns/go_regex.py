"""Patterns as Go writes them, in the syntax that both engines share."""

import re
from collections.abc import Iterator
from itertools import pairwise

from outcrop.scanner.patterns.regex_ast import PatternError

_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "xdigit": "0-9A-Fa-f",
    "space": r"\s", "word": r"\w", "punct": r"!-/:-@\[-`{-~", "^digit": r"\D", "^space": r"\S", "^word": r"\W",
}  # fmt: skip


def translate_go_regex(pattern: str) -> str:
    r"""Write a pattern of Go in the syntax both engines share: POSIX classes, `\z`, and flags in the middle."""
    pattern = re.sub(r"\[:(\^?\w+):\]", _posix, _bytewise(pattern))
    pattern = re.sub(r"\\(x\{([0-9A-Fa-f]{1,2})\}|.)", _escape, pattern, flags=re.DOTALL)
    return _scoped_flags(pattern)


def _posix(match: re.Match[str]) -> str:
    if match[1] not in _POSIX:
        raise PatternError(f"has a class that is not known: {match[0]}")
    return _POSIX[match[1]]


def _bytewise(pattern: str) -> str:
    """Write each character beyond ASCII as its bytes. In a class it would become several, of which each matches alone."""
    if pattern.isascii():
        return pattern
    outside = {at for at, _ in _syntax(pattern)}
    if any(not char.isascii() and at not in outside for at, char in enumerate(pattern)):
        raise PatternError(f"has a character beyond ASCII in a class: {pattern[:80]}")
    return "".join(char if char.isascii() else _bytes_of(char) for char in pattern)


def _bytes_of(char: str) -> str:
    return "(?:" + "".join(f"\\x{byte:02x}" for byte in char.encode()) + ")"


def _escape(match: re.Match[str]) -> str:
    if match[2]:
        return f"\\x{int(match[2], 16):02x}"
    return "$" if match[1] == "z" else match[0]


_FLAGS = re.compile(r"\(\?([ims]*(?:-[ims]+)?)\)")


def _scoped_flags(pattern: str) -> str:
    """Turn `a(?i)b|c` into `a(?i:b)|(?i:c)`: a flag holds to the end of the group it stands in, over its alternatives."""
    for at, char in _syntax(pattern):
        match = _FLAGS.match(pattern, at) if char == "(" else None
        if match:
            borders = _alternatives(pattern, match.end())
            scoped = [
                f"(?{match[1]}:{pattern[left + 1 : right]})"
                for left, right in pairwise([match.end() - 1, *borders])
            ]
            return _scoped_flags(pattern[:at] + "|".join(scoped) + pattern[borders[-1] :])
    return pattern


def _alternatives(pattern: str, start: int) -> list[int]:
    """Give where the alternatives of the group end in which a position stands, from there on."""
    depth = 0
    borders: list[int] = []
    for at, char in _syntax(pattern):
        if at < start:
            continue
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return [*borders, at]
        if char == "|" and depth == 0:
            borders.append(at)
    return [*borders, len(pattern)]


def _syntax(pattern: str) -> Iterator[tuple[int, str]]:
    """Give the characters of a pattern that are neither escaped nor in a class."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif pattern[at] == "[":
            at += 2 if pattern[at + 1 : at + 2] == "^" else 1
            at += pattern[at : at + 1] == "]"  # a bracket right after the opening is a character
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
            at += 1
        else:
            yield at, pattern[at]
            at += 1


_NAMED = re.compile(r"\?P?<\w+>")


def name_secret_group(pattern: str, group: int) -> str:
    """Name the group that holds the value; where none is said, it is the first that holds anything, and none has a name."""
    starts = [
        at + 1
        for at, char in _syntax(pattern)
        if char == "(" and (pattern[at + 1 : at + 2] != "?" or _NAMED.match(pattern, at + 1))
    ]
    if group > len(starts):
        raise PatternError(f"has no group {group}: {pattern[:80]}")
    out, last = "", 0
    for number, at in enumerate(starts, 1):
        named = _NAMED.match(pattern, at)
        out += pattern[last:at] + ("?P<secret>" if number == group else "")
        last = named.end() if named else at
    return out + pattern[last:]
