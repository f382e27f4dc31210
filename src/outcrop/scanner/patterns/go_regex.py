"""Translate regular expressions from Go's syntax (gitleaks) to the one that RE2 and Hyperscan share."""

import re
from collections.abc import Iterator
from itertools import pairwise

from outcrop.lazy_regex import regex
from outcrop.scanner.patterns.regex_ast import PatternError

_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f", "space": r"\s", "word": r"\w", "punct": r"!-/:-@\[-`{-~",
    "^digit": r"\D", "^space": r"\S", "^word": r"\W",
}  # fmt: skip
_FLAG_GROUP = regex(r"\(\?([ims]*(?:-[ims]+)?)\)")
_GROUP_NAME = regex(r"\?P?<\w+>")


def translate_go_regex(pattern: str) -> str:
    r"""Return a Go pattern in the syntax that RE2 and Hyperscan share.

    POSIX classes, `\z`, `\x{…}`, non-ASCII characters and flags in the middle are written in another way.
    Raise PatternError for an unknown POSIX class and for a non-ASCII character in a class.
    """
    pattern = re.sub(r"\[:(\^?\w+):\]", _translate_posix_class, _escape_non_ascii(pattern))
    pattern = re.sub(r"\\(x\{([0-9A-Fa-f]{1,2})\}|.)", _translate_escape, pattern, flags=re.DOTALL)
    return _scope_flags(pattern)


def _translate_posix_class(match: re.Match[str]) -> str:
    """Return the characters of a matched POSIX class, such as `A-Za-z` for `[:alpha:]`.

    They are written inside a bracket. Raise PatternError if the class is unknown.
    """
    if match[1] not in _POSIX_CLASSES:
        raise PatternError(f"has an unknown character class: {match[0]}")
    return _POSIX_CLASSES[match[1]]


def _escape_non_ascii(pattern: str) -> str:
    """Return the pattern with each non-ASCII character replaced by a group with escapes of its UTF-8 bytes.

    Raise PatternError for such a character in a class: there each of its bytes would match alone.
    """
    if pattern.isascii():
        return pattern
    outside_classes = {at for at, _ in _syntax_characters(pattern)}
    if any(not char.isascii() and at not in outside_classes for at, char in enumerate(pattern)):
        raise PatternError(f"has a non-ASCII character in a class: {pattern[:80]}")
    return "".join(char if char.isascii() else _escape_bytes(char) for char in pattern)


def _escape_bytes(char: str) -> str:
    r"""Return the UTF-8 bytes of a character as a group, such as `(?:\xc3\xa9)`."""
    return "(?:" + "".join(f"\\x{byte:02x}" for byte in char.encode()) + ")"


def _translate_escape(match: re.Match[str]) -> str:
    r"""Return the shared syntax for an escape: `\xNN` for `\x{NN}`, `$` for `\z`, the rest unchanged."""
    if match[2]:
        return f"\\x{int(match[2], 16):02x}"
    return "$" if match[1] == "z" else match[0]


def _scope_flags(pattern: str) -> str:
    """Return the pattern with a group around all that a flag in the middle applies to.

    `a(?i)b|c` becomes `a(?i:b)|(?i:c)`: a flag applies up to the end of the group that it is in, across
    alternatives. A pattern without such flags is returned unchanged.
    """
    for at, char in _syntax_characters(pattern):
        flags = _FLAG_GROUP.match(pattern, at) if char == "(" else None
        if flags:
            borders = _alternative_ends(pattern, flags.end())
            scoped = [
                f"(?{flags[1]}:{pattern[left + 1 : right]})"
                for left, right in pairwise([flags.end() - 1, *borders])
            ]
            return _scope_flags(pattern[:at] + "|".join(scoped) + pattern[borders[-1] :])
    return pattern


def _alternative_ends(pattern: str, start: int) -> list[int]:
    """Return the offsets, from `start` on, at which the alternatives of the group around `start` end.

    The last offset is that of the group's closing bracket, or the length of the pattern outside of groups.
    """
    depth = 0
    ends: list[int] = []
    for at, char in _syntax_characters(pattern):
        if at < start:
            continue
        depth += {"(": 1, ")": -1}.get(char, 0)
        if depth < 0:
            return [*ends, at]
        if char == "|" and depth == 0:
            ends.append(at)
    return [*ends, len(pattern)]


def _syntax_characters(pattern: str) -> Iterator[tuple[int, str]]:
    """Yield offset and character of all characters that are neither escaped nor in a class."""
    at = 0
    while at < len(pattern):
        if pattern[at] == "\\":
            at += 2
        elif pattern[at] == "[":
            at += 2 if pattern[at + 1 : at + 2] == "^" else 1
            at += pattern[at : at + 1] == "]"  # a bracket right after the opening one is a character
            while at < len(pattern) and pattern[at] != "]":
                at += 2 if pattern[at] == "\\" else 1
            at += 1
        else:
            yield at, pattern[at]
            at += 1


def name_secret_group(pattern: str, group: int) -> str:
    """Return the pattern with the name `secret` for the group of this number, and no names for the others.

    With 0 no group is named; then the first group that matches something is the value. Raise PatternError if
    there is no such group.
    """
    starts = [
        at + 1
        for at, char in _syntax_characters(pattern)
        if char == "(" and (pattern[at + 1 : at + 2] != "?" or _GROUP_NAME.match(pattern, at + 1))
    ]
    if group > len(starts):
        raise PatternError(f"has no group {group}: {pattern[:80]}")
    renamed, done = "", 0
    for number, at in enumerate(starts, 1):
        name = _GROUP_NAME.match(pattern, at)
        renamed += pattern[done:at] + ("?P<secret>" if number == group else "")
        done = name.end() if name else at
    return renamed + pattern[done:]
