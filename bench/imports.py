"""`make bench-import`: imports step by step into one account, imports by every route, and many at once.

python -m bench.imports [--findings N] [--steps N] [--against FOLDER] [--dir DIR]
    [--only steps,routes,uploads] [--routes-findings N] [--uploads N] [--rounds N]

FOLDER is another checkout of this project, with which the steps take turns. Each step imports N findings more
into the same account.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import corpus, import_routes
from bench.measure import table

_SOURCE = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--findings", type=int, default=100_000, help="of each step")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--dir", type=Path, help="for the databases; emptied first")
    parser.add_argument("--only", default="steps,routes,uploads")
    parser.add_argument("--routes-findings", type=int, default=10_000)
    parser.add_argument("--uploads", type=int, default=50, help="at once")
    parser.add_argument("--rounds", type=int, default=3, help="of uploads and quiet times")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if "steps" in parts:
        _measure_steps(arguments)
    if "routes" in parts or "uploads" in parts:
        with tempfile.TemporaryDirectory(prefix="outcrop-bench-") as temporary:
            import_routes.measure(
                arguments.dir or Path(temporary),
                findings=arguments.routes_findings if "routes" in parts else 0,
                uploads=arguments.uploads if "uploads" in parts else 0,
                rounds=arguments.rounds,
            )


def _measure_steps(arguments: argparse.Namespace) -> None:
    """Import N findings in each step, by this checkout and by another one in turns."""
    checkouts = [_SOURCE, *([arguments.against.resolve()] if arguments.against else [])]
    with tempfile.TemporaryDirectory(prefix="outcrop-bench-") as temporary:
        folder = arguments.dir or Path(temporary)
        for checkout in checkouts:
            shutil.rmtree(_data(folder, checkout), ignore_errors=True)
            _outcrop(
                folder,
                checkout,
                "account",
                "create",
                "big",
                "--plan",
                "enterprise",
                "--email",
                "a@example.com",
            )
        rows = []
        for step in range(arguments.steps):
            file = folder / "step.jsonl"
            corpus.write_file(file, arguments.findings, seed=step)
            seconds = [_import(folder, checkout, file, arguments.findings) for checkout in checkouts]
            before = step * arguments.findings
            print(f"{before:,} findings before:", *(f"{taken:.1f} s" for taken in seconds), flush=True)
            rows.append(
                [
                    f"{before:,}",
                    *(f"{taken:.1f}" for taken in seconds),
                    *(f"{arguments.findings / taken:,.0f}" for taken in seconds),
                    f"{seconds[-1] / seconds[0]:.2f}",
                ]
            )
        names = ["here", "there"][: len(checkouts)]
        headings = ["findings before", *(f"seconds {name}" for name in names)]
        headings += [*(f"a second {name}" for name in names), "× there"]
        table(f"Import of {arguments.findings:,} findings, `outcrop import`", headings, rows)


def _import(folder: Path, checkout: Path, file: Path, count: int) -> float:
    """Import a file and return the seconds; exit unless all its findings are new."""
    start = time.perf_counter()
    output = _outcrop(folder, checkout, "import", "--account", "big", "--json", str(file))
    seconds = time.perf_counter() - start
    if json.loads(output)["new"] != count:
        raise SystemExit(f"not all findings are new: {output.decode()}")
    return seconds


def _outcrop(folder: Path, checkout: Path, *arguments: str) -> bytes:
    """Run `outcrop` from a checkout's sources, on a database of its own; return its output."""
    environment = os.environ | {
        "OUTCROP_DATA_DIR": str(_data(folder, checkout)),
        "PYTHONPATH": str(checkout / "src"),
    }
    command = [sys.executable, "-m", "outcrop", *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, check=False)
    if ran.returncode:
        raise SystemExit(f"outcrop {' '.join(arguments)}: {ran.stderr.decode()[-1000:]}")
    return ran.stdout


def _data(folder: Path, checkout: Path) -> Path:
    """Return the data folder of a checkout's database."""
    return folder / ("here" if checkout == _SOURCE else "there")


if __name__ == "__main__":
    main()
