"""Compare Outcrop with another scanner: what both report, what only one does, and what readers say of it."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.accuracy.agreement import OtherReport, group_places, is_reported
from bench.accuracy.estimates import Share, estimate_share, weigh
from bench.accuracy.figures import DEFAULT_CONFIDENCES
from bench.accuracy.labels import Key, Label, by_key
from bench.accuracy.sample import stratum_of
from bench.accuracy.scans import Reported


@dataclass(frozen=True)
class AgreementRow:
    """Findings in the files that both scanners scanned, and the labels of those that were read."""

    scanner: str
    files: str  # "all", or how many
    reported_by: str
    findings: int
    leak: int
    example: int
    false: int
    not_false: Share | None  # estimated


def compare(
    scanner: str, reports: Sequence[OtherReport], reported: Sequence[Reported], labels: Iterable[Label]
) -> list[AgreementRow]:
    """Return what both report, what only Outcrop does, and what only the other scanner does.

    What both report is counted as Outcrop's findings. Outcrop's findings of low confidence have a row if the
    other scanner reports them too.
    """
    scanned = {report.repo: report.scanned for report in reports}
    ours = [found for found in reported if is_scanned(found, scanned)]
    theirs = [found for report in reports for found in report.reported]
    at_low, back = group_places(ours), group_places(theirs)
    groups: dict[str, list[Reported]] = {
        "both": [],
        "both, Outcrop at low": [],
        "only Outcrop": [],
        f"only {scanner}": [found for found in theirs if not is_reported(found, at_low)],
    }
    for found in ours:
        shared = is_reported(found, back)
        if found.confidence in DEFAULT_CONFIDENCES:
            groups["both" if shared else "only Outcrop"].append(found)
        elif shared:
            groups["both, Outcrop at low"].append(found)
    files = "all" if None in scanned.values() else f"{sum(len(paths or ()) for paths in scanned.values()):,}"
    known = by_key(labels)
    return [_row(scanner, files, name, findings, known) for name, findings in groups.items()]


def is_scanned(found: Reported, scanned: Mapping[str, frozenset[str] | None]) -> bool:
    """Whether another scanner scanned the file of a finding."""
    paths = scanned.get(found.repo, frozenset())
    return paths is None or found.path in paths


def _row(
    scanner: str, files: str, group: str, findings: Sequence[Reported], known: Mapping[Key, Label]
) -> AgreementRow:
    strata: dict[Key, tuple[Hashable, ...]] = {
        found.key: (stratum_of(found), (found.rule, found.repo), found.rule, None) for found in findings
    }
    weights, _ = weigh(strata, known.keys() & strata.keys())
    count = Counter(known[key].label for key in weights)
    return AgreementRow(
        scanner,
        files,
        group,
        len(findings),
        count["leak"],
        count["example"],
        count["false"],
        estimate_share((weight, known[key].label != "false") for key, weight in weights.items()),
    )
