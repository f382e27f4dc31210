"""Rules as they are kept: a line of JSON each, which is read when the rule is needed. A scan needs few of them."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any
from zlib import crc32

import orjson

from outcrop.domain.finding import Confidence
from outcrop.scanner.rules.allowlist import Allowlist
from outcrop.scanner.rules.model import (
    CompanionSpec,
    CredentialForm,
    FormPattern,
    FormTrigger,
    Impact,
    Rule,
    SearchWindow,
    Strength,
    ValueChecks,
    ValueLayout,
)


class LazyRules(Sequence[Rule]):
    """Rules by number and by id, and where the forms of each trigger are."""

    __slots__ = ("_lines", "_made", "ids", "max_trigger_width", "triggers")

    def __init__(
        self,
        ids: dict[str, int],
        triggers: list[list[tuple[int, int]]],
        max_trigger_width: int,
        lines: list[bytes],
    ) -> None:
        self.ids = ids
        self.triggers = triggers  # for each, the numbers of rules and of their forms
        self.max_trigger_width = max_trigger_width  # of a trigger match that can lead to a match
        self._lines = lines
        self._made: dict[int, Rule] = {}

    @classmethod
    def from_rules(cls, rules: Sequence[Rule]) -> "LazyRules":
        """Give rules that are all there."""
        ids = {rule.id: number for number, rule in enumerate(rules)}
        max_trigger_width = max((form.max_trigger_width for rule in rules for form in rule.forms), default=0)
        found = cls(ids, list(group_by_trigger(rules).values()), max_trigger_width, [b""] * len(rules))
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

    def get(self, name: str) -> Rule | None:
        """Give the rule of this id, where there is one."""
        number = self.ids.get(name)
        return None if number is None else self[number]


def group_by_trigger(rules: Sequence[Rule]) -> dict[str, list[tuple[int, int]]]:
    """Group forms that begin alike, so that the first pass looks for each beginning once."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, rule in enumerate(rules):
        for at, form in enumerate(rule.forms):
            found.setdefault(form.trigger.pattern, []).append((number, at))
    return found


def serialize_rules(rules: LazyRules, notes: Sequence[str]) -> bytes:
    """Write rules without their proof, which no scan needs and which is most of them."""
    said = {
        "ids": [rule.id for rule in rules],
        "triggers": rules.triggers,
        "max_trigger_width": rules.max_trigger_width,
        "notes": notes,
    }
    lines = b"\n".join(
        orjson.dumps(row, default=list) for row in (said, *(rule.without_examples() for rule in rules))
    )
    return _sum(lines) + b"\n" + lines


def deserialize_rules(content: bytes) -> tuple[LazyRules, list[str]]:
    """Read rules again; ValueError where they are not as they were written."""
    written, _, rest = content.partition(b"\n")
    if written != _sum(rest):
        raise ValueError("rules are damaged")
    said, *lines = rest.split(b"\n")
    head = orjson.loads(said)
    return LazyRules(
        {name: number for number, name in enumerate(head["ids"])},
        head["triggers"],
        head["max_trigger_width"],
        lines,
    ), head["notes"]


def _sum(content: bytes) -> bytes:
    return b"%08x" % crc32(content)


def _rule(row: list[Any]) -> Rule:
    """Return the rule that was written as this row: JSON has lists for tuples and strings for enumeration members."""
    for index, convert in _RULE_FIELDS:
        row[index] = convert(row[index])
    return Rule._make(row)


def _form(row: list[Any]) -> CredentialForm:
    for index, convert in _FORM_FIELDS:
        row[index] = convert(row[index])
    return CredentialForm._make(row)


def _pattern(row: list[Any]) -> FormPattern:
    regex, longest, exact_up_to, literals, value_at = row
    return FormPattern(regex, longest, exact_up_to, tuple(literals), value_at)


def _trigger(row: list[Any]) -> FormTrigger:
    pattern, min_width, max_width, ends_match, after_value, keywords = row
    return FormTrigger(pattern, min_width, max_width, ends_match, after_value, tuple(keywords))


def _layout(row: list[Any] | None) -> ValueLayout | None:
    if row is None:
        return None
    min_width, max_width, prefixes, joining = row
    return ValueLayout(min_width, max_width, tuple(prefixes), joining)


def _member(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    return {member.value: member for member in kind}.__getitem__


_FORM_FIELDS = [
    (CredentialForm._fields.index(name), convert)
    for name, convert in (
        ("pattern", _pattern),
        ("trigger", _trigger),
        ("window", SearchWindow._make),
        ("checks", ValueChecks._make),
        ("strength", _member(Strength)),
        ("confidence", _member(Confidence)),
        ("layout", _layout),
    )
]
_RULE_FIELDS = [
    (Rule._fields.index(name), convert)
    for name, convert in (
        ("impact", _member(Impact)),
        ("forms", lambda rows: tuple(map(_form, rows))),
        ("companions", lambda rows: tuple(map(CompanionSpec._make, rows))),
        ("paths", tuple),
        ("allowlists", lambda rows: tuple(map(Allowlist._make, rows))),
        ("examples", tuple),
        ("counterexamples", tuple),
    )
]
_WRITTEN = (
    Rule,
    CredentialForm,
    FormPattern,
    FormTrigger,
    SearchWindow,
    ValueChecks,
    ValueLayout,
    CompanionSpec,
    Allowlist,
)
# Part of the cache key: the fields are written by position, so a file with other fields must not be read.
FORMAT = " ".join(f"{kind.__name__}{kind._fields}" for kind in _WRITTEN)
