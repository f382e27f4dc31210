"""Which paths a file in the syntax of .gitignore names, read as git reads it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathspec

_MARK = "\ufeff"  # some editors begin a file with it
# A byte that is no UTF-8 becomes a character of nobody's: what matches paths takes whole characters only.
_BYTES = {0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)}


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape").translate(_BYTES)


class IgnorePatterns:
    """The patterns of one file; a line that is no pattern names nothing."""

    __slots__ = ("_spec",)

    def __init__(self, text: bytes) -> None:
        lines = [line.removesuffix("\r") for line in _text(text).removeprefix(_MARK).split("\n")]
        try:
            self._spec = _spec(lines)
        except ValueError:
            self._spec = _spec(filter(_is_pattern, lines))

    def says(self, path: bytes) -> bool | None:
        """Tell whether a path is named, or named after a `!`; None where nothing is said of it. A folder's ends with a slash."""
        return self._spec.check_file(_text(path)).include

    def ignores(self, path: bytes) -> bool:
        """Tell whether a path is left out by itself; a walk that leaves out a folder does not come to what is in it."""
        return bool(self.says(path))

    def ignores_path_or_parent(self, path: bytes) -> bool:
        """Tell whether a path, or a folder that it lies in, is left out: a `!` brings nothing back from such a folder."""
        parts = path.split(b"/")
        return any(
            self.ignores(b"/".join(parts[:count]) + b"/") for count in range(1, len(parts))
        ) or self.ignores(path)


def _spec(lines: Iterable[str]) -> "pathspec.GitIgnoreSpec":
    import pathspec  # noqa: PLC0415 - most scans need none

    return pathspec.GitIgnoreSpec.from_lines(lines)


def _is_pattern(line: str) -> bool:
    try:
        _spec([line])
    except ValueError:
        return False
    return True
