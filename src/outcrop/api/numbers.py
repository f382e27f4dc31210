"""Numbers in parameters: digits as people write them, read to the last one."""

import math
import re
from decimal import Decimal, InvalidOperation

_INTEGER = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 4_300  # what Python, and its reader of JSON, take
_LEAST = math.nextafter(0, 1)


def integer(text: str) -> int | None:
    """Read a whole number; None for what is none. One with more digits than whoever reads the answer takes is as large as there is."""
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _MOST_DIGITS:
        digits = "9" * _MOST_DIGITS
    return -int(digits) if text.startswith("-") else int(digits)


def bound(text: str) -> float | None:
    """Read a lower bound; None for what is no number, or larger than any.

    It is the least float that is no less than what is written, as floats are written: the nearest one may be a score, or lie within
    limits, where the number itself does not.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # its exponent is beyond what anything has
        return None
    nearest = float(number)
    if number < 0 and nearest == 0:
        return -_LEAST
    return nearest if Decimal(repr(nearest)) >= number else math.nextafter(nearest, math.inf)
