"""Read the constants of compiled Python files (`.pyc`) as text.

The format is that of the module `marshal`, whose reader must not get foreign data: it can crash. This reader
creates no objects; it walks over the bytes once and collects the strings.
"""

from struct import Struct

from outcrop.lazy_regex import regex
from outcrop.limits import PYC_NESTING
from outcrop.scanner.text.archive_members import READ_ERRORS, Members, UnpackBudget

# The last two bytes of the magic are a line break; the first two are the version of the byte code.
_PYTHON_2, _PYTHON_3 = range(62_000, 62_300), range(3000, 3999)
_PYTHON_3_3, _PYTHON_3_7, _PYTHON_3_8, _PYTHON_3_11 = 3200, 3390, 3400, 3450
_UINT16, _INT32 = Struct("<H"), Struct("<i")
_REFERENCE_FLAG = 0x80
_EMPTY = frozenset(b"0NFTS.")
_FIXED_BYTES = {ord("i"): 4, ord("I"): 8, ord("g"): 8, ord("y"): 16, ord("r"): 4, ord("R"): 4}
_SHORT_NUMBERS = {ord("f"): 1, ord("x"): 2}  # numbers as text, each with a length of one byte
_SHORT_STRINGS, _STRINGS, _BYTES = frozenset(b"zZ"), frozenset(b"stuaA"), ord("s")
_COLLECTIONS = frozenset(b"([<>")
_SMALL_TUPLE, _DICTIONARY, _LONG, _CODE, _SLICE = b"){lc:"
_UNTIL_NULL = -1  # instead of a number of objects: a dictionary ends with a null object
_CONTROL = regex(r"[\x00-\x08\x0b-\x1f]")
_BINARY = regex(rb"[\x00-\x08\x0e-\x1a]")  # byte code and tables of line numbers


def _find_code(header: bytes) -> int:
    """Return the offset of the code after the header; None if the version is unknown."""
    version = _UINT16.unpack_from(header)[0]
    if version in _PYTHON_2:
        return 8
    if version not in _PYTHON_3:
        raise ValueError("an unknown version of Python")
    return 8 if version < _PYTHON_3_3 else 12 if version < _PYTHON_3_7 else 16


def read_python_cache(data: bytes, budget: UnpackBudget) -> Members:
    """Yield the strings of a compiled Python file with the name "", a line for each.

    They are subtracted from the budget. What was read before damage is kept, and a gap is added. Raise
    ValueError if nothing was read.
    """
    lines: list[bytes] = []
    gap = _collect_strings(data, lines)
    if gap and not lines:
        raise ValueError(gap)
    if gap:
        budget.gaps.append(f"compiled Python: {gap}")
    yield "", budget.count("compiled Python", b"\n".join(lines)[: budget.max_bytes() + 1])


def _collect_strings(data: bytes, lines: list[bytes]) -> str | None:
    """Append the strings of a compiled file to `lines`; return the text of a gap, or None if all was read."""
    version = _UINT16.unpack_from(data)[0]
    numbers, objects_before, numbers_between, objects_after = _code_layout(version)
    at = _find_code(data)
    # Objects that are left to read at each level, innermost last. Of code, what comes after them.
    waiting: list[tuple[int, int, int]] = [(1, 0, 0)]
    try:
        while waiting:
            left, skipped, more = waiting.pop()
            if left == 0:
                at += skipped
                if more:
                    waiting.append((more, 0, 0))
                continue
            kind = data[at] & ~_REFERENCE_FLAG
            at += 1
            if left == _UNTIL_NULL and kind == ord("0"):
                continue
            waiting.append((left if left == _UNTIL_NULL else left - 1, skipped, more))
            if len(waiting) > PYC_NESTING:
                return "nested too deeply, the rest was skipped"
            if kind == _CODE:
                at += numbers
                waiting.append((objects_before, numbers_between, objects_after))
            elif kind in _COLLECTIONS or kind in {_SMALL_TUPLE, _DICTIONARY, _SLICE}:
                count, at = _read_count(data, at, kind)
                waiting.append((count, 0, 0))
            else:
                at = _read_simple(data, at, kind, lines)
    except READ_ERRORS:
        return "damaged, only a part was read"
    return None


def _code_layout(version: int) -> tuple[int, int, int, int]:
    """Return how code is stored: bytes, objects, bytes again, objects again."""
    if version in _PYTHON_2:
        return 16, 8, 4, 1
    if version >= _PYTHON_3_11:
        return 20, 8, 4, 2
    return (24 if version >= _PYTHON_3_8 else 20), 8, 4, 1


def _read_count(data: bytes, at: int, kind: int) -> tuple[int, int]:
    """Return the number of objects in a collection, and the offset of the first."""
    if kind == _DICTIONARY:
        return _UNTIL_NULL, at
    if kind == _SLICE:
        return 3, at
    if kind == _SMALL_TUPLE:
        return data[at], at + 1
    count = _INT32.unpack_from(data, at)[0]
    if not 0 <= count <= len(data):
        raise ValueError("a collection is larger than the file")
    return count, at + 4


def _read_simple(data: bytes, at: int, kind: int, lines: list[bytes]) -> int:
    """Return the offset after an object that contains no others; append a string to `lines`."""
    if kind in _EMPTY:
        return at
    if kind in _FIXED_BYTES:
        at += _FIXED_BYTES[kind]
    elif kind in _SHORT_NUMBERS:
        for _ in range(_SHORT_NUMBERS[kind]):
            at += 1 + data[at]
    elif kind == _LONG:
        at += 4 + 2 * abs(_INT32.unpack_from(data, at)[0])
    elif kind in _SHORT_STRINGS or kind in _STRINGS:
        short = kind in _SHORT_STRINGS
        size = data[at] if short else _INT32.unpack_from(data, at)[0]
        at += 1 if short else 4
        if size < 0:
            raise ValueError("a string has a negative length")
        text = data[at : at + size]
        at += size
        if text and not (kind == _BYTES and _BINARY.search(text)):
            lines.append(_line(text))
    else:
        raise ValueError("an unknown kind of object")
    if at > len(data):
        raise ValueError("the file ends inside an object")
    return at


def _line(text: bytes) -> bytes:
    """Return a string as one quoted line."""
    readable = _CONTROL.sub(" ", text.decode("utf-8", "replace")).replace("\n", "\\n")
    return f'"{readable}"'.encode()
