"""Archives that stand in a text as base64: releases of Helm, code of functions in templates, user data of machines."""

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

_WORD = 5  # characters by which each is told
_GZIP, _TWICE, _ZIP = "H4sI[A-H]", "SDRzS", "UEsDB"  # the second is base64 of the first
BASE64_ARCHIVE_PATTERNS = tuple(
    before + word for before in ("^", "[^0-9A-Za-z+/_-]") for word in (_GZIP, _TWICE, _ZIP)
)
_RUN = re.compile(rb"[0-9A-Za-z+/_-]++(?:\r?\n[ \t]*+[0-9A-Za-z+/_-]++)*+")
_SPACE = b" \t\r\n"
_STANDARD = bytes.maketrans(b"-_", b"+/")
_MOST = 8 << 20  # characters of one
_RATIO = 100  # how much longer it may become: a text may be full of them


class ArchivedText(NamedTuple):
    """A text out of an archive, and where that stands."""

    text: bytes
    start: int
    stop: int
    encoding: tuple[str, ...]


def unpack_base64_archives(data: bytes, ends: list[int]) -> Iterator[ArchivedText]:
    """Unpack what begins with one of the words that end at these places."""
    reached = 0
    for end in ends:
        start = end - _WORD
        run = _RUN.match(data, start, start + _MOST) if start >= reached else None
        if run is None:
            continue
        reached = run.end()
        content = _decoded(run[0])
        if is_twice := content.startswith(b"H4sI"):
            content = _decoded(content)
        encoding = ("base64", "base64", "packed") if is_twice else ("base64", "packed")
        yield from (ArchivedText(text, start, reached, encoding) for text in _texts(content))


def _decoded(run: bytes) -> bytes:
    text = run.translate(_STANDARD, _SPACE)
    try:
        return base64.b64decode(
            text[: len(text) // 4 * 4] if len(text) % 4 == 1 else text + b"=" * (-len(text) % 4)
        )
    except binascii.Error:
        return b""


def _texts(content: bytes) -> Iterator[bytes]:
    from outcrop.scanner.text.archives import UnpackBudget, unpack_texts  # noqa: PLC0415 - most texts hold none

    budget = UnpackBudget(bytes_left=_RATIO * len(content))
    return (text for _, text in unpack_texts(content, budget))
