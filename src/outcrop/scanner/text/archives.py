"""Unpack archives and compressed files, and decode UTF-16 and UTF-32, into plain texts.

`unpack_texts` does so recursively. Depth, size, number of members and time are limited (`UnpackBudget`),
whatever the headers of a file claim. Everything that was skipped is a gap of the budget.
"""

import io
import tarfile
from collections.abc import Callable, Iterator

from outcrop.lazy_regex import regex
from outcrop.limits import ARCHIVE_DEPTH
from outcrop.scanner.text.archive_members import (
    READ_ERRORS,
    DecodedText,
    Members,
    RawBytes,
    UnpackBudget,
    blank,
)
from outcrop.scanner.text.decompress import read_bz2, read_gzip, read_lzma, read_xz, read_zstd
from outcrop.scanner.text.git_bundle import read_git_bundle
from outcrop.scanner.text.json_views import read_json_view
from outcrop.scanner.text.linux_packages import ar_members, cpio_members, find_rpm_payload
from outcrop.scanner.text.magic import (
    detect_format,
    detect_unsupported_format,
    detect_wide_charset,
    ends_with_zip,
    has_utf16_strings,
)
from outcrop.scanner.text.python_constants import read_python_cache
from outcrop.scanner.text.sqlite_rows import read_sqlite
from outcrop.scanner.text.zip_archives import read_zip

_TAR_BLOCK_BYTES = 512
# Each byte by its kind: `a` for text, 0 for zero, 1 for others.
_BYTE_KINDS = bytes(97 if byte in b"\t\r\n" or 32 <= byte < 127 else min(byte, 1) for byte in range(256))
_EIGHT_WIDE_LETTERS, _WIDE_STRING = b"a\0" * 8, regex(rb"(?:a\0)++")


def unpack_texts(
    data: bytes, budget: UnpackBudget, name: str = "", depth: int = 0
) -> Iterator[tuple[str, bytes]]:
    """Yield the plain texts in a file, each with its name inside the file (`outer!inner`).

    A file that is no archive is yielded with `name`; UTF-16 and UTF-32 become UTF-8. An archive that is
    nested too deeply or cannot be read is yielded packed, after the members that could be read. The members
    are subtracted from the budget, and reading stops at its limits. What was skipped is added to its gaps.
    `depth` counts the archives around the file.
    """
    if isinstance(data, RawBytes):
        yield name, data
        return
    label = name or "archive"
    archive_format = detect_format(data) or ("zip" if ends_with_zip(data) else None)
    if archive_format is None:
        if unsupported := detect_unsupported_format(data):
            budget.gaps.append(f"{label}: cannot be unpacked, {unsupported} is not supported")
        yield name, _decode_wide(data)
        return
    if depth >= ARCHIVE_DEPTH:
        budget.gaps.append(f"{label}: nested too deeply, was not unpacked")
        yield name, data
        return
    try:
        for inner, content in _READERS[archive_format](data, budget):
            if limit := budget.exceeded_limit():
                budget.gaps.append(f"{label}: {limit}")
                return
            if isinstance(data, DecodedText):
                content = DecodedText(content)  # noqa: PLW2901 - its values may be in the text before, too
            yield from unpack_texts(content, budget, _join_names(name, inner), depth + 1)
    except READ_ERRORS as error:
        budget.gaps.append(f"{label}: cannot be unpacked ({type(error).__name__})")
        yield name, data


def _join_names(outer: str, inner: str) -> str:
    """Return the name of a member inside its archive, `outer!inner`; if one name is empty, the other."""
    return f"{outer}!{inner}" if outer and inner else outer or inner


def _read_tar(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the files of a tar, then the data after its end, which may be another archive, with the name "".

    Everything is subtracted from the budget. If the tar is damaged at its end, add a gap and yield the rest
    as raw bytes, after spaces in place of what was read. Raise one of READ_ERRORS if a header before that
    cannot be read.
    """
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        last_offset = -1
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # tarfile would keep all members in memory
            if archive.offset <= last_offset:
                raise tarfile.ReadError
            last_offset = archive.offset
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield member.name, budget.count(member.name, stream.read(budget.max_bytes() + 1))
            elif budget.exceeded_limit():
                yield member.name, b""  # lets `unpack_texts` check the limits and stop
        end = archive.offset
    if data[end : end + _TAR_BLOCK_BYTES].strip(b"\0"):
        budget.gaps.append("archive: damaged, only a part was unpacked")
        budget.count("archive", data[end:])
        yield "", RawBytes(blank(data[:end]) + data[end:])
    elif rest := data[end:].lstrip(b"\0"):
        yield "", budget.count("archive", rest)


def _read_deb(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the members of a Debian package: two archives and the version of the format.

    They are subtracted from the budget. Raise ValueError if the package is damaged.
    """
    return _count_members(ar_members(data), budget)


def _read_cpio(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the files of a cpio archive, then the data after its end, if any, with the name "".

    Everything is subtracted from the budget. Raise ValueError if the archive is damaged.
    """
    return _count_members(cpio_members(data), budget)


def _count_members(members: Members, budget: UnpackBudget) -> Members:
    """Yield members, each subtracted from the budget and cut to one byte more than the budget allows."""
    return ((name, budget.count(name, content[: budget.max_bytes() + 1])) for name, content in members)


def _read_rpm(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the headers of an RPM package, which contain its scripts, then its compressed files.

    Both have the name "". The headers are raw bytes, and only the files are subtracted from the budget. Raise
    ValueError if a header is damaged.
    """
    payload = find_rpm_payload(data)
    yield "", RawBytes(data[:payload])
    yield "", budget.count("archive", data[payload:])


def _decode_wide(data: bytes) -> bytes:
    """Return a text in UTF-16 or UTF-32 as UTF-8.

    In a Windows file with strings in UTF-16 only these strings are converted, to ASCII. Other data is
    returned unchanged.
    """
    if charset := detect_wide_charset(data):
        return data.decode(charset, "replace").encode("utf-8", "replace")
    return _narrow_strings(data) if has_utf16_strings(data) else data


def _narrow_strings(data: bytes) -> bytes:
    """Return binary data with each UTF-16 string as ASCII, and zeros after it so that offsets stay the same.

    Only little-endian strings of at least eight ASCII characters are changed. Searching for eight letters
    first is quicker than searching with a pattern.
    """
    kinds = data.translate(_BYTE_KINDS)
    out = bytearray(data)
    at = kinds.find(_EIGHT_WIDE_LETTERS)
    while at >= 0:
        wide = _WIDE_STRING.match(kinds, at)
        end = wide.end() if wide else at + len(_EIGHT_WIDE_LETTERS)
        out[at:end] = data[at:end:2] + bytes((end - at) // 2)
        at = kinds.find(_EIGHT_WIDE_LETTERS, end)
    return bytes(out)


# The format names of `magic.detect_format`.
_READERS: dict[str, Callable[[bytes, UnpackBudget], Members]] = {
    "gzip": read_gzip,
    "zip": read_zip,
    "tar": _read_tar,
    "bz2": read_bz2,
    "xz": read_xz,
    "lzma": read_lzma,
    "deb": _read_deb,
    "rpm": _read_rpm,
    "cpio": _read_cpio,
    "zstd": read_zstd,
    "sqlite": read_sqlite,
    "bundle": read_git_bundle,
    "pyc": read_python_cache,
    "json": read_json_view,
}
