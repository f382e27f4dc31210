"""Write random texts that match the regular expressions of forms."""

import random
import re
from functools import cache
from itertools import accumulate
from re import _constants as op
from typing import Any

from outcrop.scanner.engine.ruleset import RuleSet
from outcrop.scanner.engine.triggers import find_trigger_matches
from outcrop.scanner.patterns import regex_ast
from outcrop.scanner.patterns.prefilter import _write_class
from outcrop.scanner.rules.model import CredentialForm

SURROUNDINGS = b"abzAZ09_-+/=.,:;\"'`<>(){}[]\\ \t\r\n\x0b\x00\x80\xff"


IGNORE_CASE, DOT_ALL = int(re.IGNORECASE), int(re.DOTALL)  # operators of enum members are slow


@cache
def class_members(characters: str) -> tuple[list[int], list[int]]:
    """Return the bytes of a character class, and weights with which nine of ten are printable."""
    found = [byte for byte in range(256) if re.match(characters.encode("latin-1"), bytes([byte]), re.DOTALL)]
    printable = [byte for byte in found if 32 < byte < 127]
    weights = [1 + (9 * len(found) // len(printable) if 32 < byte < 127 else 0) for byte in found]
    return found, list(accumulate(weights))


parse_cached = cache(regex_ast.parse)


class MatchWriter:
    """Writes random texts from a syntax tree. RE2 decides whether a text is a match: some anchors fail."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._classes: dict[int, tuple[Any, str]] = {}  # id(class) -> (class, its text)
        self.at_start = False
        self.at_end = False

    def write(self, tree: Any, flags: int) -> bytes:
        """Return a text for a sequence."""
        return b"".join([self._write_item(code, value, flags) for code, value in tree])

    def _write_item(self, code: Any, value: Any, flags: int) -> bytes:
        if code == op.LITERAL:
            return self._change_case(value, flags)
        if code == op.NOT_LITERAL:
            return self._pick(f"[^\\x{value:02x}]", 1)
        if code == op.ANY:
            return self._pick(r"[\x00-\xff]" if flags & DOT_ALL else r"[^\n]", 1)
        if code == op.IN:
            return self._write_class_bytes(value, flags, 1)
        if code == op.BRANCH:
            return self.write(self.rng.choice(value[1]), flags)
        if code == op.SUBPATTERN:
            _, on, off, inner = value
            return self.write(inner, (flags | on) & ~off)
        if code in {op.MAX_REPEAT, op.MIN_REPEAT}:
            low, high, inner = int(value[0]), int(value[1]), value[2]
            counts = [low, low, min(high, low + 1), min(high, low + self.rng.randint(0, 150))]
            count = self.rng.choice(counts)
            if len(inner) == 1 and inner[0][0] == op.IN:
                return self._write_class_bytes(inner[0][1], flags, count)
            return b"".join([self.write(inner, flags) for _ in range(count)])
        assert code == op.AT, code
        if value in {op.AT_BEGINNING, op.AT_BEGINNING_STRING}:
            self.at_start = True
        if value in {op.AT_END, op.AT_END_STRING}:
            self.at_end = True
        return b""

    def _write_class_bytes(self, members: Any, flags: int, count: int) -> bytes:
        """Return `count` bytes of a character class of the syntax tree."""
        if id(members) not in self._classes:
            self._classes[id(members)] = members, _write_class(members)
        picked = self._pick(self._classes[id(members)][1], count)
        if not flags & IGNORE_CASE:
            return picked
        return b"".join([self._change_case(byte, flags) for byte in picked])

    def _pick(self, characters: str, count: int) -> bytes:
        """Return `count` bytes of a class, mostly printable ones."""
        members, weights = class_members(characters)
        return bytes(self.rng.choices(members, cum_weights=weights, k=count))

    def _change_case(self, code: int, flags: int) -> bytes:
        """Return a byte, often in the other case if the flags ignore case."""
        char = bytes([code])
        if flags & IGNORE_CASE and code < 128 and self.rng.random() < 0.5:
            return char.swapcase()
        return char

    def write_surroundings(self) -> bytes:
        """Return a text to put before or after a match."""
        return bytes(self.rng.choices(SURROUNDINGS, k=self.rng.choice([0, 1, 2, 30, 700])))


def write_match(pattern: str, rng: random.Random) -> bytes:
    """Return a text with a match of a pattern in random surroundings."""
    tree = parse_cached(pattern)
    writer = MatchWriter(rng)
    match = writer.write(tree, tree.state.flags)
    before = b"" if writer.at_start else writer.write_surroundings()
    return before + match + (b"" if writer.at_end else writer.write_surroundings())


def forms_by_name(rules: RuleSet) -> dict[str, CredentialForm]:
    """Return all forms, by the id of the rule and their index."""
    return {f"{rule.id}-{index}": form for rule in rules.rules for index, form in enumerate(rule.forms)}


@cache
def trigger_numbers(rules: RuleSet) -> dict[str, int]:
    """Return the number of the trigger of each form, by the regular expression of the form."""
    return {
        form.pattern.regex: number for number in range(rules.trigger_count) for _, form in rules.forms[number]
    }


def trigger_ends(rules: RuleSet, form: CredentialForm, data: bytes) -> list[int]:
    """Return the sorted offsets at which the trigger of a form ends in a text."""
    number = trigger_numbers(rules)[form.pattern.regex]
    return sorted(end for end, found in find_trigger_matches(rules, data) if found == number)
