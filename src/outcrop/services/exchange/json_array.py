"""Read the objects at some paths of a large JSON document, one at a time, without loading the document."""

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from outcrop.domain.errors import BadInputError
from outcrop.lazy_regex import regex
from outcrop.limits import IMPORT_NESTING, IMPORT_RECORD_BYTES
from outcrop.services.exchange.record_error import RecordError

ITEM = None  # in a path: any element of an array
ANY_KEY = "\0"  # in a path: any key of an object
JsonPath = tuple[str | None, ...]
_CHUNK_BYTES = 1 << 20
# A string or a bracket. Group 1 is empty if the end of the string is not in the buffer yet.
_TOKEN = regex(rb'"(?:[^"\\]+|\\.)*("?)|[\[\]{}]', re.DOTALL)
_OPENING = {b"}": b"{", b"]": b"["}


class Element(NamedTuple):
    """An object at one of the paths of a document."""

    text: bytes
    path: int  # the index of its path
    keys: tuple[str, ...]  # the keys at the ANY_KEY parts of the path
    indexes: tuple[int, ...]  # the indexes at the ITEM parts of the path
    bytes_read: int  # of the file, so far


class _Bracket:
    """An open bracket of the document."""

    __slots__ = ("bracket", "children", "index", "key")

    def __init__(self, bracket: bytes, key: str | None, index: int) -> None:
        self.bracket = bracket
        self.key = key  # in the parent object
        self.index = index  # in the parent array, counting objects and arrays only
        self.children = 0


def read_elements(
    file: BinaryIO, path: JsonPath, max_bytes: int = IMPORT_RECORD_BYTES
) -> Iterator[tuple[bytes, int]]:
    """Yield each object at a path such as `("runs", ITEM, "results", ITEM)`, and the number of bytes read."""
    for element in read_elements_at(file, [path], max_bytes):
        yield element.text, element.bytes_read


def read_elements_at(
    file: BinaryIO, paths: Sequence[JsonPath], max_bytes: int = IMPORT_RECORD_BYTES
) -> Iterator[Element]:
    """Yield each object at one of the paths; an object inside of a yielded one is not yielded itself.

    The file may contain several documents. Only strings and brackets are parsed, so an element that is not
    valid JSON is yielded too. Raise RecordError if the file ends inside of a document, and BadInputError if
    it has none of the arrays or objects that the paths lead through.
    """
    scanner = _ElementScanner(paths)
    bytes_read = 0
    while chunk := file.read(_CHUNK_BYTES):
        bytes_read += len(chunk)
        yield from (element._replace(bytes_read=bytes_read) for element in scanner.feed(chunk))
        if scanner.buffered > max_bytes:
            raise RecordError(scanner.position, f"is longer than {max_bytes} bytes")
    scanner.finish()


class _ElementScanner:
    """Finds the objects at some paths in a document that arrives in chunks."""

    def __init__(self, paths: Sequence[JsonPath]) -> None:
        self._paths = list(enumerate(paths))
        self._depths = {len(path) + 1 for path in paths}
        self._containers = [_container(path) for path in paths]
        self._open: list[_Bracket] = []
        self._key = b""  # the last string, in quotes; the key, if a value follows
        self._buffer = b""
        self._position = 0
        self._start = -1  # where the current element begins in the buffer; -1 outside of elements
        self._depth = 0  # number of open brackets at its start
        self._element = Element(b"", 0, (), (), 0)  # the current element, without its text
        self._has_container = False
        self._in_list = False  # the innermost bracket is a list of elements
        self._count = 0  # elements that have ended

    @property
    def position(self) -> str:
        """The position of the current or next element, for error messages."""
        return f"record {self._count + 1}"

    @property
    def buffered(self) -> int:
        """The bytes that the buffer must keep."""
        return len(self._buffer) - (self._position if self._start < 0 else self._start)

    def feed(self, chunk: bytes) -> Iterator[Element]:
        """Add a chunk to the buffer and yield the elements that end in it."""
        keep_from = self._position if self._start < 0 else self._start
        self._buffer = self._buffer[keep_from:] + chunk
        self._position -= keep_from
        self._start = -1 if self._start < 0 else 0
        while (token := _TOKEN.search(self._buffer, self._position)) is not None:
            text = token.group()
            if self._in_list:
                self._check_list(self._buffer[self._position : token.start()], text)
            self._position = token.start()
            if text[:1] == b'"':
                if not token.group(1):
                    return  # the string goes on in the next chunk
                self._key = text
            elif text in b"{[":
                self._open_bracket(text)
            elif self._close_bracket(text):
                self._count += 1
                yield self._element._replace(text=self._buffer[self._start : token.end()])
                self._start = -1
                self._in_list = self._is_in_list()
            self._position = token.end()
        if self._in_list:
            self._check_list(self._buffer[self._position :], b"")
        self._position = len(self._buffer)

    def finish(self) -> None:
        """Raise BadInputError if the document is incomplete, or has nothing at the paths."""
        if self._open or self._position < len(self._buffer):
            raise RecordError(self.position, "the file ends too early")
        if not self._has_container:
            raise BadInputError("the file is not of this format: it has no list of findings")

    def _open_bracket(self, bracket: bytes) -> None:
        """Push a bracket, and begin an element if the bracket is an object at one of the paths."""
        if len(self._open) >= IMPORT_NESTING:
            raise RecordError(self.position, "is nested too deeply")
        parent = self._open[-1] if self._open else None
        key = self._key[1:-1].decode("utf-8", "replace") if parent and parent.bracket == b"{" else None
        self._open.append(_Bracket(bracket, key, 0 if parent is None else parent.children))
        if parent is not None:
            parent.children += 1
        if not self._has_container:
            self._has_container = any(
                bracket == kind and self._is_at(path) for kind, path in self._containers
            )
        if self._start < 0:
            if bracket == b"{" and len(self._open) in self._depths:
                self._begin_element()
            self._in_list = self._is_in_list()

    def _begin_element(self) -> None:
        """Remember where the element begins if the innermost bracket is at one of the paths."""
        for number, path in self._paths:
            if self._is_at(path):
                self._start, self._depth = self._position, len(self._open)
                steps = list(zip(path, self._open[1:], strict=True))
                keys = tuple(step.key or "" for part, step in steps if part == ANY_KEY)
                indexes = tuple(step.index for part, step in steps if part is ITEM)
                self._element = Element(b"", number, keys, indexes, 0)
                return

    def _close_bracket(self, bracket: bytes) -> bool:
        """Pop a bracket; return whether this ends an element."""
        if not self._open or self._open.pop().bracket != _OPENING[bracket]:
            raise RecordError(self.position, "is not JSON: its brackets do not match")
        if self._start < 0:
            self._in_list = self._is_in_list()
        return self._start >= 0 and len(self._open) < self._depth

    def _check_list(self, gap: bytes, token: bytes) -> None:
        """Raise RecordError if a list of elements has another value among them."""
        is_nested = token == b"[" and not any(
            len(path) > len(self._open) and self._is_at_start(path) for _, path in self._paths
        )
        if gap.strip(b" \t\r\n,") or token[:1] == b'"' or is_nested:
            raise RecordError(self.position, "is not a JSON object")

    def _is_in_list(self) -> bool:
        """Whether the innermost bracket is a list whose elements are at one of the paths."""
        return (
            self._start < 0
            and bool(self._open)
            and self._open[-1].bracket == b"["
            and any(
                len(path) == len(self._open) and path[-1] is ITEM and self._is_at(path[:-1])
                for _, path in self._paths
            )
        )

    def _is_at_start(self, path: JsonPath) -> bool:
        """Whether a list in the innermost list would be part of a path."""
        depth = len(self._open)
        return path[depth - 1] is ITEM and path[depth] is ITEM and self._is_at(path[: depth - 1])

    def _is_at(self, path: JsonPath) -> bool:
        """Whether the innermost open bracket is at a path; the document's own bracket has the empty path."""
        return len(self._open) == len(path) + 1 and all(
            outer.bracket == b"[" if part is ITEM else (inner.key == part or (part == ANY_KEY and inner.key))
            for outer, inner, part in zip(self._open, self._open[1:], path, strict=False)
        )


def _container(path: JsonPath) -> tuple[bytes, JsonPath]:
    """Return the bracket and the path of the outermost list or object that holds the elements of a path."""
    steps = [number for number, part in enumerate(path) if part is ITEM or part == ANY_KEY]
    if not steps:
        return b"{", path
    return (b"[" if path[steps[0]] is ITEM else b"{"), path[: steps[0]]
