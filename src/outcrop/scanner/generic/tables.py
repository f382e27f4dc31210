"""Read the columns for passwords and secrets of tables.

Five forms are read: CSV, as browsers and password managers export it; tables with bars, of Markdown or of a
database's client; columns that spaces align; rows of an SQL `INSERT`; rows of a PostgreSQL `COPY`.
`read_table` decides which form it is, and returns the cells of these columns.

In all functions `data` is the text that is scanned; `start`, `stop`, `at` are offsets in it. `is_direct` says
that other columns name the account, so that even a word may be the password.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from outcrop.lazy_regex import regex
from outcrop.scanner.generic.names import Noun, find_noun

_MAX_TABLE_BYTES = 1 << 20  # bytes that are read of one table
_MAX_HEADER_BYTES = 1_000
_BAR = b"|"
_QUOTES = b"\"'"
_HEADER_CELL_ENDS = b",;\t|\r\n "  # a match that ends otherwise ends inside a column name of SQL
_COLUMN_NAME = rb"[\w .*`\"'#/-]{0,40}"
# The header of a table, by its separator: a line of at least two column names.
_HEADERS = {
    separator: regex(
        rb"(?:\xef\xbb\xbf)?[ \t]*%b?(?:%b%b){1,40}%b\r?"
        % (re.escape(separator), _COLUMN_NAME, re.escape(separator), _COLUMN_NAME)
    )
    for separator in (b",", b";", b"\t", _BAR)
}
# Column names with two spaces or more between them, and no punctuation of code or sentences.
_ALIGNED_HEADER = regex(rb"[ ]*[\w*`#/.-]+(?:[ ]{1,40}[\w*`#/.-]+){0,40}[ ]{2}[ \w*`#/.-]*\r?")
_ALIGNED_TEXT = regex(rb"[^\s]+(?:[ ][^\s]+)*")
# The line below the names: `|---|---|`, `----+----`.
_RULE = regex(rb"[ \t]*[|+]?[ \t]*:?-+:?[ \t]*(?:[|+][ \t]*:?-+:?[ \t]*)*[|+]?[ \t]*\r?")
# A cell with the separator after it: quoted (group 1) or not (group 2).
_CELLS = {
    separator: regex(rb"(?:\"((?:[^\"\n]|\"\")*+)\"|([^%b\n]*))(?:%b|$)" % ((re.escape(separator),) * 2))
    for separator in _HEADERS
}
_CELL_PADDING = b" \t\r*`"  # spaces and Markdown markup around the content of a cell
_DIGEST = regex(rb"(?:[0-9a-f]{2}){16,}|(?:[0-9A-F]{2}){16,}")
_COPY_NULL = rb"\N"
_COPY_FROM_STDIN = regex(rb"\)\s*(?i:from\s+stdin)[^\n;]{0,80};\r?\n")
_COPY_END = rb"\."
_VALUES = regex(rb"\)\s*(?i:values)\s*\(")
# A value of an SQL row: a string (group 1), a quoted name, a number or a call; and what follows it (group 2).
_SQL_VALUE = regex(
    rb"\s*+(?:[NE]?'((?:[^'\\\n]|''|\\.)*+)'|\"(?:[^\"\\\n]|\\.)*+\""
    rb"|[^,()'\"\n]*+(?:\([^()\n]*+\)[^,()'\"\n]*+)?)\s*+([,)])"
)
_NEXT_SQL_ROW = regex(rb"\s*,\s*\(")
_SETTING_NAME_COLUMNS = frozenset({b"key", b"name"})
_ACCOUNT_COLUMN = regex(rb"(?i:user|login|mail|name)")
_SITE_COLUMN = regex(rb"(?i:ur[il]|host|site|server)")

Span = tuple[int, int]
CredentialColumns = list[tuple[int, Noun]]  # (number of the column, noun in its name)


class TableCell(NamedTuple):
    """A value in a column for credentials: its span, and the noun in the name of its column.

    `is_direct` says that other columns name the account, so that even a word may be the password.
    """

    start: int
    end: int
    noun: Noun
    is_direct: bool


class _Header(NamedTuple):
    """The header of a CSV or Markdown table that has columns for credentials.

    `width` is the number of columns. `is_direct` says that other columns name the account and the site (CSV
    only).
    """

    separator: bytes
    width: int
    columns: CredentialColumns
    is_direct: bool


def read_table(data: bytes, match_end: int) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials, and the end of the table with `match_end` in its header.

    `match_end` is the end of the rule's match in the header. If there is no table, the list is empty and the
    offset is one up to which no table needs to be searched for again.
    """
    nearest = max(0, match_end - 1 - _MAX_HEADER_BYTES)  # a longer header is not read
    if data[match_end - 1] not in _HEADER_CELL_ENDS:
        bracket = data.rfind(b"(", nearest, match_end)
        return _read_sql(data, bracket + 1) if bracket >= 0 else ([], match_end)
    line_break = data.rfind(b"\n", nearest, match_end - 1)
    start = line_break + 1
    stop = data.find(b"\n", match_end - 1, start + _MAX_HEADER_BYTES + 1)
    is_whole_line = stop >= 0 and (line_break >= 0 or nearest == 0)
    if not is_whole_line:
        return [], match_end
    separator = _find_separator(data[start:stop])
    if separator is None:
        return (
            _read_aligned(data, start, stop) if _ALIGNED_HEADER.fullmatch(data, start, stop) else ([], stop)
        )
    header = _parse_header(data[start:stop], separator)
    return ([], stop) if header is None else _read_lines(data, stop, header)


@lru_cache(maxsize=64)  # one line can have a hundred matches, and a text can repeat it
def _find_separator(line: bytes) -> bytes | None:
    """Return the separator of the column names in a line; None if the line is no header.

    The bar, tab, semicolon and comma are tried in this order. The result is cached.
    """
    return next(
        (
            separator
            for separator in reversed(_HEADERS)
            if separator in line and _HEADERS[separator].fullmatch(line)
        ),
        None,
    )


@lru_cache(maxsize=64)
def _parse_header(line: bytes, separator: bytes) -> _Header | None:
    """Return the header in a line of column names; None if it cannot be one. The result is cached.

    None without a column for credentials, with fewer than two names, or with a `separator` at the end of a
    line that is not Markdown.
    """
    names = [line[left:right] for left, right in _split_line(line, 0, len(line), separator)]
    columns = _find_credential_columns(enumerate(names))
    if not columns or len(list(filter(None, names))) < 2:
        return None
    is_markdown = separator == _BAR
    if not is_markdown and not names[-1]:  # a comma at the end: an item of a list in code
        return None
    is_direct = not is_markdown and _has_column(names, _ACCOUNT_COLUMN) and _has_column(names, _SITE_COLUMN)
    return _Header(separator, len(names), columns, is_direct)


def _read_lines(data: bytes, header_end: int, header: _Header) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials in the lines below a header, and the end of the last line.

    `header_end` is the offset of the line break after the header. The table ends before an empty line, or
    before a line with another number of cells that is not inside a quoted cell.
    """
    cells: list[TableCell] = []
    is_markdown = header.separator == _BAR
    in_quotes = False  # a quoted cell of CSV goes on in the next line
    table_end = header_end
    for start, stop in _table_lines(data, header_end + 1, has_rule=is_markdown):
        row = list(_split_line(data, start, stop, header.separator))
        is_complete = len(row) == header.width
        if is_complete and not in_quotes:
            cells += _credential_cells(data, row, header.columns, is_direct=header.is_direct)
        has_open_quote = not is_markdown and data.count(b'"', start, stop) % 2 == 1
        if not (in_quotes or has_open_quote or is_complete):  # a sentence; the header may have been one too
            break
        in_quotes ^= has_open_quote
        table_end = stop
    return cells, table_end


def _read_aligned(data: bytes, start: int, stop: int) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials below a header whose columns spaces align, and their end.

    The header is the line from `start` to `stop`. The table ends before a line that has text between two
    columns.
    """
    names = list(_ALIGNED_TEXT.finditer(data, start, stop))
    columns = _find_credential_columns((at, name[0]) for at, name in enumerate(names))
    starts = [name.start() - start for name in names]
    cells: list[TableCell] = []
    table_end = stop
    for left, right in _table_lines(data, stop + 1, has_rule=False) if columns and len(names) > 1 else ():
        line = data[left:right]
        if any(line[at - 2 : at].strip() for at in starts[1:]):
            break
        found = [_ALIGNED_TEXT.match(data, left + at, right) for at in starts]
        row = [cell.span() if cell else (right, right) for cell in found]
        cells += _credential_cells(data, row, columns, is_direct=False)
        table_end = right
    return cells, table_end


def _table_lines(data: bytes, at: int, *, has_rule: bool) -> Iterator[Span]:
    """Yield the span of each line from `at` on, up to an empty line or _MAX_TABLE_BYTES.

    With `has_rule` the first line must be the rule of a Markdown table (`|---|---|`). It is not yielded. If
    it is no rule, nothing is yielded.
    """
    last = min(len(data), at + _MAX_TABLE_BYTES)
    while at < last:
        stop = data.find(b"\n", at)
        stop = len(data) if stop < 0 else stop
        if has_rule:
            if not _RULE.fullmatch(data, at, stop):
                return
            has_rule = False
        elif not data[at:stop].strip():
            return
        else:
            yield at, stop
        at = stop + 1


def _split_line(data: bytes, start: int, stop: int, separator: bytes) -> Iterator[Span]:
    """Yield the span of each cell in the line from `start` to `stop`, without its quotes and padding.

    The padding is spaces and Markdown markup. An empty cell has an empty span.
    """
    for cell in _CELLS[separator].finditer(data, start, stop):
        is_unquoted = cell[2] is not None
        left, right = cell.span(2) if is_unquoted else cell.span(1)
        text = data[left:right]
        left, right = (
            left + len(text) - len(text.lstrip(_CELL_PADDING)),
            right - len(text) + len(text.rstrip(_CELL_PADDING)),
        )
        if is_unquoted and right - left > 1 and data[left] in _QUOTES and data[right - 1] == data[left]:
            left, right = left + 1, right - 1
        yield left, right
        if cell.end() == stop and data[stop - 1 : stop] != separator:
            return


def _find_credential_columns(names: Iterable[tuple[int, bytes]]) -> CredentialColumns:
    """Return number and noun of the columns whose names are those of passwords or secrets.

    `names` has pairs of the number of a column and its name. Columns for keys are left out.
    """
    return [
        (at, noun) for at, name in names if (noun := find_noun(name)) is not None and noun is not Noun.KEY
    ]


def _has_column(names: list[bytes], name_pattern: re.Pattern[bytes]) -> bool:
    """Whether the pattern is found in the name of at least one column."""
    return any(map(name_pattern.search, names))


def _credential_cells(
    data: bytes, row: list[Span], columns: CredentialColumns, *, is_direct: bool
) -> list[TableCell]:
    """Return the cells of a row that may hold a credential: those of `columns`, unless empty or a digest.

    `row` has the span of each cell. `is_direct` is copied to the cells: other columns name the account.
    """
    return [
        TableCell(*row[at], noun, is_direct)
        for at, noun in columns
        if _may_be_credential(data[slice(*row[at])], noun)
    ]


def _may_be_credential(value: bytes, noun: Noun) -> bool:
    """Whether the content of a cell is not empty, not NULL, and for a password no hexadecimal digest.

    A token may have as many digits as a digest, so digests are only excluded if `noun` is PASSWORD.
    """
    return value not in {b"", _COPY_NULL} and not (noun is Noun.PASSWORD and _DIGEST.fullmatch(value))


def _read_sql(data: bytes, names_start: int) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials of an SQL `INSERT` or `COPY`, and the end of its last row.

    `names_start` is the offset after the parenthesis before the column names. If no rows follow the names,
    return an empty list and `names_start`.
    """
    names_end = data.find(b")", names_start, names_start + _MAX_HEADER_BYTES)
    if names_end <= 0:
        return [], names_start
    values, copied = _VALUES.match(data, names_end), _COPY_FROM_STDIN.match(data, names_end)
    if values is None and copied is None:
        return [], names_start
    names = [name.strip(b" \t\r\n\"'`[]") for name in data[names_start:names_end].split(b",")]
    if copied:
        return _read_copied_rows(data, copied.end(), names)
    return _read_inserted_rows(data, names_start, names, values)


def _read_inserted_rows(
    data: bytes, at: int, names: list[bytes], values: re.Match[bytes] | None
) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials of the rows of an SQL `INSERT`, and the end of the last row.

    `names` are the names of the columns. `values` is the match that ends with the opening parenthesis of the
    first row. `at` is the offset that is returned if no row is read.
    """
    columns = _find_credential_columns(enumerate(names))
    is_direct = _has_column(names, _ACCOUNT_COLUMN)
    cells: list[TableCell] = []
    last = at + _MAX_TABLE_BYTES
    while values is not None and columns and values.end() < last:
        row, at = _read_inserted_row(data, values.end())
        if len(row) == len(names):
            cells += _credential_cells(data, row, columns, is_direct=is_direct)
        values = _NEXT_SQL_ROW.match(data, at)
    return cells, at


def _read_inserted_row(data: bytes, at: int) -> tuple[list[Span], int]:
    """Return the span of each value in a row of an SQL `INSERT`, and the end of the row.

    `at` is the offset after the opening parenthesis of the row. Values that are no strings have an empty
    span.
    """
    row: list[Span] = []
    while (value := _SQL_VALUE.match(data, at)) is not None:
        row.append(value.span(1) if value[1] is not None else (at, at))
        at = value.end()
        if value[2] == b")":
            break
    return row, at


def _read_copied_rows(data: bytes, at: int, names: list[bytes]) -> tuple[list[TableCell], int]:
    """Return the cells that may hold credentials of the rows of a PostgreSQL `COPY`, and the end of the rows.

    `at` is the offset of the first row, `names` are the names of the columns. Tabs separate the values. In a
    table of settings, with a column `key` or `name` and a column `value`, the name of each setting decides.
    """
    columns, setting = _find_credential_columns(enumerate(names)), _find_setting_columns(names)
    is_direct = _has_column(names, _ACCOUNT_COLUMN)
    cells: list[TableCell] = []
    for start, stop in _table_lines(data, at, has_rule=False):
        if data.startswith(_COPY_END, start):
            return cells, stop
        row = list(_split_line(data, start, stop, b"\t"))
        if len(row) == len(names):
            setting_names = [(setting[1], data[slice(*row[setting[0]])])] if setting else []
            row_columns = [*columns, *_find_credential_columns(setting_names)]
            cells += _credential_cells(data, row, row_columns, is_direct=is_direct)
        at = stop
    return cells, at


def _find_setting_columns(names: list[bytes]) -> tuple[int, int] | None:
    """Return the numbers of the columns for the name and the value of a setting; None if one is missing.

    The first is called `key` or `name`, in capitals too, the second `value`.
    """
    name_column = next((at for at, name in enumerate(names) if name.lower() in _SETTING_NAME_COLUMNS), None)
    return (name_column, names.index(b"value")) if name_column is not None and b"value" in names else None
