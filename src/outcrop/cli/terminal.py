"""Terminal output of `outcrop scan`: progress bars and the table of findings."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from outcrop.cli.scan_summary import summarize
from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.services.local_scan import LocalFinding, ScanReport
from outcrop.sources.located import ProgressCallback, ScanOutcome


@contextmanager
def scan_progress() -> Iterator[ProgressCallback]:
    """Show the progress of a scan on stderr. Yield the callback that updates it."""
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scanning")

        def update(outcome: ScanOutcome) -> None:
            history = f", {outcome.commits:,} commits" if outcome.commits else ""
            bar.update(task, description=f"{outcome.files:,} files, {outcome.size / 1e6:,.0f} MB{history}")

        yield update


@contextmanager
def validation_progress() -> Iterator[Callable[[int, int], None]]:
    """Show the progress of validation on stderr. Yield a function that takes number done and total."""
    columns = (
        SpinnerColumn(),
        TextColumn("validating"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("validating", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(
    report: ScanReport, *, show_secrets: bool, validated: bool, file: TextIO | None = None
) -> None:
    """Print one row per finding, with verdicts if the findings were validated, and a summary.

    They are printed to stdout, or to a file.
    """
    is_terminal = file is None and sys.stdout.isatty()
    console = Console(
        file=file,
        width=None if is_terminal else 240,
        highlight=False,
        markup=False,
        soft_wrap=not is_terminal,
    )
    if report.findings:
        columns = ["score", "verdict", "rule", "place", "context", "commit", "credential", "because"]
        hidden = set() if validated else {"verdict", "because"}
        if all(finding.is_production for finding in report.findings):
            hidden.add("context")
        shown = [column for column in columns if column not in hidden]
        table = Table(*shown, box=None, pad_edge=False, header_style="bold")
        for finding in report.findings:
            cells = _cells(finding, show_secrets=show_secrets)
            table.add_row(*(cells[column] for column in shown))
        console.print(table)
    print(summarize(report, validated=validated), file=file)


def _cells(finding: LocalFinding, *, show_secrets: bool) -> dict[str, str | Text]:
    """Return the cells of a finding's row by column."""
    fields = finding.fields
    credential = reveal(finding.secret) if show_secrets else fields["matched_text"]
    detail = fields["validation_detail"]
    services = ", ".join(detail["enabled_services"])
    reason = str(detail.get("reason"))
    return {
        "score": f"{fields['composite_score']:.0f}",
        "verdict": str(fields["validation_status"]),
        "rule": fields["rule"],
        "place": Text(f"{fields['file_path'] or '(unreachable)'}:{fields['line_number']}", overflow="fold"),
        "context": str(fields["context"]),
        "commit": (fields["commit"] or "")[:10],
        "credential": Text(one_line(credential), overflow="fold"),
        "because": Text(f"{reason}; opens {services}" if services else reason, overflow="fold"),
    }
