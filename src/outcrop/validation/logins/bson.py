"""Encode and decode BSON documents, as far as a MongoDB login needs them (https://bsonspec.org)."""

import struct
from collections.abc import Mapping
from typing import Any

from outcrop.limits import BSON_NESTING

_STRING, _DOCUMENT, _ARRAY, _BINARY, _BOOL, _INT32 = 0x02, 0x03, 0x04, 0x05, 0x08, 0x10
# Types whose values are skipped, with their size in bytes: undefined, ObjectId, datetime, null, timestamp,
# int64, decimal128, max key, min key.
_SKIPPED_SIZES = {0x06: 0, 0x07: 12, 0x09: 8, 0x0A: 0, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Return the BSON of a document whose values are bool, int, str, bytes or documents."""
    body = b"".join(_encode_element(name, value) for name, value in document.items())
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _encode_element(name: str, value: Any) -> bytes:
    """Return the BSON of one element of a document: type, name and value."""
    key = name.encode() + b"\0"
    match value:
        case bool():
            return bytes([_BOOL]) + key + bytes([value])
        case int():
            return bytes([_INT32]) + key + struct.pack("<i", value)
        case str():
            text = value.encode() + b"\0"
            return bytes([_STRING]) + key + struct.pack("<i", len(text)) + text
        case bytes():
            return bytes([_BINARY]) + key + struct.pack("<iB", len(value), 0) + value
        case _:
            return bytes([_DOCUMENT]) + key + encode_document(value)


def decode_document(data: bytes, depth: int = 0) -> dict[str, Any]:
    """Return the BSON document that `data` consists of.

    Values of types that a login does not need are None. `depth` counts the enclosing documents. Raise
    ValueError, IndexError or struct.error if `data` is no such document or is nested more than BSON_NESTING
    deep.
    """
    if depth > BSON_NESTING or len(data) < 5 or struct.unpack_from("<i", data)[0] != len(data):
        raise ValueError
    document: dict[str, Any] = {}
    offset = 4
    while data[offset] != 0:
        name_end = data.index(b"\0", offset + 1)
        name = data[offset + 1 : name_end].decode()
        document[name], offset = _decode_value(data[offset], data, name_end + 1, depth)
    if offset != len(data) - 1:
        raise ValueError
    return document


def _decode_value(kind: int, data: bytes, offset: int, depth: int) -> tuple[Any, int]:
    """Return the value at `offset`, and the offset of the next element; raise ValueError for unknown types.

    `kind` is the BSON type of the value; for types that a login does not need the value is None. `depth`
    counts the documents around the value. Raise ValueError or IndexError if the data ends before the value
    does.
    """
    value: Any = None
    match kind:
        case 0x01:  # double
            (value,), offset = struct.unpack("<d", _slice(data, offset, 8)), offset + 8
        case 0x02:  # string, with a NUL at its end
            size = _int32_at(data, offset)
            value, offset = _slice(data, offset + 4, size)[:-1].decode(), offset + 4 + size
        case 0x03 | 0x04:  # document or array, whose size includes these four bytes
            size = _int32_at(data, offset)
            inner = decode_document(_slice(data, offset, size), depth + 1)
            value, offset = (list(inner.values()) if kind == _ARRAY else inner), offset + size
        case 0x05:  # binary, with a subtype byte after its size
            size = _int32_at(data, offset)
            value, offset = _slice(data, offset + 5, size), offset + 5 + size
        case 0x08:  # bool
            value, offset = data[offset] == 1, offset + 1
        case 0x10:  # int32
            value, offset = _int32_at(data, offset), offset + 4
        case _ if kind in _SKIPPED_SIZES:
            offset += len(_slice(data, offset, _SKIPPED_SIZES[kind]))
        case _:
            raise ValueError
    return value, offset


def _int32_at(data: bytes, offset: int) -> int:
    """Return the signed 32-bit number at `offset`.

    Raise ValueError if the data ends before the number does.
    """
    number: int = struct.unpack("<i", _slice(data, offset, 4))[0]
    return number


def _slice(data: bytes, offset: int, size: int) -> bytes:
    """Return exactly `size` bytes at `offset`; raise ValueError if the data has fewer."""
    if size < 0 or offset + size > len(data):
        raise ValueError
    return data[offset : offset + size]
