"""The elements of an array somewhere in a JSON document of any size, one at a time: the document itself is never held."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from outcrop.domain.errors import BadInputError

ITEM = None  # stands for any place in an array
Path = tuple[str | None, ...]
LONGEST = 4 * 1024 * 1024  # bytes of one element
_CHUNK = 1 << 20
_DEEPEST = 200
# A string, with its end where that has been read already, or a bracket.
_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*("?)|[\[\]{}]', re.DOTALL)
_PAIRS = {b"}": b"{", b"]": b"["}


def elements(file: BinaryIO, path: Path, most: int = LONGEST) -> Iterator[tuple[bytes, int]]:
    """Give the bytes of each object at a path such as `("runs", ITEM, "results", ITEM)`, with how far the file has been read.

    Several documents may follow each other. What is no JSON between the brackets is for whoever parses the elements to see.
    """
    walk = _Walk(path)
    read = 0
    while chunk := file.read(_CHUNK):
        read += len(chunk)
        yield from ((element, read) for element in walk.through(chunk))
        if walk.held > most:
            raise BadInputError(f"the file has a value longer than {most} bytes")
    walk.end()


class _Walk:
    """A walk through a document that comes in chunks: what is still needed of the last one is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[
            tuple[bytes, str | None]
        ] = []  # the brackets around this place, each with the key that it is the value of
        self._key = b""
        self._buffer = b""
        self._at = 0
        self._start = -1  # of the element that this place is in, which was opened at this depth
        self._depth = 0
        self._met = False  # the first array on the path

    @property
    def held(self) -> int:
        return len(self._buffer) - (self._at if self._start < 0 else self._start)

    def through(self, chunk: bytes) -> Iterator[bytes]:
        keep = self._at if self._start < 0 else self._start
        self._buffer = self._buffer[keep:] + chunk
        self._at -= keep
        self._start = -1 if self._start < 0 else 0
        while (token := _TOKEN.search(self._buffer, self._at)) is not None:
            text = token.group()
            self._at = token.start()
            if text[:1] == b'"':
                if not token.group(1):
                    return  # its end is still to come
                self._key = text
            elif text in b"{[":
                self._opened(text)
            elif self._closed(text):
                yield self._buffer[self._start : token.end()]
                self._start = -1
            self._at = token.end()
        self._at = len(self._buffer)

    def end(self) -> None:
        if self._open or self._at < len(self._buffer):
            raise BadInputError("the file is not JSON: it ends too early")
        if not self._met:
            raise BadInputError("the file is not of this format: what would hold its findings is not there")

    def _opened(self, bracket: bytes) -> None:
        if len(self._open) >= _DEEPEST:
            raise BadInputError("the file is nested too deeply")
        within = self._open[-1][0] if self._open else b""
        self._open.append((bracket, self._key[1:-1].decode("utf-8", "replace") if within == b"{" else None))
        first = self._path.index(ITEM)
        self._met = self._met or (bracket == b"[" and self._is_at(self._path[:first]))
        if self._start < 0 and bracket == b"{" and self._is_at(self._path):
            self._start, self._depth = self._at, len(self._open)

    def _closed(self, bracket: bytes) -> bool:
        """Tell whether that ends an element."""
        if not self._open or self._open.pop()[0] != _PAIRS[bracket]:
            raise BadInputError("the file is not JSON: its brackets do not match")
        return self._start >= 0 and len(self._open) < self._depth

    def _is_at(self, path: Path) -> bool:
        """Tell whether the innermost bracket stands at a path: the outermost one has no key, and is no part of it."""
        return len(self._open) == len(path) + 1 and all(
            outer[0] == b"[" if part is ITEM else inner[1] == part
            for outer, inner, part in zip(self._open, self._open[1:], path, strict=False)
        )
