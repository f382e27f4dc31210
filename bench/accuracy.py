"""`make bench-accuracy`: precision and recall of `outcrop scan` beside Kingfisher's, on the labelled corpus of the tests.

python -m bench.accuracy [--per-block N] [--work DIR]; both at their default confidence, asking no issuer.
"""

import argparse
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

Found = dict[str, list[Finding]]  # by the path of a file
SPLITS: tuple[Split, ...] = ("seen", "held_out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--per-block", type=float, default=11, help="how many times each template is used, about"
    )
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    readers: list[tuple[Tool, Callable[[bytes, Path], Found]]] = [
        (_outcrop(work), _by_outcrop),
        (_kingfisher(work), _by_kingfisher),
    ]
    totals: dict[tuple[str, str], Tally] = {}
    for split in SPLITS:
        made = list(corpus(split, arguments.per_block))
        folder = _written(made, work / f"accuracy-{split}")
        judged = [_judged(made, folder, work, tool, read) for tool, read in readers]
        _by_kind(split, judged)
        for (tool, _), kinds in zip(readers, judged, strict=True):
            totals[split, tool.name] = _sum(kinds)
    _summary(totals)


def _written(made: list[Made], folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for one in made:
        path = folder / one.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.text, "utf-8")
    return folder


def _judged(
    made: list[Made], folder: Path, work: Path, tool: Tool, read: Callable[[bytes, Path], Found]
) -> dict[str, Tally]:
    """Run a tool over the files and judge what it says, kind by kind."""
    report, output = work / "accuracy.json", work / "accuracy.out"
    command = tool.command(folder, report, ())
    run(command, tool.environment, output=output if str(report) in command else report, well=tool.well)
    found = read(report.read_bytes(), folder)
    kinds: dict[str, Tally] = defaultdict(Tally)
    for one in made:
        kinds[one.kind] += tally(one, found.get(one.path, []))
    return kinds


def _by_outcrop(report: bytes, _folder: Path) -> Found:
    found: Found = defaultdict(list)
    for one in json.loads(report):
        found[one["file_path"]].append((one["line_number"], one["secret"]))
    return found


def _by_kingfisher(report: bytes, folder: Path) -> Found:
    found: Found = defaultdict(list)
    for one in json.loads(report)["findings"] if report.strip() else ():
        path = str(Path(one["finding"]["path"]).relative_to(folder))
        found[path] += _with_companions(one["finding"], folder / path)
    return found


def _with_companions(finding: dict[str, Any], file: Path) -> Iterator[Finding]:
    """Give a finding's value, and those that it was found together with, each in its line."""
    yield finding["line"], finding["snippet"]
    lines = file.read_text("utf-8").split("\n")
    for value in (finding.get("dependent_captures") or {}).values():
        yield from ((number, value) for number, line in enumerate(lines, 1) if value in line)


def _sum(kinds: dict[str, Tally]) -> Tally:
    total = Tally()
    for one in kinds.values():
        total += one
    return total


def _by_kind(split: Split, judged: list[dict[str, Tally]]) -> None:
    heads = [
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
    for kind in sorted(judged[0]):
        first = judged[0][kind]
        rows.append(
            [
                kind,
                first.found + first.missed,
                first.negatives,
                *(cell for kinds in judged for cell in _figures(kinds[kind])),
            ]
        )
    table(f"By kind, {split.replace('_', ' ')} templates", heads, rows)


def _figures(one: Tally) -> list[str]:
    if not one.found + one.missed:
        return ["-" if not one.wrong else f"{one.wrong} wrong", "-", "-"]
    return [f"{one.precision:.3f}" if one.found + one.wrong else "-", f"{one.recall:.3f}", f"{one.f1:.3f}"]


def _summary(totals: dict[tuple[str, str], Tally]) -> None:
    heads = [
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
    for (split, name), one in totals.items():
        share = f"{one.flagged / max(one.negatives, 1):.4f}"
        counts = [one.found + one.missed, one.found, one.negatives, one.flagged, share, one.wrong]
        rows.append(
            [
                split.replace("_", " "),
                name,
                *counts,
                f"{one.precision:.4f}",
                f"{one.recall:.4f}",
                f"{one.f1:.4f}",
            ]
        )
    table(f"`outcrop scan` beside {KINGFISHER} on labelled files", heads, rows)


if __name__ == "__main__":
    main()
