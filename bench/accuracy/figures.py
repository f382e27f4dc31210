"""Compute the figures of part 2 from what was reported and what readers say: no printing, no files."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.accuracy.estimates import Share, estimate_share, kappa, weigh
from bench.accuracy.labels import Key, Label, Verdict, by_key
from bench.accuracy.sample import stratum_of
from bench.accuracy.scans import CONFIDENCES, Reported

DEFAULT_CONFIDENCES = ("high", "medium")
FAMILIES = ("named", "generic")
_GENERIC_RULES = frozenset({"generic_password"})
_MB = 10**6


@dataclass(frozen=True)
class JudgedFinding:
    """A finding with the label of the first reading, if it has one, and the findings that it represents."""

    found: Reported
    kind: str  # of the repository
    label: Verdict | None
    weight: float

    @property
    def family(self) -> str:
        """Return whether a rule for one kind of credential reports it, or a generic rule."""
        return "generic" if self.found.rule in _GENERIC_RULES else "named"


@dataclass(frozen=True)
class PrecisionRow:
    """Precision of one group of findings."""

    group: str
    findings: int
    read: int
    not_false: Share | None
    leak: Share | None
    not_false_as_read: float | None  # unweighted


@dataclass(frozen=True)
class RuleRow:
    """False alarms of one rule at the default confidence."""

    rule: str
    findings: int
    read: int
    false: float  # estimated


@dataclass(frozen=True)
class RecallRow:
    """Credentials in files that were read in full, and how many are reported."""

    confidence: str
    credentials: int
    found: Share | None
    leaks: int
    leaks_found: Share | None


def judge(
    reported: Sequence[Reported], kinds: Mapping[str, str], labels: Iterable[Label]
) -> tuple[list[JudgedFinding], int]:
    """Return the findings with labels and weights, and the number of findings that no label represents."""
    known = by_key(labels)
    strata = {
        found.key: (stratum_of(found), (found.repo, found.rule, found.confidence)) for found in reported
    }
    weights, uncovered = weigh(strata, known.keys() & strata.keys())
    judged = [
        JudgedFinding(
            found,
            kinds[found.repo],
            known[found.key].label if found.key in known else None,
            weights.get(found.key, 0.0),
        )
        for found in reported
    ]
    return judged, uncovered


def precision_rows(judged: Sequence[JudgedFinding]) -> list[PrecisionRow]:
    """Return the table of precision: in total, by rule family and confidence, and by kind of repository."""
    members: dict[str, list[JudgedFinding]] = {
        "all": [],
        **{f"{family} rules": [] for family in FAMILIES},
        **{f"{family}, {confidence}": [] for family in FAMILIES for confidence in CONFIDENCES},
    }
    for finding in judged:
        for group in groups_of(finding):
            members.setdefault(group, []).append(finding)
    return [precision_row(group, findings) for group, findings in members.items()]


def groups_of(finding: JudgedFinding) -> list[str]:
    """Return the rows of the table that a finding counts in; most count the default confidence only."""
    rows = [f"{finding.family}, {finding.found.confidence}"]
    if finding.found.confidence in DEFAULT_CONFIDENCES:
        rows += ["all", f"{finding.family} rules", finding.kind.replace("_", " ")]
    return rows


def precision_row(group: str, findings: Sequence[JudgedFinding]) -> PrecisionRow:
    """Return the precision of one group."""
    read = [finding for finding in findings if finding.label]
    return PrecisionRow(
        group,
        len(findings),
        len(read),
        estimate_share((finding.weight, finding.label != "false") for finding in read),
        estimate_share((finding.weight, finding.label == "leak") for finding in read),
        sum(finding.label != "false" for finding in read) / len(read) if read else None,
    )


def worst_rules(judged: Iterable[JudgedFinding], count: int = 10) -> list[RuleRow]:
    """Return the rules with the most false alarms at the default confidence, as estimated."""
    findings = [finding for finding in judged if finding.found.confidence in DEFAULT_CONFIDENCES]
    total = Counter(finding.found.rule for finding in findings)
    read = Counter(finding.found.rule for finding in findings if finding.label)
    false: Counter[str] = Counter()
    for finding in findings:
        if finding.label == "false":
            false[finding.found.rule] += finding.weight  # type: ignore[assignment]
    return [RuleRow(rule, total[rule], read[rule], number) for rule, number in false.most_common(count)]


def recall_rows(
    reported: Sequence[Reported], labels: Iterable[Label], read_paths: set[tuple[str, str]]
) -> list[RecallRow]:
    """Return the recall at each confidence: what is reported with all findings down to that confidence."""
    credentials = credentials_in(labels, read_paths)
    rows = []
    for position, confidence in enumerate(CONFIDENCES):
        shown = [found for found in reported if found.confidence in CONFIDENCES[: position + 1]]
        keys = {found.key for found in shown}
        lines = {(found.repo, found.path, found.line) for found in shown}

        def is_found(label: Label, keys: set[Key] = keys, lines: set[tuple[str, str, int]] = lines) -> bool:
            return label.key in keys or (label.repo, label.path, label.line) in lines

        leaks = [label for label in credentials if label.label == "leak"]
        rows.append(
            RecallRow(
                confidence,
                len(credentials),
                estimate_share((1.0, is_found(label)) for label in credentials),
                len(leaks),
                estimate_share((1.0, is_found(label)) for label in leaks),
            )
        )
    return rows


def credentials_in(labels: Iterable[Label], read_paths: set[tuple[str, str]]) -> list[Label]:
    """Return the credentials of files that were read in full, several forms of one in a line once."""
    found: dict[tuple[str, str, int], dict[str, list[Label]]] = {}
    for label in labels:
        if label.by == 1 and label.label != "false" and (label.repo, label.path) in read_paths:
            forms = found.setdefault((label.repo, label.path, label.line), {"read": [], "reported": []})
            forms["read" if label.rule == "read" else "reported"].append(label)
    # The scanner can report another part of what the reader saw, such as a decoded value.
    return [label for forms in found.values() for label in forms["read"] or forms["reported"]]


def agreement_of_readers(labels: Iterable[Label]) -> dict[str, Any]:
    """Return how well the first and the second reading agree."""
    labels = list(labels)
    first, second = by_key(labels, 1), by_key(labels, 2)
    pairs = [(first[key].label, second[key].label) for key in first.keys() & second.keys()]
    both = [(str(left == "false"), str(right == "false")) for left, right in pairs]
    agreed = sum(left == right for left, right in pairs)
    return {"pairs": len(pairs), "agreed": agreed, "kappa": kappa(pairs), "kappa of false": kappa(both)}


def findings_per_mb(reported: Iterable[Reported], size: int) -> dict[str, float]:
    """Return the number of findings in 1 MB at each confidence."""
    counts = Counter(found.confidence for found in reported)
    return {confidence: counts[confidence] * _MB / max(size, 1) for confidence in CONFIDENCES}
