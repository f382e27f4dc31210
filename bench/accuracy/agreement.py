"""Match the findings of other scanners with those of Outcrop, and draw from what only they report."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.accuracy.sample import in_random_order, share_out
from bench.accuracy.scans import Reported

ONLY_OTHERS = 250  # cards
NO_CONFIDENCE = "-"

Places = Mapping[tuple[str, str], Sequence[tuple[int, str]]]  # repository, path -> line and value


@dataclass(frozen=True)
class OtherReport:
    """What another scanner reports in a repository, each value of each file once."""

    repo: str
    reported: list[Reported]
    scanned: frozenset[str] | None  # paths, None if it is all files


def read_other_report(repo: str, tool: str, report: Path) -> OtherReport:
    """Return the findings of another scanner; a report on some files has a line for each of them."""
    found: dict[tuple[str, str, str], Reported] = {}
    scanned: set[str] = set()
    partial = False
    for entry in map(json.loads, report.read_text("utf-8").splitlines()):
        if "scanned" in entry:
            scanned.add(entry["scanned"])
            partial = True
        elif entry["secret"]:
            rule = f"{tool}:{entry['rule']}"
            place = Reported(
                repo, entry["file_path"], entry["line_number"], rule, NO_CONFIDENCE, entry["secret"]
            )
            found.setdefault(place.key, place)
    return OtherReport(repo, list(found.values()), frozenset(scanned) if partial else None)


def group_places(reported: Iterable[Reported]) -> Places:
    """Return line and value of the findings of each file."""
    places: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for found in reported:
        places[found.repo, found.path].append((found.line, found.value))
    return places


def is_reported(found: Reported, places: Places) -> bool:
    """Whether a finding is also in `places`: the same value, or overlapping values in one line."""
    return any(
        value == found.value or (line == found.line and (value in found.value or found.value in value))
        for line, value in places.get((found.repo, found.path), ())
    )


def draw_only_others(reported: Iterable[Reported], count: int) -> list[Reported]:
    """Return about `count` findings, spread over the rules and then over the repositories of each rule."""
    by_rule: dict[str, dict[str, list[Reported]]] = defaultdict(lambda: defaultdict(list))
    for found in {found.key: found for found in reported}.values():
        by_rule[found.rule][found.repo].append(found)
    shares = share_out(count, {rule: sum(map(len, repos.values())) for rule, repos in by_rule.items()})
    drawn = []
    for rule, share in shares.items():
        parts = share_out(share, {repo: len(found) for repo, found in by_rule[rule].items()})
        for repo, part in parts.items():
            drawn += in_random_order(by_rule[rule][repo])[:part]
    return drawn
