"""The lists of words and shapes that the judge reads names and values by, from the two tables beside this file."""

import tomllib
from pathlib import Path

_HERE = Path(__file__).parent


def word_lists() -> dict[str, dict[str, frozenset[str]]]:
    """Give every list of words, by section and name."""
    tables = tomllib.loads((_HERE / "words.toml").read_text("utf-8"))
    return {section: {name: frozenset(text.split()) for name, text in lists.items()} for section, lists in tables.items()}


def shapes() -> list[tuple[str, str]]:
    """Give every pattern with the name of its shape, in the order in which they count."""
    tables = tomllib.loads((_HERE / "shapes.toml").read_text("utf-8"))
    files = "|".join(tables.pop("files").split())
    return [(name, pattern.replace("<<files>>", files)) for name, patterns in tables.items() for pattern in patterns]


WORDS = word_lists()
