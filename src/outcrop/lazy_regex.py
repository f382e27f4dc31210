"""Regular expressions that are compiled when they are first used.

A command imports more than 200 of them and needs a few. Compiling all would take half of its start.
"""

import re
from typing import Any, AnyStr, Final, cast

_METHODS: Final = ("search", "match", "fullmatch", "finditer", "findall", "sub", "subn", "split")
_all: Final[list["_LazyRegex"]] = []


def regex(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a regular expression for a module to keep. It is compiled when it is first used.

    It has the methods and attributes of `re.Pattern`. `match.re` is the compiled expression, another object.
    """
    lazy = _LazyRegex(pattern, flags)
    _all.append(lazy)
    return cast("re.Pattern[AnyStr]", lazy)


def compile_all() -> None:
    """Compile what is not compiled yet, so that forked processes share it."""
    for lazy in _all:
        if not lazy.is_compiled:
            lazy.compile()


class _LazyRegex:
    """A stand-in for a compiled expression."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern = pattern
        self._flags = flags
        self.is_compiled = False

    def compile(self) -> re.Pattern[Any]:
        """Compile the expression, and keep its methods: afterwards a call costs no more than without this."""
        compiled: re.Pattern[Any] = re.compile(self.pattern, self._flags)
        for name in _METHODS:
            setattr(self, name, getattr(compiled, name))
        self.is_compiled = True
        return compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self.compile(), name)
