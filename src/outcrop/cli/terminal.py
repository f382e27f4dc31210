"""The progress bars of `outcrop scan`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

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
