"""Read the formats of Linux packages that the standard library does not read: ar (deb), rpm, cpio."""

from collections.abc import Iterator
from struct import Struct, error

_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES, _AR_NAME, _AR_SIZE, _AR_HEADER_END = 60, slice(0, 16), slice(48, 58), b"`\n"
_RPM_LEAD_BYTES = 96
_RPM_HEADER = Struct(">4s4xLL")  # magic, number of index entries, bytes of the data after the index
_RPM_INDEX_ENTRY_BYTES, _RPM_MAGIC = 16, b"\x8e\xad\xe8\1"
_CPIO_MAGICS = frozenset({b"070701", b"070702"})
_CPIO_HEADER_BYTES, _CPIO_FIELD_BYTES = 110, 8
_CPIO_FILE_SIZE, _CPIO_NAME_SIZE = 54, 94  # offsets of these fields in the header
_CPIO_LAST_NAME = b"TRAILER!!!"


def ar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the members of an ar archive, the format of Debian packages.

    Raise ValueError if it is damaged.
    """
    at = len(_AR_MAGIC)
    while header := data[at : at + _AR_HEADER_BYTES]:
        if len(header) < _AR_HEADER_BYTES or not header.endswith(_AR_HEADER_END):
            raise ValueError("the header of an ar member is damaged")
        size = int(header[_AR_SIZE])
        start = at + _AR_HEADER_BYTES
        if size < 0 or len(data) < start + size:
            raise ValueError("an ar member is truncated")
        yield header[_AR_NAME].rstrip(b" /").decode("utf-8", "replace"), data[start : start + size]
        at = start + size + size % 2


def find_rpm_payload(data: bytes) -> int:
    """Return the offset of the compressed files in an RPM package, after its two headers.

    The first header, the signature, is padded to a multiple of eight bytes. Raise ValueError if a header is
    damaged or truncated.
    """
    try:
        signature_end = _find_rpm_header_end(data, _RPM_LEAD_BYTES)
        return _find_rpm_header_end(data, signature_end + -signature_end % 8)
    except error:
        raise ValueError("the headers of an rpm are truncated") from None


def _find_rpm_header_end(data: bytes, at: int) -> int:
    """Return the offset after the RPM header that begins at `at`.

    Raise ValueError if no header begins there, and struct.error if the data ends inside its first bytes.
    """
    magic: bytes
    entries: int
    size: int
    magic, entries, size = _RPM_HEADER.unpack_from(data, at)
    if magic != _RPM_MAGIC:
        raise ValueError("a header of an rpm is damaged")
    return at + _RPM_HEADER.size + entries * _RPM_INDEX_ENTRY_BYTES + size


def cpio_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files in a cpio archive; files without content are skipped.

    If data other than zeros follows the archive, yield it last, with the name "". Raise ValueError if the
    archive is damaged.
    """
    at = 0
    while data[at : at + 6] in _CPIO_MAGICS:
        size = _read_cpio_number(data, at + _CPIO_FILE_SIZE)
        name_size = _read_cpio_number(data, at + _CPIO_NAME_SIZE)
        start = at + _CPIO_HEADER_BYTES + name_size
        name = data[at + _CPIO_HEADER_BYTES : start].rstrip(b"\0")
        start += -start % 4
        if name == _CPIO_LAST_NAME:
            at = start
            break
        if len(data) < start + size:
            raise ValueError("a file in a cpio is truncated")
        if size:
            yield name.decode("utf-8", "surrogateescape"), data[start : start + size]
        at = start + size + -size % 4
    else:
        raise ValueError("a cpio is truncated")
    if rest := data[at:].lstrip(b"\0"):  # another archive, as in an initramfs
        yield "", rest


def _read_cpio_number(data: bytes, at: int) -> int:
    """Return the number in the cpio header field of eight hexadecimal digits at offset `at`.

    Raise ValueError if it has other characters.
    """
    return int(data[at : at + _CPIO_FIELD_BYTES], 16)
