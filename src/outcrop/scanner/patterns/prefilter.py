"""What the first pass looks for: a pattern that matches wherever the full one does, from the same start, and seldom elsewhere."""

import re
from dataclasses import dataclass
from itertools import takewhile
from re import _constants as op  # type: ignore[attr-defined]
from typing import Any

from outcrop.scanner.patterns.regex_ast import (
    CATEGORY_CLASSES,
    MAX_WIDTH,
    MIN_LITERAL,
    PatternError,
    child_sequences,
    parse,
)

_WIDE_GAP = 128  # a repetition that varies by more than this ends a trigger
_ENOUGH = 12  # a trigger that begins with a literal needs no more positions than this
_WHOLE = 450  # a pattern up to this wide is its own trigger: what only begins like it is refused where it costs least
_WHOLE_WITH_BEGINNING = 1_000  # as wide may be one that begins with a literal, which is cheap to look for
_MANY_TIMES = 200  # a repetition that varies by more is looked for without its upper bound, which the first pass would have to count to
_MOST_ALTERNATIVES = 100
# The first pass reads many texts in one go with a line break between them: there a text begins and ends as well.
_ANCHORS = {
    op.AT_BEGINNING: (r"(?:^|\n)", 1),
    op.AT_BEGINNING_STRING: (r"(?:^|\n)", 1),
    op.AT_END: (r"(?:$|\n)", 1),
    op.AT_END_STRING: (r"(?:$|\n)", 1),
    # Dear in the first pass, and the second one checks them.
    op.AT_BOUNDARY: ("", 0),
    op.AT_NON_BOUNDARY: ("", 0),
}


@dataclass(frozen=True, slots=True)
class PrefilterTrigger:
    """A pattern for the first pass: wherever the full pattern matches, this one matches from the same start."""

    pattern: str
    min_width: int
    max_width: int
    whole: bool = False  # it ends where the full pattern ends


def make_trigger(pattern: str, *, whole: bool = True) -> PrefilterTrigger:
    """Give what the first pass looks for: the pattern itself where it is narrow and ends in something, else its shortest useful beginning.

    A beginning is enough of a pattern to be rare, without an open end that would match at every further byte.
    """
    tree = parse(pattern)
    emitter = _Emitter(tree.state.flags)
    items = _flat(list(tree))
    widest, wider = _WHOLE_WITH_BEGINNING, 0
    if not _begins_with_literal(items):
        widest = _WHOLE
        items, wider = _without_pair(items)
    full = emitter.sequence(items)
    if whole and full.low >= 2 and full.high <= widest and not _is_open(items):
        return PrefilterTrigger(emitter.prefix + full.text, full.low, full.high + wider, whole=True)
    emitted = emitter.beginning(items)
    if emitted.low < 2:
        raise PatternError("matches fewer than two characters")
    return PrefilterTrigger(emitted.text, emitted.low, min(emitted.high + wider, MAX_WIDTH))


def make_verbatim_trigger(pattern: str) -> PrefilterTrigger:
    """Give a trigger that a rule has written itself, all of it."""
    tree = parse(pattern)
    emitter = _Emitter(tree.state.flags)
    full = emitter.sequence(list(tree))
    if full.low < 2:
        raise PatternError("matches fewer than two characters")
    return PrefilterTrigger(emitter.prefix + full.text, full.low, min(full.high, MAX_WIDTH))


def _without_pair(items: list[Any]) -> tuple[list[Any], int]:
    """Leave out the backslash where a pattern may begin behind an escaped letter, and tell how much wider it is than what is left.

    Where nothing else is rare the engine looks for the pair, and on ARM misses it across two of its vectors.
    """
    if not items or items[0][0] != op.BRANCH:
        return items, 0
    before, branches = items[0][1]
    single = [
        branch[1:] if len(branch) == 2 and branch[0] == (op.LITERAL, ord("\\")) else branch
        for branch in branches
    ]
    return [(op.BRANCH, (before, single)), *items[1:]], int(
        any(len(new) < len(old) for new, old in zip(single, branches, strict=True))
    )


def _is_open(items: list[Any]) -> bool:
    """Tell whether a match may go on after it could have ended, so that it would be seen again at every further byte."""
    code, value = items[-1]
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return bool(value[0] != value[1]) or _is_open(list(value[2]))
    return any(_is_open(list(part)) for part in child_sequences(code, value) if len(part))


def split_alternatives(pattern: str) -> list[str]:
    """Write a trigger as several, one for each of the alternatives that it begins with.

    The engine of the first pass checks several alternatives before a literal at once, and some versions of it (Vectorscan 5.4.12)
    then lose matches. One at a time they are found, and no slower.
    """
    tree = parse(pattern)
    emitter = _Emitter(tree.state.flags)
    found = emitter.spread(list(tree))
    return [emitter.prefix + text for text in found] if len(found) <= _MOST_ALTERNATIVES else [pattern]


def _begins_with_literal(items: list[Any]) -> bool:
    """Tell whether a pattern begins, behind what may stand before it, with enough letters and digits that are always the same."""
    first = items[1:] if items and items[0][0] in {op.BRANCH, op.IN} else items
    letters = takewhile(lambda item: item[0] == op.LITERAL, first)
    return sum(chr(value).isalnum() for _, value in letters) >= MIN_LITERAL


def _literal_length(code: Any, value: Any) -> int:
    """Tell how many literal characters an item adds at least; marks such as :// are too common to count."""
    if code == op.LITERAL:
        return int(chr(value).isalnum())
    if code == op.BRANCH and all(inner == op.LITERAL for branch in value[1] for inner, _ in branch):
        return int(min(len(branch) for branch in value[1]))
    return 0


@dataclass(slots=True)
class _Text:
    text: str = ""
    low: int = 0
    high: int = 0

    def add(self, text: str, low: int, high: int) -> None:
        self.text += text
        self.low += low
        self.high += high


class _Emitter:
    """Writes a tree back as a pattern; case-insensitive parts are written as groups of their own."""

    def __init__(self, flags: int) -> None:
        self.flags = flags

    def beginning(self, items: list[Any]) -> _Text:
        """Write enough of a sequence to be rare; what may be empty at its end tells nothing."""
        while items and self.sequence(items[-1:]).low == 0:
            items = items[:-1]
        out = _Text()
        literal = 0
        for at, (code, value) in enumerate(items):
            tail = at == len(items) - 1
            literal += _literal_length(code, value)
            if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
                low, high, inner = int(value[0]), int(value[1]), value[2]
                cut = literal >= MIN_LITERAL and out.low >= MIN_LITERAL
                if tail or high - low > _WIDE_GAP or (cut and low >= _ENOUGH):
                    take = min(low, max(_ENOUGH - out.low, 4)) if cut else low
                    self._repeat(out, inner, take, take)
                    break
            self._item(out, code, value)
            if literal >= MIN_LITERAL and out.low >= _ENOUGH:
                break
        out.text = self.prefix + out.text
        return out

    @property
    def prefix(self) -> str:
        return ("(?i)" if self.flags & re.IGNORECASE else "") + ("(?s)" if self.flags & re.DOTALL else "")

    def spread(self, items: list[Any], passed: int = 0) -> list[str]:
        """Write a sequence once for each alternative at its beginning, or right after the character or two that they share."""
        if not items:
            return [""]
        (code, value), rest = items[0], items[1:]
        if code == op.LITERAL and passed < 2:
            return [_char(value) + text for text in self.spread(rest, passed + 1)]
        if code == op.SUBPATTERN:
            after = self.sequence(rest).text
            return [f"(?{_scope(value)}:{text}){after}" for text in self.spread(list(value[3]), passed)]
        if code == op.BRANCH and min(self.sequence(branch).low for branch in value[1]) >= 2:
            return [text for branch in value[1] for text in self.spread([*branch, *rest], passed)]
        return [self.sequence(items).text]

    def _repeat(self, out: _Text, inner: Any, low: int, high: int) -> None:
        body = self.sequence(inner)
        if high == 0:
            return
        bounds = f"{{{low}}}" if low == high else f"{{{low},{'' if high - low > _MANY_TIMES else high}}}"
        out.add(f"(?:{body.text}){bounds}", body.low * low, min(body.high * high, MAX_WIDTH))

    def sequence(self, tree: Any) -> _Text:
        out = _Text()
        for code, value in tree:
            self._item(out, code, value)
        return out

    def _item(self, out: _Text, code: Any, value: Any) -> None:
        if (one := _single(code, value)) is not None:
            out.add(one, 1, 1)
        elif code == op.AT:
            if value not in _ANCHORS:
                raise PatternError("has an anchor that is not supported")
            text, high = _ANCHORS[value]
            out.add(text, 0, high)
        elif code in {op.MAX_REPEAT, op.MIN_REPEAT}:
            self._repeat(out, value[2], int(value[0]), int(value[1]))
        elif code == op.SUBPATTERN:
            body = self.sequence(value[3])
            out.add(f"(?{_scope(value)}:{body.text})", body.low, body.high)
        elif code == op.BRANCH:
            bodies = [self.sequence(branch) for branch in value[1]]
            text = "|".join(body.text for body in bodies)
            out.add(f"(?:{text})", min(b.low for b in bodies), max(b.high for b in bodies))
        else:
            raise PatternError(f"uses {str(code).lower()}, which is not supported")


def _single(code: Any, value: Any) -> str | None:
    """Write an item that matches exactly one character."""
    if code == op.LITERAL:
        return _char(value)
    if code == op.NOT_LITERAL:
        return f"[^{_char(value)}]"
    if code == op.ANY:
        return "."
    return _write_class(value) if code == op.IN else None


def _flat(items: list[Any]) -> list[Any]:
    """Open plain groups at the top, so that a cut can fall inside them."""
    out: list[Any] = []
    for code, value in items:
        if code == op.SUBPATTERN and not value[1] and not value[2]:
            out.extend(_flat(list(value[3])))
        else:
            out.append((code, value))
    return out


def _scope(group: Any) -> str:
    """Write the flags of a group."""
    _, on, off, _ = group
    return _flags(on) + (f"-{_flags(off)}" if off else "")


def _flags(flags: int) -> str:
    return (
        ("i" if flags & re.IGNORECASE else "")
        + ("s" if flags & re.DOTALL else "")
        + ("m" if flags & re.MULTILINE else "")
    )


def _char(code: int) -> str:
    if code > 255:
        raise PatternError("has a character beyond one byte; write its UTF-8 bytes as \\x..")
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\x{code:02x}"


def _write_class(items: list[Any]) -> str:
    out = ""
    for code, value in items:
        if code == op.NEGATE:
            out += "^"
        elif code == op.LITERAL:
            out += _char(value)
        elif code == op.RANGE:
            out += f"{_char(value[0])}-{_char(value[1])}"
        else:
            out += CATEGORY_CLASSES[value]
    return f"[{out}]"


def escape_literal(literal: bytes) -> str:
    """Write a literal as a pattern."""
    return "".join(_char(code) for code in literal)
