"""`make bench-scan`: `outcrop scan` beside Kingfisher, over a source tree and a git history with planted credentials.

python -m bench.scan [--repo PATH] [--quick] [--hard] [--runs N] [--work DIR]; what is made in the folder is used by the next run.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench import scan_corpus
from bench.measure import table
from bench.process import Run, run
from bench.scan_corpus import Corpus, Planted, made_once

KINGFISHER = "kingfisher-bin==2.14.0"
MB, GB = 10**6, 10**9


@dataclass(frozen=True)
class Sizes:
    """Bytes."""

    tree: int
    history: int
    hard: int


FULL = Sizes(tree=200 * MB, history=5 * GB, hard=20 * MB)
QUICK = Sizes(tree=20 * MB, history=200 * MB, hard=5 * MB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repo", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hard", action="store_true", help="only the files that are hard to read")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    sizes = QUICK if arguments.quick else FULL
    tools = [_outcrop(work), _kingfisher(work)]
    corpora = _corpora(work, sizes, arguments.repo)
    start = _startup(work, tools, arguments.runs)
    if not arguments.hard:
        measured = {
            name: _interleaved(work, tools, corpus, arguments.runs) for name, corpus in corpora.items()
        }
        _compare(corpora, measured)
        _recall(corpora, measured)
        _rescan(work, tools[0], corpora["history"], measured["history"][0], arguments.runs)
        _linear(corpora, measured)
    _hard(work, tools, corpora["tree"], sizes.hard, start, arguments.runs)


# --- the two programs


@dataclass(frozen=True)
class Tool:
    name: str
    command: Callable[
        [Path, Path, Sequence[str]], list[str]
    ]  # of a target, a file for the report, and options both programs have
    environment: dict[str, str]
    well: tuple[int, ...]  # exit codes with which all is well
    values: Callable[[bytes], Iterable[str]]  # what a report names

    def scan(self, work: Path, target: Path, *options: str) -> tuple[Run, list[str]]:
        """Scan a target; give what it took, and the values found."""
        report = work / f"{self.name}.report"
        command = self.command(target, report, options)
        # Kingfisher writes the report itself: what it prints beside it goes elsewhere.
        output = work / f"{self.name}.out" if str(report) in command else report
        try:
            took = run(command, self.environment, output=output, well=self.well)
            return took, list(self.values(report.read_bytes()))
        except ValueError:  # no JSON: a crash can have the exit code of findings
            raise SystemExit(
                f"{self.name} failed: {output.with_suffix('.err').read_text()[-2000:]}"
            ) from None
        finally:
            for file in (report, output, output.with_suffix(".err")):
                file.unlink(missing_ok=True)


def _outcrop(work: Path) -> Tool:
    program = str(Path(sys.executable).with_name("outcrop"))

    def command(target: Path, _report: Path, options: Sequence[str]) -> list[str]:
        cache = [] if "--cache" in options else ["--no-cache"]
        return [
            program,
            "scan",
            "--no-validate",
            "--json",
            "--reveal",
            *cache,
            *(one for one in options if one != "--cache"),
            str(target),
        ]

    return Tool(
        "outcrop",
        command,
        {"XDG_CACHE_HOME": str(work / "cache")},
        (0, 1),
        lambda report: _texts(json.loads(report), "secret"),
    )


def _kingfisher(work: Path) -> Tool:
    """Install Kingfisher in an environment of its own; the program itself is started, not the Python script before it."""
    venv = work / KINGFISHER.replace("==", "-")
    if not (programs := list(venv.glob("lib/python*/site-packages/kingfisher/bin/kingfisher"))):
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run(
            [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", KINGFISHER],
            check=True,
        )
        programs = list(venv.glob("lib/python*/site-packages/kingfisher/bin/kingfisher"))

    def command(target: Path, report: Path, options: Sequence[str]) -> list[str]:
        fixed = [
            "--no-validate",
            "--no-update-check",
            "--git-repo-timeout",
            "0",
            "--format",
            "json",
            "-o",
            str(report),
        ]
        return [str(programs[0]), "scan", *fixed, *options, str(target)]

    def values(report: bytes) -> Iterable[str]:
        return (
            _texts([found["finding"] for found in json.loads(report)["findings"]], "snippet")
            if report.strip()
            else []
        )

    return Tool(
        "kingfisher", command, {"KF_RULE_CACHE_DIR": str(work / "kingfisher-rules")}, (0, 200), values
    )


def _texts(found: Iterable[dict[str, Any]], name: str) -> list[str]:
    return [str(one[name]) for one in found]


# --- what is scanned


def _corpora(work: Path, sizes: Sizes, repository: Path | None) -> dict[str, Corpus]:
    history = work / f"history-{sizes.history // MB}.git"
    corpora = {
        "tree": _made("tree", work / f"tree-{sizes.tree // MB}", partial(scan_corpus.tree, size=sizes.tree)),
        "history": _made("history", history, partial(scan_corpus.history, size=sizes.history)),
    }
    for tag, name in (("half", "history 1/2"), ("quarter", "history 1/4")):
        corpora[name] = _made(
            name,
            work / f"{history.stem}-{tag}.git",
            partial(scan_corpus.part_of_history, whole=history, tag=tag),
        )
    if repository:
        corpora["--repo"] = scan_corpus.mirror(work / "repo.git", repository.resolve())
    return corpora


def _made(name: str, path: Path, make: Callable[[Path], Corpus]) -> Corpus:
    began = time.perf_counter()
    corpus = made_once(path, make)
    _say(
        f"{name}: {corpus.size / MB:,.0f} MB, {len(corpus.planted)} planted; ready after {time.perf_counter() - began:,.0f} s"
    )
    return corpus


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- measuring


@dataclass(frozen=True)
class Measured:
    """Medians of one tool over one corpus, and what it found in the last run."""

    run: Run
    values: list[str]


def _interleaved(
    work: Path, tools: Sequence[Tool], corpus: Corpus, runs: int, *options: str
) -> list[Measured]:
    """Run the tools by turns, so that a slow minute of the machine hits both; the files are in the page cache."""
    _read_through(corpus.path)
    taken: list[list[tuple[Run, list[str]]]] = [[] for _ in tools]
    for _ in range(runs):
        for tool, results in zip(tools, taken, strict=True):
            results.append(tool.scan(work, corpus.path, *options))
            _say(f"{corpus.path.name} {tool.name}: {results[-1][0].wall:.1f} s")
    return [Measured(_median([took for took, _ in results]), results[-1][1]) for results in taken]


def _median(runs: Sequence[Run]) -> Run:
    middle = statistics.median
    return Run(
        middle(one.wall for one in runs),
        middle(one.cpu for one in runs),
        int(middle(one.memory for one in runs)),
    )


def _read_through(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass


def _startup(work: Path, tools: Sequence[Tool], runs: int) -> list[Measured]:
    """Measure an empty folder, after one run each that compiles the rules into the tool's cache."""
    empty = Corpus(work / "empty", 0)
    empty.path.mkdir(exist_ok=True)
    _interleaved(work, tools, empty, 1)
    return _interleaved(work, tools, empty, runs)


# --- tables


def _compare(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    heads = ["", "GB"]
    for what in ("seconds", "CPU seconds", "peak MiB"):
        heads += [f"{what}, outcrop", "kingfisher", "×"]
    rows = []
    for name, (ours, theirs) in measured.items():
        row = [name, f"{corpora[name].size / GB:.2f}"]
        row += _ratio(ours.run.wall, theirs.run.wall, 1)
        row += _ratio(ours.run.cpu, theirs.run.cpu, 1)
        row += _ratio(ours.run.memory / 2**20, theirs.run.memory / 2**20, 0)
        rows.append(row)
    table(
        f"`outcrop scan` beside {KINGFISHER}, {os.cpu_count()} cores ({platform.machine()}), medians",
        heads,
        rows,
    )


def _ratio(ours: float, theirs: float, places: int) -> list[str]:
    return [f"{ours:,.{places}f}", f"{theirs:,.{places}f}", f"{ours / theirs:.2f}"]


def _recall(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    rows = []
    for name, corpus in corpora.items():
        planted = Counter(one.encoding for one in corpus.planted)
        found = [
            Counter(one.encoding for one in corpus.planted if _is_named(one, tool.values))
            for tool in measured[name]
        ]
        rows += [
            [name, encoding, planted[encoding], *(count[encoding] for count in found)]
            for encoding in scan_corpus.ENCODINGS
            if planted
        ]
        if planted:
            rows.append([name, "all", planted.total(), *(count.total() for count in found)])
    table(
        "Planted credentials that are reported", ["", "written as", "planted", "outcrop", "kingfisher"], rows
    )


def _is_named(planted: Planted, values: list[str]) -> bool:
    """Tell whether a report names one of the values, as it is or as it was written."""
    return any(
        value in one or (len(one) >= 16 and one in planted.written)
        for one in values
        for value in planted.values
    )


def _rescan(work: Path, tool: Tool, history: Corpus, without_cache: Measured, runs: int) -> None:
    tool.scan(work, history.path, "--cache")
    again = _median([tool.scan(work, history.path, "--cache")[0] for _ in range(runs)])
    rows = [
        [
            f"{history.size / GB:.2f}",
            f"{without_cache.run.wall:.1f}",
            f"{again.wall:.2f}",
            "1",
            "yes" if again.wall < 1 else "no",
        ]
    ]
    table(
        "The history again, with nothing new",
        ["GB", "without the cache, seconds", "again, seconds", "goal", "met"],
        rows,
    )


def _linear(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    rows = []
    for name in ("history 1/4", "history 1/2", "history"):
        row = [name, f"{(size := corpora[name].size / GB):.2f}"]
        for one in measured[name]:
            row += [f"{one.run.wall / size:.1f}", f"{one.run.memory / 2**20:,.0f}"]
        rows.append(row)
    heads = ["", "GB", "seconds per GB, outcrop", "peak MiB", "seconds per GB, kingfisher", "peak MiB"]
    table("Time and memory as the history grows", heads, rows)


def _hard(
    work: Path, tools: Sequence[Tool], tree: Corpus, size: int, start: list[Measured], runs: int
) -> None:
    """Compare hard files with usual ones, in two ways."""
    hard = {
        name: _made(name, work / f"{name.partition(' ')[0]}-{size // MB}", partial(make, size=size))
        for name, make in (
            ("minified JavaScript on one line", scan_corpus.minified),
            ("near misses on every line", scan_corpus.near_misses),
            ("code that is no credential on every line", scan_corpus.near_misses_in_code),
        )
    }
    ordinary = _made(
        "ordinary sources", work / f"ordinary-{size // MB}", partial(scan_corpus.ordinary, size=size)
    )

    def by_cpu(corpus: Corpus) -> list[float]:
        took = _interleaved(work, tools, corpus, runs, "--jobs", "1")
        return [
            corpus.size / MB / max(one.run.cpu - idle.run.cpu, 0.01)
            for one, idle in zip(took, start, strict=True)
        ]

    def by_clock(corpus: Corpus) -> list[float]:
        return [corpus.size / MB / one.run.wall for one in _interleaved(work, tools, corpus, runs)]

    _of_usual(
        "Hard files, one process, without the start: MB per CPU second", {"the tree": tree} | hard, by_cpu
    )
    _of_usual(
        "Hard files as they are met, each by itself: MB per second, start included",
        {"ordinary sources": ordinary} | hard,
        by_clock,
    )


def _of_usual(title: str, corpora: dict[str, Corpus], rate: Callable[[Corpus], list[float]]) -> None:
    """Print how quick the programs are, as a part of how quick they are with the first of the corpora too."""
    rows: list[list[str]] = []
    usual: list[float] = []
    for name, corpus in corpora.items():
        rates = rate(corpus)
        usual = usual or rates
        row = [name, f"{corpus.size / MB:.0f}"]
        for one, ordinary in zip(rates, usual, strict=True):
            row += [f"{one:.1f}", f"{one / ordinary:.2f}"]
        rows.append(row)
    table(title, ["", "MB", "outcrop", "of usual", "kingfisher", "of usual"], rows)


if __name__ == "__main__":
    main()
