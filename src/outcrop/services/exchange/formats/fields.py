"""Read the fields of other tools' records, whose types cannot be relied on."""

from collections.abc import Iterator
from typing import Any

from outcrop.lazy_regex import regex

_NOT_IN_TYPES = regex(r"[^a-z0-9]+")


def get_dict(outer: Any, *keys: str) -> dict[str, Any]:
    """Return the dict under nested keys; an empty one if a value is missing or not a dict."""
    for key in keys:
        outer = outer.get(key) if isinstance(outer, dict) else None
    return outer if isinstance(outer, dict) else {}


def get_dicts(outer: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the dicts in the list under a key; other elements are left out."""
    inner = outer.get(key)
    return (item for item in inner if isinstance(item, dict)) if isinstance(inner, list) else iter(())


def get_text(outer: dict[str, Any], *keys: str) -> str | None:
    """Return the first text under one of the keys that is not empty; None if there is none."""
    return next((value for key in keys if isinstance(value := outer.get(key), str) and value), None)


def to_type(name: str) -> str:
    """Return the name of a detector as a credential type: lower case, words joined by `_`."""
    return _NOT_IN_TYPES.sub("_", name.lower()).strip("_") or "unknown"


def to_relative(path: Any) -> Any:
    """Return a path without `./` at its start; a value of another type is returned as it is."""
    while isinstance(path, str) and path.startswith("./"):
        path = path[2:].lstrip("/")
    return path or None
