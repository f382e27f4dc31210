"""Unpack archives that are embedded in a text as base64.

Helm releases, code of functions in templates and user data of machines are stored in this way.
"""

import base64
import binascii
from collections.abc import Iterator
from typing import NamedTuple

from outcrop.lazy_regex import regex
from outcrop.limits import BASE64_ARCHIVE_EXPANSION, BASE64_ARCHIVE_LENGTH

# The first five characters of base64 of gzip, of base64 of gzip encoded twice, of zip.
_PREFIX_CHARS = 5
_GZIP, _GZIP_TWICE, _ZIP = "H4sI[A-H]", "SDRzS", "UEsDB"
_GZIP_BASE64 = b"H4sI"
BASE64_ARCHIVE_PATTERNS = tuple(
    before + prefix for before in ("^", "[^0-9A-Za-z+/_-]") for prefix in (_GZIP, _GZIP_TWICE, _ZIP)
)
_BASE64_RUN = regex(rb"[0-9A-Za-z+/_-]++(?:\r?\n[ \t]*+[0-9A-Za-z+/_-]++)*+")
_SPACE = b" \t\r\n"
_STANDARD_ALPHABET = bytes.maketrans(b"-_", b"+/")


class ArchivedText(NamedTuple):
    """A text of an archive that is embedded as base64 in another text.

    `start` and `stop` are the span of the base64. `encoding` has the encodings from the outside in:
    ("base64", "packed").
    """

    text: bytes
    start: int
    stop: int
    encoding: tuple[str, ...]


def unpack_base64_archives(data: bytes, ends: list[int]) -> Iterator[ArchivedText]:
    """Yield the texts of the archives that are embedded in `data` as base64.

    `ends` has the offsets at which matches of BASE64_ARCHIVE_PATTERNS end, in order. Damaged archives cause
    no error: base64 that cannot be unpacked is yielded decoded, and invalid base64 as b"".
    """
    last_stop = 0
    for end in ends:
        start = end - _PREFIX_CHARS
        run = _BASE64_RUN.match(data, start, start + BASE64_ARCHIVE_LENGTH) if start >= last_stop else None
        if run is None:
            continue
        last_stop = run.end()
        content = _decode(run[0])
        if is_encoded_twice := content.startswith(_GZIP_BASE64):
            content = _decode(content)
        encoding = ("base64", "base64", "packed") if is_encoded_twice else ("base64", "packed")
        yield from (ArchivedText(text, start, last_stop, encoding) for text in _unpack(content))


def _decode(run: bytes) -> bytes:
    """Return decoded base64 in the standard or the URL alphabet; b"" if it has wrong padding.

    Spaces, line breaks and other characters of no alphabet are skipped. The padding `=` may be absent. A
    single character after the last group of four is dropped.
    """
    text = run.translate(_STANDARD_ALPHABET, _SPACE)
    try:
        return base64.b64decode(
            text[: len(text) // 4 * 4] if len(text) % 4 == 1 else text + b"=" * (-len(text) % 4)
        )
    except binascii.Error:
        return b""


def _unpack(content: bytes) -> Iterator[bytes]:
    """Yield the texts of an archive, or `content` itself if it is no archive or cannot be read.

    At most BASE64_ARCHIVE_EXPANSION times the size of the archive is unpacked; the rest is dropped, without a
    gap.
    """
    from outcrop.scanner.text.archive_members import UnpackBudget  # noqa: PLC0415 - rarely needed
    from outcrop.scanner.text.archives import unpack_texts  # noqa: PLC0415 - rarely needed

    budget = UnpackBudget(bytes_left=BASE64_ARCHIVE_EXPANSION * len(content))
    return (text for _, text in unpack_texts(content, budget))
