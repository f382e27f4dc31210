"""Write and read the cache file of compiled rules: a checksum, a header, and one line of JSON per rule.

A rule is parsed when it is first needed (`LazyRules`), since a scan needs few of them.
"""

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

FormNumber = tuple[int, int]  # (number of the rule, index in its forms)


class LazyRules(Sequence[Rule]):
    """Rules by number and by id; a rule from the cache is parsed when it is first used."""

    __slots__ = ("_lines", "_parsed", "ids", "max_trigger_width", "triggers")

    def __init__(
        self,
        ids: dict[str, int],
        triggers: list[list[FormNumber]],
        max_trigger_width: int,
        lines: list[bytes],
    ) -> None:
        self.ids = ids  # id of a rule -> its number
        self.triggers = triggers  # by the number of a trigger: the forms that have it
        self.max_trigger_width = max_trigger_width  # characters of a trigger match that can lead to a match
        self._lines = lines
        self._parsed: dict[int, Rule] = {}

    @classmethod
    def from_rules(cls, rules: Sequence[Rule]) -> "LazyRules":
        """Return a container of rules that are parsed already."""
        ids = {rule.id: number for number, rule in enumerate(rules)}
        max_trigger_width = max((form.max_trigger_width for rule in rules for form in rule.forms), default=0)
        lazy = cls(ids, list(group_by_trigger(rules).values()), max_trigger_width, [b""] * len(rules))
        lazy._parsed = dict(enumerate(rules))
        return lazy

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, number: int) -> Rule:  # type: ignore[override]  # there are no slices
        """Return the rule with this number; it is parsed at the first use and then kept."""
        rule = self._parsed.get(number)
        if rule is None:
            rule = self._parsed[number] = _parse_rule(orjson.loads(self._lines[number]))
        return rule

    def __iter__(self) -> Iterator[Rule]:
        return map(self.__getitem__, range(len(self._lines)))

    def get(self, rule_id: str) -> Rule | None:
        """Return the rule with this id; None if there is none."""
        number = self.ids.get(rule_id)
        return None if number is None else self[number]


def group_by_trigger(rules: Sequence[Rule]) -> dict[str, list[FormNumber]]:
    """Return, by trigger pattern, the forms that have it, as rule number and form index.

    Several forms can have the same pattern. The order of the patterns is that of the trigger numbers.
    """
    groups: dict[str, list[FormNumber]] = {}
    for number, rule in enumerate(rules):
        for index, form in enumerate(rule.forms):
            groups.setdefault(form.trigger.pattern, []).append((number, index))
    return groups


def serialize_rules(rules: LazyRules, notes: Sequence[str]) -> bytes:
    """Return the content of the cache file for rules and for the notes of a gitleaks configuration.

    The examples of the rules are left out.
    """
    header = {
        "ids": [rule.id for rule in rules],
        "triggers": rules.triggers,
        "max_trigger_width": rules.max_trigger_width,
        "notes": notes,
    }
    rows = (header, *(rule.without_examples() for rule in rules))
    lines = b"\n".join(orjson.dumps(row, default=list) for row in rows)
    return _checksum(lines) + b"\n" + lines


def deserialize_rules(content: bytes) -> tuple[LazyRules, list[str]]:
    """Return the rules and notes of a cache file; raise ValueError if its checksum is wrong."""
    checksum, _, lines = content.partition(b"\n")
    if checksum != _checksum(lines):
        raise ValueError("the cached rules are damaged")
    header_line, *rule_lines = lines.split(b"\n")
    header = orjson.loads(header_line)
    ids = {rule_id: number for number, rule_id in enumerate(header["ids"])}
    rules = LazyRules(ids, header["triggers"], header["max_trigger_width"], rule_lines)
    return rules, header["notes"]


def _checksum(content: bytes) -> bytes:
    """Return the CRC-32 of the content in hexadecimal digits."""
    return b"%08x" % crc32(content)


def _parse_rule(row: list[Any]) -> Rule:
    """Return the rule of a parsed line.

    `row` has lists for tuples and strings for enum members; its elements are replaced.
    """
    for index, convert in _RULE_CONVERSIONS:
        row[index] = convert(row[index])
    return Rule._make(row)


def _parse_form(row: list[Any]) -> CredentialForm:
    """Return the form of a parsed line; the elements of `row` are replaced."""
    for index, convert in _FORM_CONVERSIONS:
        row[index] = convert(row[index])
    return CredentialForm._make(row)


def _parse_pattern(row: list[Any]) -> FormPattern:
    """Return the pattern of a parsed line."""
    regex, longest, exact_up_to, literals, value_at = row
    return FormPattern(regex, longest, exact_up_to, tuple(literals), value_at)


def _parse_trigger(row: list[Any]) -> FormTrigger:
    """Return the trigger of a parsed line."""
    pattern, min_width, max_width, ends_match, after_value, keywords = row
    return FormTrigger(pattern, min_width, max_width, ends_match, after_value, tuple(keywords))


def _parse_layout(row: list[Any] | None) -> ValueLayout | None:
    """Return the layout of a parsed line, or None if the form has none."""
    if row is None:
        return None
    min_width, max_width, prefixes, joining = row
    return ValueLayout(min_width, max_width, tuple(prefixes), joining)


def _parse_allowlist(row: list[Any]) -> Allowlist:
    """Return the allowlist of a parsed line."""
    needs_all, path_regex, commits, regex, regex_target, stopwords = row
    return Allowlist(needs_all, path_regex, tuple(commits), regex, regex_target, tuple(stopwords))


def _member_of(kind: type[StrEnum]) -> Callable[[str], StrEnum]:
    """Return a function from the value of a member of `kind` to the member.

    The function raises KeyError for any other text.
    """
    return {member.value: member for member in kind}.__getitem__


# (index of a field, function that converts its parsed JSON); fields that are not listed are right as they
# are.
_FORM_CONVERSIONS = [
    (CredentialForm._fields.index(name), convert)
    for name, convert in (
        ("pattern", _parse_pattern),
        ("trigger", _parse_trigger),
        ("window", SearchWindow._make),
        ("checks", ValueChecks._make),
        ("strength", _member_of(Strength)),
        ("confidence", _member_of(Confidence)),
        ("layout", _parse_layout),
    )
]
_RULE_CONVERSIONS = [
    (Rule._fields.index(name), convert)
    for name, convert in (
        ("impact", _member_of(Impact)),
        ("forms", lambda rows: tuple(map(_parse_form, rows))),
        ("companions", lambda rows: tuple(map(CompanionSpec._make, rows))),
        ("paths", tuple),
        ("allowlists", lambda rows: tuple(map(_parse_allowlist, rows))),
        ("examples", tuple),
        ("counterexamples", tuple),
    )
]
_SERIALIZED = (
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
# Part of the cache key: fields are written by position, so a file with other fields must never be read.
FORMAT = " ".join(f"{kind.__name__}{kind._fields}" for kind in _SERIALIZED)
