"""Define what all readers of archives share: the budget, members that are not unpacked again, errors."""

import lzma
import struct
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outcrop.limits import ARCHIVE_BYTES, ARCHIVE_MEMBER_BYTES, ARCHIVE_MEMBERS, ARCHIVE_SECONDS

# Whatever the libraries raise on damaged data.
READ_ERRORS = (
    OSError, EOFError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, MemoryError,
    OverflowError, struct.error, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip
_BLANK = bytes(byte if byte == 10 else 32 for byte in range(256))

Members = Iterator[tuple[str, bytes]]  # name and content


class RawBytes(bytes):
    """Content that is scanned as it is, even if it looks like an archive."""


class DecodedText(bytes):
    """What is decoded of the text before it: only values that this text does not have are reported."""


@dataclass(slots=True)
class UnpackBudget:
    """The bytes, members and seconds that unpacking one file may still take.

    Of one member, at most `max_member_bytes` are read. `gaps` lists, as texts for the user, what was skipped
    or could not be read.
    """

    clock: Callable[[], float] = time.monotonic
    bytes_left: int = ARCHIVE_BYTES
    members_left: int = ARCHIVE_MEMBERS
    max_member_bytes: int = ARCHIVE_MEMBER_BYTES
    gaps: list[str] = field(default_factory=list)
    _deadline: float = 0.0

    def __post_init__(self) -> None:
        self._deadline = self.clock() + ARCHIVE_SECONDS

    def exceeded_limit(self) -> str | None:
        """Return the limit that is exceeded, as the text of a gap; None if no limit is exceeded."""
        if self.bytes_left <= 0:
            return "too large when unpacked, the rest was skipped"
        if self.members_left <= 0:
            return "too many members, the rest was skipped"
        return "took too long to unpack, the rest was skipped" if self.clock() > self._deadline else None

    def max_bytes(self) -> int:
        """Return the number of bytes that may be read of the next member, 0 to `max_member_bytes`."""
        return min(self.max_member_bytes, max(0, self.bytes_left))

    def count(self, name: str, content: bytes) -> bytes:
        """Subtract a member and its bytes from the budget, and return its content unchanged.

        Add a gap with the `name` of the member if the content is longer than `max_bytes()`: callers read at
        most one byte more than that, so such content was cut off.
        """
        self.members_left -= 1
        if len(content) > self.max_bytes():
            self.gaps.append(f"{name}: too large, only the beginning was read")
        self.bytes_left -= len(content)
        return content


def blank(data: bytes) -> bytes:
    """Return the data with every byte except line breaks replaced by a space.

    Other text that is appended to the result keeps the line and column that it had after the data.
    """
    return data.translate(_BLANK)
