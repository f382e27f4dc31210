"""What a list or a mapping holds that is called by a plural: `API_KEYS = {"prod": "…", "test": "…"}`, `tokens:` with lines below it."""

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_COLLECTION_BYTES = 8_000  # bytes that are read of one
_BRACKETS = b"[{("
_NAME = rb"(?:\\{0,3}[\"'])?([\w.@/-]{1,60})(?:\\{0,3}[\"'])?"
_SPACE = rb"(?:\s|\\[nrt])*"  # in code that is written as a text, too
# A value in quotes, behind what it is called, if it is called anything.
_ELEMENT = re.compile(
    rb"%b(?:%b[ \t]*(?::|=>|=)[ \t]*)?[bBuUrR@]{0,2}(\\{0,3}[\"'`])([^\x00-\x1f\x7f\"'`]{1,400})\2%b(?:[,;]|(?=[\]})]))"
    % (_SPACE, _NAME, _SPACE)
)
# A line of YAML: an item, or a name with a value.
_LINE = re.compile(
    rb"([ \t]*)(?:-|%b:)[ \t]+([\"']?)([^\s\"'#&*!|>{\[][^\s\"']{0,400})\3[ \t]*(?:[ \t]#[^\n]*)?\r?(?:\n|$)"
    % _NAME
)


class Member(NamedTuple):
    """Where a value stands, what it is called in its mapping, and how it is written."""

    left: int
    right: int
    name: bytes
    place: str


def members(data: bytes, end: int) -> Iterator[Member]:
    """Give the values of what begins here, as far as one follows another."""
    return _elements(data, end) if opens_list(data, end) else _lines(data, end)


def opens_list(data: bytes, end: int) -> bool:
    """Tell whether a bracket stands before this place: otherwise it is in the first of several lines."""
    return data[end - 1] in _BRACKETS


def _elements(data: bytes, at: int) -> Iterator[Member]:
    stop = at + MAX_COLLECTION_BYTES
    while (element := _ELEMENT.match(data, at, stop)) is not None:
        yield Member(*element.span(3), element[1] or b"", "quoted")
        at = element.end()


def _lines(data: bytes, end: int) -> Iterator[Member]:
    """Give the values of lines that stand as far to the right as the first one."""
    at = data.rfind(b"\n", 0, end) + 1
    stop = at + MAX_COLLECTION_BYTES
    indent: bytes | None = None
    while (line := _LINE.match(data, at, stop)) is not None and indent in {None, line[1]}:
        yield Member(*line.span(4), line[2] or b"", "quoted" if line[3] else "bare")
        at, indent = line.end(), line[1]
