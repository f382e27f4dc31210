"""Read the reports of other scanners: detect a file's format and translate its records to our own fields.

Beside the fields of a finding, a translated record can have these, which help to recognise the credential and
its place:

| field | meaning |
|---|---|
| `surroundings` | the text around the credential, which it is part of |
| `snippet` | the text at the place, of a report that does not name the credential |
| `parts` | other parts of the credential, such as the id that belongs to a key |
| `repo` | the repository's address, in any form |
"""

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

import orjson

from outcrop.domain.errors import BadInputError
from outcrop.limits import IMPORT_RECORD_BYTES
from outcrop.services.exchange.formats import (
    csv_table,
    defectdojo,
    detect_secrets,
    ggshield,
    github,
    gitlab,
    gitleaks,
    kingfisher,
    own,
    sarif,
    trufflehog,
)
from outcrop.services.exchange.formats.csv_table import BOM
from outcrop.services.exchange.formats.detect import check_encoding, detect_format, list_keys, read_version
from outcrop.services.exchange.formats.names import ImportFormat
from outcrop.services.exchange.json_array import ITEM, JsonPath, read_elements_at
from outcrop.services.exchange.record_error import RecordError

__all__ = ["FileRecord", "ImportFormat", "RecordError", "read_records"]

_HEAD_BYTES = 64 * 1024  # read to detect the format

FileRecord = tuple[str, dict[str, Any], int]  # position such as "line 3", fields, bytes read so far
_Translate = Callable[[dict[str, Any]], list[dict[str, Any]] | None]
_TRANSLATE: dict[ImportFormat, _Translate] = {
    ImportFormat.OUTCROP: own.translate,
    ImportFormat.GITLEAKS: gitleaks.translate,
    ImportFormat.TRUFFLEHOG: trufflehog.translate,
    ImportFormat.KINGFISHER: kingfisher.translate,
    ImportFormat.GGSHIELD: ggshield.translate,
    ImportFormat.GITHUB: github.translate,
    ImportFormat.GITLAB: gitlab.translate,
    ImportFormat.DEFECTDOJO: defectdojo.translate,
}
_PATHS: dict[ImportFormat, tuple[JsonPath, ...]] = {
    ImportFormat.OUTCROP: ((ITEM,),),
    ImportFormat.TRUFFLEHOG: ((ITEM,),),
    ImportFormat.GITLEAKS: gitleaks.PATHS,
    ImportFormat.KINGFISHER: kingfisher.PATHS,
    ImportFormat.GGSHIELD: ggshield.PATHS,
    ImportFormat.GITHUB: github.PATHS,
    ImportFormat.GITLAB: gitlab.PATHS,
    ImportFormat.DEFECTDOJO: defectdojo.PATHS,
}
_LINES = {ImportFormat.OUTCROP, ImportFormat.TRUFFLEHOG}  # one record per line, or else an array


def read_records(
    file: BinaryIO, format_: ImportFormat, columns: Mapping[str, str] | None = None
) -> tuple[ImportFormat, Iterator[FileRecord]]:
    """Return a file's format, detected if it is AUTO, and its findings as records with our own fields.

    `columns` are the columns of CSV by field; only CSV has them. Raise BadInputError if the format cannot be
    detected, and later, from the iterator, RecordError for the first record that is not a finding.
    """
    file, head = _peek(file)
    if format_ is ImportFormat.AUTO:
        format_ = ImportFormat.CSV if columns else detect_format(head)
    check_encoding(head)
    _check_version(format_, head)
    if columns and format_ is not ImportFormat.CSV:
        raise BadInputError(f"--map is for the format csv, and this is {format_}")
    return format_, _read(file, format_, head, columns or {})


def _read(
    file: BinaryIO, format_: ImportFormat, head: bytes, columns: Mapping[str, str]
) -> Iterator[FileRecord]:
    """Yield the findings of a file as records with our own fields."""
    match format_:
        case ImportFormat.CSV:
            yield from csv_table.read(file, columns)
        case ImportFormat.SARIF:
            for number, (element, run) in enumerate(sarif.read(file), 1):
                where = f"record {number}"
                found = sarif.translate(_parse_object(where, element.text), run)
                yield from _checked(where, found, format_, element.bytes_read)
        case ImportFormat.DETECT_SECRETS:
            for number, element in enumerate(read_elements_at(file, detect_secrets.PATHS), 1):
                where = f"record {number}"
                fields = _parse_object(where, element.text)
                found = detect_secrets.translate(fields, element.keys[0])
                yield from _checked(where, found, format_, element.bytes_read)
        case _:
            for where, record, bytes_read in _read_objects(file, format_, head):
                yield from _checked(where, _TRANSLATE[format_](record), format_, bytes_read)


def _read_objects(file: BinaryIO, format_: ImportFormat, head: bytes) -> Iterator[FileRecord]:
    """Return the JSON objects of a file: of its lines, or of its arrays."""
    begins_array = head.removeprefix(BOM).lstrip().startswith(b"[")
    has_lines = format_ in _LINES and not begins_array
    if format_ is ImportFormat.KINGFISHER:
        has_lines = "finding" in list_keys(head)
    return _read_lines(file) if has_lines else _read_arrays(file, _PATHS[format_])


def _check_version(format_: ImportFormat, head: bytes) -> None:
    """Raise BadInputError if a report says that it has a version which cannot be read."""
    if format_ not in {ImportFormat.SARIF, ImportFormat.GITLAB} or (version := read_version(head)) is None:
        return
    if format_ is ImportFormat.SARIF and version != sarif.VERSION:
        raise BadInputError(f"record 1: the report is SARIF {version}, and only {sarif.VERSION} can be read")
    major = version.partition(".")[0]
    if format_ is ImportFormat.GITLAB and not (major.isdecimal() and int(major) <= gitlab.NEWEST_VERSION):
        raise BadInputError(
            f"record 1: the report has version {version}, the newest known one is {gitlab.NEWEST_VERSION}"
        )


def _checked(
    where: str, found: list[dict[str, Any]] | None, format_: ImportFormat, bytes_read: int
) -> Iterator[FileRecord]:
    """Yield the findings of a record; raise RecordError if there are none because it is not a finding."""
    if found is None:
        raise RecordError(where, f"is not a finding of {format_}")
    return ((where, finding, bytes_read) for finding in found)


def _read_lines(file: BinaryIO) -> Iterator[FileRecord]:
    """Yield the JSON object of each line that is not blank."""
    bytes_read = number = 0
    while line := file.readline(IMPORT_RECORD_BYTES + 1):
        number += 1
        where = f"line {number}"
        if len(line) > IMPORT_RECORD_BYTES:
            raise RecordError(where, f"is longer than {IMPORT_RECORD_BYTES} bytes")
        bytes_read += len(line)
        if number == 1:
            line = line.removeprefix(BOM)
        if line.strip():
            yield where, _parse_object(where, line), bytes_read


def _read_arrays(file: BinaryIO, paths: tuple[JsonPath, ...]) -> Iterator[FileRecord]:
    """Yield the JSON objects at the paths."""
    for number, element in enumerate(read_elements_at(file, paths), 1):
        where = f"record {number}"
        yield where, _parse_object(where, element.text), element.bytes_read


def _parse_object(where: str, text: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise RecordError if the text is anything else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RecordError(where, "is not JSON" if _is_utf8(text) else "is not UTF-8") from None
    if not isinstance(value, dict):
        raise RecordError(where, "is not a JSON object")
    return value


def _is_utf8(text: bytes) -> bool:
    """Whether the text is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _peek(file: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Return a file positioned at its beginning, and its first bytes; the file may be a pipe."""
    head = b""
    while len(head) < _HEAD_BYTES and (piece := file.read(_HEAD_BYTES - len(head))):
        head += piece
    if file.seekable():
        file.seek(0)
        return file, head
    return io.BufferedReader(_PrefixedFile(head, file), 1 << 20), head


class _PrefixedFile(io.RawIOBase):
    """A file of some bytes followed by another file."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with the next bytes; return their number."""
        piece = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
