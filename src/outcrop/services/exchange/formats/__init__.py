"""Read the reports of other scanners: detect a file's format and translate its records to our own fields."""

import io
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, BinaryIO

import orjson

from outcrop.domain.errors import BadInputError
from outcrop.services.exchange.formats import gitleaks, kingfisher, sarif, trufflehog
from outcrop.services.exchange.json_array import MAX_ELEMENT_BYTES, JsonPath, read_elements

_HEAD_BYTES = 64 * 1024  # read to detect the format
_BOM = b"\xef\xbb\xbf"  # UTF-8 byte order mark
_OTHER_KINGFISHER_RECORDS = {"access_map", "audit"}  # keys of records that are not findings


class ImportFormat(StrEnum):
    """The formats of imported files."""

    AUTO = "auto"
    OUTCROP = "outcrop"
    GITLEAKS = "gitleaks"
    TRUFFLEHOG = "trufflehog"
    KINGFISHER = "kingfisher"
    SARIF = "sarif"


class RecordError(BadInputError):
    """A record is invalid. The message has its position and never its content."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")


FileRecord = tuple[str, dict[str, Any], int]  # position such as "line 3", fields, bytes read so far
_TRANSLATE: dict[ImportFormat, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    ImportFormat.GITLEAKS: gitleaks.translate,
    ImportFormat.TRUFFLEHOG: trufflehog.translate,
    ImportFormat.KINGFISHER: kingfisher.translate,
    ImportFormat.SARIF: sarif.translate,
}
_PATHS: dict[ImportFormat, JsonPath] = {
    ImportFormat.GITLEAKS: gitleaks.PATH,
    ImportFormat.KINGFISHER: kingfisher.PATH,
    ImportFormat.SARIF: sarif.PATH,
}


def read_records(file: BinaryIO, format_: ImportFormat) -> tuple[ImportFormat, Iterator[FileRecord]]:
    """Return a file's format, detected if it is AUTO, and its findings as records with our own fields."""
    file, head = _peek(file)
    if format_ is ImportFormat.AUTO:
        format_ = _detect_format(head)
    has_lines = format_ in {ImportFormat.OUTCROP, ImportFormat.TRUFFLEHOG} or (
        format_ is ImportFormat.KINGFISHER and "finding" in _keys(head.partition(b"\n")[0])
    )
    records = _read_lines(file) if has_lines else _read_array(file, _PATHS[format_])
    return format_, records if format_ is ImportFormat.OUTCROP else _translate(records, format_)


def _translate(records: Iterator[FileRecord], format_: ImportFormat) -> Iterator[FileRecord]:
    """Yield the findings among the records, translated; skip log records; raise RecordError for others."""
    for where, record, bytes_read in records:
        finding = _TRANSLATE[format_](record)
        if finding is not None:
            yield where, finding, bytes_read
            continue
        is_log = format_ is ImportFormat.TRUFFLEHOG and trufflehog.is_log(record)
        if not is_log and not record.keys() & _OTHER_KINGFISHER_RECORDS:
            raise RecordError(where, f"is not a finding of {format_}")


def _read_lines(file: BinaryIO) -> Iterator[FileRecord]:
    """Yield the JSON object of each line that is not blank."""
    bytes_read = number = 0
    while line := file.readline(MAX_ELEMENT_BYTES + 1):
        number += 1
        where = f"line {number}"
        if len(line) > MAX_ELEMENT_BYTES:
            raise RecordError(where, f"is longer than {MAX_ELEMENT_BYTES} bytes")
        bytes_read += len(line)
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield where, _parse_object(where, line), bytes_read


def _read_array(file: BinaryIO, path: JsonPath) -> Iterator[FileRecord]:
    """Yield the JSON objects of the array at a path."""
    for number, (element, bytes_read) in enumerate(read_elements(file, path), 1):
        where = f"record {number}"
        yield where, _parse_object(where, element), bytes_read


def _parse_object(where: str, text: bytes) -> dict[str, Any]:
    """Parse a JSON object; raise RecordError if the text is anything else."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RecordError(where, "is not JSON") from None
    if not isinstance(value, dict):
        raise RecordError(where, "is not a JSON object")
    return value


# --- detecting the format


def _detect_format(head: bytes) -> ImportFormat:
    """Detect a file's format from its beginning; raise BadInputError if that is not possible."""
    text = head.removeprefix(_BOM).lstrip()
    if text.startswith(b"["):
        if b'"RuleID"' in text or text.rstrip() == b"[]":
            return ImportFormat.GITLEAKS
        raise BadInputError("cannot detect the file's format: specify it with --format")
    keys = _keys(text.partition(b"\n")[0])
    if keys & {"DetectorName", "SourceMetadata"} or keys >= {"level", "msg"}:
        return ImportFormat.TRUFFLEHOG
    if keys >= {"rule", "finding"}:
        return ImportFormat.KINGFISHER
    if "runs" in keys or (not keys and b'"runs"' in text and b'"version"' in text):
        return ImportFormat.SARIF
    if "findings" in keys or (not keys and b'"findings"' in text):
        return ImportFormat.KINGFISHER
    return ImportFormat.OUTCROP


def _keys(line: bytes) -> set[str]:
    """Return the keys of a line's JSON object; none if the line is not a complete object."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return set()
    return set(value) if isinstance(value, dict) else set()


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
