"""Make the triggers of the Hyperscan pass from the full regular expressions of rules.

A trigger matches wherever the full pattern matches, from the same start, and seldom elsewhere. `make_trigger`
takes the whole pattern if it is narrow enough and has a definite end, otherwise its shortest beginning that
is rare.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from re import _constants as op  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from outcrop.scanner.patterns.regex_ast import (
    CATEGORY_CLASSES,
    MAX_WIDTH,
    MIN_LITERAL,
    PatternError,
    child_sequences,
    parse,
)

_MAX_GAP = 128  # a repetition whose count varies by more than this ends a trigger
_ENOUGH_WIDTH = 12  # characters; a trigger with a literal that is this wide is rare enough
_MIN_WIDTH = 2  # characters that a trigger must have
_MIN_CUT_REPEAT = 4  # characters that are kept of a repetition that is cut short
# A pattern up to this wide is its own trigger: Hyperscan is the cheapest place to refuse what only begins
# like it.
_MAX_WHOLE_WIDTH = 450
_MAX_WHOLE_WIDTH_WITH_LITERAL = 1_000  # a literal at the beginning is cheap to search for
_MAX_COUNTED = 200  # a repetition that varies by more has no upper bound, so that Hyperscan need not count
_MAX_ALTERNATIVES = 100
_MAX_SHARED_LITERALS = 2  # characters before an alternation that are written out with each alternative
# Anchor -> (pattern, width). The Hyperscan pass reads many texts at once with a line break between them, so a
# text begins and ends at a line break too. Word boundaries are slow in Hyperscan, and RE2 tests them anyway.
_ANCHORS = {
    op.AT_BEGINNING: (r"(?:^|\n)", 1),
    op.AT_BEGINNING_STRING: (r"(?:^|\n)", 1),
    op.AT_END: (r"(?:$|\n)", 1),
    op.AT_END_STRING: (r"(?:$|\n)", 1),
    op.AT_BOUNDARY: ("", 0),
    op.AT_NON_BOUNDARY: ("", 0),
}


@dataclass(frozen=True, slots=True)
class PrefilterTrigger:
    """A pattern for Hyperscan that matches wherever the full pattern matches, from the same start."""

    pattern: str
    min_width: int
    max_width: int
    ends_match: bool = False  # the trigger ends where the full pattern ends


def make_trigger(pattern: str, *, allow_whole: bool = True) -> PrefilterTrigger:
    """Return the trigger of a pattern: all of it if it is narrow and has a definite end, else its beginning.

    The beginning is long enough to be rare, and has no open end that would match again at every further byte.
    With `allow_whole` false it is always the beginning. Raise PatternError if the pattern is not supported or
    the trigger could match fewer than _MIN_WIDTH characters.
    """
    tree = parse(pattern)
    writer = _PatternWriter(tree.state.flags)
    items = _open_groups(list(tree))
    max_width, dropped = _MAX_WHOLE_WIDTH_WITH_LITERAL, 0
    if not _begins_with_literal(items):
        max_width = _MAX_WHOLE_WIDTH
        items, dropped = _drop_backslash(items)
    complete = writer.write_sequence(items)
    if allow_whole and complete.low >= _MIN_WIDTH and complete.high <= max_width and not _has_open_end(items):
        return PrefilterTrigger(
            writer.flags + complete.text, complete.low, complete.high + dropped, ends_match=True
        )
    beginning = writer.write_beginning(items)
    _refuse_short(beginning)
    return PrefilterTrigger(
        writer.flags + beginning.text, beginning.low, min(beginning.high + dropped, MAX_WIDTH)
    )


def make_verbatim_trigger(pattern: str) -> PrefilterTrigger:
    """Return a trigger that is all of a pattern, however wide it is, with `ends_match` False.

    Raise PatternError if the pattern is not supported or can match fewer than _MIN_WIDTH characters.
    """
    tree = parse(pattern)
    writer = _PatternWriter(tree.state.flags)
    complete = writer.write_sequence(list(tree))
    _refuse_short(complete)
    return PrefilterTrigger(writer.flags + complete.text, complete.low, min(complete.high, MAX_WIDTH))


def split_alternatives(pattern: str) -> list[str]:
    """Return a trigger as several patterns, one for each of the alternatives that it begins with.

    The list has one pattern if the trigger begins with no alternation, or with more than _MAX_ALTERNATIVES
    alternatives. Hyperscan tests several alternatives before a literal at once, and some versions (Vectorscan
    5.4.12) then lose matches. One at a time they are found, and no slower.
    """
    tree = parse(pattern)
    writer = _PatternWriter(tree.state.flags)
    texts = writer.write_alternatives(list(tree))
    return [writer.flags + text for text in texts] if len(texts) <= _MAX_ALTERNATIVES else [pattern]


def escape_literal(literal: bytes) -> str:
    """Return a pattern that matches exactly these bytes."""
    return "".join(_write_character(code) for code in literal)


def _refuse_short(written: "_WrittenPattern") -> None:
    """Raise PatternError if a trigger can match fewer than _MIN_WIDTH characters."""
    if written.low < _MIN_WIDTH:
        raise PatternError("matches fewer than two characters")


def _open_groups(items: list[Any]) -> list[Any]:
    """Return a sequence with groups without flags replaced by their contents, so that a cut can be inside."""
    flat: list[Any] = []
    for code, value in items:
        if code == op.SUBPATTERN and not value[1] and not value[2]:
            flat.extend(_open_groups(list(value[3])))
        else:
            flat.append((code, value))
    return flat


def _begins_with_literal(items: list[Any]) -> bool:
    """Whether a sequence begins with literals that have at least MIN_LITERAL letters and digits.

    An alternation or a class before them, which may be a boundary, is skipped.
    """
    after_boundary = items[1:] if items and items[0][0] in {op.BRANCH, op.IN} else items
    literals = takewhile(lambda item: item[0] == op.LITERAL, after_boundary)
    return sum(chr(value).isalnum() for _, value in literals) >= MIN_LITERAL


def _drop_backslash(items: list[Any]) -> tuple[list[Any], int]:
    r"""Return a sequence without the backslashes in the alternation that it begins with, and a number.

    Each alternative of two items that begins with a backslash, such as `\\[nrt]`, loses it. The number is 1
    if one did, otherwise 0. If nothing else in a pattern is rare, Hyperscan searches for the pair, and on ARM
    it misses a pair that lies across two of its vectors.
    """
    if not items or items[0][0] != op.BRANCH:
        return items, 0
    before, branches = items[0][1]
    shortened = [
        branch[1:] if len(branch) == 2 and branch[0] == (op.LITERAL, ord("\\")) else branch
        for branch in branches
    ]
    is_shorter = any(len(new) < len(old) for new, old in zip(shortened, branches, strict=True))
    return [(op.BRANCH, (before, shortened)), *items[1:]], int(is_shorter)


def _has_open_end(items: list[Any]) -> bool:
    """Whether a sequence ends with a repetition whose count can vary, such as `a+` or `a?`.

    The sequence has at least one item. The repetition may be in a group or an alternative at its end.
    Hyperscan would report such a match again at every further byte.
    """
    code, value = items[-1]
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return bool(value[0] != value[1]) or _has_open_end(list(value[2]))
    return any(_has_open_end(list(part)) for part in child_sequences(code, value) if len(part))


def _count_literals(code: Any, value: Any) -> int:
    """Return how many literal characters an item has at least, to judge how rare its matches are.

    1 for a literal letter or digit, 0 for a sign, as `://` is too common. For an alternation of nothing but
    literals, the length of the shortest alternative. 0 for all other items.
    """
    if code == op.LITERAL:
        return int(chr(value).isalnum())
    if code == op.BRANCH and all(inner == op.LITERAL for branch in value[1] for inner, _ in branch):
        return int(min(len(branch) for branch in value[1]))
    return 0


@dataclass(slots=True)
class _WrittenPattern:
    """A pattern that is being written, with the length of its shortest and longest match."""

    text: str = ""
    low: int = 0
    high: int = 0

    def add(self, text: str, low: int, high: int) -> None:
        """Append a text whose matches are `low` to `high` characters long, and add both to the totals."""
        self.text += text
        self.low += low
        self.high += high


class _PatternWriter:
    """Writes a syntax tree as a pattern for Hyperscan; the text `flags` goes before the pattern."""

    def __init__(self, tree_flags: int) -> None:
        ignore_case = "(?i)" if tree_flags & re.IGNORECASE else ""
        self.flags = ignore_case + ("(?s)" if tree_flags & re.DOTALL else "")

    def write_sequence(self, items: Any) -> _WrittenPattern:
        """Return all items of a sequence as one pattern; raise PatternError if an item is not supported."""
        written = _WrittenPattern()
        for code, value in items:
            self._add_item(written, code, value)
        return written

    def write_beginning(self, items: list[Any]) -> _WrittenPattern:
        """Return the shortest beginning of a sequence that is rare, as a pattern.

        Rare is a beginning with MIN_LITERAL literal letters and digits and _ENOUGH_WIDTH characters. If there
        is none, return the sequence up to the first repetition that varies by more than _MAX_GAP, or all of
        it. A repetition at the end of the result is written with its lowest count or less. Optional items at
        the end of the sequence are dropped first.
        """
        while items and self.write_sequence(items[-1:]).low == 0:
            items = items[:-1]
        written = _WrittenPattern()
        literals = 0
        for at, (code, value) in enumerate(items):
            literals += _count_literals(code, value)
            has_literal = literals >= MIN_LITERAL
            if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
                low, high = int(value[0]), int(value[1])
                can_cut = has_literal and written.low >= MIN_LITERAL
                if at == len(items) - 1 or high - low > _MAX_GAP or (can_cut and low >= _ENOUGH_WIDTH):
                    count = min(low, max(_ENOUGH_WIDTH - written.low, _MIN_CUT_REPEAT)) if can_cut else low
                    self._add_repeat(written, value[2], count, count)
                    break
            self._add_item(written, code, value)
            if has_literal and written.low >= _ENOUGH_WIDTH:
                break
        return written

    def write_alternatives(self, items: list[Any], shared: int = 0) -> list[str]:
        """Return patterns that together match what a sequence does, one for each of its first alternatives.

        Each pattern has the rest of the sequence too. Groups, and up to _MAX_SHARED_LITERALS literal
        characters, may come before the alternation; `shared` counts the literal characters before `items`
        that were passed already. Without an alternation, or if an alternative can match fewer than _MIN_WIDTH
        characters, the list has one pattern, all of the sequence; for an empty sequence it is [""].
        """
        if not items:
            return [""]
        (code, value), rest = items[0], items[1:]
        if code == op.LITERAL and shared < _MAX_SHARED_LITERALS:
            return [_write_character(value) + text for text in self.write_alternatives(rest, shared + 1)]
        if code == op.SUBPATTERN:
            after = self.write_sequence(rest).text
            inner = self.write_alternatives(list(value[3]), shared)
            return [f"(?{_write_scope(value)}:{text}){after}" for text in inner]
        if code == op.BRANCH and min(self.write_sequence(branch).low for branch in value[1]) >= _MIN_WIDTH:
            return [text for branch in value[1] for text in self.write_alternatives([*branch, *rest], shared)]
        return [self.write_sequence(items).text]

    def _add_repeat(self, written: _WrittenPattern, body_items: Any, low: int, high: int) -> None:
        """Append `low` to `high` repetitions of a sequence to `written`; nothing if `high` is 0.

        If the two differ by more than _MAX_COUNTED, the repetition is written without an upper bound.
        """
        body = self.write_sequence(body_items)
        if high == 0:
            return
        bounds = f"{{{low}}}" if low == high else f"{{{low},{'' if high - low > _MAX_COUNTED else high}}}"
        written.add(f"(?:{body.text}){bounds}", body.low * low, min(body.high * high, MAX_WIDTH))

    def _add_item(self, written: _WrittenPattern, code: Any, value: Any) -> None:
        """Append one item of a syntax tree to `written`; raise PatternError if the item is not supported.

        Anchors are written as in _ANCHORS; a word boundary is left out.
        """
        if (character := _write_single(code, value)) is not None:
            written.add(character, 1, 1)
        elif code == op.AT:
            if value not in _ANCHORS:
                raise PatternError("has an anchor that is not supported")
            text, width = _ANCHORS[value]
            written.add(text, 0, width)
        elif code in {op.MAX_REPEAT, op.MIN_REPEAT}:
            self._add_repeat(written, value[2], int(value[0]), int(value[1]))
        elif code == op.SUBPATTERN:
            body = self.write_sequence(value[3])
            written.add(f"(?{_write_scope(value)}:{body.text})", body.low, body.high)
        elif code == op.BRANCH:
            bodies = [self.write_sequence(branch) for branch in value[1]]
            text = "|".join(body.text for body in bodies)
            written.add(f"(?:{text})", min(body.low for body in bodies), max(body.high for body in bodies))
        else:
            raise PatternError(f"uses {str(code).lower()}, which is not supported")


def _write_single(code: Any, value: Any) -> str | None:
    """Return the pattern of an item that matches exactly one character, or None for any other item."""
    if code == op.LITERAL:
        return _write_character(value)
    if code == op.NOT_LITERAL:
        return f"[^{_write_character(value)}]"
    if code == op.ANY:
        return "."
    return _write_class(value) if code == op.IN else None


def _write_scope(group: Any) -> str:
    """Return the flags of a group as they are written after `(?`, such as `i-s`; "" if it has none."""
    _, on, off, _ = group
    return _write_flags(on) + (f"-{_write_flags(off)}" if off else "")


def _write_flags(flags: int) -> str:
    """Return the letters of the flags of Python's `re` that are set: `i`, `s` and `m`."""
    letters = {re.IGNORECASE: "i", re.DOTALL: "s", re.MULTILINE: "m"}
    return "".join(letter for flag, letter in letters.items() if flags & flag)


def _write_character(code: int) -> str:
    r"""Return a pattern for one character: an ASCII letter or digit as it is, any other as `\xNN`.

    Raise PatternError if its code is above 255.
    """
    if code > 255:
        raise PatternError("has a character above \\xff; write its UTF-8 bytes, such as \\xc3\\xa9")
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\x{code:02x}"


def _write_class(items: list[Any]) -> str:
    """Return a pattern for a character class, given as the items of the syntax tree."""
    written = ""
    for code, value in items:
        if code == op.NEGATE:
            written += "^"
        elif code == op.LITERAL:
            written += _write_character(value)
        elif code == op.RANGE:
            written += f"{_write_character(value[0])}-{_write_character(value[1])}"
        else:
            written += CATEGORY_CLASSES[value]
    return f"[{written}]"
