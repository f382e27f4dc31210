"""Loggers whose library is imported when something is logged: most commands log nothing.

The import takes as long as the rest of a short command.
"""

import sys
from collections.abc import Callable
from typing import Any

_set_up: list[Callable[[], None]] = []  # at most one function: it configures the library before its first use


def get_logger() -> Any:
    """Return a logger of structlog for a module to keep."""
    return _LazyLogger()


def configure_on_first_use(configure: Callable[[], None]) -> None:
    """Call `configure` before something is logged, at once if structlog is imported already."""
    _set_up[:] = [configure]
    if "structlog" in sys.modules:
        _set_up.pop()()


class _LazyLogger:
    """A stand-in for a logger of structlog."""

    def __getattr__(self, name: str) -> Any:
        """Return a method of the logger, such as `info`."""
        import structlog  # noqa: PLC0415

        while _set_up:
            _set_up.pop()()
        if "_logger" not in self.__dict__:
            self._logger = structlog.get_logger()
        return getattr(self._logger, name)
