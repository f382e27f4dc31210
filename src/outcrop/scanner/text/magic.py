"""What a file is by its first bytes, or by its last: something to unpack, or to read as it is. What unpacks is loaded for such a file."""

import re
from struct import Struct

_SEALED = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
    b"# v2 git bundle\n": "bundle of git",
    b"# v3 git bundle\n": "bundle of git",
}
# What we can open and tell by its first bytes.
_OPENED = {
    b"\x1f\x8b": "gzip",
    b"PK\3\4": "zip",
    b"PK\5\6": "zip",
    b"\xfd7zXZ\0": "xz",
    b"!<arch>\ndebian-binary": "deb",
    b"\xed\xab\xee\xdb": "rpm",
    b"070701": "cpio",
    b"070702": "cpio",
}
# The usual properties, a window of a power of two, and a size that is not told or below 256 GB.
_LZMA = re.compile(
    rb"\x5d\0(?:\0[\x01\x02\x04\x08\x10\x20\x40\x80]\0|\0\0[\x01\x02\x04\x08]|[\x10\x20\x40\x80]\0\0)(?:\xff{8}|.{4}[\0-\x3f]\0{3})",
    re.DOTALL,
)
# Of what is packed; what is so and begins otherwise, as many texts do, has a zero among its first 512 bytes.
PACKED_FIRST_BYTES = (frozenset(b"\x1fPB\xfd\xff\xfe") | {magic[0] for magic in _SEALED}) - frozenset(b"#")
_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_MOST, _HALF, _FEW = 0.8, 0.4, 0.1  # of the bytes
_LETTERS = bytes(range(0x20, 0x7F)) + b"\t\r\n"
_WIDE = (b"MZ", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"regf")  # programs, documents and registries of Windows
_WIDE_MOST = 4 << 20  # what is larger is read in parts, as it is
ZIP_END = b"PK\5\6"
_HAS_END = re.compile(ZIP_END)
_ZIP_END = Struct("<8xHHLLH")  # the last record of a zip: members, and size and place of their directory
ZIP_END_SIZE = _ZIP_END.size
_ZIP_ENTRY, _ZIP_ENTRY_SIZE, _FAR = b"PK\1\2", 46, b"PK\6\7"
_UNSAID = 0xFFFFFFFF
ZIP_TAIL_BYTES = ZIP_END_SIZE + 0xFFFF  # what may stand behind a zip's last record is its comment


def needs_unpacking(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell whether a file, given whole, is something to unpack rather than to read as it is."""
    stop = len(data) if stop is None else stop
    return (
        has_packed_header(data, start, stop)
        or ends_with_zip(data, start, stop)
        or has_utf16_strings(data, start, stop)
    )


def has_packed_header(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell by its first 512 bytes whether a file is something to unpack."""
    stop = len(data) if stop is None else stop
    if stop - start < 4 or (
        data[start] not in PACKED_FIRST_BYTES and data.find(b"\0", start, min(start + 512, stop)) < 0
    ):
        return False  # the usual case, told quickly
    head = bytes(data[start : min(start + 512, stop)])
    return opener_of(head) is not None or wide_of(head) is not None or sealed_as(head) is not None


def ends_with_zip(data: bytes | bytearray, start: int = 0, stop: int | None = None, before: int = 0) -> bool:
    """Tell whether a zip stands at the end of a file, as behind a script or a program, of which so many bytes are not given."""
    stop = len(data) if stop is None else stop
    tail = max(start, stop - ZIP_TAIL_BYTES)
    if data.find(b"\0", tail, stop) < 0 or _HAS_END.search(data, tail, stop) is None:
        return False  # the usual cases: a text, and what else holds no zip, told in half the time that rfind takes
    end = data.rfind(ZIP_END, tail, stop)
    if stop - end < ZIP_END_SIZE:
        return False
    members, of_all, size, place, _ = _ZIP_END.unpack_from(data, end)
    if place == _UNSAID or of_all == 0xFFFF:
        return data[end - 20 : end - 16] == _FAR
    directory = end - size
    if (
        members != of_all
        or not members * _ZIP_ENTRY_SIZE <= size <= end - start + before - place
        or not members
    ):
        return False
    return directory < start or data[directory : directory + 4] == _ZIP_ENTRY


def has_utf16_strings(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Tell whether a file, given whole, is of a kind that has its strings in UTF-16 between others."""
    stop = len(data) if stop is None else stop
    return data.startswith(_WIDE, start, stop) and stop - start <= _WIDE_MOST


def sealed_as(data: bytes) -> str | None:
    """Name what is packed in a way that we cannot open."""
    return next((kind for magic, kind in _SEALED.items() if data.startswith(magic)), None)


def opener_of(data: bytes) -> str | None:
    """Name how a file is packed that we can open."""
    if known := next((kind for magic, kind in _OPENED.items() if data.startswith(magic)), None):
        return known
    if data[257:262] == b"ustar":
        return "tar"
    if data[:3] == b"BZh" and data[4:10] == b"1AY&SY":
        return "bz2"
    return "lzma" if _LZMA.match(data) else None


def wide_of(data: bytes) -> str | None:
    """Name the encoding of a text in UTF-16 or UTF-32, told by its mark, or by which bytes of its beginning are zero."""
    mark = next((codec for mark, codec in _MARKS if data.startswith(mark)), None)
    if mark:
        return mark
    head = data[:256]
    if len(head) < 16 or b"\0" not in head:
        return None
    even, odd = _zeros(head, 0, 2), _zeros(head, 1, 2)
    if odd > _MOST and even < _FEW:
        return "utf-16-le"
    if even > _MOST and odd < _FEW:
        return "utf-16-be"
    if min(even, odd) > _HALF and max(even, odd) > _MOST:
        return "utf-32-le" if _in_fours(head, 0) else "utf-32-be" if _in_fours(head, 3) else None
    return None


def _zeros(head: bytes, first: int, step: int) -> float:
    return head[first::step].count(0) / len(head[first::step])


def _in_fours(head: bytes, at: int) -> bool:
    """Tell whether of every four bytes one is a letter and the others are zero: small numbers are written so too."""
    letters = head[at::4]
    others = {0, 1, 2, 3} - {at}
    return len(letters.translate(None, _LETTERS)) < _FEW * len(letters) and all(
        _zeros(head, other, 4) > _MOST for other in others
    )
