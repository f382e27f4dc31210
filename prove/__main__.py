"""`make prove`: run the trials and print a table.

Exit status: 0 if everything held, 1 if something failed, 3 if something was not tried.
"""

import argparse
import json
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prove.trial import NotTriedError, Report, Setting, Trial
from prove.trials import TRIALS

_SHORT_SECONDS = 3.0  # of the repeated part of each trial
_SHOWN = 20  # failures of one trial that are printed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that the arguments name; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends what was started
    return run(TRIALS, arguments)


def run(trials: Sequence[Trial], arguments: Sequence[str] | None) -> int:
    """Run those of these trials that the arguments name; return the exit status."""
    given = _parse(trials, arguments)
    chosen = _choose(trials, given.only, short=given.short)
    unit = given.minutes * 60 / sum(trial.weight for trial in chosen)
    results: list[dict[str, Any]] = []
    work = Path(tempfile.mkdtemp(prefix="prove-"))
    try:
        for trial in chosen:
            seconds = _SHORT_SECONDS if given.short else unit * trial.weight
            results.append(_run(trial, Setting(given.seed, seconds, work / trial.name, given.short)))
            _print_result(results[-1])
            if not given.keep:
                shutil.rmtree(work / trial.name, ignore_errors=True)
    finally:
        if given.keep:
            print(f"kept: {work}")
        else:
            shutil.rmtree(work, ignore_errors=True)
    _print_table(results, given.seed)
    if given.json:
        given.json.write_text(json.dumps({"seed": given.seed, "trials": results}, indent=1) + "\n")
    if any(result["failures"] for result in results):
        return 1
    return 3 if any(result["not_tried"] for result in results) else 0


def _parse(trials: Sequence[Trial], arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed arguments; exit with 2 and a message if one is wrong."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__)
    parser.add_argument("--short", action="store_true", help="some of the trials, for seconds each")
    parser.add_argument("--minutes", type=float, default=30.0, help="for all trials together; 30 by default")
    parser.add_argument("--only", default="", help="names of trials, with commas between them")
    parser.add_argument(
        "--seed", type=int, default=None, help="the seed of an earlier run; random by default"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the trials")
    given = parser.parse_args(arguments)
    if given.minutes <= 0:
        parser.error("--minutes must be more than 0")
    unknown = {name for name in given.only.split(",") if name} - {trial.name for trial in trials}
    if unknown:
        parser.error(f"no trial is called {', '.join(sorted(unknown))}")
    if given.seed is None:
        given.seed = secrets.randbelow(10**6)
    return given


def _choose(trials: Sequence[Trial], only: str, *, short: bool) -> list[Trial]:
    """Return the named trials, by default all; a short run leaves those out that take longer."""
    names = {name for name in only.split(",") if name}
    return [trial for trial in trials if (trial.name in names if names else trial.in_short or not short)]


def _run(trial: Trial, setting: Setting) -> dict[str, Any]:
    """Run one trial and return its row."""
    report, began = Report(), time.monotonic()
    try:
        trial.run(setting, report)
    except NotTriedError as reason:
        report.skip(str(reason))
    except Exception:  # noqa: BLE001 - a trial that breaks off has failed
        report.failures.append(traceback.format_exc())
    if not (report.tried or report.failures or report.not_tried):
        report.failures.append("the trial has tried nothing")
    return {
        "trial": trial.name,
        "tried": report.tried,
        "failed": len(report.failures),
        "not_tried": report.not_tried,
        "failures": report.failures,
        "counts": report.counts,
        "seconds": round(time.monotonic() - began, 1),
    }


def _print_result(result: dict[str, Any]) -> None:
    """Print what one trial did, its failures, and what it did not try."""
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(result["counts"].items()))
    print(f"{result['trial']}: {counts or 'done'} ({result['seconds']} s)")
    for failure in result["failures"][:_SHOWN]:
        print(f"  failed: {failure}")
    for reason in result["not_tried"]:
        print(f"  not tried: {reason}")
    sys.stdout.flush()


def _print_table(results: Sequence[dict[str, Any]], seed: int) -> None:
    """Print the table of all trials."""
    print(f"\n{'trial':<12} {'tried':>9} {'failed':>7} {'not tried':>10} {'seed':>8}  done")
    for result in results:
        counts = sorted(result["counts"].items(), key=lambda pair: (-pair[1], pair[0]))
        done = ", ".join(f"{number:,} {what}" for what, number in counts if not what.startswith("kills of"))
        print(
            f"{result['trial']:<12} {result['tried']:>9,} {result['failed']:>7,}"
            f" {len(result['not_tried']):>10,} {seed:>8}  {done}"
        )


if __name__ == "__main__":
    sys.exit(main())
