"""What `outcrop scan` shows to a person: how far it has come, and a table."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from outcrop.domain.secret import reveal
from outcrop.services.local_scan import Report
from outcrop.sources.base import Outcome, Progress


@contextmanager
def progress() -> Iterator[Progress]:
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("scanning")

        def told(outcome: Outcome) -> None:
            history = f", {outcome.commits:,} commits" if outcome.commits else ""
            bar.update(task, description=f"{outcome.files:,} files, {outcome.size / 1e6:,.0f} MB{history}")

        yield told


def print_table(report: Report, *, show_secrets: bool) -> None:
    console = Console(width=None if sys.stdout.isatty() else 240, highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())
    if report.findings:
        table = Table("score", "rule", "place", "commit", "credential", box=None, pad_edge=False, header_style="bold")
        for finding in report.findings:
            fields = finding.fields
            table.add_row(
                f"{fields['composite_score']:.0f}",
                fields["rule"],
                Text(f"{fields['file_path'] or '(unreachable)'}:{fields['line_number']}", overflow="fold"),
                (fields["commit"] or "")[:10],
                Text(reveal(finding.secret) if show_secrets else fields["matched_text"], overflow="fold"),
            )
        console.print(table)
    count, gaps = len(report.findings), len(report.gaps)
    told = f"{count} {'finding' if count == 1 else 'findings'} in {report.files:,} files, {report.size / 1e6:,.1f} MB"
    print(told + (f"; {gaps} not scanned" if gaps else ""))
