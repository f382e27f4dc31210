"""Run a trial in a namespace of the kernel, so that what it changes is nobody else's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from prove.trial import NotTriedError, Report, Setting


def run_inside(kind: str, module: str, setting: Setting, report: Report) -> None:
    """Run `python -m MODULE` in a new namespace of a kind, `net` or `mount`, and add its report to `report`.

    Raise NotTriedError if the machine does not allow such a namespace.
    """
    enter = ["unshare", f"--{kind}"] + ([] if os.geteuid() == 0 else ["--user", "--map-root-user"])
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode:
        raise NotTriedError(f"{kind} namespaces are not allowed here")
    arguments = [str(setting.folder), str(setting.seed), str(setting.seconds), str(int(setting.short))]
    done = subprocess.run(
        [*enter, sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    inner = Report(**json.loads(done.stdout.splitlines()[-1]))
    report.tried += inner.tried
    report.failures += inner.failures
    report.not_tried += inner.not_tried
    report.counts |= inner.counts


def main(run: Callable[[Setting, Report], None]) -> None:
    """Run a trial with the arguments of `run_inside`; print its report as one line of JSON."""
    folder, seed, seconds, short = sys.argv[1:5]
    report = Report()
    setting = Setting(int(seed), float(seconds), Path(folder), short == "1")
    setting.folder.mkdir(parents=True, exist_ok=True)
    try:
        run(setting, report)
    except NotTriedError as reason:
        report.skip(str(reason))
    print(json.dumps(asdict(report)))
