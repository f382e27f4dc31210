"""Match paths against the patterns of a .gitignore file, as git does."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathspec

_BYTE_ORDER_MARK = "\ufeff"  # some editors begin a file with it
# pathspec refuses surrogates, so a byte that is not UTF-8 becomes a character of a private use area.
_PRIVATE_USE = {0xDC00 + byte: 0xF700 + byte for byte in range(0x80, 0x100)}


class IgnorePatterns:
    """The patterns of one file in the syntax of .gitignore. A line that is not a valid pattern is skipped."""

    __slots__ = ("_spec",)

    def __init__(self, text: bytes) -> None:
        lines = [line.removesuffix("\r") for line in _decode(text).removeprefix(_BYTE_ORDER_MARK).split("\n")]
        try:
            self._spec = _compile(lines)
        except ValueError:
            self._spec = _compile(filter(_is_pattern, lines))

    def match(self, path: bytes) -> bool | None:
        """Return True if the patterns ignore the path, False if one with `!` includes it again, else None.

        A pattern matches the path itself or one of its parent folders: `foo` matches `foo/bar`. The last
        pattern that matches the path itself decides; if there is none, the last one that matches a parent.
        `path` is relative to the folder of the .gitignore file, and ends with a slash if it is a folder.
        """
        return self._spec.check_file(_decode(path)).include

    def ignores(self, path: bytes) -> bool:
        """Whether `match` returns True; False if no pattern matches.

        So a pattern with `!` that matches the path itself has precedence over one that ignores its parent
        folder. `ignores_path_or_parent` decides as git does.
        """
        return bool(self.match(path))

    def ignores_path_or_parent(self, path: bytes) -> bool:
        """Whether the path or one of its parent folders is ignored.

        As in git, a pattern with `!` does not include a file again whose folder is ignored.
        """
        parts = path.split(b"/")
        parents = (b"/".join(parts[:count]) + b"/" for count in range(1, len(parts)))
        return any(map(self.ignores, parents)) or self.ignores(path)


def _decode(raw: bytes) -> str:
    """Decode UTF-8; each byte that is not UTF-8 becomes a character of the private use area."""
    return raw.decode("utf-8", "surrogateescape").translate(_PRIVATE_USE)


def _compile(lines: Iterable[str]) -> "pathspec.GitIgnoreSpec":
    """Compile lines of a .gitignore file; raise ValueError if one of them is malformed."""
    import pathspec  # noqa: PLC0415 - most scans need no patterns

    return pathspec.GitIgnoreSpec.from_lines(lines)


def _is_pattern(line: str) -> bool:
    """Whether the line compiles as a pattern."""
    try:
        _compile([line])
    except ValueError:
        return False
    return True
