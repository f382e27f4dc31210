"""Recognise files that have to be unpacked or decoded, by their first or last bytes.

`data` is one file or a buffer with several files; `start` and `stop` are the span of the file in `data`.
`archives` and the libraries that it needs are only imported for files that are recognised here.
"""

import re
from struct import Struct

from outcrop.lazy_regex import regex
from outcrop.limits import UTF16_STRINGS_BYTES

_HEADER_BYTES = 512  # read of each file: the header of a tar
# Formats without a reader, by their first bytes.
_UNSUPPORTED_FORMATS = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
}
# Formats with a reader in `archives`, by their first bytes.
_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"PK\3\4": "zip",
    b"PK\5\6": "zip",
    b"\xfd7zXZ\0": "xz",
    b"!<arch>\ndebian-binary": "deb",
    b"\xed\xab\xee\xdb": "rpm",
    b"070701": "cpio",
    b"070702": "cpio",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x50\x2a\x4d\x18": "zstd",  # a frame of other data before the first
    b"SQLite format 3\0": "sqlite",
    b"# v2 git bundle\n": "bundle",
    b"# v3 git bundle\n": "bundle",
}
# The usual properties, a power of two as the dictionary size, and a length that is unknown or below 256 GB.
_LZMA_HEADER = regex(
    rb"\x5d\0(?:\0[\x01\x02\x04\x08\x10\x20\x40\x80]\0|\0\0[\x01\x02\x04\x08]|[\x10\x20\x40\x80]\0\0)"
    rb"(?:\xff{8}|.{4}[\0-\x3f]\0{3})",
    re.DOTALL,
)
# First bytes of packed files. A packed file with another first byte has a zero byte in its header.
PACKED_FIRST_BYTES = frozenset(b"\x1fPB\xfd\xff\xfe\x28{") | {magic[0] for magic in _UNSUPPORTED_FORMATS}
# Notebooks and HAR files, as programs write them.
_JSON_VIEW = regex(
    rb'\{\s{0,80}"(?:(?:cells|worksheets)"\s{0,80}:\s{0,80}\[|log"\s{0,80}:\s{0,80}\{'
    rb'|metadata"\s{0,80}:\s{0,80}\{|nbformat)'
)
_BUNDLE_START, _FIRST_OF_BUNDLE = (b"# v2 git bundle\n", b"# v3 git bundle\n"), ord("#")
# Compiled Python: a version and a line break, and later the object for code, with or without a flag.
_PYTHON_CACHE = regex(rb".[\x0b-\x0f\xf2\xf3]\r\n(?:.{4}|.{8}|.{12})[c\xe3]", re.DOTALL)
_BYTE_ORDER_MARKS = (
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
_MOST, _HALF, _FEW = 0.8, 0.4, 0.1  # shares of zero bytes
_TEXT_BYTES = bytes(range(0x20, 0x7F)) + b"\t\r\n"
# Programs, old Office documents and registry hives of Windows: their strings are in UTF-16.
_UTF16_STRING_FORMATS = (b"MZ", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"regf")

# --- the end of a zip
ZIP_END = b"PK\5\6"
_ZIP_END_PATTERN = regex(ZIP_END)
# Members on this disk, all members, size and offset of their directory, length of the comment.
_ZIP_END_RECORD = Struct("<8xHHLLH")
ZIP_END_SIZE = _ZIP_END_RECORD.size
_ZIP_DIRECTORY_ENTRY, _MIN_ZIP_ENTRY_BYTES = b"PK\1\2", 46
_ZIP64_LOCATOR, _ZIP64_LOCATOR_SIZE = b"PK\6\7", 20
_IN_ZIP64_RECORD, _IN_ZIP64_RECORD_16 = 0xFFFFFFFF, 0xFFFF  # instead of an offset, of a number of members
ZIP_TAIL_BYTES = ZIP_END_SIZE + 0xFFFF  # the last record and the longest possible comment after it


def needs_unpacking(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Whether a complete file has to be unpacked or decoded before it is scanned.

    The file is `data` from `start` to `stop` (None: to the end).
    """
    stop = len(data) if stop is None else stop
    return (
        has_packed_header(data, start, stop)
        or ends_with_zip(data, start, stop)
        or has_utf16_strings(data, start, stop)
    )


def has_packed_header(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Whether a file begins like an archive, compressed data, or a text in UTF-16 or UTF-32.

    The file is `data` from `start` to `stop` (None: to the end). Formats that cannot be unpacked count too.
    """
    stop = len(data) if stop is None else stop
    if stop - start < 4 or (
        data[start] not in PACKED_FIRST_BYTES
        and data.find(b"\0", start, min(start + _HEADER_BYTES, stop)) < 0
        and (data[start] != _FIRST_OF_BUNDLE or not data.startswith(_BUNDLE_START, start, stop))
    ):
        return False  # the usual case
    header = bytes(data[start : min(start + _HEADER_BYTES, stop)])
    return (
        detect_format(header) is not None
        or detect_wide_charset(header) is not None
        or detect_unsupported_format(header) is not None
    )


def ends_with_zip(data: bytes | bytearray, start: int = 0, stop: int | None = None, before: int = 0) -> bool:
    """Whether a file ends with a zip, as a script or a program with a zip after it does.

    The file is `data` from `start` to `stop` (None: to the end). `before` is the number of bytes of the file
    before `start` that are not in `data`.
    """
    stop = len(data) if stop is None else stop
    tail = max(start, stop - ZIP_TAIL_BYTES)
    # The usual cases: a text, and a file without this record. The pattern takes half the time of `rfind`.
    if data.find(b"\0", tail, stop) < 0 or _ZIP_END_PATTERN.search(data, tail, stop) is None:
        return False
    end = data.rfind(ZIP_END, tail, stop)
    if stop - end < ZIP_END_SIZE:
        return False
    disk_members, members, directory_size, directory_offset, _ = _ZIP_END_RECORD.unpack_from(data, end)
    if directory_offset == _IN_ZIP64_RECORD or members == _IN_ZIP64_RECORD_16:
        locator = end - _ZIP64_LOCATOR_SIZE
        return data[locator : locator + len(_ZIP64_LOCATOR)] == _ZIP64_LOCATOR
    if not members or disk_members != members:
        return False
    max_directory_size = end - start + before - directory_offset
    if not members * _MIN_ZIP_ENTRY_BYTES <= directory_size <= max_directory_size:
        return False
    directory = end - directory_size
    return directory < start or data[directory : directory + 4] == _ZIP_DIRECTORY_ENTRY


def has_utf16_strings(data: bytes | bytearray, start: int = 0, stop: int | None = None) -> bool:
    """Whether a complete file is of a Windows format with strings in UTF-16 between other bytes.

    The file is `data` from `start` to `stop` (None: to the end). False for files of over 4 MB.
    """
    stop = len(data) if stop is None else stop
    return data.startswith(_UTF16_STRING_FORMATS, start, stop) and stop - start <= UTF16_STRINGS_BYTES


def detect_unsupported_format(header: bytes) -> str | None:
    """Return the name of the packed format that begins with `header` if `archives` has no reader for it.

    None for all other data.
    """
    return next((name for magic, name in _UNSUPPORTED_FORMATS.items() if header.startswith(magic)), None)


def detect_format(header: bytes) -> str | None:
    """Return the name of the packed format that begins with `header` if `archives` has a reader for it.

    None for all other data. `header` has at least 512 bytes, or is the complete file.
    """
    if name := next((name for magic, name in _FORMATS.items() if header.startswith(magic)), None):
        return name
    if header[257:262] == b"ustar":
        return "tar"
    if header[:3] == b"BZh" and header[4:10] == b"1AY&SY":
        return "bz2"
    if header[2:4] == b"\r\n" and _PYTHON_CACHE.match(header):
        return "pyc"
    if header[:1] == b"{" and _JSON_VIEW.match(header):
        return "json"
    return "lzma" if _LZMA_HEADER.match(header) else None


def detect_wide_charset(header: bytes) -> str | None:
    """Return the Python codec of a text in UTF-16 or UTF-32 that begins with `header`; None for other data.

    A byte order mark decides, otherwise the zero bytes among the first 256.
    """
    codec = next((codec for mark, codec in _BYTE_ORDER_MARKS if header.startswith(mark)), None)
    if codec:
        return codec
    head = header[:256]
    if len(head) < 16 or b"\0" not in head:
        return None
    even, odd = _zero_share(head, 0, 2), _zero_share(head, 1, 2)
    if odd > _MOST and even < _FEW:
        return "utf-16-le"
    if even > _MOST and odd < _FEW:
        return "utf-16-be"
    if min(even, odd) > _HALF and max(even, odd) > _MOST:
        return "utf-32-le" if _is_utf32(head, 0) else "utf-32-be" if _is_utf32(head, 3) else None
    return None


def _zero_share(head: bytes, first: int, step: int) -> float:
    """Return the share of zeros, 0 to 1, among every `step`-th byte of `head`, from the byte `first` on."""
    return head[first::step].count(0) / len(head[first::step])


def _is_utf32(head: bytes, letter_at: int) -> bool:
    """Whether in most groups of four bytes the byte at `letter_at` (0 to 3) is ASCII and the others are zero.

    The check of the letters excludes tables of small numbers.
    """
    letters = head[letter_at::4]
    others = {0, 1, 2, 3} - {letter_at}
    return len(letters.translate(None, _TEXT_BYTES)) < _FEW * len(letters) and all(
        _zero_share(head, other, 4) > _MOST for other in others
    )
