"""What a pattern can match, read off its syntax tree: its width, and a shorter pattern that every match begins with.

Python's own parser gives the tree. It is not a documented module, though stable for decades and used by others in the
same way; this is the one file that knows it, and it handles exactly the node types a linear-time engine can match.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import re2  # type: ignore[import-untyped]

WORD = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
UNBOUNDED = 8_192  # how far a repetition without an upper bound is followed
_WIDE_GAP = 128  # a repetition that varies by more than this ends a trigger
_ENOUGH = 12  # a trigger that begins with a literal needs no more positions than this
_LITERAL = 3
_WHOLE = 450  # a pattern up to this wide is its own trigger: what only begins like it is refused where it costs least
_MANY_TIMES = 200  # a repetition that varies by more is looked for without its upper bound, which the first pass would have to count to
_MOST_ALTERNATIVES = 100

_CATEGORIES = {
    op.CATEGORY_DIGIT: r"\d", op.CATEGORY_NOT_DIGIT: r"\D",
    # The second pass does not count a vertical tab as a space, the first would.
    op.CATEGORY_SPACE: r"\t\n\f\r\x20", op.CATEGORY_NOT_SPACE: r"\x00-\x08\x0b\x0e-\x1f\x21-\xff",
    op.CATEGORY_WORD: r"\w", op.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
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


class PatternError(ValueError):
    """A pattern that cannot be matched in linear time, or says nothing."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """A pattern for the first pass: wherever the full pattern matches, this one matches from the same start."""

    pattern: str
    min_width: int
    max_width: int
    whole: bool = False  # it ends where the full pattern ends


@lru_cache(maxsize=256)  # a form's pattern is looked at from several sides, and the tree is only read
def parse(pattern: str) -> Any:
    """Read a pattern of ASCII and escapes; raise PatternError with the reason where no linear-time engine takes it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about signs in a class that Python may read otherwise one day
            tree = parser.parse(pattern, 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatternError(str(error)) from None
    _check(tree)
    return tree


def width(tree: Any) -> tuple[int, int]:
    low, high = tree.getwidth()
    return int(low), min(int(high), UNBOUNDED)


def fixed_width(pattern: str) -> int:
    """Give the width of a pattern whose matches are all as wide and depend on nothing beside them; else 0."""
    tree = parse(pattern)
    low, high = width(tree)
    return low if low == high and not _has_anchor(tree) else 0


def _has_anchor(tree: Any) -> bool:
    return any(code == op.AT or any(map(_has_anchor, _inside(code, value))) for code, value in tree)


def trigger(pattern: str, *, whole: bool = True) -> Trigger:
    """Give what the first pass looks for: the pattern itself where it is narrow and ends in something, else its shortest useful beginning.

    A beginning is enough of a pattern to be rare, without an open end that would match at every further byte.
    """
    tree = parse(pattern)
    emitter = _Emitter(tree.state.flags)
    items = _flat(list(tree))
    full = emitter.sequence(items)
    if whole and full.low >= 2 and full.high <= _WHOLE and not _is_open(items):
        return Trigger(emitter.prefix + full.text, full.low, full.high, whole=True)
    emitted = emitter.beginning(items)
    if emitted.low < 2:
        raise PatternError("matches fewer than two characters")
    return Trigger(emitted.text, emitted.low, min(emitted.high, UNBOUNDED))


def _is_open(items: list[Any]) -> bool:
    """Tell whether a match may go on after it could have ended, so that it would be seen again at every further byte."""
    code, value = items[-1]
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return bool(value[0] != value[1]) or _is_open(list(value[2]))
    return any(_is_open(list(part)) for part in _inside(code, value) if len(part))


def alternatives(pattern: str) -> list[str]:
    """Write a trigger as several, one for each of the alternatives that it begins with.

    The engine of the first pass checks several alternatives before a literal at once, and some versions of it (Vectorscan 5.4.12)
    then lose matches. One at a time they are found, and no slower.
    """
    tree = parse(pattern)
    emitter = _Emitter(tree.state.flags)
    found = emitter.spread(list(tree))
    return [emitter.prefix + text for text in found] if len(found) <= _MOST_ALTERNATIVES else [pattern]


def _literal_length(code: Any, value: Any) -> int:
    """Tell how many literal characters an item adds at least; marks such as :// are too common to count."""
    if code == op.LITERAL:
        return int(chr(value).isalnum())
    if code == op.BRANCH and all(inner == op.LITERAL for branch in value[1] for inner, _ in branch):
        return int(min(len(branch) for branch in value[1]))
    return 0


def literal_prefixes(pattern: str) -> list[bytes]:
    """Give the case-sensitive literals one of which every match begins with; none where there is no such list."""
    return [text for text, _ in _prefixes(list(parse(pattern)))]


def literals(pattern: str) -> list[bytes]:
    """Give the case-sensitive literals that every match has, in their order."""
    tree = parse(pattern)
    if tree.state.flags & re.IGNORECASE:
        return []
    texts = _literals(list(tree))
    return [text for text in b"".join(texts).split(_GAP) if len(text) >= _LITERAL]


_GAP = b"\xff"  # stands for whatever is no literal


def _literals(items: list[Any]) -> Iterator[bytes]:
    for code, value in items:
        if code == op.LITERAL and value != _GAP[0]:
            yield bytes([value])
        elif code == op.SUBPATTERN and not value[1] and not value[2]:
            yield from _literals(list(value[3]))
        elif code != op.AT:
            yield _GAP


def last_characters(pattern: str) -> set[int]:
    """Give the characters a match can end with."""
    return _edge(list(parse(pattern)), last=True)


def first_characters(pattern: str) -> set[int]:
    return _edge(list(parse(pattern)), last=False)


def _check(tree: Any) -> None:
    for code, value in tree:
        if code in {op.ASSERT, op.ASSERT_NOT}:
            raise PatternError("looks ahead or behind, which no linear-time engine can do")
        if code in {op.GROUPREF, op.GROUPREF_EXISTS}:
            raise PatternError("refers back to a group, which no linear-time engine can do")
        if code in {getattr(op, "ATOMIC_GROUP", None), getattr(op, "POSSESSIVE_REPEAT", None)}:
            raise PatternError("has an atomic group or a possessive repetition, which no linear-time engine knows")
        for inner in _inside(code, value):
            _check(inner)


def _inside(code: Any, value: Any) -> list[Any]:
    if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
        return [value[2]]
    if code == op.SUBPATTERN:
        return [value[3]]
    if code == op.BRANCH:
        return list(value[1])
    return []


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
                cut = literal >= _LITERAL and out.low >= _LITERAL
                if tail or high - low > _WIDE_GAP or (cut and low >= _ENOUGH):
                    take = min(low, max(_ENOUGH - out.low, 4)) if cut else low
                    self._repeat(out, inner, take, take)
                    break
            self._item(out, code, value)
            if literal >= _LITERAL and out.low >= _ENOUGH:
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
        out.add(f"(?:{body.text}){bounds}", body.low * low, min(body.high * high, UNBOUNDED))

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
    return _set(value) if code == op.IN else None


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
    return ("i" if flags & re.IGNORECASE else "") + ("s" if flags & re.DOTALL else "") + ("m" if flags & re.MULTILINE else "")


def _char(code: int) -> str:
    if code > 255:
        raise PatternError("has a character beyond one byte; write its UTF-8 bytes as \\x..")
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\x{code:02x}"


def _set(items: list[Any]) -> str:
    out = ""
    for code, value in items:
        if code == op.NEGATE:
            out += "^"
        elif code == op.LITERAL:
            out += _char(value)
        elif code == op.RANGE:
            out += f"{_char(value[0])}-{_char(value[1])}"
        else:
            out += _CATEGORIES[value]
    return f"[{out}]"


def members(items: list[Any]) -> set[int]:
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
            found.update(c for c in range(256) if re.match(f"[{_CATEGORIES[value]}]".encode(), bytes([c])))
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
            found |= members(value)
        elif code in {op.ANY, op.NOT_LITERAL}:
            found |= set(range(256))
        inner = _inside(code, value)
        for part in inner:
            found |= _edge(list(part), last=last)
        optional = any(part.getwidth()[0] == 0 for part in inner) or (code in {op.MAX_REPEAT, op.MIN_REPEAT} and value[0] == 0)
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
        elif code == op.IN and 0 < len(members(value)) <= 4:
            options = [(bytes([c]), True) for c in sorted(members(value))]
        elif code in {op.MAX_REPEAT, op.MIN_REPEAT} and value[0] == value[1] == 1:
            options = _prefixes(list(value[2]))
        if not options or len(options) * len(out) > _MANY:
            options = [(b"", False)]
        out = [(a + b, whole) if open_ else (a, False) for a, open_ in out for b, whole in (options if open_ else [(b"", False)])]
        if not any(open_ for _, open_ in out):
            break
    return [(text, whole) for text, whole in dict.fromkeys(out)]


def escaped(literal: bytes) -> str:
    """Write a literal as a pattern."""
    return "".join(_char(code) for code in literal)


def compile_regex(pattern: str) -> Any:
    """Compile for the second pass, byte for byte."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.max_mem = 64 << 20
    try:
        return re2.compile(pattern.encode("latin-1"), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise PatternError(f"is not taken by the linear-time engine ({error})") from None


_ANYWHERE, _WHOLLY = re2._re2.RE2.Anchor.UNANCHORED, re2._re2.RE2.Anchor.ANCHOR_BOTH  # noqa: SLF001
_NONE = (-1, -1)


def spans(pattern: Any, data: bytes, at: int, stop: int) -> list[tuple[int, int]] | None:
    """Give where the first match between two places stands, and its groups; None where there is none.

    Of the engine's own Python layer only the compiled call is used: the rest costs as much as the match itself.
    """
    found: list[tuple[int, int]] = pattern._regexp.Match(_ANYWHERE, data, at, stop)  # noqa: SLF001
    return None if found[0] == _NONE else found


def matches_wholly(pattern: Any, data: bytes) -> bool:
    return bool(pattern._regexp.Match(_WHOLLY, data, 0, len(data))[0] != _NONE)  # noqa: SLF001
