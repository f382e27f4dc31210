"""Rules with their compiled Hyperscan database, ready to scan."""

from collections.abc import Sequence
from functools import cached_property
from threading import local
from typing import NamedTuple

import hyperscan

from outcrop.scanner.generic.find import LEAD_IN_CHARS
from outcrop.scanner.rules.cache_format import LazyRules
from outcrop.scanner.rules.model import JUDGED_BEFORE, CredentialForm, Rule

BASE64_PHASES = 4  # a literal in base64 ends 0 to 3 characters into a group of four
SAME_LINE = 2  # bytes that a trigger match in a line can end after the line: the line break
MAX_NEAR = 300  # bytes; hardly any form reads further around the end of its trigger match
MAX_HITLESS_RANGES = 2_000


class TriggerReach(NamedTuple):
    """The distance from the end of a trigger match within which a changed character can change its hits."""

    before: int
    after: int
    # None: a change matters within `before` and `after`. Otherwise: a change matters in the trigger's own
    # line, and in a line that ends at most this many bytes before the end of the trigger match.
    line_gap: int | None = None
    judge: str = ""  # of a generic form: if the value's name is in its line, other lines do not matter
    is_far: bool = False  # a change in another line matters, further away than MAX_NEAR


class RuleSet:
    """Rules with their compiled Hyperscan database.

    Hyperscan reports the number of a trigger. The first `count` numbers are triggers of rules; the others
    report text that must be decoded: base64 (one number for each phase), an escape, an escaped quote, an
    archive in base64.
    """

    def __init__(
        self, rules: LazyRules, version: str, database: hyperscan.Database, notes: Sequence[str] = ()
    ) -> None:
        self.rules = rules
        self.notes = notes  # settings of a gitleaks configuration that have no effect
        self.version = version
        self.database = database
        self.trigger_count = len(rules.triggers)
        self.base64_triggers = range(self.trigger_count, self.trigger_count + BASE64_PHASES)
        self.escape_trigger, self.escaped_quote_trigger, self.archive_trigger = decoding_triggers(
            self.trigger_count
        )
        self.forms = _FormsByTrigger(rules)
        self.reach = _ReachByTrigger(self.forms)
        self.thread = _ThreadData(database)
        # Hashes of ranges with escapes in which nothing was found: versions of one file repeat them.
        self.hitless_ranges: set[bytes] = set()

    def remember_hitless(self, range_hash: bytes) -> None:
        """Store the hash of a range in which nothing was found.

        If MAX_HITLESS_RANGES are stored already, drop all of them first.
        """
        if len(self.hitless_ranges) >= MAX_HITLESS_RANGES:
            self.hitless_ranges.clear()
        self.hitless_ranges.add(range_hash)


def decoding_triggers(count: int) -> tuple[int, int, int]:
    """Return the trigger numbers of escapes, escaped quotes and archives, given `count` rule triggers."""
    first = count + BASE64_PHASES
    return first, first + 1, first + 2


class _FormsByTrigger(dict[int, list[tuple[Rule, CredentialForm]]]):
    """Trigger number -> its forms with their rules, which are read when the trigger first matches."""

    def __init__(self, rules: LazyRules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, number: int) -> list[tuple[Rule, CredentialForm]]:
        """Read the rules of a trigger, store its forms and return them, each with its rule."""
        rules = [(self._rules[rule], form) for rule, form in self._rules.triggers[number]]
        self[number] = [(rule, rule.forms[form]) for rule, form in rules]
        return self[number]


class _ReachByTrigger(dict[int, TriggerReach]):
    """Trigger number -> the widest reach of its forms, computed at the first use."""

    def __init__(self, forms: _FormsByTrigger) -> None:
        super().__init__()
        self._forms = forms

    def __missing__(self, number: int) -> TriggerReach:
        """Compute the reach of a trigger, store it and return it."""
        reach = _join_reaches([_form_reach(rule, form) for rule, form in self._forms[number]])
        is_far = reach.line_gap is None and reach.before + reach.after > MAX_NEAR
        self[number] = reach._replace(is_far=is_far)
        return self[number]


class _ThreadData(local):
    """Data of one thread: Hyperscan's scratch memory, which two threads must not use at the same time."""

    def __init__(self, database: hyperscan.Database) -> None:
        super().__init__()
        self._database = database

    @cached_property
    def scratch(self) -> hyperscan.Scratch:
        """Return this thread's scratch memory, which is allocated at the first use."""
        return hyperscan.Scratch(self._database)


def _form_reach(rule: Rule, form: CredentialForm) -> TriggerReach:
    """Return the reach of one form of a rule.

    Required companions extend it, as they decide whether there is a hit.
    """
    companion_distance = max((spec.within for spec in rule.companions if spec.required), default=0)
    before, after = form.reach
    if companion_distance:
        return TriggerReach(before + companion_distance, after + companion_distance)
    if form.judge in LEAD_IN_CHARS:
        return TriggerReach(before, after, JUDGED_BEFORE + max(LEAD_IN_CHARS[form.judge]), form.judge)
    return TriggerReach(before, after, SAME_LINE if form.window.single_line else None)


def _join_reaches(reaches: list[TriggerReach]) -> TriggerReach:
    """Return a reach that covers all of `reaches`.

    It has a `line_gap` only if all of them have one. A `judge` is kept only if `reaches` has one element.
    """
    if len(reaches) == 1:
        return reaches[0]
    line_gaps = [reach.line_gap for reach in reaches if reach.line_gap is not None]
    before, after = max(reach.before for reach in reaches), max(reach.after for reach in reaches)
    return TriggerReach(before, after, max(line_gaps) if len(line_gaps) == len(reaches) else None)
