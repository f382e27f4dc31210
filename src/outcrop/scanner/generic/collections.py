"""Read the values of lists and mappings whose name is a plural.

Two forms are read: values between brackets, `API_KEYS = {"prod": "…", "test": "…"}`, and the lines of a YAML
list or mapping below `tokens:`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from outcrop.lazy_regex import regex

MAX_COLLECTION_BYTES = 8_000  # bytes that are read of one list or mapping
_OPENING_BRACKETS = b"[{("
_NAME = rb"(?:\\{0,3}[\"'])?([\w.@/-]{1,60})(?:\\{0,3}[\"'])?"
_SPACE = rb"(?:\s|\\[nrt])*"  # `\n`, `\r` and `\t` are escapes in code that is itself in a string
# A quoted value, maybe after its name in the mapping, up to the comma or the closing bracket after it.
_BRACKET_ITEM = regex(
    rb"%b(?:%b[ \t]*(?::|=>|=)[ \t]*)?[bBuUrR@]{0,2}(\\{0,3}[\"'`])([^\x00-\x1f\x7f\"'`]{1,400})\2"
    rb"%b(?:[,;]|(?=[\]})]))" % (_SPACE, _NAME, _SPACE)
)
# A line of YAML: a list item, or a name with a value.
_YAML_LINE = regex(
    rb"([ \t]*)(?:-|%b:)[ \t]+([\"']?)([^\s\"'#&*!|>{\[][^\s\"']{0,400})\3[ \t]*(?:[ \t]#[^\n]*)?\r?(?:\n|$)"
    % _NAME
)


class CollectionItem(NamedTuple):
    """The span of a value, its name in the mapping (empty in a list), and its place: `quoted` or `bare`."""

    start: int
    end: int
    name: bytes
    place: str


def read_items(data: bytes, match_end: int) -> Iterator[CollectionItem]:
    """Yield the values of the list or mapping whose beginning the rule has matched.

    `match_end` is the end of that match: after the opening bracket, or in the first line of a YAML list or
    mapping. At most MAX_COLLECTION_BYTES are read.
    """
    return (
        _read_bracket_items(data, match_end)
        if is_after_bracket(data, match_end)
        else _read_yaml_lines(data, match_end)
    )


def is_after_bracket(data: bytes, match_end: int) -> bool:
    """Whether the match that ends at `match_end` ends with `[`, `{` or `(`.

    Otherwise it ends in the first line of a YAML list or mapping.
    """
    return data[match_end - 1] in _OPENING_BRACKETS


def _read_bracket_items(data: bytes, at: int) -> Iterator[CollectionItem]:
    """Yield the quoted values of a list or mapping, each with its name in the mapping.

    `at` is the offset after the opening bracket. Stop before the first item that is no quoted value, at the
    closing bracket, and MAX_COLLECTION_BYTES after `at`.
    """
    stop = at + MAX_COLLECTION_BYTES
    while (item := _BRACKET_ITEM.match(data, at, stop)) is not None:
        yield CollectionItem(*item.span(3), item[1] or b"", "quoted")
        at = item.end()


def _read_yaml_lines(data: bytes, match_end: int) -> Iterator[CollectionItem]:
    """Yield the values of consecutive YAML lines with the same indentation.

    The first is the line that contains the offset `match_end`. Stop at the first line that is no list item
    and no name with a value, and after MAX_COLLECTION_BYTES.
    """
    at = data.rfind(b"\n", 0, match_end) + 1
    stop = at + MAX_COLLECTION_BYTES
    indentation: bytes | None = None
    while (line := _YAML_LINE.match(data, at, stop)) is not None and indentation in {None, line[1]}:
        yield CollectionItem(*line.span(4), line[2] or b"", "quoted" if line[3] else "bare")
        at, indentation = line.end(), line[1]
