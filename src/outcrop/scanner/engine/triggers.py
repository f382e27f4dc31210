"""Search texts for the triggers of all rules with one Hyperscan database."""

from collections import defaultdict
from collections.abc import Iterable

from outcrop.scanner.engine.ruleset import RuleSet

TriggerMatch = tuple[int, int]  # (end offset, trigger number)
EndsByTrigger = dict[int, list[int]]  # the same of one text by the trigger's number, in order


def scan_joined_texts(ruleset: RuleSet, data: bytes | memoryview) -> list[TriggerMatch]:
    """Look for every trigger at once in many texts, with a line break between them; give what was seen in order."""
    seen: list[TriggerMatch] = []
    add = seen.append

    def matched(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        add((end, number))

    ruleset.database.scan(data, match_event_handler=matched, scratch=ruleset.scratch)  # type: ignore[type-var]  # takes any buffer
    seen.sort()
    return seen


def scan_triggers(ruleset: RuleSet, data: bytes | memoryview, offset: int = 0) -> EndsByTrigger:
    """Look for every trigger at once in one text, of which these data stand at an offset."""
    ends: EndsByTrigger = defaultdict(list)

    def matched(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
        ends[number].append(end + offset)

    ruleset.database.scan(data, match_event_handler=matched, scratch=ruleset.scratch)  # type: ignore[type-var]
    for mine in ends.values():
        mine.sort()
    return ends


def group_by_trigger(seen: Iterable[tuple[int, int]]) -> EndsByTrigger:
    """Give by the trigger's number what was seen in one of many texts."""
    ends: EndsByTrigger = defaultdict(list)
    for end, number in seen:
        ends[number].append(end)
    return ends
