"""As much BSON as a MongoDB login needs: documents of texts, numbers, bytes and lists."""

import struct
from collections.abc import Mapping
from typing import Any

_DEEPEST = 12
_TEXT, _DOCUMENT, _LIST, _BYTES, _BOOL, _INT32 = 0x02, 0x03, 0x04, 0x05, 0x08, 0x10  # 0x01 is a double
# What is passed over, by its type's number: nothing, eight bytes, an object's id, ...
_WIDTHS = {0x06: 0, 0x07: 12, 0x09: 8, 0x0A: 0, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}


def dump(document: Mapping[str, Any]) -> bytes:
    """Write a document."""
    body = b"".join(_element(name, value) for name, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _element(name: str, value: Any) -> bytes:
    key = name.encode() + b"\0"
    match value:
        case bool():
            return bytes([_BOOL]) + key + bytes([value])
        case int():
            return bytes([_INT32]) + key + struct.pack("<i", value)
        case str():
            text = value.encode() + b"\0"
            return bytes([_TEXT]) + key + struct.pack("<i", len(text)) + text
        case bytes():
            return bytes([_BYTES]) + key + struct.pack("<iB", len(value), 0) + value
        case _:
            return bytes([_DOCUMENT]) + key + dump(value)


def load(data: bytes, deep: int = 0) -> dict[str, Any]:
    """Read a document; raises ValueError or IndexError where there is none."""
    if deep > _DEEPEST or len(data) < 5 or struct.unpack_from("<i", data)[0] != len(data):
        raise ValueError
    found: dict[str, Any] = {}
    at = 4
    while data[at] != 0:
        end = data.index(b"\0", at + 1)
        name = data[at + 1 : end].decode()
        found[name], at = _value(data[at], data, end + 1, deep)
    if at != len(data) - 1:
        raise ValueError
    return found


def _value(kind: int, data: bytes, at: int, deep: int) -> tuple[Any, int]:
    """Give a value and where the next element begins."""
    value: Any = None
    match kind:
        case 0x01:
            (value,), at = struct.unpack("<d", _slice(data, at, 8)), at + 8
        case 0x02:
            size = _size(data, at)
            value, at = _slice(data, at + 4, size)[:-1].decode(), at + 4 + size
        case 0x03 | 0x04:
            size = _size(data, at)
            inner = load(_slice(data, at, size), deep + 1)
            value, at = (list(inner.values()) if kind == _LIST else inner), at + size
        case 0x05:
            size = _size(data, at)
            value, at = _slice(data, at + 5, size), at + 5 + size
        case 0x08:
            value, at = data[at] == 1, at + 1
        case 0x10:
            value, at = _size(data, at), at + 4
        case _ if kind in _WIDTHS:
            at += len(_slice(data, at, _WIDTHS[kind]))
        case _:
            raise ValueError
    return value, at


def _size(data: bytes, at: int) -> int:
    size: int = struct.unpack("<i", _slice(data, at, 4))[0]
    return size


def _slice(data: bytes, at: int, size: int) -> bytes:
    """Give so many bytes, or none at all: a length is what the other side says it is."""
    if size < 0 or at + size > len(data):
        raise ValueError
    return data[at : at + size]
