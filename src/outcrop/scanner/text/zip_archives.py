"""Read zip archives, also with a damaged or missing directory, and with other data before and after them."""

import io
import struct
import zipfile

from outcrop.limits import ARCHIVE_MEMBERS
from outcrop.scanner.text.archive_members import READ_ERRORS, Members, RawBytes, UnpackBudget, blank
from outcrop.scanner.text.decompress import Inflater, read_stream
from outcrop.scanner.text.magic import ZIP_END, ZIP_END_SIZE

_DIRECTORY_ENTRY = b"PK\1\2"
_MEMBER_MAGIC = b"PK\3\4"
# Used of the header of a member: flags, method, compressed size, lengths of the name and the extra field.
_MEMBER_HEADER = struct.Struct("<4s5H3I2H")
_ENCRYPTED_FLAG, _DEFLATE, _RAW_DEFLATE_WBITS = 1, 8, -15


def read_zip(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the data before a zip, its members, and its comments together with the data after it.

    All but the members have the name "". Everything is subtracted from the budget. If the directory cannot be
    read or has more than ARCHIVE_MEMBERS entries, the members are found by their headers. Members that cannot
    be read are added to the gaps of the budget; no error is raised for them, and what can be read is yielded.
    """
    if data.count(_DIRECTORY_ENTRY) > ARCHIVE_MEMBERS:  # zipfile would keep a directory of millions in memory
        yield from _read_without_directory(data, budget)
        return
    try:
        archive, first_member = _open_archive(data)
    except READ_ERRORS as error:
        budget.gaps.append(f"archive: cannot be unpacked ({type(error).__name__})")
        yield from _read_without_directory(data, budget)
        return
    with archive:
        if before := data[:first_member]:  # a script, a program, or another zip
            budget.bytes_left -= len(before)
            yield "", before
        for member in archive.infolist():
            if member.is_dir() and not member.file_size:
                continue
            try:
                with archive.open(member) as stream:
                    content = stream.read(budget.max_bytes() + 1)
            except READ_ERRORS as error:
                budget.gaps.append(f"{member.filename}: cannot be unpacked ({type(error).__name__})")
                content = _read_member_at(data, member.header_offset, budget)[1]
            yield member.filename, budget.count(member.filename, content)
        if outside := _read_comments_and_rest(data, archive):
            yield "", RawBytes(budget.count("archive", outside))


def _open_archive(data: bytes) -> tuple[zipfile.ZipFile, int]:
    """Return an opened zip and the offset of its first member; without members, that of its end record.

    Raise BadZipFile if the directory refers to offsets without a member, or another of READ_ERRORS if it is
    damaged.
    """
    archive = zipfile.ZipFile(io.BytesIO(data))
    offsets = [member.header_offset for member in archive.infolist()]
    if not all(offset >= 0 and data.startswith(_MEMBER_MAGIC, offset) for offset in offsets):
        raise zipfile.BadZipFile
    return archive, min(offsets, default=data.rfind(ZIP_END))


def _read_comments_and_rest(data: bytes, archive: zipfile.ZipFile) -> bytes:
    """Return the comments of a zip and of its members, and the data after the zip, in lines.

    Return b"" if there are none.
    """
    end = data.rfind(ZIP_END) + ZIP_END_SIZE + len(archive.comment)
    comments = (archive.comment, *(member.comment for member in archive.infolist()))
    return b"\n".join(filter(None, (*comments, data[end:])))


def _read_without_directory(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the zip members that are found by their headers, and the data before, between and after them.

    Members are subtracted from the budget. The data outside of members has the name "": first the data before
    the first member, then all the rest in one text, in which the data before it and the members are spaces,
    so that lines keep their numbers.
    """
    at = data.find(_MEMBER_MAGIC)
    read_to = max(0, at)
    if read_to:
        yield "", RawBytes(data[:read_to])
    outside = bytearray(blank(data[:read_to]))
    while at >= 0:
        name, content, end = _read_member_at(data, at, budget)
        if content:
            outside += data[read_to:at]
            outside += blank(data[at:end])
            read_to = end
            yield name, budget.count(name, content)
        at = data.find(_MEMBER_MAGIC, max(end, at + 4))
    outside += data[read_to:]
    yield "", RawBytes(outside)


def _read_member_at(data: bytes, at: int, budget: UnpackBudget) -> tuple[str, bytes, int]:
    """Return name and content of the zip member with its header at offset `at`, and the offset after it.

    The content is as much as can be read within the budget, which is not changed: the stored bytes if they
    cannot be decompressed. If the data ends inside the header, return ("", b"", at).
    """
    if len(data) < at + _MEMBER_HEADER.size:
        return "", b"", at
    _, _, flags, method, _, _, _, size, _, name_size, extra_size = _MEMBER_HEADER.unpack_from(data, at)
    start = at + _MEMBER_HEADER.size + name_size + extra_size
    name = data[at + _MEMBER_HEADER.size : start - extra_size].decode("utf-8", "replace")
    if method == _DEFLATE and not flags & _ENCRYPTED_FLAG:
        content = bytearray()
        end, _ = read_stream(Inflater(_RAW_DEFLATE_WBITS), data, start, budget.max_bytes(), content)
        if content:
            return name, bytes(content), end
    end = start + size if size else data.find(b"PK", start)
    end = min(end, len(data)) if end >= 0 else len(data)
    return name, data[start : min(end, start + budget.max_bytes() + 1)], max(at, end)
