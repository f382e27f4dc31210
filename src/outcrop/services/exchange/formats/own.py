"""Results of `outcrop scan`, and files of `outcrop export`."""

from typing import Any

# Fields of translated records: a result of a scan has another one with such a name.
_NOT_IN_A_FILE = {"surroundings", "snippet", "parts"}


def translate(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the finding of a record, which has our own fields already."""
    return [{name: value for name, value in record.items() if name not in _NOT_IN_A_FILE}]
