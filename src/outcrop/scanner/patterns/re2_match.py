"""The linear-time engine of the second pass (RE2), called as directly as it can be."""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from outcrop.scanner.patterns.regex_ast import PatternError, loosen

_ANCHOR = re2._re2.RE2.Anchor  # noqa: SLF001
_ANYWHERE, _FROM_HERE, _WHOLLY = _ANCHOR.UNANCHORED, _ANCHOR.ANCHOR_START, _ANCHOR.ANCHOR_BOTH
_NONE = (-1, -1)


def compile_regex(pattern: str) -> Any:
    """Compile for the second pass, byte for byte."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 << 20
    try:
        return re2.compile(pattern.encode("latin-1"), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(f"is not taken by the linear-time engine ({error})") from None


@lru_cache(maxsize=4096)
def compile_cached(pattern: str) -> Any:
    """Compile a pattern of the second pass the first time it is needed."""
    return compile_regex(pattern)


def compile_loosened(pattern: str) -> tuple[Any, int]:
    """Compile a pattern without its far bounds, and give the number of the group that is the value; 0 where it does not say."""
    return compile_with_group(loosen(pattern))


@lru_cache(maxsize=4096)
def compile_with_group(pattern: str) -> tuple[Any, int]:
    """Compile a pattern, and give the number of the group that is the value; 0 where it does not say."""
    made = compile_cached(pattern)
    return made, made.groupindex.get(b"secret", 0)


def find_spans(pattern: Any, data: bytes, at: int, stop: int) -> list[tuple[int, int]] | None:
    """Give where the first match between two places stands, and its groups; None where there is none.

    Of the engine's own Python layer only the compiled call is used: the rest costs as much as the match itself.
    """
    found: list[tuple[int, int]] = pattern._regexp.Match(_ANYWHERE, data, at, stop)  # noqa: SLF001
    return None if found[0] == _NONE else found


def matches_at(pattern: Any, data: bytes, at: int, stop: int) -> bool:
    """Tell whether a match begins here."""
    return bool(pattern._regexp.Match(_FROM_HERE, data, at, stop)[0] != _NONE)  # noqa: SLF001


def matches_fully(pattern: Any, data: bytes, at: int = 0, stop: int | None = None) -> bool:
    return bool(pattern._regexp.Match(_WHOLLY, data, at, len(data) if stop is None else stop)[0] != _NONE)  # noqa: SLF001


@lru_cache(maxsize=64)
def _at_the_end(pattern: str) -> Any:
    return compile_regex(rf"(?:{pattern})\z")


@lru_cache(maxsize=4_096)  # versions of one file repeat the same lines thousands of times
def ends_with_match(text: bytes, pattern: str, exact: int) -> bool:
    """Tell whether a text ends with a match."""
    found = find_spans(_at_the_end(loosen(pattern)), text, 0, len(text))
    if found is None or found[0][1] - found[0][0] <= exact:
        return found is not None
    return find_spans(_at_the_end(pattern), text, 0, len(text)) is not None
