"""Values that are written as an array of bytes, one number after the other."""

import re

_OPENS_WITHIN = 16  # of the first number's comma
_LONGEST = 1_600  # bytes of an array that is read
_NUMBER = rb"(?:0x[0-9A-Fa-f]{1,2}|[0-9]{1,3})"
_ARRAY = re.compile(rb"\{\s*(%b(?:\s*,\s*%b){7,255})\s*,?\s*\}" % (_NUMBER, _NUMBER))


def array_before(data: bytes, end: int) -> tuple[int, int, bytes] | None:
    """Give the numbers of an array whose first comma ends here: where they stand, and the bytes that they are."""
    opens = data.rfind(b"{", max(0, end - _OPENS_WITHIN), end)
    found = _ARRAY.match(data, opens, opens + _LONGEST) if opens >= 0 else None
    if found is None:
        return None
    numbers = [int(number, 16 if number[:2] == b"0x" else 10) for number in re.findall(_NUMBER, found[1])]
    return (*found.span(1), bytes(numbers)) if max(numbers) < 256 else None
