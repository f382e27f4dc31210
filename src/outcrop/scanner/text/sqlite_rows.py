"""Read the rows of SQLite databases as text.

The pages are read here and not by SQLite, so that nothing in a foreign database is executed, and a damaged
one costs no more than its size: each page is read once, whatever the pages refer to.
"""

from collections.abc import Iterator
from struct import Struct, unpack

import orjson

from outcrop.lazy_regex import regex
from outcrop.limits import SQLITE_STATEMENT_LENGTH, SQLITE_TABLES
from outcrop.scanner.text.archive_members import READ_ERRORS, Members, RawBytes, UnpackBudget, blank

SQLITE_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES, _MIN_PAGE_BYTES, _MIN_USABLE_BYTES, _SCHEMA_COLUMNS = 100, 512, 480, 5
_TABLE_LEAF, _TABLE_BRANCH, _INDEX_LEAF, _INDEX_BRANCH = 13, 5, 10, 2
_CODECS = {2: "utf-16-le", 3: "utf-16-be"}
_UINT16, _UINT32, _DOUBLE = Struct(">H"), Struct(">I"), Struct(">d")
_INTEGER_BYTES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # by serial type
_FLOAT, _FIRST_BLOB, _FIRST_TEXT = 7, 12, 13
_COLUMN_NAME = regex(r"""\s*+(?:"([^"]{1,200})"|`([^`]{1,200})`|\[([^\]]{1,200})\]|([\w$]{1,200}))""")
_CONSTRAINT = regex(r"(?i)\s*+(?:constraint|primary|unique|check|foreign)\b")
_DAMAGED = "damaged, only a part was read"

Value = str | int | float | None


def read_sqlite(data: bytes, budget: UnpackBudget) -> Members:
    """Yield a text for each table, named like it, with a row as JSON in each line; then the remaining pages.

    The latter are raw bytes with the name "": deleted rows, and what a damaged database does not lead to.
    Texts are subtracted from the budget. Raise ValueError if the header is damaged.
    """
    database = _Database(data)
    tables = database.list_tables()
    for name, root, columns in tables:
        text = bytearray()
        for row in database.rows(root):
            text += _format_row(columns, row) + b"\n"
            if len(text) > budget.max_bytes() or budget.exceeded_limit():
                break
        yield name, budget.count(name, bytes(text[: budget.max_bytes() + 1]))
    if database.gap:
        budget.gaps.append(f"database: {database.gap}")
    if rest := database.unread_pages():
        yield "", RawBytes(rest)


class _Database:
    """The pages of a database. `gap` is why some rows could not be read."""

    def __init__(self, data: bytes) -> None:
        if len(data) < _HEADER_BYTES:
            raise ValueError("the header of a database is truncated")
        size = _UINT16.unpack_from(data, 16)[0]
        self._page_bytes = 1 << 16 if size == 1 else size
        self._usable = self._page_bytes - data[20]
        is_power = self._page_bytes & (self._page_bytes - 1) == 0
        if self._page_bytes < _MIN_PAGE_BYTES or not is_power or self._usable < _MIN_USABLE_BYTES:
            raise ValueError("the page size of a database is damaged")
        self._data = data
        self._codec = _CODECS.get(_UINT32.unpack_from(data, 56)[0], "utf-8")
        self._pages = -(-len(data) // self._page_bytes)
        self._read: set[int] = set()
        self.gap = "truncated" if _UINT32.unpack_from(data, 28)[0] > self._pages else None

    def list_tables(self) -> list[tuple[str, int, list[str]]]:
        """Return name, first page and columns of each table, at most SQLITE_TABLES."""
        tables: list[tuple[str, int, list[str]]] = []
        indexes: list[int] = []
        for kind, name, _, root, statement, *_ in self.rows(1, _SCHEMA_COLUMNS):
            if kind == "index" and isinstance(root, int) and root > 0:
                indexes.append(root)  # copies of values that a table has
            if kind == "table" and isinstance(root, int) and root > 0:
                tables.append((str(name), root, _read_columns(str(statement)[:SQLITE_STATEMENT_LENGTH])))
            if len(tables) > SQLITE_TABLES:
                self.gap = "too many tables, the rest was skipped"
                break
        for root in indexes:
            for _ in self._pages_with_rows(root):
                pass
        self._read.discard(1)  # its statements are text too
        return tables[:SQLITE_TABLES]

    def rows(self, root: int, min_values: int = 0) -> Iterator[list[Value]]:
        """Yield the rows of a tree with at least `min_values` values."""
        for page, kind, pointers in self._pages_with_rows(root):
            yield from self._rows_of_page(page, kind, pointers, min_values)

    def _pages_with_rows(self, root: int) -> Iterator[tuple[bytes, int, tuple[int, ...]]]:
        """Yield the pages of a tree that have rows, with their kind and the offsets of their cells.

        A page that was read before is not read again: pages of a damaged database can refer to each other.
        """
        waiting = [root]
        while waiting:
            number = waiting.pop()
            if not 1 <= number <= self._pages or number in self._read:
                self.gap = self.gap or _DAMAGED
                continue
            self._read.add(number)
            try:
                page = self._page(number)
                at = _HEADER_BYTES if number == 1 else 0
                kind, cells = page[at], _UINT16.unpack_from(page, at + 3)[0]
                first = at + (12 if kind in {_TABLE_BRANCH, _INDEX_BRANCH} else 8)
                pointers = unpack(f">{cells}H", page[first : first + 2 * cells])
                if kind in {_TABLE_BRANCH, _INDEX_BRANCH}:
                    waiting.append(_UINT32.unpack_from(page, at + 8)[0])
                    waiting += [_UINT32.unpack_from(page, pointer)[0] for pointer in reversed(pointers)]
            except READ_ERRORS:
                self.gap = self.gap or _DAMAGED
                continue
            if kind != _TABLE_BRANCH:
                yield page, kind, pointers

    def _rows_of_page(
        self, page: bytes, kind: int, pointers: tuple[int, ...], min_values: int
    ) -> Iterator[list[Value]]:
        """Yield the rows in the cells of a page."""
        for at in pointers:
            try:
                row = self._read_record(self._read_payload(page, kind, at))
            except READ_ERRORS:
                self.gap = self.gap or _DAMAGED
                continue
            if len(row) >= min_values:
                yield row

    def _read_payload(self, page: bytes, kind: int, at: int) -> bytes:
        """Return the record of the cell at an offset of a page, with its overflow pages."""
        if kind == _INDEX_BRANCH:
            at += 4
        size, at = _read_varint(page, at)
        is_table = kind == _TABLE_LEAF
        if is_table:
            at = _read_varint(page, at)[1]  # the row id
        elif kind not in {_INDEX_LEAF, _INDEX_BRANCH}:
            raise ValueError("no page of rows")
        limit = self._usable - 35 if is_table else (self._usable - 12) * 64 // 255 - 23
        if size <= limit:
            return page[at : at + size]
        least = (self._usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (self._usable - 4)
        local = local if local <= limit else least
        payload = bytearray(page[at : at + local])
        number = _UINT32.unpack_from(page, at + local)[0]
        while number and len(payload) < size:
            if not 1 <= number <= self._pages or number in self._read:
                self.gap = self.gap or _DAMAGED
                break
            self._read.add(number)
            overflow = self._page(number)
            payload += overflow[4 : self._usable]
            number = _UINT32.unpack_from(overflow)[0]
        return bytes(payload[:size])

    def _read_record(self, payload: bytes) -> list[Value]:
        """Return the values of a record; those after its end are left out."""
        end, at = _read_varint(payload, 0)
        values: list[Value] = []
        value_at = end
        while at < end:
            serial, at = _read_varint(payload, at)
            if serial < _FLOAT:
                size = _INTEGER_BYTES[serial]
                number = payload[value_at : value_at + size]
                values.append(int.from_bytes(number, "big", signed=True) if size else None)
            elif serial == _FLOAT:
                size = 8
                values.append(_DOUBLE.unpack_from(payload, value_at)[0])
            elif serial < _FIRST_BLOB:
                size = 0
                values.append(serial - 8)
            else:
                size = (serial - _FIRST_BLOB) // 2
                codec = self._codec if serial % 2 else "utf-8"
                values.append(payload[value_at : value_at + size].decode(codec, "replace"))
            value_at += size
        return values

    def _page(self, number: int) -> bytes:
        """Return a page by its number, which begins at 1."""
        return self._data[(number - 1) * self._page_bytes : number * self._page_bytes]

    def unread_pages(self) -> bytes:
        """Return the pages that were not read, after spaces in place of the others; b"" if all are empty."""
        pages = [
            blank(self._page(number)) if number in self._read else self._page(number)
            for number in range(1, self._pages + 1)
        ]
        return b"".join(pages)


def _format_row(columns: list[str], row: list[Value]) -> bytes:
    """Return a row as JSON. Empty values are left out."""
    names = (*columns, *(f"column{number}" for number in range(len(columns) + 1, len(row) + 1)))
    return orjson.dumps({name: value for name, value in zip(names, row, strict=False) if value is not None})


def _read_columns(statement: str) -> list[str]:
    """Return the names of the columns in a CREATE TABLE statement, as far as they can be read."""
    columns, depth, start = [], 0, 0
    for at, char in enumerate(statement):
        depth += (char == "(") - (char == ")")
        if char == "(" and depth == 1:
            start = at + 1
        elif (char == "," and depth == 1) or (char == ")" and depth == 0):
            definition = statement[start:at]
            start = at + 1
            if not _CONSTRAINT.match(definition) and (name := _COLUMN_NAME.match(definition)):
                columns.append(next(filter(None, name.groups())))
            if depth == 0:
                break
    return columns


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at an offset, in up to nine bytes, and the offset after it."""
    number = 0
    for count in range(9):
        byte = data[at + count]
        if count == 8:
            return number << 8 | byte, at + 9
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return number, at + count + 1
