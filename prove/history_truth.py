"""Compare findings with the truth about a repository or site."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prove.repositories import Repository
from prove.trial import Report

Seen = dict[tuple[str, str], str]  # (path, token) -> source type


def mask(token: str) -> str:
    """Return the token as the documents say that it is masked."""
    shown = min(4, len(token) // 8)
    return f"{token[:shown]}********{token[-shown:]}"


def compare(
    report: Report, which: str, findings: list[dict[str, Any]], truth: Seen, log: Sequence[str]
) -> None:
    """Check that the open findings are what git reaches, and that all others are resolved."""
    expected = {(path, mask(token)): kind for (path, token), kind in truth.items()}
    open_ = {
        (Path(f["file_path"]).as_posix(), f["matched_text"]): f["source_type"]
        for f in findings
        if f["status"] == "active"
    }
    changes = ", ".join(log)
    report.check(open_ == expected, f"{which}: {_difference(open_, expected)} after {changes}")
    others = {f["status"] for f in findings} - {"active", "resolved"}
    report.check(not others, f"{which}: findings are {others} after {changes}")


def compare_local(report: Report, which: str, output: str, truth: Seen, repository: Repository) -> None:
    """Check the output of a scan without an account."""
    found = {(f["file_path"], f["matched_text"]): f["source_type"] for f in json.loads(output or "[]")}
    expected = {(path, mask(token)): kind for (path, token), kind in truth.items()}
    report.check(
        found == expected, f"{which}: {_difference(found, expected)} after {', '.join(repository.log)}"
    )


def _difference(found: Seen, expected: Seen) -> str:
    """Describe how two results differ."""
    return (
        f"missing {sorted(expected.items() - found.items())[:5]},"
        f" too many {sorted(found.items() - expected.items())[:5]}"
    )
