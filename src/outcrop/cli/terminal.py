"""What `outcrop scan` shows to a person: how far it has come, and a table."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from outcrop.domain.line import one_line
from outcrop.domain.secret import reveal
from outcrop.services.local_scan import ScanReport
from outcrop.sources.located import ProgressCallback, ScanOutcome


@contextmanager
def progress() -> Iterator[ProgressCallback]:
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scanning")

        def told(outcome: ScanOutcome) -> None:
            history = f", {outcome.commits:,} commits" if outcome.commits else ""
            bar.update(task, description=f"{outcome.files:,} files, {outcome.size / 1e6:,.0f} MB{history}")

        yield told


@contextmanager
def asking() -> Iterator[Callable[[int, int], None]]:
    columns = (
        SpinnerColumn(),
        TextColumn("asking issuers"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("asking", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(report: ScanReport, *, show_secrets: bool, asked: bool) -> None:
    """Print a line for each finding, with the verdicts where issuers were asked, and a sum."""
    console = Console(
        width=None if sys.stdout.isatty() else 240,
        highlight=False,
        markup=False,
        soft_wrap=not sys.stdout.isatty(),
    )
    if report.findings:
        heads = [
            "score",
            *(["verdict"] if asked else []),
            "rule",
            "place",
            "commit",
            "credential",
            *(["because"] if asked else []),
        ]
        table = Table(*heads, box=None, pad_edge=False, header_style="bold")
        for finding in report.findings:
            fields = finding.fields
            table.add_row(
                f"{fields['composite_score']:.0f}",
                *([str(fields["validation_status"])] if asked else []),
                fields["rule"],
                Text(f"{fields['file_path'] or '(unreachable)'}:{fields['line_number']}", overflow="fold"),
                (fields["commit"] or "")[:10],
                Text(
                    one_line(reveal(finding.secret) if show_secrets else fields["matched_text"]),
                    overflow="fold",
                ),
                *([Text(_because(fields["validation_detail"]), overflow="fold")] if asked else []),
            )
        console.print(table)
    count, gaps = len(report.findings), len(report.gaps)
    told = f"{count} {'finding' if count == 1 else 'findings'} in {report.files:,} files, {report.size / 1e6:,.1f} MB"
    if asked and count:
        told += f"; {sum(finding.is_valid for finding in report.findings)} valid"
    print(told + (f"; {gaps} not scanned" if gaps else ""))


def _because(detail: dict[str, Any]) -> str:
    opens = ", ".join(detail["enabled_services"])
    return f"{detail['reason']}; opens {opens}" if opens else str(detail["reason"])
