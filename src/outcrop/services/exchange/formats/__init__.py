"""What other scanners write: which format a file has, and its records in the shape of our own lines."""

import io
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, BinaryIO

import orjson

from outcrop.domain.errors import BadInputError
from outcrop.services.exchange.formats import gitleaks, kingfisher, sarif, trufflehog
from outcrop.services.exchange.json_array import LONGEST, Path, elements

_HEAD = 64 * 1024


class ImportFormat(StrEnum):
    AUTO = "auto"
    OUTCROP = "outcrop"
    GITLEAKS = "gitleaks"
    TRUFFLEHOG = "trufflehog"
    KINGFISHER = "kingfisher"
    SARIF = "sarif"


class RecordError(BadInputError):
    """A record that cannot be used; the message names it and never repeats its content."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(f"{where}: {message}")


Record = tuple[str, dict[str, Any], int]  # where it stands, what it says, and how far the file has been read
_FINDING_OF: dict[ImportFormat, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
    ImportFormat.GITLEAKS: gitleaks.finding_of,
    ImportFormat.TRUFFLEHOG: trufflehog.finding_of,
    ImportFormat.KINGFISHER: kingfisher.finding_of,
    ImportFormat.SARIF: sarif.finding_of,
}
_PATHS: dict[ImportFormat, Path] = {
    ImportFormat.GITLEAKS: gitleaks.PATH,
    ImportFormat.KINGFISHER: kingfisher.PATH,
    ImportFormat.SARIF: sarif.PATH,
}


def records(file: BinaryIO, format_: ImportFormat) -> tuple[ImportFormat, Iterator[Record]]:
    """Give the format of a file, found out where it is not given, and its findings in the shape of our own lines."""
    file, head = _ahead(file)
    if format_ is ImportFormat.AUTO:
        format_ = _format_of(head)
    by_line = format_ in {ImportFormat.OUTCROP, ImportFormat.TRUFFLEHOG} or (
        format_ is ImportFormat.KINGFISHER and "finding" in _keys(head.partition(b"\n")[0])
    )
    given = _lines(file) if by_line else _elements(file, _PATHS[format_])
    return format_, given if format_ is ImportFormat.OUTCROP else _translated(given, format_)


def _translated(given: Iterator[Record], format_: ImportFormat) -> Iterator[Record]:
    for where, record, read in given:
        finding = _FINDING_OF[format_](record)
        if finding is not None:
            yield where, finding, read
        elif not (format_ is ImportFormat.TRUFFLEHOG and trufflehog.is_log(record)) and not record.keys() & {
            "access_map",
            "audit",
        }:
            raise RecordError(where, f"is no finding of {format_}")


def _lines(file: BinaryIO) -> Iterator[Record]:
    read = number = 0
    while line := file.readline(LONGEST + 1):
        number += 1
        where = f"line {number}"
        if len(line) > LONGEST:
            raise RecordError(where, f"is longer than {LONGEST} bytes")
        read += len(line)
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield where, _parsed(where, line), read


def _elements(file: BinaryIO, path: Path) -> Iterator[Record]:
    for number, (element, read) in enumerate(elements(file, path), 1):
        where = f"record {number}"
        yield where, _parsed(where, element), read


def _parsed(where: str, text: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise RecordError(where, "is not JSON") from None
    if not isinstance(value, dict):
        raise RecordError(where, "is not a JSON object")
    return value


# --- which format


def _format_of(head: bytes) -> ImportFormat:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        if b'"RuleID"' in text or text.rstrip() == b"[]":
            return ImportFormat.GITLEAKS
        raise BadInputError("cannot tell the file's format: give it with --format")
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
    """Give the keys of the first line's object; none where it is no whole one."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return set()
    return set(value) if isinstance(value, dict) else set()


def _ahead(file: BinaryIO) -> tuple[BinaryIO, bytes]:
    """Look at a file's beginning without taking it away, though it be a pipe."""
    head = b""
    while len(head) < _HEAD and (piece := file.read(_HEAD - len(head))):
        head += piece
    if file.seekable():
        file.seek(0)
        return file, head
    return io.BufferedReader(_Chained(head, file), 1 << 20), head


class _Chained(io.RawIOBase):
    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)
