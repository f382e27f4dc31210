"""What stands in a column for passwords: exports of browsers and password managers, tables of Markdown, rows that SQL inserts."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from outcrop.scanner.generic.names import Noun, noun_of

_MOST = 1 << 20  # bytes that are read of one
_LONGEST = 1_000  # bytes of a heading
_BAR = b"|"
_MARKS = b" \t\r*`"  # around what a cell says
_QUOTES = b"\"'"
_ENDS_A_NAME = b",;\t|\r\n"  # in a heading; in SQL a place in the name of a column is given
_NAME = rb"[\w .*`\"'#/-]{0,40}"
_HEADINGS = {
    mark: re.compile(
        rb"(?:\xef\xbb\xbf)?[ \t]*%b?(?:%b%b){1,40}%b\r?" % (re.escape(mark), _NAME, re.escape(mark), _NAME)
    )
    for mark in (b",", b";", b"\t", _BAR)
}
_RULE = re.compile(
    rb"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\r?"
)  # below a heading of Markdown
_CELLS = {
    mark: re.compile(rb"(?:\"((?:[^\"\n]|\"\")*+)\"|([^%b\n]*))(?:%b|$)" % ((re.escape(mark),) * 2))
    for mark in _HEADINGS
}
_DIGEST = re.compile(
    rb"[0-9a-f]{32}|[0-9A-F]{32}|[0-9a-f]{40}|[0-9A-F]{40}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128}"
)  # as databases keep them
_NOTHING = rb"\N"  # where PostgreSQL writes none
_COPIED = re.compile(rb"\)\s*(?i:from\s+stdin)[^\n;]{0,80};\r?\n")
_COPY_ENDS = rb"\."
_VALUES = re.compile(rb"\)\s*(?i:values)\s*\(")
_VALUE = re.compile(
    rb"\s*+(?:[NE]?'((?:[^'\\\n]|''|\\.)*+)'|\"(?:[^\"\\\n]|\\.)*+\"|[^,()'\"\n]*+(?:\([^()\n]*+\)[^,()'\"\n]*+)?)\s*+([,)])"
)
_NEXT = re.compile(rb"\s*,\s*\(")
_SETTING = frozenset({b"key", b"name"})
_KNOWS_WHOSE = re.compile(rb"(?i:user|login|mail|name)")
_KNOWS_WHERE = re.compile(rb"(?i:ur[il]|host|site|server)")


class Cell(NamedTuple):
    """Where a value stands, what its column is for, and whether whose and where is said beside it."""

    left: int
    right: int
    noun: Noun
    outright: bool


def table(data: bytes, end: int) -> tuple[list[Cell], int]:
    """Give what stands below the heading in which this place is, and where the table ends; nothing where that is none."""
    if data[end - 1] not in _ENDS_A_NAME:
        return _inserted(data, data.rfind(b"(", 0, end) + 1)
    begin = data.rfind(b"\n", 0, end - 1) + 1
    stop = data.find(b"\n", end - 1)
    mark = _mark_of(data, begin, stop) if 0 <= stop - begin <= _LONGEST else None
    if mark is None:
        return [], end
    names = [data[left:right] for left, right in _row(data, begin, stop, mark)]
    columns = _columns(names)
    if (
        not columns or len(list(filter(None, names))) < 2 or (mark != _BAR and not names[-1])
    ):  # lines of a list, each with a comma
        return [], stop
    outright = mark != _BAR and all(any(map(known.search, names)) for known in (_KNOWS_WHOSE, _KNOWS_WHERE))
    found: list[Cell] = []
    is_open = False  # a cell with line breaks in it
    for left, right in _lines(data, stop + 1, ruled=mark == _BAR):
        row = list(_row(data, left, right, mark))
        if not is_open and len(row) == len(names):
            found += _cells(data, row, columns, outright=outright)
        breaks = mark != _BAR and data.count(b'"', left, right) % 2 == 1
        if not (is_open or breaks or len(row) == len(names)):  # a sentence, as the heading may have been
            break
        is_open ^= breaks
        stop = right
    return found, stop


def _columns(names: list[bytes]) -> list[tuple[int, Noun]]:
    return _credentials(enumerate(names))


def _credentials(named: Iterable[tuple[int, bytes]]) -> list[tuple[int, Noun]]:
    return [(at, noun) for at, name in named if (noun := noun_of(name)) is not None and noun is not Noun.KEY]


def _cells(
    data: bytes, row: list[tuple[int, int]], columns: list[tuple[int, Noun]], *, outright: bool
) -> list[Cell]:
    return [
        Cell(*row[at], noun, outright) for at, noun in columns if _may_be_one(data[slice(*row[at])], noun)
    ]


def _may_be_one(value: bytes, noun: Noun) -> bool:
    """Tell whether a cell holds anything; of a password databases keep a digest, a token is often made of the same digits."""
    return value not in {b"", _NOTHING} and not (noun is Noun.PASSWORD and _DIGEST.fullmatch(value))


def _inserted(data: bytes, at: int) -> tuple[list[Cell], int]:
    """Give the values of rows that are inserted into the columns whose names begin here, or copied into them."""
    close = data.find(b")", at, at + _LONGEST)
    values, copied = (_VALUES.match(data, close), _COPIED.match(data, close)) if close > 0 else (None, None)
    names = [name.strip(b" \t\r\n\"'`[]") for name in data[at:close].split(b",")] if values or copied else []
    if copied:
        return _copied(data, copied.end(), names)
    columns = _columns(names)
    outright = any(map(_KNOWS_WHOSE.search, names))
    found: list[Cell] = []
    last = at + _MOST
    while values is not None and columns and values.end() < last:
        row, at = _inserted_row(data, values.end())
        if len(row) == len(names):
            found += _cells(data, row, columns, outright=outright)
        values = _NEXT.match(data, at)
    return found, at


def _copied(data: bytes, at: int, names: list[bytes]) -> tuple[list[Cell], int]:
    """Give what stands in the lines of a dump, one for each row with tabs between its values, up to the mark that ends them."""
    columns, setting = _columns(names), _setting(names)
    outright = any(map(_KNOWS_WHOSE.search, names))
    found: list[Cell] = []
    for left, right in _lines(data, at, ruled=False):
        if data.startswith(_COPY_ENDS, left):
            return found, right
        row = list(_row(data, left, right, b"\t"))
        if len(row) == len(names):
            own = [(setting[1], data[slice(*row[setting[0]])])] if setting else []
            found += _cells(data, row, [*columns, *_credentials(own)], outright=outright)
        at = right
    return found, at


def _setting(names: list[bytes]) -> tuple[int, int] | None:
    """Give the columns for the name and for the value of a setting."""
    called = next((at for at, name in enumerate(names) if name.lower() in _SETTING), None)
    return (called, names.index(b"value")) if called is not None and b"value" in names else None


def _inserted_row(data: bytes, at: int) -> tuple[list[tuple[int, int]], int]:
    """Give where the texts of a row stand, with nothing for what is none, and where the row ends."""
    row: list[tuple[int, int]] = []
    while (value := _VALUE.match(data, at)) is not None:
        row.append(value.span(1) if value[1] is not None else (at, at))
        at = value.end()
        if value[2] == b")":
            break
    return row, at


def _mark_of(data: bytes, begin: int, stop: int) -> bytes | None:
    """Give what divides the cells of a heading: a line of names and nothing else."""
    return next(
        (
            mark
            for mark in reversed(_HEADINGS)
            if mark in data[begin:stop] and _HEADINGS[mark].fullmatch(data, begin, stop)
        ),
        None,
    )


def _lines(data: bytes, at: int, *, ruled: bool) -> Iterator[tuple[int, int]]:
    """Give where each further line stands, up to an empty one; in Markdown a rule comes first."""
    last = min(len(data), at + _MOST)
    while at < last:
        stop = data.find(b"\n", at)
        stop = len(data) if stop < 0 else stop
        if ruled:
            if not _RULE.fullmatch(data, at, stop):
                return
            ruled = False
        elif not data[at:stop].strip():
            return
        else:
            yield at, stop
        at = stop + 1


def _row(data: bytes, begin: int, stop: int, mark: bytes) -> Iterator[tuple[int, int]]:
    """Give where the cells of a line stand, without their quotes and marks."""
    for cell in _CELLS[mark].finditer(data, begin, stop):
        left, right = cell.span(1) if cell[1] is not None else cell.span(2)
        text = data[left:right]
        left, right = (
            left + len(text) - len(text.lstrip(_MARKS)),
            right - len(text) + len(text.rstrip(_MARKS)),
        )
        if (
            cell[2] is not None
            and right - left > 1
            and data[left] in _QUOTES
            and data[right - 1] == data[left]
        ):
            left, right = left + 1, right - 1
        yield left, right
        if cell.end() == stop and data[stop - 1 : stop] != mark:
            return
