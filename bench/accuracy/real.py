"""Part 2 of `make bench-accuracy`: `outcrop scan` on public repositories, with labels of readers."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.accuracy import figures
from bench.accuracy.agreement import OtherReport, read_other_report
from bench.accuracy.comparison import compare
from bench.accuracy.labels import LABELS, READ_FILES, Label, ReadFile, by_key, read_files, read_labels
from bench.accuracy.others import other_scanners
from bench.accuracy.repositories import (
    DATA,
    HALVES,
    LIST,
    Half,
    ListedRepository,
    locate_repositories,
    read_list,
)
from bench.accuracy.scans import (
    Reported,
    Scanner,
    outcrop_scanner,
    read_report,
    scan_repositories,
    scanner_state,
)
from bench.accuracy.tree import list_files
from bench.measure import table

Present = Sequence[tuple[ListedRepository, Path]]


@dataclass(frozen=True)
class HalfInput:
    """What was reported in the repositories of one half, and what readers say."""

    repositories: list[ListedRepository]
    size: int  # bytes
    reported: list[Reported]
    others: dict[str, list[OtherReport]]  # by the name of the scanner, in the order of the repositories
    labels: list[Label]
    files: list[ReadFile]


def run_real(
    repos: Path,
    work: Path,
    *,
    data: Path = DATA,
    others: bool = False,
    unlabelled: Path | None = None,
    json_file: Path | None = None,
) -> None:
    """Scan the repositories below `repos`, print the tables and write the files that were asked for.

    `data` has the list of repositories and the labels.
    """
    located = list(locate_repositories(read_list(data / LIST), repos))
    present = [(repository, git_dir) for repository, git_dir in located if git_dir]
    absent = [repository.repo for repository, git_dir in located if not git_dir]
    print(f"\n{len(present)} public repositories; absent and left out: {', '.join(absent) or 'none'}")
    reports = work / "accuracy"
    reports.mkdir(parents=True, exist_ok=True)
    scanner = outcrop_scanner()
    tools = other_scanners(work) if others else []
    scan_repositories(present, reports, [scanner, *tools])
    labels, files = read_labels(data / LABELS), read_files(data / READ_FILES)
    result: dict[str, Any] = {"scanner": scanner_state(), "absent": absent, "halves": {}}
    without_label = []
    for half in HALVES:
        part = [(repository, git_dir) for repository, git_dir in present if repository.half == half]
        entered = _read_half(part, reports, scanner, tools, labels, files)
        result["halves"][half] = measured = measure_half(entered)
        print_half(half, measured)
        without_label += list_unlabelled(entered)
    if unlabelled:
        unlabelled.write_text("".join(json.dumps(entry) + "\n" for entry in without_label))
    if json_file:
        json_file.write_text(json.dumps(result, indent=1) + "\n")


def _read_half(
    part: Present,
    reports: Path,
    scanner: Scanner,
    tools: Sequence[Scanner],
    labels: Iterable[Label],
    files: Iterable[ReadFile],
) -> HalfInput:
    """Read the reports on the repositories of one half."""
    repositories = [repository for repository, _ in part]
    names = {repository.repo for repository in repositories}
    return HalfInput(
        repositories,
        sum(file.size for repository, git_dir in part for file in list_files(git_dir, repository.commit)),
        [
            found
            for repository in repositories
            for found in read_report(repository.repo, scanner.report(reports, repository))
        ],
        {
            tool.name: [
                read_other_report(repository.repo, tool.name, tool.report(reports, repository))
                for repository in repositories
            ]
            for tool in tools
        },
        [label for label in labels if label.repo in names],
        [file for file in files if file.repo in names],
    )


def measure_half(entered: HalfInput) -> dict[str, Any]:
    """Return all figures of one half."""
    kinds = {repository.repo: repository.kind for repository in entered.repositories}
    judged, uncovered = figures.judge(entered.reported, kinds, entered.labels)
    read_paths = {(file.repo, file.path) for file in entered.files}
    return {
        "repositories": len(entered.repositories),
        "bytes": entered.size,
        "findings": dict(Counter(found.confidence for found in entered.reported)),
        "findings per MB": figures.findings_per_mb(entered.reported, entered.size),
        "without label": sum(finding.label is None for finding in judged),
        "not represented": uncovered,
        "precision": [asdict(row) for row in figures.precision_rows(judged)],
        "false alarms": [asdict(row) for row in figures.worst_rules(judged)],
        "files read": len(entered.files),
        "recall": [asdict(row) for row in figures.recall_rows(entered.reported, entered.labels, read_paths)],
        "two readers": figures.agreement_of_readers(entered.labels),
        "other scanners": [
            asdict(row)
            for name, reports in entered.others.items()
            for row in compare(name, reports, entered.reported, entered.labels)
        ],
    }


def list_unlabelled(entered: HalfInput) -> list[dict[str, Any]]:
    """Return the findings without a label: where they are, but not their values."""
    known = by_key(entered.labels)
    commits = {repository.repo: repository.commit for repository in entered.repositories}
    return [
        {
            "repo": found.repo,
            "commit": commits[found.repo],
            "path": found.path,
            "line": found.line,
            "digest": found.digest,
            "rule": found.rule,
            "confidence": found.confidence,
        }
        for found in entered.reported
        if found.key not in known
    ]


def print_half(half: Half, measured: Mapping[str, Any]) -> None:
    """Print the tables of one half."""
    name = f"{half} half"
    table(
        f"Public repositories, {name}: precision, estimated from labels",
        ["findings", "number", "read", "not false", "95 %", "leak", "95 %", "not false, unweighted"],
        [
            [
                row["group"],
                f"{row['findings']:,}",
                row["read"],
                *_share(row["not_false"]),
                *_share(row["leak"]),
                _percent(row["not_false_as_read"]),
            ]
            for row in measured["precision"]
        ],
    )
    table(
        f"{name}: findings in {measured['bytes'] / 10**6:,.0f} MB of {measured['repositories']} repositories",
        ["confidence", "findings", "per MB"],
        [
            [confidence, f"{measured['findings'].get(confidence, 0):,}", f"{per_mb:.2f}"]
            for confidence, per_mb in measured["findings per MB"].items()
        ],
    )
    table(
        f"{name}: recall in {measured['files read']} files that were read in full",
        ["confidence", "credentials", "reported", "95 %", "leaks", "reported", "95 %"],
        [
            [
                f"{row['confidence']} or higher",
                row["credentials"],
                *_share(row["found"]),
                row["leaks"],
                *_share(row["leaks_found"]),
            ]
            for row in measured["recall"]
        ],
    )
    table(
        f"{name}: rules with the most false alarms, default confidence",
        ["rule", "findings", "read", "false, estimated"],
        [
            [row["rule"], row["findings"], row["read"], f"{row['false']:.0f}"]
            for row in measured["false alarms"]
        ],
    )
    if measured["other scanners"]:
        _print_others(name, measured["other scanners"])
    readers = measured["two readers"]
    print(
        f"\n{name}: {measured['without label']:,} findings without a label, "
        f"{measured['not represented']:,} that no label represents. "
        f"Two readers: {readers['agreed']} of {readers['pairs']} the same, "
        f"kappa {_figure(readers['kappa'])}; for false or not {_figure(readers['kappa of false'])}."
    )


def _print_others(name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    table(
        f"{name}: agreement with other scanners, Outcrop at the default confidence",
        ["scanner", "files", "reported by", "findings", "leak", "example", "false", "not false", "95 %"],
        [
            [
                row["scanner"],
                row["files"],
                row["reported_by"],
                f"{row['findings']:,}",
                row["leak"],
                row["example"],
                row["false"],
                *_share(row["not_false"]),
            ]
            for row in rows
        ],
    )


def _share(share: Mapping[str, float] | None) -> list[str]:
    """Return a share and its interval as two cells."""
    if share is None:
        return ["-", "-"]
    return [_percent(share["estimate"]), f"{_percent(share['low'])} to {_percent(share['high'])}"]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share * 100:.0f} %"


def _figure(number: float) -> str:
    return "-" if math.isnan(number) else f"{number:.2f}"
