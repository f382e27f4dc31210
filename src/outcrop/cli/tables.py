"""Print tables: with Rich on a terminal, whose width it knows, and as plain columns to a file or a pipe.

Importing Rich takes as long as a small scan.
"""

import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO


def print_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    file: TextIO | None = None,
    folded: Sequence[str] = (),
) -> None:
    """Print a table to a file, or to stdout. On a terminal, cells of the columns `folded` break anywhere."""
    if file is None and sys.stdout.isatty():
        _print_on_terminal(columns, rows, folded)
        return
    cells = [[column.splitlines() or [""] for column in row] for row in [list(columns), *rows]]
    widths = [max(_width(line) for row in cells for line in row[index]) for index in range(len(columns))]
    for row in cells:
        for number in range(max(map(len, row), default=0)):
            lines = [cell[number] if number < len(cell) else "" for cell in row]
            padded = (line + " " * (width - _width(line)) for line, width in zip(lines, widths, strict=True))
            print("  ".join(padded).rstrip(), file=file)


def _print_on_terminal(columns: Sequence[str], rows: Sequence[Sequence[str]], folded: Sequence[str]) -> None:
    """Print a table that fits the terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold" if column in folded else "ellipsis")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False, markup=False).print(table)


def _width(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)
