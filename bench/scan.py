"""`make bench-scan`: `outcrop scan` and Kingfisher, over a tree and a git history with planted credentials.

python -m bench.scan [--repo PATH] [--quick] [--hard] [--runs N] [--work DIR]; the next run reuses the corpora
in the folder.
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
from bench.scan_corpus import Corpus, Planted, make_corpus_once

KINGFISHER = "kingfisher-bin==2.14.0"
MB, GB = 10**6, 10**9


@dataclass(frozen=True)
class Sizes:
    """Sizes of the corpora in bytes."""

    tree: int
    history: int
    hard: int


FULL = Sizes(tree=200 * MB, history=5 * GB, hard=20 * MB)
QUICK = Sizes(tree=20 * MB, history=200 * MB, hard=5 * MB)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repo", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hard", action="store_true", help="only the files that are hard to scan")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--work", type=Path, default=Path(".bench"))
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    sizes = QUICK if arguments.quick else FULL
    tools = [_outcrop(work), _kingfisher(work)]
    corpora = _make_corpora(work, sizes, arguments.repo)
    startup = _measure_startup(work, tools, arguments.runs)
    if not arguments.hard:
        measured = {
            name: _measure_in_turns(work, tools, corpus, arguments.runs) for name, corpus in corpora.items()
        }
        _print_comparison(corpora, measured)
        _print_recall(corpora, measured)
        _measure_rescan(work, tools[0], corpora["history"], measured["history"][0], arguments.runs)
        _print_growth(corpora, measured)
    _measure_hard_files(work, tools, corpora["tree"], sizes.hard, startup, arguments.runs)


# --- the two programs


@dataclass(frozen=True)
class Tool:
    """A scanner, and how to run it."""

    name: str
    command: Callable[[Path, Path, Sequence[str]], list[str]]  # of target, report file and common options
    environment: dict[str, str]
    ok_codes: tuple[int, ...]  # exit codes of a successful scan
    values: Callable[[bytes], Iterable[str]]  # returns the values in a report

    def scan(self, work: Path, target: Path, *options: str) -> tuple[Run, list[str]]:
        """Scan a target and return the figures and the values found."""
        report = work / f"{self.name}.report"
        command = self.command(target, report, options)
        # Kingfisher writes the report itself; its other output goes to another file.
        output = work / f"{self.name}.out" if str(report) in command else report
        try:
            measured = run(command, self.environment, output=output, ok_codes=self.ok_codes)
            return measured, list(self.values(report.read_bytes()))
        except ValueError:  # not JSON: a crash can have the same exit code as findings
            raise SystemExit(
                f"{self.name} failed: {output.with_suffix('.err').read_text()[-2000:]}"
            ) from None
        finally:
            for file in (report, output, output.with_suffix(".err")):
                file.unlink(missing_ok=True)


def _outcrop(work: Path) -> Tool:
    """Return `outcrop scan` of this environment; the option --cache lets it use its cache."""
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
            *(option for option in options if option != "--cache"),
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
    """Install Kingfisher in a virtual environment; its binary is run without the Python script around it."""
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
            _texts([entry["finding"] for entry in json.loads(report)["findings"]], "snippet")
            if report.strip()
            else []
        )

    return Tool(
        "kingfisher", command, {"KF_RULE_CACHE_DIR": str(work / "kingfisher-rules")}, (0, 200), values
    )


def _texts(entries: Iterable[dict[str, Any]], name: str) -> list[str]:
    """Return the field of this name of each entry."""
    return [str(entry[name]) for entry in entries]


# --- the corpora


def _make_corpora(work: Path, sizes: Sizes, repository: Path | None) -> dict[str, Corpus]:
    """Return tree, history, half and quarter of the history, and a mirror of `repository`, by name."""
    history = work / f"history-{sizes.history // MB}.git"
    corpora = {
        "tree": _make_once(
            "tree", work / f"tree-{sizes.tree // MB}", partial(scan_corpus.make_tree, size=sizes.tree)
        ),
        "history": _make_once("history", history, partial(scan_corpus.make_history, size=sizes.history)),
    }
    for tag, name in (("half", "history 1/2"), ("quarter", "history 1/4")):
        corpora[name] = _make_once(
            name,
            work / f"{history.stem}-{tag}.git",
            partial(scan_corpus.make_part_of_history, history=history, tag=tag),
        )
    if repository:
        corpora["--repo"] = scan_corpus.make_mirror(work / "repo.git", repository.resolve())
    return corpora


def _make_once(name: str, path: Path, make: Callable[[Path], Corpus]) -> Corpus:
    """Make a corpus unless an earlier run has, and print its size."""
    start = time.perf_counter()
    corpus = make_corpus_once(path, make)
    seconds = time.perf_counter() - start
    _report(
        f"{name}: {corpus.size / MB:,.0f} MB, {len(corpus.planted)} planted; ready after {seconds:,.0f} s"
    )
    return corpus


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- measuring


@dataclass(frozen=True)
class Measured:
    """The medians of one tool over one corpus, and the values that it found in the last run."""

    run: Run
    values: list[str]


def _measure_in_turns(
    work: Path, tools: Sequence[Tool], corpus: Corpus, runs: int, *options: str
) -> list[Measured]:
    """Run the tools in turns, so that a slow minute affects both, with the files in the page cache."""
    _read_into_page_cache(corpus.path)
    results_by_tool: list[list[tuple[Run, list[str]]]] = [[] for _ in tools]
    for _ in range(runs):
        for tool, results in zip(tools, results_by_tool, strict=True):
            results.append(tool.scan(work, corpus.path, *options))
            _report(f"{corpus.path.name} {tool.name}: {results[-1][0].wall:.1f} s")
    return [
        Measured(_median([figures for figures, _ in results]), results[-1][1]) for results in results_by_tool
    ]


def _median(runs: Sequence[Run]) -> Run:
    """Return the median of each figure."""
    return Run(
        statistics.median(run_.wall for run_ in runs),
        statistics.median(run_.cpu for run_ in runs),
        int(statistics.median(run_.memory for run_ in runs)),
    )


def _read_into_page_cache(folder: Path) -> None:
    """Read all files of a folder once."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(1 << 24):
                    pass


def _measure_startup(work: Path, tools: Sequence[Tool], runs: int) -> list[Measured]:
    """Measure the scan of an empty folder, after one run of each tool to compile and cache its rules."""
    empty = Corpus(work / "empty", 0)
    empty.path.mkdir(exist_ok=True)
    _measure_in_turns(work, tools, empty, 1)
    return _measure_in_turns(work, tools, empty, runs)


# --- tables


def _print_comparison(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    """Print time, CPU time and memory of both tools for each corpus."""
    headings = ["", "GB"]
    for figure in ("seconds", "CPU seconds", "peak MiB"):
        headings += [f"{figure}, outcrop", "kingfisher", "×"]
    rows = []
    for name, (outcrop, kingfisher) in measured.items():
        row = [name, f"{corpora[name].size / GB:.2f}"]
        row += _with_ratio(outcrop.run.wall, kingfisher.run.wall, 1)
        row += _with_ratio(outcrop.run.cpu, kingfisher.run.cpu, 1)
        row += _with_ratio(outcrop.run.memory / 2**20, kingfisher.run.memory / 2**20, 0)
        rows.append(row)
    table(
        f"`outcrop scan` and {KINGFISHER}, {os.cpu_count()} cores ({platform.machine()}), medians",
        headings,
        rows,
    )


def _with_ratio(outcrop: float, kingfisher: float, decimals: int) -> list[str]:
    """Return both figures and their ratio as texts."""
    return [f"{outcrop:,.{decimals}f}", f"{kingfisher:,.{decimals}f}", f"{outcrop / kingfisher:.2f}"]


def _print_recall(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    """Print how many planted credentials each tool reports, by encoding."""
    rows = []
    for name, corpus in corpora.items():
        planted = Counter(credential.encoding for credential in corpus.planted)
        found = [
            Counter(
                credential.encoding for credential in corpus.planted if _is_reported(credential, tool.values)
            )
            for tool in measured[name]
        ]
        rows += [
            [name, encoding, planted[encoding], *(count[encoding] for count in found)]
            for encoding in scan_corpus.ENCODINGS
            if planted
        ]
        if planted:
            rows.append([name, "all", planted.total(), *(count.total() for count in found)])
    table("Planted credentials that are reported", ["", "encoding", "planted", "outcrop", "kingfisher"], rows)


def _is_reported(planted: Planted, values: list[str]) -> bool:
    """Whether one of the reported values contains the credential or is part of its encoded form."""
    return any(
        value in reported or (len(reported) >= 16 and reported in planted.written)
        for reported in values
        for value in planted.values
    )


def _measure_rescan(work: Path, tool: Tool, history: Corpus, without_cache: Measured, runs: int) -> None:
    """Measure a second scan of the history with the cache of the first."""
    tool.scan(work, history.path, "--cache")
    rescan = _median([tool.scan(work, history.path, "--cache")[0] for _ in range(runs)])
    rows = [
        [
            f"{history.size / GB:.2f}",
            f"{without_cache.run.wall:.1f}",
            f"{rescan.wall:.2f}",
            "1",
            "yes" if rescan.wall < 1 else "no",
        ]
    ]
    table(
        "Rescan of the history without changes",
        ["GB", "without the cache, seconds", "rescan, seconds", "goal", "reached"],
        rows,
    )


def _print_growth(corpora: dict[str, Corpus], measured: dict[str, list[Measured]]) -> None:
    """Print time per GB and memory for a quarter, a half and all of the history."""
    rows = []
    for name in ("history 1/4", "history 1/2", "history"):
        row = [name, f"{(size := corpora[name].size / GB):.2f}"]
        for tool in measured[name]:
            row += [f"{tool.run.wall / size:.1f}", f"{tool.run.memory / 2**20:,.0f}"]
        rows.append(row)
    headings = ["", "GB", "seconds per GB, outcrop", "peak MiB", "seconds per GB, kingfisher", "peak MiB"]
    table("Time and memory as the history grows", headings, rows)


def _measure_hard_files(
    work: Path, tools: Sequence[Tool], tree: Corpus, size: int, startup: list[Measured], runs: int
) -> None:
    """Compare files that are hard to scan with ordinary ones, by CPU time and by wall time."""
    hard = {
        name: _make_once(name, work / f"{name.partition(' ')[0]}-{size // MB}", partial(make, size=size))
        for name, make in (
            ("minified JavaScript on one line", scan_corpus.make_minified_file),
            ("near misses on every line", scan_corpus.make_near_misses_file),
            ("code that is no credential on every line", scan_corpus.make_code_file),
            ("shapes of assignments, repeated", scan_corpus.make_repeated_shapes_file),
        )
    }
    ordinary = _make_once(
        "ordinary sources",
        work / f"ordinary-{size // MB}",
        partial(scan_corpus.make_ordinary_file, size=size),
    )

    def mb_per_cpu_second(corpus: Corpus) -> list[float]:
        measured = _measure_in_turns(work, tools, corpus, runs, "--jobs", "1")
        return [
            corpus.size / MB / max(tool.run.cpu - idle.run.cpu, 0.01)
            for tool, idle in zip(measured, startup, strict=True)
        ]

    def mb_per_second(corpus: Corpus) -> list[float]:
        return [corpus.size / MB / tool.run.wall for tool in _measure_in_turns(work, tools, corpus, runs)]

    _print_rates(
        "Hard files, one process, without startup: MB per CPU second",
        {"the tree": tree} | hard,
        mb_per_cpu_second,
    )
    _print_rates(
        "Hard files, each scanned alone, with startup: MB per second",
        {"ordinary sources": ordinary} | hard,
        mb_per_second,
    )


def _print_rates(title: str, corpora: dict[str, Corpus], rate: Callable[[Corpus], list[float]]) -> None:
    """Print the rate of each tool for each corpus, and the rate relative to the first corpus."""
    rows: list[list[str]] = []
    ordinary_rates: list[float] = []
    for name, corpus in corpora.items():
        rates = rate(corpus)
        ordinary_rates = ordinary_rates or rates
        row = [name, f"{corpus.size / MB:.0f}"]
        for tool_rate, ordinary_rate in zip(rates, ordinary_rates, strict=True):
            row += [f"{tool_rate:.1f}", f"{tool_rate / ordinary_rate:.2f}"]
        rows.append(row)
    table(title, ["", "MB", "outcrop", "of ordinary", "kingfisher", "of ordinary"], rows)


if __name__ == "__main__":
    main()
