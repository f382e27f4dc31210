"""`outcrop settings`: every setting with its value, where the value comes from, and the default."""

from dataclasses import fields
from typing import Any

from outcrop.cli.env_file import load
from outcrop.cli.session import AsJson, show_all
from outcrop.settings import Settings
from outcrop.settings_sources import LoadedSettings, variable

_MASKED = "********"


def settings(as_json: AsJson = False) -> None:
    """Print every setting, its value (secrets masked), where it comes from, and its default."""
    records = describe_settings(load())
    show_all(records, ["setting", "value", "source", "default"], as_json=as_json)


def describe_settings(loaded: LoadedSettings) -> list[dict[str, object]]:
    """Return a record for each setting. Values are texts as in the environment, or None."""
    return [
        {
            "setting": variable(field.name),
            "value": _text(getattr(loaded.settings, field.name), masked=field.name in Settings.SECRET),
            "source": loaded.origins.get(field.name, "default"),
            "default": _text(field.default, masked=False),
        }
        for field in fields(Settings)
    ]


def _text(value: Any, *, masked: bool) -> str | None:
    """Return a value as the environment would have it; None for no value and for an empty list."""
    if value is None or value == ():
        return None
    if masked:
        return _MASKED
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
