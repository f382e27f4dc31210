"""In which files an unquoted right side is an expression, and no value."""

from outcrop.scanner.generic.names import WORDS

_LANGUAGES = frozenset(ending.encode() for ending in WORDS["code"]["languages"])


def is_code(path: bytes) -> bool:
    """Tell by a file's name whether it is written in a language that has its texts in quotes."""
    _, dot, ending = path.rpartition(b"/")[2].rpartition(b".")
    return dot != b"" and ending.lower() in _LANGUAGES
