"""What the packages of Linux distributions are made of: ar, rpm and cpio, which the standard library does not read."""

from collections.abc import Iterator
from struct import Struct, error

_AR_HEAD, _AR_NAME, _AR_SIZE = 60, slice(0, 16), slice(48, 58)
_RPM_LEAD = 96
_RPM_HEADER = Struct(">4s4xLL")  # entries, and bytes of what they say
_RPM_ENTRY, _RPM_MAGIC = 16, b"\x8e\xad\xe8\1"
_CPIO_HEAD, _CPIO_FIELD = 110, 8
_CPIO_SIZE, _CPIO_NAME = 54, 94  # where these numbers stand
_CPIO_END = b"TRAILER!!!"


def ar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the members of a deb, which have short names."""
    at = len(b"!<arch>\n")
    while head := data[at : at + _AR_HEAD]:
        if len(head) < _AR_HEAD or not head.endswith(b"`\n"):
            raise ValueError("no member of an ar stands here")
        size = int(head[_AR_SIZE])
        start = at + _AR_HEAD
        if size < 0 or len(data) < start + size:
            raise ValueError("a member of an ar ends early")
        yield head[_AR_NAME].rstrip(b" /").decode("utf-8", "replace"), data[start : start + size]
        at = start + size + size % 2


def rpm_payload(data: bytes) -> int:
    """Tell where what an rpm installs begins: behind two headers, the first of which is filled up to eight bytes."""
    try:
        signed = _rpm_header(data, _RPM_LEAD)
        return _rpm_header(data, signed + -signed % 8)
    except error:
        raise ValueError("the headers of an rpm end early") from None


def _rpm_header(data: bytes, at: int) -> int:
    magic: bytes
    entries: int
    size: int
    magic, entries, size = _RPM_HEADER.unpack_from(data, at)
    if magic != _RPM_MAGIC:
        raise ValueError("no header of an rpm stands here")
    return at + _RPM_HEADER.size + entries * _RPM_ENTRY + size


def cpio_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the files of a cpio, and what stands behind its end."""
    at = 0
    while data[at : at + 6] in {b"070701", b"070702"}:
        size, length = _cpio_number(data, at + _CPIO_SIZE), _cpio_number(data, at + _CPIO_NAME)
        start = at + _CPIO_HEAD + length
        name = data[at + _CPIO_HEAD : start].rstrip(b"\0")
        start += -start % 4
        if name == _CPIO_END:
            at = start
            break
        if len(data) < start + size:
            raise ValueError("a file in a cpio ends early")
        if size:
            yield name.decode("utf-8", "surrogateescape"), data[start : start + size]
        at = start + size + -size % 4
    else:
        raise ValueError("a cpio ends early")
    if rest := data[at:].lstrip(b"\0"):  # as in an initramfs
        yield "", rest


def _cpio_number(data: bytes, at: int) -> int:
    return int(data[at : at + _CPIO_FIELD], 16)
