"""Which files a configuration of gitleaks is made of. A scan reads them to know whether its rules are those in the cache."""

import tomllib
from pathlib import Path
from typing import Any

MAX_EXTENDED_FILES = 2  # files that gitleaks follows


def lower_keys(value: Any) -> Any:
    """Write the keys of tables in small letters."""
    if isinstance(value, dict):
        return {str(key).lower(): lower_keys(inner) for key, inner in value.items()}
    return [lower_keys(inner) for inner in value] if isinstance(value, list) else value


def list_extended_files(path: Path) -> list[Path]:
    """Give the files that a configuration extends, one the other; a path in it is relative to where the command was started."""
    found: list[Path] = []
    while len(found) < MAX_EXTENDED_FILES and (above := _extends(path)):
        path = Path(above)
        found.append(path)
    return found


def _extends(path: Path) -> str:
    """Read what a file extends; what is wrong with it is said by what reads all of it."""
    try:
        table = lower_keys(tomllib.loads(path.read_text("utf-8-sig"))).get("extend")
    except (OSError, ValueError, RecursionError):
        return ""
    named = table.get("path") if isinstance(table, dict) else None
    return named if isinstance(named, str) else ""
