"""Read the objects of an array inside a large JSON document, one at a time, without loading the document."""

import re
from collections.abc import Iterator
from typing import BinaryIO

from outcrop.domain.errors import BadInputError

ITEM = None  # in a path: any element of an array
JsonPath = tuple[str | None, ...]
MAX_ELEMENT_BYTES = 4 * 1024 * 1024
_CHUNK_BYTES = 1 << 20
_MAX_DEPTH = 200
# A string or a bracket. Group 1 is empty if the end of the string is not in the buffer yet.
_TOKEN = re.compile(rb'"(?:[^"\\]+|\\.)*("?)|[\[\]{}]', re.DOTALL)
_OPENING = {b"}": b"{", b"]": b"["}


def read_elements(
    file: BinaryIO, path: JsonPath, max_bytes: int = MAX_ELEMENT_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Yield each object at a path such as `("runs", ITEM, "results", ITEM)`, and the number of bytes read.

    The file may contain several documents. Only strings and brackets are parsed, so an element that is not
    valid JSON is yielded too.
    """
    scanner = _ElementScanner(path)
    bytes_read = 0
    while chunk := file.read(_CHUNK_BYTES):
        bytes_read += len(chunk)
        yield from ((element, bytes_read) for element in scanner.feed(chunk))
        if scanner.buffered > max_bytes:
            raise BadInputError(f"the file has a value longer than {max_bytes} bytes")
    scanner.finish()


class _ElementScanner:
    """Finds the objects at a path in a document that arrives in chunks."""

    def __init__(self, path: JsonPath) -> None:
        self._path = path
        self._array_path = path[: path.index(ITEM)]  # of the outermost array on the path
        self._open: list[
            tuple[bytes, str | None]
        ] = []  # open brackets, each with its key in the parent object
        self._key = b""  # the last string, in quotes; the key, if a value follows
        self._buffer = b""
        self._position = 0
        self._start = -1  # where the current element begins in the buffer; -1 outside of elements
        self._depth = 0  # number of open brackets at its start
        self._has_array = False

    @property
    def buffered(self) -> int:
        """The bytes that the buffer must keep."""
        return len(self._buffer) - (self._position if self._start < 0 else self._start)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Add a chunk to the buffer and yield the elements that end in it."""
        keep_from = self._position if self._start < 0 else self._start
        self._buffer = self._buffer[keep_from:] + chunk
        self._position -= keep_from
        self._start = -1 if self._start < 0 else 0
        while (token := _TOKEN.search(self._buffer, self._position)) is not None:
            text = token.group()
            self._position = token.start()
            if text[:1] == b'"':
                if not token.group(1):
                    return  # the string goes on in the next chunk
                self._key = text
            elif text in b"{[":
                self._open_bracket(text)
            elif self._close_bracket(text):
                yield self._buffer[self._start : token.end()]
                self._start = -1
            self._position = token.end()
        self._position = len(self._buffer)

    def finish(self) -> None:
        """Raise BadInputError if the document is incomplete, or has no array at the path."""
        if self._open or self._position < len(self._buffer):
            raise BadInputError("the file is not JSON: it ends too early")
        if not self._has_array:
            raise BadInputError("the file is not of this format: it has no array of findings")

    def _open_bracket(self, bracket: bytes) -> None:
        """Push a bracket, and begin an element if the bracket is an object at the path."""
        if len(self._open) >= _MAX_DEPTH:
            raise BadInputError("the file is nested too deeply")
        parent = self._open[-1][0] if self._open else b""
        key = self._key[1:-1].decode("utf-8", "replace") if parent == b"{" else None
        self._open.append((bracket, key))
        self._has_array = self._has_array or (bracket == b"[" and self._is_at(self._array_path))
        if self._start < 0 and bracket == b"{" and self._is_at(self._path):
            self._start, self._depth = self._position, len(self._open)

    def _close_bracket(self, bracket: bytes) -> bool:
        """Pop a bracket; return whether this ends an element."""
        if not self._open or self._open.pop()[0] != _OPENING[bracket]:
            raise BadInputError("the file is not JSON: its brackets do not match")
        return self._start >= 0 and len(self._open) < self._depth

    def _is_at(self, path: JsonPath) -> bool:
        """Whether the innermost open bracket is at a path; the document's own bracket has the empty path."""
        return len(self._open) == len(path) + 1 and all(
            outer[0] == b"[" if part is ITEM else inner[1] == part
            for outer, inner, part in zip(self._open, self._open[1:], path, strict=False)
        )
