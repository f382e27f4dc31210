"""Compute facts about the matches of a regular expression: width, literals, first and last bytes.

The tree is a sequence of items (opcode, argument) from Python's own parser. That parser is not documented,
but it has been stable for decades. Only this module and prefilter.py know its opcodes, and they handle
exactly those that a linear-time engine can match.
"""

import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, NamedTuple

from outcrop.lazy_regex import regex

WORD_BYTES = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
MAX_WIDTH = 8_192  # bytes; a repetition without an upper bound counts as this wide
MIN_LITERAL = 3  # characters; a shorter literal occurs by chance in most texts
# From this upper bound on, RE2 takes twice as long to match a repetition and three times to compile it.
MIN_LOOSENED_BOUND = 30

# Each category of characters, as it is written inside a class.
CATEGORY_CLASSES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D",
    # RE2 does not count a vertical tab as a space, Hyperscan does.
    op.CATEGORY_SPACE: r"\t\n\f\r\x20", op.CATEGORY_NOT_SPACE: r"\x00-\x08\x0b\x0e-\x1f\x21-\xff",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_LOOKAROUND = "uses lookahead or lookbehind, which a linear-time engine cannot match"
_BACK_REFERENCE = "uses a back-reference, which a linear-time engine cannot match"
_POSSESSIVE = "uses an atomic group or a possessive quantifier, which a linear-time engine cannot match"
_UNSUPPORTED = {
    op.ASSERT: _LOOKAROUND,
    op.ASSERT_NOT: _LOOKAROUND,
    op.GROUPREF: _BACK_REFERENCE,
    op.GROUPREF_EXISTS: _BACK_REFERENCE,
    op.ATOMIC_GROUP: _POSSESSIVE,
    op.POSSESSIVE_REPEAT: _POSSESSIVE,
}
_LINE_BREAK = ord("\n")
_GAP = b"\xff"  # marks an item that is no literal, between literals
_MAX_PREFIXES = 24  # with more alternatives a pattern counts as having no literal prefix
_MAX_CLASS_PREFIXES = 4  # bytes of a class that are written out as alternative prefixes

# One character in any notation, and how often it is repeated. Repeated groups mostly have small bounds.
_CHARACTER = r"(\\x[0-9A-Fa-f]{2}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.)"
_REPEATED_CHARACTER = regex(_CHARACTER + r"(?:\{(\d+),(\d+)\})?", re.DOTALL)


class PatternError(ValueError):
    """A pattern that cannot be used; the message has no subject, such as "uses a back-reference"."""


@lru_cache(maxsize=8192)  # the pattern of a form is parsed for several questions, and nobody changes the tree
def parse(pattern: str) -> Any:
    """Return the syntax tree of a pattern, from a cache: callers must not change the tree.

    Raise PatternError if the pattern is not ASCII or not valid, or if a linear-time engine cannot match it.
    """
    if not pattern.isascii():
        raise PatternError("has non-ASCII characters; write their UTF-8 bytes, such as \\xc3\\xa9")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # Python warns of characters in a class that it may read differently later
            tree = parser.parse(pattern, 0)
    except (re.error, OverflowError, RecursionError) as error:
        if str(error).startswith("global flags"):
            raise PatternError(
                "has a flag for the whole pattern; write it around the part that needs it, such as (?i:…)"
            ) from None
        raise PatternError(str(error)) from None
    _refuse_unsupported(tree)
    return tree


def _refuse_unsupported(tree: Any) -> None:
    """Raise PatternError if a linear-time engine cannot match an item of the tree, at any depth."""
    for code, value in tree:
        if code in _UNSUPPORTED:
            raise PatternError(_UNSUPPORTED[code])
        for sequence in child_sequences(code, value):
            _refuse_unsupported(sequence)


def child_sequences(code: Any, value: Any) -> list[Any]:
    """Return the sequences inside an item: the body of a repetition or group, or the alternatives.

    Return [] for all other items. `code` and `value` are the opcode and the argument of the item.
    """
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return [value[2]]
    if code == op.SUBPATTERN:
        return [value[3]]
    if code == op.BRANCH:
        return list(value[1])
    return []


def class_bytes(items: list[Any]) -> set[int]:
    """Return the bytes that a character class, given as the items of the syntax tree, matches."""
    found: set[int] = set()
    is_negated = False
    for code, value in items:
        if code == op.NEGATE:
            is_negated = True
        elif code == op.LITERAL:
            found.add(value)
        elif code == op.RANGE:
            found.update(range(value[0], value[1] + 1))
        else:
            category = f"[{CATEGORY_CLASSES[value]}]".encode()
            found.update(byte for byte in range(256) if re.match(category, bytes([byte])))
    return set(range(256)) - found if is_negated else found


def match_width(tree: Any) -> tuple[int, int]:
    """Return the lengths of the shortest and the longest match, in bytes, the longest at most MAX_WIDTH."""
    low, high = tree.getwidth()
    return int(low), min(int(high), MAX_WIDTH)


def has_anchor(tree: Any) -> bool:
    r"""Whether the tree has an anchor such as `^`, `$` or `\b`, at any depth."""
    return any(code == op.AT or any(map(has_anchor, child_sequences(code, value))) for code, value in tree)


def is_single_line(pattern: str) -> bool:
    """Whether no match can have a line break, except as its first or last byte."""
    tree = parse(pattern)
    dotall = bool(tree.state.flags & re.DOTALL)
    skip_first = int(_is_line_break_or_none(tree[:1], dotall=dotall))
    skip_last = int(_is_line_break_or_none(tree[-1:], dotall=dotall))
    return not _can_have_line_break(tree[skip_first : len(tree) - skip_last], dotall=dotall)


def _is_line_break_or_none(tree: Any, *, dotall: bool) -> bool:
    """Whether every match of the tree either has no line break or is at most one byte long.

    Groups and alternatives are checked one by one if the tree is a single item; a longer tree that can match
    a line break counts as False. `dotall` says that a dot matches a line break too.
    """
    if match_width(tree)[1] <= 1 or not _can_have_line_break(tree, dotall=dotall):
        return True
    code, value = tree[0]
    if len(tree) > 1 or code not in {op.SUBPATTERN, op.BRANCH}:
        return False
    dotall = dotall or _sets_dotall(code, value)
    return all(_is_line_break_or_none(sequence, dotall=dotall) for sequence in child_sequences(code, value))


def _can_have_line_break(tree: Any, *, dotall: bool) -> bool:
    """Whether a match can contain a line break; `dotall`: a dot matches a line break too."""
    for code, value in tree:
        if code == op.ANY and dotall:
            return True
        if code in {op.LITERAL, op.NOT_LITERAL} and (value == _LINE_BREAK) is (code == op.LITERAL):
            return True
        if code == op.IN and _LINE_BREAK in class_bytes(value):
            return True
        inner_dotall = dotall or _sets_dotall(code, value)
        if any(_can_have_line_break(part, dotall=inner_dotall) for part in child_sequences(code, value)):
            return True
    return False


def _sets_dotall(code: Any, value: Any) -> bool:
    """Whether an item is a group with the flag `s`."""
    return code == op.SUBPATTERN and bool(value[1] & re.DOTALL)


def width_after_value(pattern: str) -> int | None:
    """Return how many bytes follow the group `secret` in every match.

    Return None if the number varies, or if the pattern has no such group outside of all other groups.
    """
    tree = parse(pattern)
    group = tree.state.groupdict.get("secret")
    if not group:
        return None
    positions = (at for at, (code, value) in enumerate(tree) if code == op.SUBPATTERN and value[0] == group)
    at = next(positions, None)
    if at is None:
        return None
    low, high = match_width(tree[at + 1 :])
    return low if low == high else None


def required_literals(pattern: str) -> list[bytes]:
    """Return the case-sensitive literals of at least MIN_LITERAL bytes in every match, in their order.

    Literals in repetitions, in alternatives and in groups with flags are not included. Return [] if the
    pattern ignores case.
    """
    tree = parse(pattern)
    if tree.state.flags & re.IGNORECASE:
        return []
    texts = b"".join(_literals_and_gaps(list(tree))).split(_GAP)
    return [text for text in texts if len(text) >= MIN_LITERAL]


def _literals_and_gaps(items: list[Any]) -> Iterator[bytes]:
    """Yield the byte of each literal of a sequence, and _GAP for each other item.

    Groups without flags are read like the sequence itself. Anchors are skipped.
    """
    for code, value in items:
        if code == op.LITERAL and value != _GAP[0]:
            yield bytes([value])
        elif code == op.SUBPATTERN and not value[1] and not value[2]:
            yield from _literals_and_gaps(list(value[3]))
        elif code != op.AT:
            yield _GAP


def first_bytes(pattern: str) -> set[int]:
    """Return the bytes that a match can begin with; raise PatternError if the pattern cannot be used.

    The flag `i` is not considered.
    """
    return _edge_bytes(list(parse(pattern)), last=False)


def last_bytes(pattern: str) -> set[int]:
    """Return the bytes that a match can end with; raise PatternError if the pattern cannot be used.

    The flag `i` is not considered.
    """
    return _edge_bytes(list(parse(pattern)), last=True)


def bytes_after(tree: Any, offset: int = 0) -> set[int]:
    """Return the bytes that a match of the tree can have at `offset` or later; it may return more."""
    found: set[int] = set()
    for at, item in enumerate(tree):
        if match_width(tree[: at + 1])[1] > offset:
            found |= _edge_bytes([item], last=False)
            for sequence in child_sequences(*item):
                found |= bytes_after(sequence)
    return found


def _edge_bytes(items: list[Any], *, last: bool) -> set[int]:
    """Return the bytes that a match of a sequence can begin with, or with `last` end with.

    All bytes for a dot or a negated character. The flag `i` is not considered.
    """
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
        sequences = child_sequences(code, value)
        for sequence in sequences:
            found |= _edge_bytes(list(sequence), last=last)
        can_be_empty = any(sequence.getwidth()[0] == 0 for sequence in sequences) or (
            code in {op.MAX_REPEAT, op.MIN_REPEAT} and value[0] == 0
        )
        if not can_be_empty:
            break
    return found


@lru_cache(maxsize=4096)
def loosen(pattern: str) -> str:
    """Return the pattern with `{m,}` for `{m,n}` after a character if n is at least MIN_LOOSENED_BOUND.

    The result matches all that the pattern matches, and more. It is cached.
    """
    return _REPEATED_CHARACTER.sub(
        lambda times: f"{times[1]}{{{times[2]},}}" if int(times[3] or 0) >= MIN_LOOSENED_BOUND else times[0],
        pattern,
    )


def exact_up_to(pattern: str) -> int:
    """Return a length: a match of `loosen(pattern)` that is not longer is the match of the pattern itself.

    MAX_WIDTH if `loosen` changes nothing. Both patterns prefer the same among all that they can match, and a
    match with more than n repetitions for a dropped bound of `{m,n}` is longer than the shortest match by
    more than n - m.
    """
    room = [
        int(times[3]) - int(times[2])
        for times in _REPEATED_CHARACTER.finditer(pattern)
        if int(times[3] or 0) >= MIN_LOOSENED_BOUND
    ]
    return min(room) + match_width(parse(pattern))[0] if room else MAX_WIDTH


class _Prefix(NamedTuple):
    """A literal that matches of a sequence begin with."""

    text: bytes
    is_whole: bool  # the match is this literal and nothing more, so the next item can extend it


_NO_PREFIX = _Prefix(b"", is_whole=False)


def literal_prefixes(pattern: str) -> list[bytes]:
    """Return case-sensitive literals such that every match begins with one of them.

    One of them is b"" if some matches begin with no known literal.
    """
    return [prefix.text for prefix in _sequence_prefixes(list(parse(pattern)))]


def _sequence_prefixes(items: list[Any]) -> list[_Prefix]:
    """Return the literal prefixes of a sequence, each once; the empty one for an item without a prefix.

    An item also counts as without a prefix if there would be more than _MAX_PREFIXES.
    """
    prefixes = [_Prefix(b"", is_whole=True)]
    for code, value in items:
        if code == op.AT:
            continue
        options = _item_prefixes(code, value)
        if not options or len(options) * len(prefixes) > _MAX_PREFIXES:
            options = [_NO_PREFIX]
        prefixes = [extended for prefix in prefixes for extended in _extend_prefix(prefix, options)]
        if not any(prefix.is_whole for prefix in prefixes):
            break
    return list(dict.fromkeys(prefixes))


def _extend_prefix(prefix: _Prefix, options: list[_Prefix]) -> list[_Prefix]:
    """Return the prefix followed by each of the options; the prefix alone if it is not a whole match."""
    if not prefix.is_whole:
        return [prefix]
    return [_Prefix(prefix.text + option.text, option.is_whole) for option in options]


def _item_prefixes(code: Any, value: Any) -> list[_Prefix]:
    """Return the literal prefixes of one item; [] if it has none.

    It has none if it is a dot, a negated character, a class of more than _MAX_CLASS_PREFIXES bytes, a
    repetition, or a group that ignores case. `code` and `value` are its opcode and argument.
    """
    if code == op.LITERAL:
        return [_Prefix(bytes([value]), is_whole=True)]
    if code == op.IN and 0 < len(choices := class_bytes(value)) <= _MAX_CLASS_PREFIXES:
        return [_Prefix(bytes([byte]), is_whole=True) for byte in sorted(choices)]
    if code == op.SUBPATTERN and value[1] & re.IGNORECASE:
        return []
    if code in {op.MAX_REPEAT, op.MIN_REPEAT} and not value[0] == value[1] == 1:
        return []
    return [prefix for part in child_sequences(code, value) for prefix in _sequence_prefixes(list(part))]
