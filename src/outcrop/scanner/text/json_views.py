"""Read Jupyter notebooks and HAR files: the file itself, then what their JSON hides.

The file is scanned as it is. Values that are only readable when the JSON is decoded, such as a private key in
an array of lines or a body in base64, are found in texts that follow it, one for each cell or message.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from outcrop.limits import JSON_VIEW_BYTES
from outcrop.scanner.text.archive_members import DecodedText, Members, RawBytes, UnpackBudget

_NAMES = (b'"nbformat"', b'"cell_type"', b'"entries"')  # a file without these is JSON of another kind
_MIN_BASE64_CHARS = 24


def read_json_view(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the file with the name "", then its decoded texts. They are subtracted from the budget.

    A file that cannot be read, or is larger than JSON_VIEW_BYTES, adds a gap. JSON of another kind does not.
    """
    yield "", RawBytes(data)
    if not any(name in data for name in _NAMES):
        return
    if len(data) > JSON_VIEW_BYTES:
        budget.gaps.append("JSON: too large, its values were not decoded")
        return
    try:
        content = orjson.loads(data)
    except ValueError:
        budget.gaps.append("JSON: damaged, its values were not decoded")
        return
    for name, text in _texts(content):
        if not text:
            continue
        if budget.exceeded_limit():
            budget.gaps.append("JSON: took too much, the rest was not decoded")
            return
        yield name, type(text)(budget.count(name, text[: budget.max_bytes() + 1]))


def _texts(content: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the decoded texts of a notebook or a HAR file."""
    if not isinstance(content, dict):
        return
    if isinstance(log := content.get("log"), dict):
        for number, entry in enumerate(_list(log.get("entries")), 1):
            for part in ("request", "response"):
                for name, text in _texts_of_message(_get(entry, part)):
                    yield f"{part} {number}{name}", text
        return
    cells = _list(content.get("cells"))
    for sheet in _list(content.get("worksheets")):  # version 3
        cells = [*cells, *_list(_get(sheet, "cells"))]
    for number, cell in enumerate(cells, 1):
        yield f"cell {number}", _join(_get(cell, "source") or _get(cell, "input"))
        for output in _list(_get(cell, "outputs")):
            yield from ((f"cell {number} output", text) for text in _texts_of_output(output))


def _texts_of_output(output: Any) -> Iterator[bytes]:
    """Yield what a cell has printed: streams, results and errors. Images and their like are decoded."""
    for name in ("text", "traceback", "evalue"):
        yield _join(_get(output, name))
    data = _get(output, "data")
    for kind, value in data.items() if isinstance(data, dict) else ():
        if kind.startswith("text/") or kind.endswith(("json", "xml", "javascript")):
            yield _join(value)
        elif isinstance(value, str):
            yield _decode_base64(value)


def _texts_of_message(message: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the fields of a request or response as lines, and its body."""
    lines = [
        f"{_get(item, 'name')}: {_get(item, 'value')}"
        for group in ("headers", "cookies", "queryString")
        for item in _list(_get(message, group))
    ]
    yield "", DecodedText("\n".join(lines).encode("utf-8", "replace"))
    post, content = _get(message, "postData"), _get(message, "content")
    yield " body", _join(_get(post, "text"))
    text = _get(content, "text")
    if isinstance(text, str) and _get(content, "encoding") == "base64":
        yield " body", _decode_base64(text)
    else:
        yield " body", _join(text)


def _decode_base64(text: str) -> bytes:
    """Return decoded base64, which may be an archive; b"" for anything else."""
    if len(text) < _MIN_BASE64_CHARS:
        return b""
    try:
        return DecodedText(base64.b64decode(text))
    except (ValueError, binascii.Error):
        return b""


def _join(value: Any) -> bytes:
    """Return a text, or the lines of one; other values as JSON."""
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        value = "".join(value)
    if value is None:
        return b""
    return DecodedText(value.encode("utf-8", "replace") if isinstance(value, str) else orjson.dumps(value))


def _get(value: Any, name: str) -> Any:
    """Return a field of an object; None if there is none."""
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Any) -> list[Any]:
    """Return a list; an empty one for any other value."""
    return value if isinstance(value, list) else []
