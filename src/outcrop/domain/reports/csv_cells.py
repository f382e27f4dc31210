"""Make values safe as cells of a CSV file that a spreadsheet opens."""

import csv
import io
from collections.abc import Iterable

# A spreadsheet may skip white space and byte order marks, and may read full-width signs as the usual ones.
_FORMULA_STARTS = tuple("=+-@\uff1d\uff0b\uff0d\uff20 \t\r\n\v\f\u00a0\u3000\ufeff\ufffe\u200b")


def write_rows(rows: Iterable[Iterable[object]]) -> bytes:
    """Return rows as CSV bytes."""
    out = io.StringIO(newline="")
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue().encode("utf-8", "backslashreplace")


def to_cell(value: object) -> object:
    """Return the value of a CSV cell; a text that a spreadsheet would take for a formula gets a quote first.

    File names are chosen by others, so a formula in one must not run.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA_STARTS) else str(value)
    return value
