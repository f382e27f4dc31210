"""List the files of a gitleaks configuration: the file itself and those that it extends.

This is apart from gitleaks_config.py because a scan with cached rules needs only the files, to compute the
cache key.
"""

import tomllib
from pathlib import Path
from typing import Any

MAX_EXTENDED_FILES = 2  # as in gitleaks


def lower_keys(value: Any) -> Any:
    """Return a copy of parsed TOML with the keys of all tables in lower case."""
    if isinstance(value, dict):
        return {str(key).lower(): lower_keys(inner) for key, inner in value.items()}
    return [lower_keys(inner) for inner in value] if isinstance(value, list) else value


def list_extended_files(path: Path) -> list[Path]:
    """Return the file that a configuration extends, the one that this file extends, and so on.

    At most MAX_EXTENDED_FILES are returned. Their paths are relative to the current folder, as in gitleaks. A
    file that cannot be read extends none.
    """
    files: list[Path] = []
    while len(files) < MAX_EXTENDED_FILES and (extended := _read_extend_path(path)):
        path = Path(extended)
        files.append(path)
    return files


def _read_extend_path(path: Path) -> str:
    """Return `extend.path` of a file; "" if it has none or is wrong, which `load_gitleaks_config` reports."""
    try:
        table = lower_keys(tomllib.loads(path.read_text("utf-8-sig"))).get("extend")
    except (OSError, ValueError, RecursionError):
        return ""
    extended = table.get("path") if isinstance(table, dict) else None
    return extended if isinstance(extended, str) else ""
