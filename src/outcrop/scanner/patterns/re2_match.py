"""Match regular expressions with RE2, which takes linear time.

Matching calls the compiled RE2 object directly: the Python layer of the `re2` module takes as long as the
match itself.
"""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from outcrop.scanner.patterns.regex_ast import PatternError, loosen

_ANCHOR = re2._re2.RE2.Anchor  # noqa: SLF001
_UNANCHORED, _ANCHOR_START, _ANCHOR_BOTH = _ANCHOR.UNANCHORED, _ANCHOR.ANCHOR_START, _ANCHOR.ANCHOR_BOTH
_NO_MATCH = (-1, -1)


def compile_regex(pattern: str) -> Any:
    r"""Return a pattern compiled for matching bytes, each byte as the character of its code (Latin-1).

    Raise PatternError if RE2 refuses the pattern or if it has a character above `\xff`.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 << 20
    try:
        return re2.compile(pattern.encode("latin-1"), options)
    except UnicodeEncodeError:
        raise PatternError("has a character above \\xff") from None
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("latin-1") if isinstance(reason, bytes) else reason
        raise PatternError(f"is refused by the regular expression engine RE2 ({text})") from None


@lru_cache(maxsize=4096)
def compile_cached(pattern: str) -> Any:
    """Return what `compile_regex` returns, from a cache; raise PatternError if RE2 refuses the pattern."""
    return compile_regex(pattern)


def compile_loosened(pattern: str) -> tuple[Any, int]:
    """Return `loosen(pattern)` compiled, and the number of its group `secret`, or 0 if it has none.

    The result is cached. Raise PatternError if RE2 refuses the pattern.
    """
    return compile_with_group(loosen(pattern))


@lru_cache(maxsize=4096)
def compile_with_group(pattern: str) -> tuple[Any, int]:
    """Return a compiled pattern, and the number of its group `secret`, or 0 if it has none.

    The result is cached. Raise PatternError if RE2 refuses the pattern.
    """
    compiled = compile_cached(pattern)
    return compiled, compiled.groupindex.get(b"secret", 0)


def find_spans(pattern: Any, data: bytes, start: int, stop: int) -> list[tuple[int, int]] | None:
    """Return the spans of the first match in data[start:stop] and of its groups; None without a match.

    Offsets count from the beginning of `data`. The first span is that of the whole match. A group that took
    no part in the match has the span (-1, -1).
    """
    spans: list[tuple[int, int]] = pattern._regexp.Match(_UNANCHORED, data, start, stop)  # noqa: SLF001
    return None if spans[0] == _NO_MATCH else spans


def matches_at(pattern: Any, data: bytes, start: int, stop: int) -> bool:
    """Whether a match begins at offset `start` of `data` and ends at `stop` or before."""
    return bool(pattern._regexp.Match(_ANCHOR_START, data, start, stop)[0] != _NO_MATCH)  # noqa: SLF001


def matches_fully(pattern: Any, data: bytes, start: int = 0, stop: int | None = None) -> bool:
    """Whether the pattern matches all of data[start:stop]; a `stop` of None is the end of the data."""
    stop = len(data) if stop is None else stop
    return bool(pattern._regexp.Match(_ANCHOR_BOTH, data, start, stop)[0] != _NO_MATCH)  # noqa: SLF001


@lru_cache(maxsize=64)
def _compile_at_end(pattern: str) -> Any:
    """Return a pattern compiled so that its matches end at the end of the text; the result is cached."""
    return compile_regex(rf"(?:{pattern})\z")


@lru_cache(maxsize=4_096)  # versions of one file repeat the same lines thousands of times
def ends_with_match(text: bytes, pattern: str, exact_up_to: int) -> bool:
    """Whether a text ends with a match of the regular expression `pattern`; the result is cached.

    `exact_up_to` is the result of `regex_ast.exact_up_to(pattern)`. The faster `loosen(pattern)` is matched
    first. A match of it that is not longer than `exact_up_to` decides.
    """
    spans = find_spans(_compile_at_end(loosen(pattern)), text, 0, len(text))
    if spans is None or spans[0][1] - spans[0][0] <= exact_up_to:
        return spans is not None
    return find_spans(_compile_at_end(pattern), text, 0, len(text)) is not None
