"""`outcrop scan --account`: scan targets for an account, in the foreground."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from outcrop.cli.session import OPERATOR, print_json, run, show, start
from outcrop.cli.streams import fail
from outcrop.domain.errors import BadInputError, DatabaseUnavailableError
from outcrop.domain.scan import ScanRun, ScanStatus, public_fields
from outcrop.domain.target import TargetKind, TargetSpec, scan_options
from outcrop.runtime import open_runtime
from outcrop.services import accounts
from outcrop.services.pipeline.foreground import run_in_foreground
from outcrop.settings import Settings
from outcrop.sources.code_host.targets import is_remote, read_target
from outcrop.sources.fork_pool import count_cores
from outcrop.store.db import find_unavailability
from outcrop.worker.run_context import open_run_context

_STATEMENT_TIMEOUT = 600.0


def scan_for_account(
    slug: str,
    targets: list[str],
    kind: str | None,
    *,
    host_url: str | None,
    discussions: bool,
    jobs: int,
    as_json: bool,
    validate: bool,
) -> None:
    """Scan the targets one after the other; each is a scan run. Print the runs; exit with 2 if one failed."""
    settings = start() if validate else replace(start(), validate_="off")
    specs = [_spec(target, kind, host_url, settings, discussions=discussions) for target in targets]
    try:
        runs = run(lambda: _main(settings, slug, specs, jobs or count_cores()))
    except DatabaseUnavailableError:
        raise
    except Exception as error:
        if find_unavailability(error) is None:
            raise
        fail("the connection to the database was lost; a worker continues the run when it is back")
    if as_json:
        print_json(
            [public_fields(finished) for finished in runs] if len(runs) > 1 else public_fields(runs[0])
        )
    else:
        for finished in runs:
            show(
                {name: value for name, value in public_fields(finished).items() if value not in (None, [])},
                as_json=False,
            )
    failed = [finished for finished in runs if finished.status is not ScanStatus.COMPLETED]
    if failed:
        fail(f"{failed[0].target}: {failed[0].error or failed[0].status}")


def _spec(
    target: str, kind: str | None, host_url: str | None, settings: Settings, *, discussions: bool
) -> TargetSpec:
    """Parse a target. A path is allowed here, since only an operator uses the command line."""
    chosen = TargetKind.REPOSITORY if kind == "git" else TargetKind(kind) if kind in set(TargetKind) else None
    if "://" not in target and not is_remote(target):
        path = Path(target)
        if not path.exists():
            raise BadInputError(f"{target}: no such file or folder")
        return TargetSpec(TargetKind.FOLDER, str(path.resolve()))
    found = read_target(target, chosen, host_url=host_url, web_host=settings.github_host)
    return TargetSpec(
        found.kind,
        found.name,
        options=scan_options(found.kind, discussions=discussions),
        host_url=found.host_url,
    )


async def _main(settings: Settings, slug: str, specs: list[TargetSpec], jobs: int) -> list[ScanRun]:
    """Run each target in the foreground and show its progress on a terminal."""
    async with open_runtime(settings, pool_size=jobs + 4, statement_timeout=_STATEMENT_TIMEOUT) as runtime:
        async with runtime.pool.connection() as db:
            account = await accounts.get_account(db, slug)
        with ExitStack() as stack:
            console = Console(stderr=True)
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            bar = stack.enter_context(
                Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
            )
            task = bar.add_task("planning")

            def update(current: ScanRun) -> None:
                figures = ", ".join(f"{value:,} {name}" for name, value in current.progress.items() if value)
                bar.update(task, description=current.waiting or f"{current.target}: {figures or 'planning'}")

            async with open_run_context(settings, runtime, jobs) as context:
                return [
                    await run_in_foreground(context, account, spec, update, by=OPERATOR) for spec in specs
                ]
