"""Search texts for the triggers of all rules, in one Hyperscan pass."""

from collections import defaultdict
from collections.abc import Iterable

from outcrop.scanner.engine.ruleset import RuleSet

TriggerMatch = tuple[int, int]  # (end offset, trigger number)
EndsByTrigger = dict[int, list[int]]  # trigger number -> sorted end offsets in one text


def scan_triggers(ruleset: RuleSet, data: bytes | memoryview, offset: int = 0) -> EndsByTrigger:
    """Return the sorted end offsets of all trigger matches in `data`, by trigger number.

    `data` begins at `offset` of a larger text; the end offsets count from the beginning of that text.
    """
    ends: EndsByTrigger = defaultdict(list)

    def add_end(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        """Store the end of one match in `ends`; Hyperscan calls this function for each match."""
        ends[number].append(end + offset)

    scratch = ruleset.thread.scratch
    ruleset.database.scan(data, match_event_handler=add_end, scratch=scratch)  # type: ignore[type-var]  # any buffer
    for offsets in ends.values():
        offsets.sort()
    return ends


def find_trigger_matches(ruleset: RuleSet, data: bytes | memoryview) -> list[TriggerMatch]:
    """Return all trigger matches in `data`, sorted by end offset.

    `data` is many texts joined by line breaks: one call for all of them takes less time than one for each.
    """
    matches: list[TriggerMatch] = []
    add = matches.append

    def add_match(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        """Store the end and the trigger number of one match; Hyperscan calls this function for each match."""
        add((end, number))

    scratch = ruleset.thread.scratch
    ruleset.database.scan(data, match_event_handler=add_match, scratch=scratch)  # type: ignore[type-var]  # any buffer
    matches.sort()
    return matches


def group_matches(matches: Iterable[TriggerMatch]) -> EndsByTrigger:
    """Return the end offsets of `matches`, which are sorted and of one text, by trigger number."""
    ends: EndsByTrigger = defaultdict(list)
    for end, number in matches:
        ends[number].append(end)
    return ends
