"""Run the checks and report each by name: passed, failed or not run.

Exit status: 0 if all passed, 1 if one failed, 3 if none failed but one did not run.
"""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


class Outcomes:
    """A plugin of pytest that keeps the outcome of each check, and why a check did not run."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rsplit("::", 1)[-1].removeprefix("test_").replace("_", " ")
        if report.failed:
            self.outcomes[name] = "failed"
        elif report.skipped:
            self.outcomes[name] = "not run"
            if isinstance(report.longrepr, tuple):
                self.reasons[name] = report.longrepr[2].removeprefix("Skipped: ")
        elif report.when == "call":
            self.outcomes[name] = "passed"

    def count(self, outcome: str) -> int:
        """Return the number of checks with this outcome."""
        return list(self.outcomes.values()).count(outcome)


def main(folder: Path) -> int:
    """Run the checks of a folder, print a line for each, and return the exit status."""
    seen = Outcomes()
    options = [
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
    ]
    status = pytest.main([*options, str(folder)], plugins=[seen])
    print()
    for name, outcome in seen.outcomes.items():
        print(f"{outcome:8} {name}" + (f" ({seen.reasons[name]})" if name in seen.reasons else ""))
    print(", ".join(f"{seen.count(outcome)} {outcome}" for outcome in ("passed", "failed", "not run")))
    if status is not pytest.ExitCode.OK:
        return 1  # also if nothing was collected
    return 3 if seen.count("not run") else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER))
