"""What a pattern can match, read off its syntax tree: its width, its literals, its first and last characters.

Python's own parser gives the tree. It is not a documented module, though stable for decades and used by others in the
same way; only this file and trigger.py know it, and they handle exactly the node types a linear-time engine can match.
"""

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
MAX_WIDTH = 8_192  # how far a repetition without an upper bound is followed
MIN_LITERAL = 3  # characters from which on a literal tells something

CATEGORY_CLASSES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D",
    # The second pass does not count a vertical tab as a space, the first would.
    op.CATEGORY_SPACE: r"\t\n\f\r\x20", op.CATEGORY_NOT_SPACE: r"\x00-\x08\x0b\x0e-\x1f\x21-\xff",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip


class PatternError(ValueError):
    """A pattern that cannot be matched in linear time, or says nothing."""


@lru_cache(maxsize=8192)  # a form's pattern is looked at from several sides, and the tree is only read
def parse(pattern: str) -> Any:
    """Read a pattern of ASCII and escapes; raise PatternError with the reason where no linear-time engine takes it."""
    if not pattern.isascii():
        raise PatternError("has characters beyond ASCII; write their bytes, such as \\xc3\\xa9")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about signs in a class that Python may read otherwise one day
            tree = parser.parse(pattern, 0)
    except (re.error, OverflowError, RecursionError) as error:
        flags = str(error).startswith("global flags")
        raise PatternError(
            "has flags for all of it; write them around what they are for, such as (?i:…)"
            if flags
            else str(error)
        ) from None
    _check(tree)
    return tree


def match_width(tree: Any) -> tuple[int, int]:
    low, high = tree.getwidth()
    return int(low), min(int(high), MAX_WIDTH)


def has_anchor(tree: Any) -> bool:
    """Tell whether a match depends on what stands beside it."""
    return any(code == op.AT or any(map(has_anchor, child_sequences(code, value))) for code, value in tree)


def is_single_line(pattern: str) -> bool:
    """Tell whether no match goes beyond a line: a line break may stand at either end of one, where it bounds it, and nowhere else."""
    tree = parse(pattern)
    dot = bool(tree.state.flags & re.DOTALL)
    first, last = int(_bounds(tree[:1], dot=dot)), int(_bounds(tree[-1:], dot=dot))
    return not _breaks(tree[first : len(tree) - last], dot=dot)


def _bounds(tree: Any, *, dot: bool) -> bool:
    """Tell whether a match is a line break alone, or has none."""
    if match_width(tree)[1] <= 1 or not _breaks(tree, dot=dot):
        return True
    code, value = tree[0]
    if len(tree) > 1 or code not in {op.SUBPATTERN, op.BRANCH}:
        return False
    return all(_bounds(part, dot=dot or _is_dotted(code, value)) for part in child_sequences(code, value))


def _breaks(tree: Any, *, dot: bool) -> bool:
    """Tell whether a match can have a line break in it."""
    for code, value in tree:
        if code == op.ANY and dot:
            return True
        if code in {op.LITERAL, op.NOT_LITERAL} and (value == _BREAK) is (code == op.LITERAL):
            return True
        if code == op.IN and _BREAK in class_bytes(value):
            return True
        if any(_breaks(part, dot=dot or _is_dotted(code, value)) for part in child_sequences(code, value)):
            return True
    return False


def _is_dotted(code: Any, value: Any) -> bool:
    """Tell whether a dot in a group stands for a line break too."""
    return code == op.SUBPATTERN and bool(value[1] & re.DOTALL)


_BREAK = ord("\n")


def width_after_value(pattern: str) -> int | None:
    """Give how many characters every match has behind its value; None where that is not always as many."""
    tree = parse(pattern)
    group = tree.state.groupdict.get("secret")
    at = next(
        (
            at
            for at, (code, value) in enumerate(tree)
            if group and code == op.SUBPATTERN and value[0] == group
        ),
        None,
    )
    if at is None:
        return None
    low, high = match_width(tree[at + 1 :])
    return low if low == high else None


def literal_prefixes(pattern: str) -> list[bytes]:
    """Give the case-sensitive literals one of which every match begins with; none where there is no such list."""
    return [text for text, _ in _prefixes(list(parse(pattern)))]


def required_literals(pattern: str) -> list[bytes]:
    """Give the case-sensitive literals that every match has, in their order."""
    tree = parse(pattern)
    if tree.state.flags & re.IGNORECASE:
        return []
    texts = _literals(list(tree))
    return [text for text in b"".join(texts).split(_GAP) if len(text) >= MIN_LITERAL]


_GAP = b"\xff"  # stands for whatever is no literal


def _literals(items: list[Any]) -> Iterator[bytes]:
    for code, value in items:
        if code == op.LITERAL and value != _GAP[0]:
            yield bytes([value])
        elif code == op.SUBPATTERN and not value[1] and not value[2]:
            yield from _literals(list(value[3]))
        elif code != op.AT:
            yield _GAP


def bytes_after(tree: Any, behind: int = 0) -> set[int]:
    """Give the characters that a match can have behind so many others."""
    found: set[int] = set()
    for at, item in enumerate(tree):
        if match_width(tree[: at + 1])[1] > behind:
            found |= _edge([item], last=False)
            for part in child_sequences(*item):
                found |= bytes_after(part)
    return found


def last_bytes(pattern: str) -> set[int]:
    """Give the characters a match can end with."""
    return _edge(list(parse(pattern)), last=True)


def first_bytes(pattern: str) -> set[int]:
    return _edge(list(parse(pattern)), last=False)


# A character in one way or another, and how often: of the groups that come several times the bounds are mostly small.
_CHARACTER = r"(\\x[0-9A-Fa-f]{2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.)"
_TIMES = re.compile(_CHARACTER + r"(?:\{(\d+),(\d+)\})?", re.DOTALL)
MIN_LOOSENED_BOUND = (
    30  # a bound from which on the second pass takes twice as long, and to compile it three times
)


@lru_cache(maxsize=4096)
def loosen(pattern: str) -> str:
    """Leave away how often a character comes at most, where that is often: all that the pattern matches is matched, and more."""
    return _TIMES.sub(
        lambda times: f"{times[1]}{{{times[2]},}}" if int(times[3] or 0) >= MIN_LOOSENED_BOUND else times[0],
        pattern,
    )


def exact_up_to(pattern: str) -> int:
    """Give how long a match of the loosened pattern can be that is surely one of the pattern itself, and the one that it would give.

    Both prefer the same among all that they can match. What comes too often is longer by that, and the rest is not shorter than ever.
    """
    far = [
        int(times[3]) - int(times[2])
        for times in _TIMES.finditer(pattern)
        if int(times[3] or 0) >= MIN_LOOSENED_BOUND
    ]
    return min(far) + match_width(parse(pattern))[0] if far else MAX_WIDTH


_REFUSED = {
    op.ASSERT: "looks ahead or behind, which no linear-time engine can do",
    op.ASSERT_NOT: "looks ahead or behind, which no linear-time engine can do",
    op.GROUPREF: "refers back to a group, which no linear-time engine can do",
    op.GROUPREF_EXISTS: "refers back to a group, which no linear-time engine can do",
    op.ATOMIC_GROUP: "has an atomic group or a possessive repetition, which no linear-time engine knows",
    op.POSSESSIVE_REPEAT: "has an atomic group or a possessive repetition, which no linear-time engine knows",
}


def _check(tree: Any) -> None:
    for code, value in tree:
        if code in _REFUSED:
            raise PatternError(_REFUSED[code])
        for inner in child_sequences(code, value):
            _check(inner)


def child_sequences(code: Any, value: Any) -> list[Any]:
    """Give the sequences that an item is made of."""
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return [value[2]]
    if code == op.SUBPATTERN:
        return [value[3]]
    if code == op.BRANCH:
        return list(value[1])
    return []


def class_bytes(items: list[Any]) -> set[int]:
    """Give the bytes a character class stands for."""
    found: set[int] = set()
    negated = False
    for code, value in items:
        if code == op.NEGATE:
            negated = True
        elif code == op.LITERAL:
            found.add(value)
        elif code == op.RANGE:
            found.update(range(value[0], value[1] + 1))
        else:
            found.update(
                c for c in range(256) if re.match(f"[{CATEGORY_CLASSES[value]}]".encode(), bytes([c]))
            )
    return set(range(256)) - found if negated else found


def _edge(items: list[Any], *, last: bool) -> set[int]:
    """Give the characters that a sequence can begin or end with."""
    found: set[int] = set()
    for code, value in reversed(items) if last else items:
        if code == op.AT:
            continue
        if code == op.LITERAL:
            found.add(value)
        elif code == op.IN:
            found |= class_bytes(value)
        elif code in {op.ANY, op.NOT_LITERAL}:
            found |= set(range(256))
        inner = child_sequences(code, value)
        for part in inner:
            found |= _edge(list(part), last=last)
        optional = any(part.getwidth()[0] == 0 for part in inner) or (
            code in {op.MAX_REPEAT, op.MIN_REPEAT} and value[0] == 0
        )
        if not optional:
            break
    return found


_MANY = 24


def _prefixes(items: list[Any]) -> list[tuple[bytes, bool]]:
    """Give the literal beginnings of a sequence, each with whether the whole sequence is that literal."""
    out: list[tuple[bytes, bool]] = [(b"", True)]
    for code, value in items:
        if code == op.AT:
            continue
        options: list[tuple[bytes, bool]] = []
        if code == op.LITERAL:
            options = [(bytes([value]), True)]
        elif code == op.SUBPATTERN and not value[1] & re.IGNORECASE:
            options = _prefixes(list(value[3]))
        elif code == op.BRANCH:
            options = [option for branch in value[1] for option in _prefixes(list(branch))]
        elif code == op.IN and 0 < len(class_bytes(value)) <= 4:
            options = [(bytes([c]), True) for c in sorted(class_bytes(value))]
        elif code in {op.MAX_REPEAT, op.MIN_REPEAT} and value[0] == value[1] == 1:
            options = _prefixes(list(value[2]))
        if not options or len(options) * len(out) > _MANY:
            options = [(b"", False)]
        out = [
            (a + b, whole) if open_ else (a, False)
            for a, open_ in out
            for b, whole in (options if open_ else [(b"", False)])
        ]
        if not any(open_ for _, open_ in out):
            break
    return [(text, whole) for text, whole in dict.fromkeys(out)]
