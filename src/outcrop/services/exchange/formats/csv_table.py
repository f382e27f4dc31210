"""Read findings from CSV whose columns the operator assigns to fields."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from outcrop.domain.errors import BadInputError
from outcrop.domain.secret import MASK
from outcrop.limits import IMPORT_RECORD_BYTES
from outcrop.services.exchange.formats.fields import to_relative
from outcrop.services.exchange.record_error import RecordError

BOM = b"\xef\xbb\xbf"  # UTF-8 byte order mark
# The fields that a column can be assigned to. A column with a field's name is assigned to it without `--map`.
FIELDS = (
    "secret",
    "matched_text",
    "fingerprint",
    "secret_type",
    "pattern",
    "repo",
    "repo_full_name",
    "source_type",
    "source_visibility",
    "source_url",
    "file_path",
    "line_number",
    "commit",
    "author",
    "validation_status",
    "validation_confidence",
    "first_seen_at",
    "last_seen_at",
)
_NUMBERS = {"line_number"}
_WORDS = {"source_type", "source_visibility", "validation_status", "validation_confidence"}  # in lower case
_DELIMITERS = ",;\t|"


def parse_map(assignments: Sequence[str]) -> dict[str, str]:
    """Return columns by field from texts such as `file_path=Path`; raise BadInputError if one is wrong."""
    columns: dict[str, str] = {}
    for text in assignments:
        field, sign, column = text.partition("=")
        field = field.strip()
        if not sign or not column:
            raise BadInputError(f"--map {text}: should be FIELD=COLUMN")
        if field not in FIELDS:
            raise BadInputError(f"--map {text}: no field is called {field}; there are {', '.join(FIELDS)}")
        if field in columns:
            raise BadInputError(f"--map {text}: {field} has a column already")
        columns[field] = column
    return columns


def looks_like_csv(head: bytes) -> bool:
    """Whether the first line is a header in which a column has the name of a field."""
    line = head.removeprefix(BOM).partition(b"\n")[0].decode("utf-8", "replace").strip()
    names = {name.strip().strip('"') for name in line.split(_delimiter(line))}
    return not line.startswith(("{", "[")) and len(names & set(FIELDS)) > 1


def read(file: BinaryIO, columns: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any], int]]:
    """Yield position, finding and bytes read of each row; `columns` are by field.

    Raise BadInputError if the header lacks a column, and RecordError for a row that is no finding.
    """
    lines = _Lines(file)
    first = next(lines, "")
    rows = csv.reader(lines, delimiter=_delimiter(first), strict=True)
    header = next(csv.reader([first], delimiter=_delimiter(first)), [])
    indexes = _find_columns(header, columns)
    number = 0
    while True:
        number += 1
        where = f"record {number}"
        try:
            row = next(rows, None)
        except (csv.Error, UnicodeDecodeError) as error:
            reason = (
                "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"is not CSV: {_reason(error)}"
            )
            raise RecordError(where, reason) from None
        if row is None:
            return
        if not row:
            number -= 1
            continue
        if len(row) != len(header):
            raise RecordError(where, f"has {len(row)} columns, and the header has {len(header)}")
        yield (
            where,
            _translate(where, {field: row[index] for field, index in indexes.items()}),
            lines.bytes_read,
        )


def _reason(error: Exception) -> str:
    """Return the message of an error of the module `csv`, which contains no value."""
    return str(error).partition(" - ")[0]


def _find_columns(header: Sequence[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Return the index of each field's column; raise BadInputError if a column is missing or twice there."""
    names = [name.strip() for name in header]
    wanted = {field: field for field in FIELDS if field in names} | dict(columns)
    for column in wanted.values():
        if names.count(column) != 1:
            count = "no column" if column not in names else "several columns"
            raise BadInputError(f"the header has {count} named {column}")
    if not wanted.keys() & {"secret", "fingerprint", "file_path", "source_url"}:
        raise BadInputError(
            "the header names no field of a finding: `outcrop import --map FIELD=COLUMN` assigns columns"
        )
    return {field: names.index(column) for field, column in wanted.items()}


def _translate(where: str, cells: dict[str, str]) -> dict[str, Any]:
    """Return the cells of a row as our own fields; raise RecordError if they are not those of a finding."""
    found: dict[str, Any] = {field: cell for field, cell in cells.items() if cell != ""}
    if not found.keys() & {"secret", "fingerprint", "file_path", "source_url"}:
        raise RecordError(where, "is not a finding: it has neither credential nor place")
    for field in _NUMBERS & found.keys():
        if not (found[field].isascii() and found[field].isdigit()):
            raise RecordError(where, f"{field}: should be a number")
        found[field] = int(found[field][:20])
    found |= {field: found[field].strip().lower() for field in _WORDS & found.keys()}
    type_, name = found.pop("secret_type", None), found.pop("pattern", None)
    found["pattern"] = {"name": name or type_ or "Imported credential", "secret_type": type_ or "unknown"}
    found["file_path"] = to_relative(found.get("file_path"))
    found["matched_text"] = MASK
    return found


def _delimiter(header: str) -> str:
    """Return the delimiter that the header has most often; a comma if it has none."""
    return max(_DELIMITERS, key=header.count)


class _Lines:
    """The decoded lines of a file, and the number of bytes read. A line that is too long is refused."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.bytes_read = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._file.readline(IMPORT_RECORD_BYTES + 1)
        if not line:
            raise StopIteration
        if len(line) > IMPORT_RECORD_BYTES:
            raise csv.Error("a line is too long")
        if not self.bytes_read:
            line = line.removeprefix(BOM)
        self.bytes_read += len(line)
        return line.decode()
