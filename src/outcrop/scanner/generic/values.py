"""What a value is by its shape: a path, an address, a name, code, a number, a digest, or nothing of the kind."""

from enum import StrEnum
from functools import cache, lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from outcrop.scanner.generic.shapes import SHAPES


class Shape(StrEnum):
    """What there are patterns for."""

    KNOWN = "known"
    REFERENCE = "reference"
    PUBLIC = "public"
    SEALED = "sealed"
    UUID = "uuid"
    LETTERS = "letters"
    NUMBER = "number"
    PLACE = "place"
    HEX = "hex"
    WORDS = "words"
    CODE = "code"
    PHRASE = "phrase"
    NUMBERED = "numbered"
    PLAIN = "plain"
    OTHER = "other"


@lru_cache(maxsize=16_384)
def shape_of(value: bytes) -> Shape:
    """Give the first shape that a value has, all of them looked for at once in linear time."""
    patterns, found = _compiled()
    shape: Shape = found[min(patterns.Match(value))]
    return shape


@cache
def _compiled() -> tuple[Any, list[Shape]]:
    """Compile all shapes into one automaton, the first time that there is a value to judge."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 << 20
    patterns = re2.Set.FullMatchSet(options)
    names = []
    for name, of_shape in SHAPES.items():
        for pattern in of_shape:
            patterns.Add(pattern.encode("latin-1"))
            names.append(Shape(name))
    patterns.Compile()
    return patterns, names
