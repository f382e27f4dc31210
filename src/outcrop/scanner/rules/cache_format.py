"""Rules as they are kept: a line of JSON each, which is read when the rule is needed. A scan needs few of them."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any
from zlib import crc32

import orjson

from outcrop.domain.finding import Confidence
from outcrop.scanner.rules.allowlist import Allowed
from outcrop.scanner.rules.model import Form, Impact, Part, Rule, Strength


class Rules(Sequence[Rule]):
    """Rules by number and by id, and where the forms of each trigger are."""

    __slots__ = ("_lines", "_made", "ids", "triggers", "widest")

    def __init__(
        self, ids: dict[str, int], triggers: list[list[tuple[int, int]]], widest: int, lines: list[bytes]
    ) -> None:
        self.ids = ids
        self.triggers = triggers  # for each, the numbers of rules and of their forms
        self.widest = widest  # characters that a trigger can have where what it leads to is found
        self._lines = lines
        self._made: dict[int, Rule] = {}

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> "Rules":
        """Give rules that are all there."""
        ids = {rule.id: number for number, rule in enumerate(rules)}
        widest = max((form.widest for rule in rules for form in rule.forms), default=0)
        found = cls(ids, list(by_trigger(rules).values()), widest, [b""] * len(rules))
        found._made = dict(enumerate(rules))
        return found

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> Rule:  # type: ignore[override]  # nobody asks for a stretch of them
        rule = self._made.get(number)
        if rule is None:
            rule = self._made[number] = _rule(orjson.loads(self._lines[number]))
        return rule

    def __iter__(self) -> Iterator[Rule]:
        return map(self.__getitem__, range(len(self._lines)))

    def named(self, name: str) -> Rule | None:
        """Give the rule of this id, where there is one."""
        number = self.ids.get(name)
        return None if number is None else self[number]


def by_trigger(rules: Sequence[Rule]) -> dict[str, list[tuple[int, int]]]:
    """Group forms that begin alike, so that the first pass looks for each beginning once."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, rule in enumerate(rules):
        for at, form in enumerate(rule.forms):
            found.setdefault(form.trigger, []).append((number, at))
    return found


def to_lines(rules: Rules, notes: Sequence[str]) -> bytes:
    """Write rules without their proof, which no scan needs and which is most of them."""
    said = {
        "ids": [rule.id for rule in rules],
        "triggers": rules.triggers,
        "widest": rules.widest,
        "notes": notes,
    }
    lines = b"\n".join(orjson.dumps(row, default=list) for row in (said, *(rule.unproved for rule in rules)))
    return _sum(lines) + b"\n" + lines


def from_lines(content: bytes) -> tuple[Rules, list[str]]:
    """Read rules again; ValueError where they are not as they were written."""
    written, _, rest = content.partition(b"\n")
    if written != _sum(rest):
        raise ValueError("rules are damaged")
    said, *lines = rest.split(b"\n")
    head = orjson.loads(said)
    return Rules(
        {name: number for number, name in enumerate(head["ids"])}, head["triggers"], head["widest"], lines
    ), head["notes"]


def _sum(content: bytes) -> bytes:
    return b"%08x" % crc32(content)


def _rule(row: list[Any]) -> Rule:
    """Make a rule from its row: what JSON has as a list is a tuple, and the word of an enumeration is its member."""
    for at, change in _OF_RULE:
        row[at] = change(row[at])
    return Rule._make(row)


def _form(row: list[Any]) -> Form:
    for at, change in _OF_FORM:
        row[at] = change(row[at])
    return Form._make(row)


def _member(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    return {one.value: one for one in kind}.__getitem__


_OF_FORM = [
    (Form._fields.index(name), change)
    for name, change in (
        ("strength", _member(Strength)),
        ("confidence", _member(Confidence)),
        ("keywords", tuple),
        ("literals", tuple),
        ("begins", tuple),
    )
]
_OF_RULE = [
    (Rule._fields.index(name), change)
    for name, change in (
        ("impact", _member(Impact)),
        ("forms", lambda rows: tuple(map(_form, rows))),
        ("parts", lambda rows: tuple(map(Part._make, rows))),
        ("paths", tuple),
        ("allowed", lambda rows: tuple(map(Allowed._make, rows))),
        ("examples", tuple),
        ("counterexamples", tuple),
    )
]
