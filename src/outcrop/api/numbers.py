"""Parse numbers in parameters exactly, without rounding."""

import math
from decimal import Decimal, InvalidOperation

from outcrop.lazy_regex import regex
from outcrop.limits import NUMBER_DIGITS

_INTEGER = regex(r"-?[0-9]+")
_NUMBER = regex(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_SMALLEST_FLOAT = math.nextafter(0, 1)


def integer(text: str) -> int | None:
    """Return a whole number, or None if the text is not one.

    A number with more than NUMBER_DIGITS digits becomes the largest that JSON parsers accept, since the
    response repeats it.
    """
    if _INTEGER.fullmatch(text) is None:
        return None
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > NUMBER_DIGITS:
        digits = "9" * NUMBER_DIGITS
    return -int(digits) if text.startswith("-") else int(digits)


def bound(text: str) -> float | None:
    """Return a lower bound as a float, or None if the text is not a number or too large.

    The result is the smallest float that is not below the written number. The nearest float could be lower,
    and then match a score or pass a limit that the written number does not.
    """
    if _NUMBER.fullmatch(text) is None:
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:  # the exponent is out of range
        return None
    nearest = float(number)
    if number < 0 and nearest == 0:
        return -_SMALLEST_FLOAT
    return nearest if Decimal(repr(nearest)) >= number else math.nextafter(nearest, math.inf)
