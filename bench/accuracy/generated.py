"""Part 1: precision and recall of `outcrop scan` and of Kingfisher on generated files with labelled values.

Both run at their default confidence, without validation.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure import table
from bench.process import run
from bench.scan import KINGFISHER, Tool, _kingfisher, _outcrop
from tests.corpus.make import Made, Split, corpus
from tests.corpus.tally import Finding, Tally, tally

FoundByPath = dict[str, list[Finding]]  # path of a file -> line and value of each finding
SPLITS: tuple[Split, ...] = ("seen", "held_out")


def run_generated(work: Path, per_block: float) -> None:
    """Scan the generated files with both tools and print the tables."""
    tools: list[tuple[Tool, Callable[[bytes, Path], FoundByPath]]] = [
        (_outcrop(work), _read_outcrop_report),
        (_kingfisher(work), _read_kingfisher_report),
    ]
    totals: dict[tuple[str, str], Tally] = {}
    for split in SPLITS:
        made = list(corpus(split, per_block))
        folder = _write_files(made, work / f"accuracy-{split}")
        tallies = [_tally_tool(made, folder, work, tool, read) for tool, read in tools]
        _print_by_kind(split, tallies)
        for (tool, _), kinds in zip(tools, tallies, strict=True):
            totals[split, tool.name] = _sum(kinds)
    _print_summary(totals)


def _write_files(made: list[Made], folder: Path) -> Path:
    """Write the generated files to an empty folder and return it."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in made:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, "utf-8")
    return folder


def _tally_tool(
    made: list[Made], folder: Path, work: Path, tool: Tool, read: Callable[[bytes, Path], FoundByPath]
) -> dict[str, Tally]:
    """Run a tool over the files and return right and wrong findings, by kind of file."""
    report, output = work / "accuracy.json", work / "accuracy.out"
    command = tool.command(folder, report, ())
    run(
        command, tool.environment, output=output if str(report) in command else report, ok_codes=tool.ok_codes
    )
    found = read(report.read_bytes(), folder)
    kinds: dict[str, Tally] = defaultdict(Tally)
    for file in made:
        kinds[file.kind] += tally(file, found.get(file.path, []))
    return kinds


def _read_outcrop_report(report: bytes, _folder: Path) -> FoundByPath:
    """Return the findings of a JSON report of `outcrop scan`."""
    found: FoundByPath = defaultdict(list)
    for finding in json.loads(report):
        found[finding["file_path"]].append((finding["line_number"], finding["secret"]))
    return found


def _read_kingfisher_report(report: bytes, folder: Path) -> FoundByPath:
    """Return the findings of a JSON report of Kingfisher, including the values found together with them."""
    found: FoundByPath = defaultdict(list)
    for entry in json.loads(report)["findings"] if report.strip() else ():
        path = str(Path(entry["finding"]["path"]).relative_to(folder))
        found[path] += _with_companions(entry["finding"], folder / path)
    return found


def _with_companions(finding: dict[str, Any], file: Path) -> Iterator[Finding]:
    """Yield the value of a finding and of its companions, each with its line number."""
    yield finding["line"], finding["snippet"]
    lines = file.read_text("utf-8").split("\n")
    for value in (finding.get("dependent_captures") or {}).values():
        yield from ((number, value) for number, line in enumerate(lines, 1) if value in line)


def _sum(kinds: dict[str, Tally]) -> Tally:
    total = Tally()
    for kind_tally in kinds.values():
        total += kind_tally
    return total


def _print_by_kind(split: Split, tallies: list[dict[str, Tally]]) -> None:
    """Print precision, recall and F1 of both tools for each kind of file."""
    headings = [
        "kind",
        "positives",
        "negatives",
        "precision, outcrop",
        "recall",
        "F1",
        "precision, kingfisher",
        "recall",
        "F1",
    ]
    rows = []
    for kind in sorted(tallies[0]):
        first = tallies[0][kind]
        rows.append(
            [
                kind,
                first.found + first.missed,
                first.negatives,
                *(cell for kinds in tallies for cell in _figures(kinds[kind])),
            ]
        )
    table(f"By kind, {split.replace('_', ' ')} templates", headings, rows)


def _figures(counts: Tally) -> list[str]:
    """Return precision, recall and F1 as texts, "-" where they are not defined."""
    if not counts.found + counts.missed:
        return ["-" if not counts.wrong else f"{counts.wrong} wrong", "-", "-"]
    precision = f"{counts.precision:.3f}" if counts.found + counts.wrong else "-"
    return [precision, f"{counts.recall:.3f}", f"{counts.f1:.3f}"]


def _print_summary(totals: dict[tuple[str, str], Tally]) -> None:
    """Print the totals of each tool, for the templates that rules were written with and for the others."""
    headings = [
        "templates",
        "tool",
        "positives",
        "found",
        "negatives",
        "flagged",
        "share",
        "wrong",
        "precision",
        "recall",
        "F1",
    ]
    rows = []
    for (split, name), total in totals.items():
        share = f"{total.flagged / max(total.negatives, 1):.4f}"
        counts = [
            total.found + total.missed,
            total.found,
            total.negatives,
            total.flagged,
            share,
            total.wrong,
        ]
        rows.append(
            [
                split.replace("_", " "),
                name,
                *counts,
                f"{total.precision:.4f}",
                f"{total.recall:.4f}",
                f"{total.f1:.4f}",
            ]
        )
    table(f"`outcrop scan` and {KINGFISHER} on labelled files", headings, rows)
