"""Read a text whose lines are explained, and what in its source can leave findings out."""

import os
import stat
from pathlib import Path
from typing import IO, NamedTuple

from outcrop.domain.errors import BadInputError
from outcrop.scanner.engine.detect import count_characters
from outcrop.scanner.text.archive_members import UnpackBudget
from outcrop.scanner.text.archives import unpack_texts
from outcrop.scanner.text.magic import detect_format, ends_with_zip, needs_unpacking
from outcrop.services.local_scan.allowed import DETECT_SECRETS_FILE, GITLEAKS_FILE, SourceMarks
from outcrop.services.local_scan.options import (
    IGNORE_FILE,
    TargetInfo,
    ignore_nothing,
    read_ignore_file,
    read_source_file,
)
from outcrop.sources.git.repository import find_git_folder
from outcrop.sources.located import printable_path

MAX_BYTES = 64 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TEXT_ONLY = "only lines of text can be explained"


class Source(NamedTuple):
    """A text, its path in its source, and what of the source leaves findings out."""

    text: bytes
    path: bytes
    target: TargetInfo

    @property
    def lines(self) -> int:
        """The number of lines."""
        return self.text.count(b"\n") + (not self.text.endswith(b"\n") and self.text != b"")

    def span(self, line: int) -> tuple[int, int]:
        """Return the offsets of a line, with its line break; raise BadInputError if there is none."""
        if not 0 < line <= self.lines:
            name, count = printable_path(self.path), self.lines
            raise BadInputError(f"{name}: has no line {line}, it has {count} line{'' if count == 1 else 's'}")
        start = 0
        for _ in range(line - 1):
            start = self.text.index(b"\n", start) + 1
        end = self.text.find(b"\n", start)
        return start, len(self.text) if end < 0 else end + 1

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, counted from 1."""
        start = self.text.rfind(b"\n", 0, offset) + 1
        before = self.text[start:offset]
        if start == 0:
            before = before.removeprefix(_BYTE_ORDER_MARK)
        return self.text.count(b"\n", 0, offset) + 1, count_characters(before) + 1


def read_stream(stream: IO[bytes]) -> Source:
    """Return standard input as a text; raise BadInputError if it is none."""
    return Source(_decode(stream.read(MAX_BYTES + 1), "standard input"), b"-", TargetInfo("-"))


def read_file(name: str, *, ignore_marks: bool) -> Source:
    """Return the text of a file; raise BadInputError if it cannot be read or is no text.

    What leaves findings out is read at the top of its source: the working tree of git; otherwise the current
    folder if the file is in it; otherwise the folder of the file.
    """
    shown = printable_path(os.fsencode(name))
    try:
        path = Path(name)
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise BadInputError(f"{shown}: is a folder; name a file and a line")
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError(f"{shown}: not a regular file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        path = path.absolute()
        top = _find_top(path)
    except OSError as error:
        raise BadInputError(f"{shown}: {(error.strerror or 'cannot be read').lower()}") from None
    except ValueError:  # a zero byte in the name
        raise BadInputError(f"{shown}: is not the name of a file") from None
    relative = os.fsencode(path.relative_to(top))
    return Source(_decode(data, shown), relative, _read_marks(top, ignore_marks=ignore_marks))


def _decode(data: bytes, name: str) -> bytes:
    """Return a file's content as UTF-8 or as it is; raise BadInputError for archives and binary files."""
    if len(data) > MAX_BYTES:
        raise BadInputError(f"{name}: is larger than {MAX_BYTES >> 20} MB")
    if detect_format(data) or ends_with_zip(data):
        raise BadInputError(f"{name}: is an archive; {_TEXT_ONLY}")
    if needs_unpacking(data):
        data = b"".join(text for _, text in unpack_texts(data, UnpackBudget()))
    if b"\0" in data:
        raise BadInputError(f"{name}: is binary; {_TEXT_ONLY}")
    return data


def _find_top(path: Path) -> Path:
    """Return the top folder of the source that a file belongs to."""
    for folder in path.parents:
        if find_git_folder(folder) is not None:
            return folder
    current = Path.cwd()
    return current if path.is_relative_to(current) else path.parent


def _read_marks(top: Path, *, ignore_marks: bool) -> TargetInfo:
    """Return what files at the top of a source leave out."""
    info = TargetInfo(str(top))
    if ignore_marks:
        return info
    patterns = read_ignore_file(top / IGNORE_FILE)
    return info._replace(
        is_ignored=patterns.ignores_path_or_parent if patterns else ignore_nothing,
        marks=SourceMarks.parse(
            *(read_source_file(top / name) or b"" for name in (GITLEAKS_FILE, DETECT_SECRETS_FILE))
        ),
    )
